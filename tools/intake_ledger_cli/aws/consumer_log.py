"""The consumer's log group, where the attempts of objects and the operations of people are read side by side."""

import json
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
