"""Links to the lines of a log group in the console of CloudWatch."""

from dataclasses import dataclass
from urllib.parse import quote

from botocore.exceptions import UnknownRegionError

_CONSOLES = {
    "aws": "console.aws.amazon.com",
    "aws-cn": "console.amazonaws.cn",
    "aws-us-gov": "console.amazonaws-us-gov.com",
}
_LONGEST_PATTERN = 1_024
"""CloudWatch's limit of a filter pattern."""


@dataclass(frozen=True, slots=True)
class LogGroup:
    """A log group."""

    name: str
    region: str

    def lines(self, pattern: str, start: int, end: int) -> str:
        """Return the link to all lines that match a pattern. Times are in epoch milliseconds."""
        return f"{self._page}{_encoded(f'?filterPattern={quote(pattern, safe="")}&start={start}&end={end}')}"

    def line(self, stream: str, event_id: str, at: int) -> str:
        """Return the link to one line. `at` is its time in epoch milliseconds."""
        return f"{self._page}/{_encoded(quote(stream, safe=''))}{_encoded(f'?start={at}&refEventId={event_id}')}"

    @property
    def _page(self) -> str:
        host = _CONSOLES.get(_partition(self.region), _CONSOLES["aws"])
        place = f"https://{self.region}.{host}/cloudwatch/home?region={self.region}"
        return f"{place}#logsV2:log-groups/log-group/{_encoded(quote(self.name, safe=''))}/log-events"


def key_pattern(key: str) -> str:
    """Return the filter pattern of the lines about a key.

    An asterisk in the key matches any text, and a long key is cut: the reader of the lines compares their keys.
    """
    for end in range(len(key), 0, -1):
        text = key[:end].replace("\\", "\\\\").replace('"', '\\"')
        pattern = f'{{ $.key = "{text}{"" if end == len(key) else "*"}" }}'
        if len(pattern.encode()) <= _LONGEST_PATTERN:
            return pattern
    return '{ $.key = "*" }'


def _partition(region: str) -> str:
    import boto3  # noqa: PLC0415 - as for the clients

    try:
        return boto3.Session().get_partition_for_region(region)
    except UnknownRegionError:
        return "aws"


def _encoded(text: str) -> str:
    """Encode a part of the address as the console does: percent-encoded, with dollar signs."""
    return quote(text, safe="").replace("%", "$")
