"""The demonstration's part of the way of an event: it carries out the operations, and puts their events on the bus."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from examples.fanout.material import draft
from examples.fanout.script import Fate
from examples.fanout.world import BUS_SOURCE
from examples.harness.objects import Action, Objects

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from examples.fanout.script import Operation
    from examples.fanout.world import World

Event = dict[str, Any]
EVENT_SECONDS = 60.0
"""The time after which the event about an operation counts as missing."""
BUS_BATCH = 10


@dataclass
class Wire:
    """The bucket's operations, and the events about them in the order of their delivery."""

    world: World
    recorded: list[Event] = field(default_factory=list)
    """Each delivered event."""
    counts: Counter[str] = field(default_factory=Counter)
    """The number of events for each fate."""

    def __post_init__(self) -> None:
        self._for_later: list[Event] = []
        self._objects = Objects(self.world.aws, self.world.bucket)

    def run(self, operations: Sequence[Operation], show: Callable[[int], None]) -> None:
        """Carry out operations one after another, and deliver the event of each as its fate says."""
        for n, operation in enumerate(operations):
            content = draft(operation.key, operation.draft) if operation.action is Action.PUT else b""
            version_id, _, _ = self._objects.operate(operation.key, operation.action, content)
            event = self._event(operation)
            event["detail"]["object"]["version-id"] = version_id
            self._deliver(operation, event)
            show(n + 1)
        self.world.wait_until_drained()
        self.send(self._for_later)
        self._for_later = []

    def send(self, events: Sequence[Event]) -> None:
        """Put events on the bus."""
        for batch in itertools.batched(events, BUS_BATCH):
            answer = self.world.aws.client("events").put_events(
                Entries=[
                    {
                        "Source": BUS_SOURCE,
                        "DetailType": event["detail-type"],
                        "Detail": json.dumps(event["detail"]),
                        "EventBusName": self.world.outputs["BusArn"],
                    }
                    for event in batch
                ]
            )
            if answer["FailedEntryCount"]:
                raise RuntimeError(f"the bus refused events: {answer}")
        self.recorded += events

    def send_all_again(self, seed: int) -> int:
        """Put every recorded event on the bus again, in another order, and return their number.

        EventBridge promises no order for a replay. The local AWS keeps the archive's order.
        """
        events = random.Random(seed).sample(self.recorded, len(self.recorded))
        self.send(events)
        return len(events)

    def archive(self) -> str:
        """Create an archive of the bus and return its ARN. CloudFormation of the local AWS does not know archives."""
        answer = self.world.aws.client("events").create_archive(
            ArchiveName="fan-out", EventSourceArn=self.world.outputs["BusArn"]
        )
        return str(answer["ArchiveArn"])

    def replay(self, archive: str, start: float, end: float) -> None:
        """Let EventBridge replay the archive's events of a time, and wait until it has."""
        client = self.world.aws.client("events")
        client.start_replay(
            ReplayName="stage-one",
            EventSourceArn=archive,
            EventStartTime=start,
            EventEndTime=end,
            Destination={"Arn": self.world.outputs["BusArn"]},
        )
        self.world.aws.wait_until(
            lambda: client.describe_replay(ReplayName="stage-one")["State"] == "COMPLETED", "the replay has ended"
        )

    # -- one operation ------------------------------------------------------------------------------------------------

    def _event(self, operation: Operation) -> Event:
        """Take the event about this operation from the tap. It is the only one, since operations do not overlap."""
        sqs, url = self.world.aws.client("sqs"), self.world.outputs["TapQueueUrl"]
        deadline = time.monotonic() + EVENT_SECONDS
        while not (messages := sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1).get("Messages", [])):
            if time.monotonic() > deadline:
                raise TimeoutError(f"S3 sent no event about {operation.action} of {operation.key}")
        [message] = messages
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        event: Event = json.loads(message["Body"])
        wanted = "Object Created" if operation.action is Action.PUT else "Object Deleted"
        if (event["detail-type"], event["detail"]["object"]["key"]) != (wanted, operation.key):
            raise RuntimeError(f"S3 sent another event than that about {operation.action} of {operation.key}: {event}")
        return event

    def _deliver(self, operation: Operation, event: Event) -> None:
        self.counts[operation.fate] += 1
        if operation.fate in (Fate.ON_TIME, Fate.TWICE):
            self.send([event])
        if operation.fate in (Fate.TWICE, Fate.LATE):
            self._for_later.append(event)
