"""The consumer's log group: attempts of objects, operations of people, and Lambda's lines about failed invocations."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from botocore.exceptions import ClientError

from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.errors import denied_action
from intake_ledger_cli.show.formatting import timestamp

if TYPE_CHECKING:
    from intake_ledger_cli.act.operations import Operation

OPERATIONS_STREAM = "operations"
"""The log stream of the operations of people. The name of a function's own stream begins with a date."""
_CONSOLES = {"aws-cn": "console.amazonaws.cn", "aws-us-gov": "console.amazonaws-us-gov.com"}
_LONGEST_PATTERN = 1_024
"""CloudWatch's limit of a filter pattern."""
ERRORS = '?"[ERROR]" ?"Task timed out" ?"Runtime exited" ?"Status: timeout" ?"Status: error"'
"""Lambda's own lines about failed invocations. Its runtime writes `[ERROR]` before each exception that no code caught:
syntax errors, missing modules and variables. The lines of the consumer are JSON."""
_ERROR_REQUESTS = 3
"""The largest number of requests for lines."""
_START = re.compile(
    r"Runtime\.(ImportModuleError|UserCodeSyntaxError|HandlerNotFound)|^INIT_REPORT|"
    r"\[ERROR\] (ModuleNotFoundError|ImportError|SyntaxError|IndentationError|SettingsError)|in make_consumer\b"
)
"""Lines about a start. Lambda reports only failed ones. The first invocation of an environment makes the consumer and
imports the processor."""
_MOST_TEXT = 300


@dataclass(frozen=True, slots=True)
class LogGroup:
    """A log group, with links to its lines in the console of CloudWatch. Times are in epoch milliseconds."""

    aws: Aws
    name: str

    def lines(self, pattern: str, start: int, end: int) -> str:
        """Return the link to all lines that match a pattern."""
        return f"{self._page}{_encoded(f'?filterPattern={quote(pattern, safe="")}&start={start}&end={end}')}"

    def line(self, event: Mapping[str, Any]) -> str:
        """Return the link to one line, as `LogSearch` yields it."""
        place = f"?start={event['timestamp']}&refEventId={event.get('eventId', '')}"
        return f"{self._page}/{_encoded(quote(event['logStreamName'], safe=''))}{_encoded(place)}"

    @property
    def _page(self) -> str:
        host, region = _CONSOLES.get(self.aws.partition, "console.aws.amazon.com"), self.aws.region
        place = f"https://{region}.{host}/cloudwatch/home?region={region}"
        return f"{place}#logsV2:log-groups/log-group/{_encoded(quote(self.name, safe=''))}/log-events"


@dataclass(slots=True)
class LogSearch:
    """A search of a log group in a bounded number of requests."""

    group: LogGroup
    pattern: str
    left: int
    """The number of requests that may still be sent."""
    stopped: bool = False
    """True if lines may follow that were not read."""

    def events(self, start: int, end: int) -> Iterator[Mapping[str, Any]]:
        """Yield the lines between two times, as CloudWatch Logs describes them.

        Raises:
            ClientError: CloudWatch Logs refuses a request.

        """
        request = {
            "logGroupName": self.group.name,
            "filterPattern": self.pattern,
            "startTime": start,
            "endTime": end,
        }
        while self.left:
            self.left -= 1
            answer = self.group.aws.logs.filter_log_events(**request)
            yield from answer.get("events", ())
            if "nextToken" not in answer:
                return
            request["nextToken"] = answer["nextToken"]
        self.stopped = True


def key_pattern(key: str) -> str:
    """Return the filter pattern of the lines about a key.

    An asterisk in the key matches any text, and a long key is cut: the reader of the lines compares their keys.
    """
    end = len(key)
    while True:
        text = key[:end].replace("\\", "\\\\").replace('"', '\\"')
        pattern = f'{{ $.key = "{text}{"" if end == len(key) else "*"}" }}'
        if len(pattern.encode()) <= _LONGEST_PATTERN:
            return pattern
        end -= 1


def _encoded(text: str) -> str:
    """Encode a part of the address as the console does: percent-encoded, with dollar signs."""
    return quote(text, safe="").replace("%", "$")


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
    """Find invocations of the consumer that failed as a whole: code that cannot be loaded, deaths and timeouts.

    Such an invocation claims nothing, so that neither rows nor the metrics of the ledger show it. Lambda counts it, and
    writes a line. A log that may not be read is no error.
    """
    group, number = LogGroup(aws, ""), 0
    last: dict[str, tuple[int, str]] = {}
    try:
        group = LogGroup(aws, group_name(aws, deployed))
        search = LogSearch(group, ERRORS, _ERROR_REQUESTS)
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
        _START.search(text) is not None,
        group.lines(ERRORS, since, now),
    )


def _repeats(before: str, text: str) -> bool:
    """Return True for a line of Lambda that adds nothing to the line before it, of the same environment.

    An error of a start is followed by a report of its phase, and a start that timed out by the line of its invocation.
    """
    is_report = text.startswith("INIT_REPORT")
    return _START.search(before) is not None and (is_report or ("Task timed out" in text and "INIT_REPORT" in before))


def group_name(aws: Aws, deployed: DeployedPipeline, function: str = "") -> str:
    """Return the name of the log group of a function, or of the consumer."""
    function = function or deployed.consumer_function
    settings: Any = aws.functions.get_function_configuration(FunctionName=function)
    return settings.get("LoggingConfig", {}).get("LogGroup") or f"/aws/lambda/{function}"


def write_operation(
    aws: Aws, deployed: DeployedPipeline, operation: "Operation", *, at: int, forgotten_at: int = 0
) -> str:
    """Write one line about an operation, in the form of the consumer's lines.

    Args:
        aws: the clients.
        deployed: the pipeline.
        operation: the operation.
        at: epoch milliseconds.
        forgotten_at: the time in the marker of a forgotten key, in epoch milliseconds.

    Returns:
        Why the line was not written. Empty if it was.

    """
    line = {
        "level": "INFO",
        "message": "operation",
        "service": deployed.name,
        "timestamp": timestamp(at),
        "begun_at": timestamp(operation.at),
        "done_by": operation.by,
        "what": operation.what,
        "because": operation.because,
        "result": operation.result,
        "forgotten_at": forgotten_at,
    }
    events = [{"timestamp": at, "message": json.dumps({name: value for name, value in line.items() if value})}]
    group = ""
    try:
        group = group_name(aws, deployed)
        _put(aws.logs, group, events)
    except ClientError as error:
        return refusal(error, group)
    return ""


def refusal(error: ClientError, group: str) -> str:
    """Return why CloudWatch Logs refused a request about a group."""
    if (action := denied_action(error)) is not None:
        return f"not allowed: {action}"
    code = error.response["Error"].get("Code", "an error")
    if code == "ResourceNotFoundException":
        return f"there is no log group {group}"
    return f"CloudWatch Logs answered {code}"


def _put(client: Any, group: str, events: list[dict[str, Any]]) -> None:
    """Write lines. The first operation creates the stream."""
    place = {"logGroupName": group, "logStreamName": OPERATIONS_STREAM}
    try:
        client.put_log_events(**place, logEvents=events)
    except client.exceptions.ResourceNotFoundException:
        with suppress(client.exceptions.ResourceAlreadyExistsException):  # another person created it
            client.create_log_stream(**place)
        client.put_log_events(**place, logEvents=events)
