"""Work that answers later: names and inputs of executions, the requests to their place, and the next step."""

from intake_ledger.executions.answer import commit_of
from intake_ledger.executions.decide import Action, Decision, Execution, decide, execution_name, poll_ms
from intake_ledger.executions.durable_function import DurableFunction
from intake_ledger.executions.place import place_of
from intake_ledger.executions.state_machine import StateMachine, is_refused, is_throttled

__all__ = [
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
