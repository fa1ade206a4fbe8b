"""Work that answers later: names and inputs of executions, the requests to their place, and the next step."""

from typing import TYPE_CHECKING, Any

from intake_ledger.executions.answer import commit_of
from intake_ledger.executions.decide import (
    ABORTED,
    MIN_POLL_MS,
    OVERTAKEN,
    RUNNING,
    STOPPED,
    Action,
    Decision,
    Execution,
    decide,
    execution_name,
    poll_ms,
)
from intake_ledger.executions.state_machine import StateMachine, is_refused, is_throttled

if TYPE_CHECKING:
    from intake_ledger.executions.durable_function import DurableFunction
    from intake_ledger.executions.place import place_of
else:

    def __getattr__(name: str) -> Any:
        """Import these at their first use. The command's help needs them not."""
        if name == "DurableFunction":
            from intake_ledger.executions.durable_function import DurableFunction  # noqa: PLC0415

            return DurableFunction
        if name == "place_of":
            from intake_ledger.executions.place import place_of  # noqa: PLC0415

            return place_of
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ABORTED",
    "MIN_POLL_MS",
    "OVERTAKEN",
    "RUNNING",
    "STOPPED",
    "Action",
    "Decision",
    "DurableFunction",
    "Execution",
    "StateMachine",
    "commit_of",
    "decide",
    "execution_name",
    "is_refused",
    "is_throttled",
    "place_of",
    "poll_ms",
]
