"""The settings of a state machine as the processor. The construct sets them as environment variables."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.settings import STATE_MACHINE, STOP_OVERTAKEN, Variable, settings_from, variable_of

_ARN = re.compile(r"arn:[\w-]+:states:[\w-]+:\d{12}:stateMachine:[^:]{1,80}")


def _arn(name: str, text: str) -> str:
    if not _ARN.fullmatch(text):
        raise SettingsError(f"{name} is {text!r}, expected the ARN of a state machine")
    return text


@dataclass(frozen=True, slots=True)
class ExecutionSettings:
    """The state machine that processes the changes, and its times in seconds."""

    machine: Annotated[str, Variable(STATE_MACHINE, parse=_arn)]
    """The ARN of the state machine."""
    execution_seconds: Annotated[int, Variable("INTAKE_EXECUTION_SECONDS", 1)]
    """The limit of an execution."""
    longest_task_seconds: Annotated[int, Variable("INTAKE_LONGEST_TASK_SECONDS", 1)]
    """The longest time for which a task runs on after its execution was aborted or timed out."""
    stop_overtaken: Annotated[bool, Variable(STOP_OVERTAKEN)] = False
    """Stop an execution when a newer state of its key comes."""

    @property
    def executions(self) -> str:
        """The ARN of an execution, without its name."""
        return self.machine.replace(":stateMachine:", ":execution:", 1) + ":"


def execution_settings(environment: Mapping[str, str]) -> ExecutionSettings:
    """Read the settings.

    Raises:
        SettingsError: A variable is missing or malformed.

    """
    limit, longest = (variable_of(ExecutionSettings, name) for name in ("execution_seconds", "longest_task_seconds"))
    return settings_from(ExecutionSettings, {longest: environment.get(limit, ""), **environment})
