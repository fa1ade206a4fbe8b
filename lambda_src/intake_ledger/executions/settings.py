"""The settings of a state machine as the processor. The construct sets them as environment variables."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from intake_ledger.protocol import SettingsError

_ARN = re.compile(r"arn:[\w-]+:states:[\w-]+:\d{12}:stateMachine:[^:]{1,80}")


@dataclass(frozen=True, slots=True)
class ExecutionSettings:
    """The state machine that processes the changes, and its times in seconds."""

    machine: str
    """The ARN of the state machine."""
    execution_seconds: int
    """The limit of an execution."""
    longest_task_seconds: int
    """The longest time for which a task runs on after its execution was aborted or timed out."""

    @property
    def executions(self) -> str:
        """The ARN of an execution, without its name."""
        return self.machine.replace(":stateMachine:", ":execution:", 1) + ":"


def execution_settings(environment: Mapping[str, str]) -> ExecutionSettings:
    """Read the settings.

    Raises:
        SettingsError: A variable is missing or malformed.

    """
    machine = environment.get("INTAKE_STATE_MACHINE", "")
    if not _ARN.fullmatch(machine):
        raise SettingsError(f"INTAKE_STATE_MACHINE is {machine!r}, expected the ARN of a state machine")
    limit = _seconds(environment, "INTAKE_EXECUTION_SECONDS")
    longest = "INTAKE_LONGEST_TASK_SECONDS"
    return ExecutionSettings(machine, limit, _seconds(environment, longest) if environment.get(longest) else limit)


def _seconds(environment: Mapping[str, str], name: str) -> int:
    value = environment.get(name, "")
    if not value.isascii() or not value.isdecimal() or int(value) < 1:
        raise SettingsError(f"{name} is {value!r}, expected a whole number of at least 1")
    return int(value)
