"""F31: a state that a message in the queue may report is not lost."""

from datetime import UTC, datetime
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError

from intake_ledger.audit import backlog as audit_backlog
from intake_ledger.audit.backlog import Backlog
from intake_ledger.audit.diff import Window
from tests.unit.support import MINUTE, START

QUEUE = "https://sqs.eu-central-1.amazonaws.com/111122223333/Messages"


class Queue:
    def __init__(self, visible: int, delayed: int = 0) -> None:
        self.numbers = {
            "ApproximateNumberOfMessages": str(visible),
            "ApproximateNumberOfMessagesDelayed": str(delayed),
            "ApproximateNumberOfMessagesNotVisible": "5",
        }

    def get_queue_attributes(self, **request: Any) -> dict[str, dict[str, str]]:
        assert request["QueueUrl"] == QUEUE
        return {"Attributes": {name: self.numbers[name] for name in request["AttributeNames"]}}


class CloudWatch:
    def __init__(self, *ages: float, error: Exception | None = None) -> None:
        self.ages, self.error = ages, error
        self.requests: list[dict[str, Any]] = []

    def get_metric_statistics(self, **request: Any) -> dict[str, Any]:
        self.requests.append(request)
        if self.error:
            raise self.error
        return {"Datapoints": [{"Maximum": age} for age in self.ages]}


def look(queue: Queue, cloudwatch: CloudWatch) -> Backlog:
    return audit_backlog.look(cast("Any", queue), lambda: cloudwatch, QUEUE, now=START)


def test_an_empty_queue_is_up_to_date() -> None:
    """CloudWatch is not even asked; there always are messages in flight."""
    cloudwatch = CloudWatch(1.0)
    assert look(Queue(0), cloudwatch) == Backlog(0, 0)
    assert cloudwatch.requests == []


def test_the_oldest_message_of_the_last_minutes() -> None:
    """And as much older as CloudWatch may be late."""
    cloudwatch = CloudWatch(100.0, 7_200.5)
    assert look(Queue(3, 2), cloudwatch) == Backlog(5, 7_200 + 300)
    (request,) = cloudwatch.requests
    assert request["Dimensions"] == [{"Name": "QueueName", "Value": "Messages"}]
    assert request["EndTime"] == datetime.fromtimestamp(START / 1000, UTC)


def test_a_queue_that_comes_to_life_has_no_metrics_yet() -> None:
    """So its messages are young."""
    assert look(Queue(3), CloudWatch()) == Backlog(3, 900)


@pytest.mark.parametrize(
    "error",
    [
        ClientError({"Error": {"Code": "AccessDenied"}}, "GetMetricStatistics"),
        ConnectTimeoutError(endpoint_url="https://monitoring"),
    ],
)
def test_without_cloudwatch_a_waiting_message_may_be_of_any_age(error: Exception) -> None:
    """Not allowed, or a VPC without a way there."""
    backlog = look(Queue(3), CloudWatch(error=error))
    assert backlog == Backlog(3, None)
    assert backlog.unknown
    assert not look(Queue(0), CloudWatch(error=error)).unknown


def test_the_settle_time_is_the_least() -> None:
    """An event that is on its way is in no queue yet."""
    settled = Window(settled_before=START - 60 * MINUTE, known_since=0)
    assert audit_backlog.narrowed(settled, Backlog(0, 0), now=START) == settled


@pytest.mark.parametrize(
    ("backlog", "said"),
    [
        (Backlog(0, 0), ""),
        (Backlog(9, 3_600), ""),
        (Backlog(9, 5_400), "the queue is 1.5 hours behind: what is younger, or has no date, is left to its messages"),
        (
            Backlog(1_234, None),
            (
                "1,234 messages wait in the queue, and how long is not known: nothing resubmitted, the next run will "
                "if they are gone"
            ),
        ),
    ],
)
def test_the_report_says_so(backlog: Backlog, said: str) -> None:
    """A person must not wonder why nothing happened."""
    assert audit_backlog.reason(backlog, settle_seconds=3_600) == said
