"""The settings of a worker outside of Lambda, in environment variables."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.settings import Variable, settings_from, variable_of

MAX_POLL_SECONDS = 20
"""The longest wait of SQS's `ReceiveMessage`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The settings of a worker outside of Lambda, in addition to the consumer's."""

    hold_seconds: Annotated[int, Variable("INTAKE_WORKER_HOLD_SECONDS", 3)] = 60
    """The time after which another worker takes over the work of one that died. A heartbeat extends leases and the
    visibility of messages three times in it."""
    poll_seconds: Annotated[int, Variable("INTAKE_WORKER_POLL_SECONDS")] = 20
    """The longest wait for messages in one request."""


def worker_settings(environment: Mapping[str, str]) -> WorkerSettings:
    """Read the settings of a worker.

    Raises:
        SettingsError: A variable is malformed.

    """
    settings = settings_from(WorkerSettings, environment)
    if (poll := settings.poll_seconds) > MAX_POLL_SECONDS:
        name = variable_of(WorkerSettings, "poll_seconds")
        raise SettingsError(f"{name} is {poll}, expected 0 to {MAX_POLL_SECONDS}, SQS's limit")
    return settings
