"""The settings of a durable function as the processor. The construct sets them as environment variables."""

import re
from dataclasses import dataclass
from typing import Annotated

from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.settings import DURABLE_FUNCTION, STOP_OVERTAKEN, Variable

_ARN = re.compile(r"(arn:[\w-]+:lambda:[\w-]+:\d{12}:function:)([\w-]{1,64}):([\w-]{1,128})")
_EVENT_AGE = 60, 6 * 3600
"""Seconds. MaximumEventAgeInSeconds of PutFunctionEventInvokeConfig."""


def _arn(name: str, text: str) -> str:
    if not _ARN.fullmatch(text):
        raise SettingsError(f"{name} is {text!r}, expected the ARN of a version or an alias of a durable function")
    return text


@dataclass(frozen=True, slots=True)
class DurableSettings:
    """The durable function that processes the changes, and its times in seconds."""

    function: Annotated[str, Variable(DURABLE_FUNCTION, parse=_arn)]
    """The ARN of a published version or of an alias."""
    execution_seconds: Annotated[int, Variable("INTAKE_DURABLE_EXECUTION_SECONDS", 1)]
    """The limit of an execution."""
    longest_invocation_seconds: Annotated[int, Variable("INTAKE_DURABLE_INVOCATION_SECONDS", 1)]
    """The timeout of one invocation. A stopped execution may write for that time."""
    event_age_seconds: Annotated[int, Variable("INTAKE_DURABLE_EVENT_AGE_SECONDS", *_EVENT_AGE)]
    """The longest time for which Lambda queues an accepted start."""
    stop_overtaken: Annotated[bool, Variable(STOP_OVERTAKEN)] = False
    """Stop an execution when a newer state of its key comes."""
