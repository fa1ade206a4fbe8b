"""Measures the age of the queue's messages. The audit leaves states to messages that may still report them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from intake_ledger.audit.diff import Window

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_METRIC_WINDOW = timedelta(minutes=10)
_METRIC_DELAY_SECONDS = 300
"""Highest age of CloudWatch's newest value. The oldest message has become older by this time."""
_FIRST_METRIC_SECONDS = 900
"""Longest time until CloudWatch has a value of a queue that was idle."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The messages that wait in the queue. `oldest_seconds` is None if their age is unknown."""

    waiting: int
    oldest_seconds: int | None

    @property
    def unknown(self) -> bool:
        """True if messages of unknown age wait."""
        return self.waiting > 0 and self.oldest_seconds is None


def look(sqs: "SQSClient", make_cloudwatch: Callable[[], Any], queue_url: str, *, now: int) -> Backlog:
    """The queue's backlog. `now` is in epoch milliseconds.

    Messages in flight do not count: a busy queue always has some, and most of their rows show a worker. A state whose
    message was returned without a claim may be found and sent a second time. It is processed once.
    """
    names: Any = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed"]
    numbers = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=names)["Attributes"]
    waiting = sum(int(numbers.get(name, 0)) for name in names)
    return Backlog(waiting, _oldest_seconds(make_cloudwatch, queue_url, now) if waiting else 0)


def _oldest_seconds(make_cloudwatch: Callable[[], Any], queue_url: str, now: int) -> int | None:
    end = datetime.fromtimestamp(now / 1000, UTC)
    try:
        points = make_cloudwatch().get_metric_statistics(
            Namespace="AWS/SQS",
            MetricName="ApproximateAgeOfOldestMessage",
            Dimensions=[{"Name": "QueueName", "Value": queue_url.rpartition("/")[2]}],
            StartTime=end - _METRIC_WINDOW,
            EndTime=end,
            Period=60,
            Statistics=["Maximum"],
        )["Datapoints"]
    except (BotoCoreError, ClientError):
        # A missing permission, or no route from this VPC. The age is unknown.
        return None
    if not points:
        # CloudWatch has no value only for a queue that was idle for hours until now.
        return _FIRST_METRIC_SECONDS
    return int(max(point["Maximum"] for point in points)) + _METRIC_DELAY_SECONDS


def narrowed(window: Window, backlog: Backlog, *, now: int) -> Window:
    """The window without the states that messages of this backlog may report. `now` is in epoch milliseconds."""
    oldest_at = now - (backlog.oldest_seconds or 0) * 1000
    undated = oldest_at >= window.settled_before
    return replace(window, settled_before=min(window.settled_before, oldest_at), undated=undated)


def reason(backlog: Backlog, *, settle_seconds: int) -> str:
    """The reason why some states are not judged or not sent. Empty if there is none."""
    if backlog.unknown:
        return (
            f"{backlog.waiting:,} messages wait in the queue, and how long is not known: nothing resubmitted, the next "
            "run will if they are gone"
        )
    if (backlog.oldest_seconds or 0) > settle_seconds:
        hours = (backlog.oldest_seconds or 0) / 3600
        return f"the queue is {hours:.1f} hours behind: what is younger, or has no date, is left to its messages"
    return ""
