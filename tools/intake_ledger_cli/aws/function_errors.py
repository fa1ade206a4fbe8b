"""Finds invocations of the consumer that failed as a whole: code that cannot be loaded, deaths and timeouts.

Such an invocation claims nothing, so that neither rows nor the metrics of the ledger show it. Lambda counts it, and
writes a line.
"""

import re
from dataclasses import dataclass

from botocore.exceptions import ClientError

from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.consumer_log import LogGroup, LogSearch, group_name, refusal
from intake_ledger_cli.aws.deployed import DeployedPipeline

PATTERN = '?"[ERROR]" ?"Task timed out" ?"Runtime exited" ?"Status: timeout" ?"Status: error"'
"""Lambda's own lines about failed invocations. Its runtime writes `[ERROR]` before each exception that no code caught:
syntax errors, missing modules and variables. The lines of the consumer are JSON."""
REQUESTS = 3
"""The largest number of requests for lines."""
START = re.compile(
    r"Runtime\.(ImportModuleError|UserCodeSyntaxError|HandlerNotFound)|^INIT_REPORT|"
    r"\[ERROR\] (ModuleNotFoundError|ImportError|SyntaxError|IndentationError|SettingsError)|in make_consumer\b"
)
"""Lines about a start. Lambda reports only failed ones. The first invocation of an environment makes the consumer and
imports the processor."""
_MOST_TEXT = 300


@dataclass(frozen=True, slots=True)
class FunctionErrors:
    """The lines about failed invocations since a time. Times are in epoch milliseconds."""

    number: int
    """Starts and invocations that failed."""
    more: bool = False
    """True if the search stopped before the end."""
    last_at: int | None = None
    text: str = ""
    """The line about the last one."""
    at_start: bool = False
    """True if the function could not start. Only a deployment ends that."""
    link: str = ""
    why: str = ""
    """Why the log was not searched. Empty if it was."""


def read_errors(aws: Aws, deployed: DeployedPipeline, since: int, now: int) -> FunctionErrors:
    """Search the consumer's log. A log that may not be read is no error."""
    group, number = LogGroup(aws, ""), 0
    last: dict[str, tuple[int, str]] = {}
    try:
        group = LogGroup(aws, group_name(aws, deployed))
        search = LogSearch(group, PATTERN, REQUESTS)
        for event in search.events(since, now):
            stream, text = event["logStreamName"], " ".join(str(event["message"]).split())
            before = last.get(stream, (0, ""))[1]
            repeated = _repeats(before, text)
            number += not repeated
            last[stream] = event["timestamp"], before if repeated else text
    except ClientError as error:
        return FunctionErrors(0, why=refusal(error, group.name))
    if not last:
        return FunctionErrors(0, search.stopped)
    last_at, text = max(last.values())
    return FunctionErrors(
        number,
        search.stopped,
        last_at,
        text[:_MOST_TEXT],
        START.search(text) is not None,
        group.lines(PATTERN, since, now),
    )


def _repeats(before: str, text: str) -> bool:
    """Return True for a line of Lambda that adds nothing to the line before it, of the same environment.

    An error of a start is followed by a report of its phase, and a start that timed out by the line of its invocation.
    """
    is_report = text.startswith("INIT_REPORT")
    return START.search(before) is not None and (is_report or ("Task timed out" in text and "INIT_REPORT" in before))
