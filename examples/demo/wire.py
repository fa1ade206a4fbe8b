"""The wire between S3 and the queues. It forwards S3's messages unchanged, with the faults of the script.

Each fault of a message applies to all queues at the same time.
"""

from __future__ import annotations

import heapq
import itertools
import json
import random
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

from examples.demo.script import Action

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from examples.demo.script import Operation
    from examples.demo.world import World

EVENTS = ("s3:ObjectCreated:*", "s3:ObjectRemoved:*", "s3:LifecycleExpiration:*", "s3:ObjectRestore:Completed")


@dataclass(frozen=True, slots=True)
class Done:
    """A completed operation on the bucket, with its time (epoch milliseconds) and S3's name of the event."""

    operation: Operation
    at: int
    version_id: str
    """The version that was put, the delete marker that was made or removed, or the permanently deleted version."""
    current: str | None
    """The version that was current afterwards. None if the object did not exist."""
    event_name: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """One copy of a message, and its fate."""

    done: Done
    at: int
    what: str
    """`sent`, `copy`, `late` or `lost`."""


@dataclass
class Wire:
    """Carries out the operations of a script and forwards the messages about them."""

    world: World
    seed: int
    prefix: str = "models/"
    """S3 sends the messages about keys with this prefix."""
    done: list[Done] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    tapped: int = 0
    """Messages that S3 sent."""
    forwarded: int = 0
    """Messages put into the queue of each side."""

    def __post_init__(self) -> None:
        self._known: dict[tuple[str, str, str], Done] = {}
        self._waiting: list[tuple[float, int, Done, str, str]] = []
        self._late: list[tuple[Done, str]] = []
        self._unclaimed: list[tuple[tuple[str, str, str], str]] = []
        self._order = itertools.count()
        self._history: dict[str, list[tuple[str, bool]]] = {}

    # -- the bucket --------------------------------------------------------------------------------------------------

    def put_in_between(self) -> None:
        """Change S3's notification from the pipeline's queue to the wire's queue."""
        sqs, outputs = self.world.aws.client("sqs"), self.world.outputs
        arn = sqs.get_queue_attributes(QueueUrl=outputs["TapQueueUrl"], AttributeNames=["QueueArn"])
        configuration = {"QueueArn": arn["Attributes"]["QueueArn"], "Events": list(EVENTS)}
        configuration["Filter"] = {"Key": {"FilterRules": [{"Name": "prefix", "Value": self.prefix}]}}
        self.world.aws.client("s3").put_bucket_notification_configuration(
            Bucket=self.world.bucket, NotificationConfiguration={"QueueConfigurations": [configuration]}
        )

    def operate(self, operation: Operation) -> Done:
        """Carry out one operation on the bucket."""
        s3, target = self.world.aws.client("s3"), {"Bucket": self.world.bucket, "Key": operation.key}
        # Versions, the newest last, and True for a delete marker.
        history = self._history.setdefault(operation.key, [])
        match operation.action:
            case Action.PUT:
                assert operation.content is not None
                answer = s3.put_object(**target, Body=operation.content.read_bytes())
                version_id, event_name = answer["VersionId"], "ObjectCreated:Put"
                history.append((version_id, False))
            case Action.DELETE:
                version_id, event_name = s3.delete_object(**target)["VersionId"], "ObjectRemoved:DeleteMarkerCreated"
                history.append((version_id, True))
            case Action.UNDELETE | Action.ROLL_BACK | Action.TRIM:
                version_id, _ = history.pop(0 if operation.action is Action.TRIM else -1)
                event_name = "ObjectRemoved:Delete"
                s3.delete_object(**target, VersionId=version_id)
        newest, is_marker = history[-1] if history else ("", True)
        done = Done(operation, _now(), version_id, None if is_marker else newest, event_name)
        self.done.append(done)
        self._known[operation.key, event_name, version_id] = done
        return done

    # -- the messages ------------------------------------------------------------------------------------------------

    def run(self, operations: Sequence[Operation], tick: Callable[[], None], *, give_up_after: float = 60.0) -> None:
        """Carry out the operations at their times, and forward the messages until all are delivered or lost.

        :param tick: called often, to show progress.
        :raises TimeoutError: if S3 sends fewer messages than there were operations.
        """
        failed: list[BaseException] = []
        started, expected = time.monotonic(), self.tapped + len(operations)

        def operate_all() -> None:
            try:
                for operation in operations:
                    time.sleep(max(0.0, started + operation.at - time.monotonic()))
                    self.operate(operation)
            except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
                failed.append(error)

        uploading = threading.Thread(target=operate_all, daemon=True)
        uploading.start()
        last_news = time.monotonic()
        while True:
            received = self._receive()
            self._send_due()
            tick()
            if failed:
                raise failed[0]
            if received or uploading.is_alive():
                last_news = time.monotonic()
                continue
            if not self._waiting and self.tapped == expected:
                return
            if time.monotonic() - last_news > give_up_after:
                raise TimeoutError(f"S3 sent {self.tapped} messages about {expected} operations")
            time.sleep(0.02)

    def deliver_late_copies(self) -> int:
        """Deliver the late copies in any order, after newer versions were committed."""
        late = list(self._late)
        random.Random(self.seed).shuffle(late)
        for few in itertools.batched(late, 10):
            self._forward([(done, "late", body) for done, body in few])
        self._late.clear()
        return len(late)

    def _receive(self) -> bool:
        sqs, url = self.world.aws.client("sqs"), self.world.outputs["TapQueueUrl"]
        messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
        now = time.monotonic()
        finished: list[dict[str, str]] = []
        for message in messages:
            event = json.loads(message["Body"])
            if "Records" in event:
                self._unclaimed.append((_identity(event["Records"]), message["Body"]))
            finished.append({"Id": str(len(finished)), "ReceiptHandle": message["ReceiptHandle"]})
        if finished:
            sqs.delete_message_batch(QueueUrl=url, Entries=finished)
        # A message can arrive before the answer with the version ID. Then it waits.
        unclaimed, self._unclaimed = self._unclaimed, []
        for identity, body in unclaimed:
            if (done := self._known.get(identity)) is None:
                self._unclaimed.append((identity, body))
            else:
                self.tapped += 1
                self._schedule(done, body, now)
        return bool(messages)

    def _schedule(self, done: Done, body: str, now: float) -> None:
        fate = done.operation.fate
        if fate.lost:
            self.deliveries.append(Delivery(done, _now(), "lost"))
            return
        for n, delay in enumerate((fate.delay, *(fate.delay + later for later in fate.copies))):
            what = "copy" if n else "sent"
            heapq.heappush(self._waiting, (now + delay, next(self._order), done, what, body))
        if fate.late:
            self._late.append((done, body))

    def _send_due(self) -> None:
        while True:
            due: list[tuple[Done, str, str]] = []
            while len(due) < 10 and self._waiting and self._waiting[0][0] <= time.monotonic():
                _, _, done, what, body = heapq.heappop(self._waiting)
                due.append((done, what, body))
            if not due:
                return
            self._forward(due)

    def _forward(self, due: Iterable[tuple[Done, str, str]]) -> None:
        due = list(due)
        entries: list[dict[str, Any]] = [{"Id": str(n), "MessageBody": body} for n, (_, _, body) in enumerate(due)]
        for side in self.world.sides:
            self.world.aws.client("sqs").send_message_batch(QueueUrl=self.world.queue(side), Entries=entries)
        self.deliveries += [Delivery(done, _now(), what) for done, what, _ in due]
        self.forwarded += len(due)


def _identity(records: Sequence[dict[str, Any]]) -> tuple[str, str, str]:
    [record] = records
    item = record["s3"]["object"]
    return unquote_plus(item["key"]), record["eventName"], item["versionId"]


def _now() -> int:
    return time.time_ns() // 1_000_000
