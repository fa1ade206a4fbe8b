"""The settings of a worker outside of Lambda, in environment variables."""

from collections.abc import Mapping
from dataclasses import dataclass

from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.settings import SettingsReader

MAX_POLL_SECONDS = 20
"""The longest wait of SQS's `ReceiveMessage`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The settings of a worker outside of Lambda, in addition to the consumer's."""

    hold_seconds: int = 60
    """The time after which another worker takes over the work of one that died. A heartbeat extends leases and the
    visibility of messages three times in it."""
    poll_seconds: int = 20
    """The longest wait for messages in one request."""


def worker_settings(environment: Mapping[str, str]) -> WorkerSettings:
    """Read the settings of a worker.

    Raises:
        SettingsError: A variable is malformed.

    """
    read = SettingsReader(environment)
    hold, poll = read.whole("INTAKE_WORKER_HOLD_SECONDS", 3, "60"), read.whole("INTAKE_WORKER_POLL_SECONDS", 0, "20")
    if poll > MAX_POLL_SECONDS:
        raise SettingsError(f"INTAKE_WORKER_POLL_SECONDS is {poll}, expected 0 to {MAX_POLL_SECONDS}, SQS's limit")
    return WorkerSettings(hold_seconds=hold, poll_seconds=poll)
