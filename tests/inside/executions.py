"""Parts of the consumer whose work ends later, in an execution of a state machine."""

from intake_ledger.executions.answer import commit_of
from intake_ledger.runners.later import Later, LaterClaim
