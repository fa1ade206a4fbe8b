"""The wire between S3 and the queues. It forwards S3's own messages, and duplicates, delays and loses some of them."""

from __future__ import annotations

import heapq
import itertools
import json
import random
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

from examples.pictures.script import Event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from examples.pictures.columns import Column
    from examples.pictures.world import World

DELAY_SECONDS = 2.0
_EVENTS = ("s3:ObjectCreated:*", "s3:ObjectRemoved:*")
Identity = tuple[str, str, str]
"""Bucket, key and version ID of an event."""


@dataclass
class Wire:
    """Receives the messages of all buckets. Call `pump` often."""

    world: World
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    """The number of messages by their fate, for each queue."""
    _fates: dict[Identity, Event] = field(default_factory=dict)
    _unclaimed: list[tuple[Identity, str]] = field(default_factory=list)
    _waiting: list[tuple[float, int, Column, str]] = field(default_factory=list)
    _late: list[tuple[Column, str]] = field(default_factory=list)
    _order: itertools.count[int] = field(default_factory=itertools.count)

    def put_in_between(self) -> None:
        """Let all buckets notify the queue of the wire. It forwards the messages to the queues of the columns."""
        client = self.world.aws.client
        answer = client("sqs").get_queue_attributes(QueueUrl=self.world.tap, AttributeNames=["QueueArn"])
        target = {"QueueArn": answer["Attributes"]["QueueArn"], "Events": list(_EVENTS)}
        for column in self.world.columns:
            client("s3").put_bucket_notification_configuration(
                Bucket=self.world.pictures(column), NotificationConfiguration={"QueueConfigurations": [target]}
            )
        self._columns = {self.world.pictures(column): column for column in self.world.columns}

    def expect(self, column: Column, key: str, version_id: str, fate: Event) -> None:
        """Set the fate of the message about one operation."""
        self._fates[self.world.pictures(column), key, version_id] = fate

    @property
    def idle(self) -> bool:
        """True if each message has been forwarded or lost, except the repetitions."""
        return not self._fates and not self._waiting and not self._unclaimed

    def pump(self) -> None:
        """Receive messages and forward those that are due."""
        self._receive()
        self._send_due()

    def repeat(self) -> None:
        """Deliver the repetitions, in any order."""
        late, self._late = self._late, []
        random.Random(self.seed).shuffle(late)
        self._forward(late)

    def _receive(self) -> None:
        sqs = self.world.aws.client("sqs")
        messages = sqs.receive_message(QueueUrl=self.world.tap, MaxNumberOfMessages=10).get("Messages", [])
        for message in messages:
            event = json.loads(message["Body"])
            if "Records" in event:
                self._unclaimed.append((_identity(event["Records"]), message["Body"]))
        if messages:
            entries = [{"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate(messages)]
            sqs.delete_message_batch(QueueUrl=self.world.tap, Entries=entries)
        # A message can arrive before the answer with the version ID. Then it waits.
        unclaimed, self._unclaimed = self._unclaimed, []
        for identity, body in unclaimed:
            fate = self._fates.pop(identity, None)
            if fate is None:
                self._unclaimed.append((identity, body))
            else:
                self._schedule(self._columns[identity[0]], fate, body)

    def _schedule(self, column: Column, fate: Event, body: str) -> None:
        if column is self.world.columns[-1]:
            self.counts[fate] += 1
        if fate is Event.LOST:
            return
        due = time.monotonic() + (DELAY_SECONDS if fate is Event.DELAYED else 0)
        # The delayed one is also duplicated.
        for _ in range(2 if fate in (Event.TWICE, Event.DELAYED) else 1):
            heapq.heappush(self._waiting, (due, next(self._order), column, body))
        if fate is Event.REPEATED:
            self._late.append((column, body))

    def _send_due(self) -> None:
        due: list[tuple[Column, str]] = []
        while self._waiting and self._waiting[0][0] <= time.monotonic():
            _, _, column, body = heapq.heappop(self._waiting)
            due.append((column, body))
        self._forward(due)

    def _forward(self, messages: Sequence[tuple[Column, str]]) -> None:
        by_column: dict[Column, list[str]] = defaultdict(list)
        for column, body in messages:
            by_column[column].append(body)
        for column, bodies in by_column.items():
            for few in itertools.batched(bodies, 10):
                entries = [{"Id": str(n), "MessageBody": body} for n, body in enumerate(few)]
                self.world.aws.client("sqs").send_message_batch(QueueUrl=self.world.queue(column), Entries=entries)


def _identity(records: Sequence[dict[str, Any]]) -> Identity:
    [record] = records
    item = record["s3"]["object"]
    return record["s3"]["bucket"]["name"], unquote_plus(item["key"]), item["versionId"]
