"""Asks Step Functions whether the execution of a row runs, so that the audit leaves it alone.

The lease of such a row may have ended: it is extended at each poll, and a poll waits for its message.
"""

from collections.abc import Callable, Mapping
from typing import Any

from intake_ledger.executions import StateMachine, execution_name
from intake_ledger.protocol import STATE_MACHINE, Row, RowKey, execution_settings

IsExecuting = Callable[[RowKey, Row], bool]
"""True if an execution processes the row now. Raises ClientError if Step Functions refuses the request."""


def executing(environment: Mapping[str, str], make_client: Callable[[], Any]) -> IsExecuting | None:
    """The question to Step Functions, or None if the processor is not a state machine.

    Args:
        environment: the variables of the audit's function.
        make_client: makes the client of Step Functions, at the first question.

    Raises:
        SettingsError: A variable of the state machine is malformed.

    """
    if STATE_MACHINE not in environment:
        return None
    machine = StateMachine(make_client, execution_settings(environment))

    def is_executing(key: RowKey, row: Row) -> bool:
        execution = machine.describe(execution_name(key, row.fence))
        return execution is not None and not execution.has_ended

    return is_executing
