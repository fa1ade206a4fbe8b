"""The settings of a worker outside of Lambda, in environment variables."""

from dataclasses import dataclass
from typing import Annotated

from intake_ledger.protocol.settings import Variable

MAX_POLL_SECONDS = 20
"""The longest wait of SQS's `ReceiveMessage`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The settings of a worker outside of Lambda, in addition to the consumer's."""

    hold_seconds: Annotated[int, Variable("INTAKE_WORKER_HOLD_SECONDS", 3)] = 60
    """The time after which another worker takes over the work of one that died. A heartbeat extends leases and the
    visibility of messages three times in it."""
    poll_seconds: Annotated[int, Variable("INTAKE_WORKER_POLL_SECONDS", 0, MAX_POLL_SECONDS)] = 20
    """The longest wait for messages in one request."""
