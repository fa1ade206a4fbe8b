"""The queue between S3 and the queues of the consumers. What is received goes on when it is due, with its faults."""

from __future__ import annotations

import heapq
import itertools
import json
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cdk_intake_ledger.testing import LocalAws

EVENTS = ("s3:ObjectCreated:*", "s3:ObjectRemoved:*", "s3:LifecycleExpiration:*", "s3:ObjectRestore:Completed")


class Tap[Waiting]:
    """S3's messages, and those that wait.

    Args:
        aws: the local AWS.
        url: the queue that receives S3's messages.

    """

    def __init__(self, aws: LocalAws, url: str) -> None:
        self._client, self._url = aws.client, url
        self._unclaimed: list[tuple[tuple[str, ...], str]] = []
        self._waiting: list[tuple[float, int, Waiting]] = []
        self._order = itertools.count()

    @property
    def is_idle(self) -> bool:
        """True if no message waits."""
        return not self._waiting and not self._unclaimed

    def put_in_between(self, bucket: str, prefix: str = "") -> None:
        """Let a bucket notify this queue."""
        arn = self._client("sqs").get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])
        configuration: dict[str, Any] = {"QueueArn": arn["Attributes"]["QueueArn"], "Events": list(EVENTS)}
        configuration["Filter"] = {"Key": {"FilterRules": [{"Name": "prefix", "Value": prefix}]}}
        self._client("s3").put_bucket_notification_configuration(
            Bucket=bucket, NotificationConfiguration={"QueueConfigurations": [configuration]}
        )

    def receive(self, claim: Callable[[tuple[str, ...], str], bool]) -> bool:
        """Give `claim` each message with its event's bucket, key, version and name. Tell if there was one.

        A message can arrive before the answer with the version ID. If it is not claimed, it waits.
        """
        messages = self._client("sqs").receive_message(QueueUrl=self._url, MaxNumberOfMessages=10).get("Messages", [])
        for message in messages:
            event = json.loads(message["Body"])
            if "Records" in event:
                self._unclaimed.append((_identity(event["Records"]), message["Body"]))
        if messages:
            entries = [{"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate(messages)]
            self._client("sqs").delete_message_batch(QueueUrl=self._url, Entries=entries)
        self._unclaimed = [one for one in self._unclaimed if not claim(*one)]
        return bool(messages)

    def wait(self, due: float, waiting: Waiting) -> None:
        """Keep a message until a time of the monotonic clock."""
        heapq.heappush(self._waiting, (due, next(self._order), waiting))

    def due(self) -> list[Waiting]:
        """Take the messages that are due."""
        found: list[Waiting] = []
        while self._waiting and self._waiting[0][0] <= time.monotonic():
            found.append(heapq.heappop(self._waiting)[2])
        return found

    def send(self, queue_url: str, bodies: Iterable[str]) -> None:
        """Send messages to a consumer's queue."""
        for few in itertools.batched(bodies, 10):
            entries = [{"Id": str(n), "MessageBody": body} for n, body in enumerate(few)]
            self._client("sqs").send_message_batch(QueueUrl=queue_url, Entries=entries)


def _identity(records: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    [record] = records
    item = record["s3"]["object"]
    return record["s3"]["bucket"]["name"], unquote_plus(item["key"]), item["versionId"], record["eventName"]
