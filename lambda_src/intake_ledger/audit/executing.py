"""Asks whether the execution of a row runs, so that the audit leaves it alone.

The lease of such a row may have ended: it is extended at each poll, and a poll waits for its message.
"""

from collections.abc import Callable, Mapping
from typing import Any

from intake_ledger.executions.decide import Action, decide, execution_name
from intake_ledger.executions.place import place_of
from intake_ledger.protocol.row import Row, RowKey
from intake_ledger.protocol.settings import elsewhere_of

IsExecuting = Callable[[RowKey, Row], bool]
"""True if an execution processes the row now, its start waits, or tasks of a stopped one may run. Raises ClientError if
AWS refuses the request."""


def executing(
    environment: Mapping[str, str], make_client: Callable[[str], Any], table: str, clock: Callable[[], int]
) -> IsExecuting | None:
    """The question about an execution, or None if the processor answers in a call.

    Args:
        environment: the variables of the audit's function.
        make_client: makes the client of a service, at the first question.
        table: the ledger's table.
        clock: gives epoch milliseconds.

    Raises:
        SettingsError: A variable of the processor is malformed.

    """
    if elsewhere_of(environment) is None:
        return None
    place = place_of(environment, lambda service: lambda: make_client(service), table, clock)

    def is_executing(key: RowKey, row: Row) -> bool:
        execution = place.describe(execution_name(key, row.fence), row.execution)
        if execution is None or not execution.has_ended:
            return execution is not None
        # No attempt may begin before the tasks of a stopped one have ended. The messages of the key wait for that.
        decision = decide(row, execution, now=clock(), longest_task_ms=place.longest_task_ms)
        return execution.stopped_at is not None and decision.action is Action.WAIT

    return is_executing
