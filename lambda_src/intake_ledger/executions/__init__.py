"""A state machine as the processor: names and inputs of executions, requests to Step Functions, and the next step."""

from intake_ledger.executions.answer import commit_of
from intake_ledger.executions.decide import Action, Decision, Execution, decide, execution_name, poll_ms
from intake_ledger.executions.state_machine import StateMachine, is_refused, is_throttled

__all__ = [
    "Action",
    "Decision",
    "Execution",
    "StateMachine",
    "commit_of",
    "decide",
    "execution_name",
    "is_refused",
    "is_throttled",
    "poll_ms",
]
