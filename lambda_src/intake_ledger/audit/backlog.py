"""How far the queue is behind: what a waiting message may still bring is not lost."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from intake_ledger.audit.diff import Window

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

_METRIC_WINDOW = timedelta(minutes=10)
_METRIC_DELAY_SECONDS = 300
"""CloudWatch's newest value may be this old; the oldest message is older by as much."""
_FIRST_METRIC_SECONDS = 900
"""How long it may take until CloudWatch shows anything of a queue that was idle."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """The messages that nobody has received yet. `oldest_seconds` is None where nobody says how old they are."""

    waiting: int
    oldest_seconds: int | None

    @property
    def unknown(self) -> bool:
        """Whether a waiting message may be of any age."""
        return self.waiting > 0 and self.oldest_seconds is None


def look(sqs: "SQSClient", make_cloudwatch: Callable[[], Any], queue_url: str, *, now: int) -> Backlog:
    """The queue's backlog. `now` is in epoch milliseconds.

    Messages in flight are not counted: there always are some, and the rows of most show that somebody is at them. What
    was given back unclaimed may be found and sent a second time; it is processed once.
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
        # Not allowed, or no way there from this VPC: then only an empty queue is known to be up to date.
        return None
    if not points:
        # There is none only while a queue that had been idle for hours comes to life.
        return _FIRST_METRIC_SECONDS
    return int(max(point["Maximum"] for point in points)) + _METRIC_DELAY_SECONDS


def window(
    backlog: Backlog,
    *,
    now: int,
    settle_seconds: int,
    known_since: int,
    removals_since: int | None = None,
    baseline: int = 0,
) -> Window:
    """What may be judged: nothing that a message of this backlog may still bring. Times are epoch milliseconds."""
    oldest = backlog.oldest_seconds or 0
    return Window(
        settled_before=now - max(settle_seconds, oldest) * 1000,
        known_since=known_since,
        undated=oldest <= settle_seconds,
        removals_since=removals_since,
        baseline=baseline,
    )


def reason(backlog: Backlog, *, settle_seconds: int) -> str:
    """Why not everything was judged, in words; empty when everything was."""
    if backlog.unknown:
        return (
            f"{backlog.waiting:,} messages wait in the queue, and how long is not known: nothing resubmitted, the next "
            "run will if they are gone"
        )
    if (backlog.oldest_seconds or 0) > settle_seconds:
        hours = (backlog.oldest_seconds or 0) / 3600
        return f"the queue is {hours:.1f} hours behind: what is younger, or has no date, is left to its messages"
    return ""
