"""The deployed intakes of messages: a queue, a FIFO queue, and a bus of EventBridge."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import batched
from typing import Any, ClassVar, Self, override

from tests.local.faults.judge import Report, Row
from tests.local.faults.message_judge import MessageFacts, MessageLetter, MessagesExpected, Name, judge_messages
from tests.local.faults.message_stack import EVENT_SOURCE
from tests.local.faults.world import Line, Sources

BATCH = 10
"""The maximum number of messages in a request of SQS, and of events in a request of EventBridge."""


@dataclass(frozen=True)
class Intake:
    """A deployed intake of an SQS queue. The line's bucket is the name of the source in the ledger."""

    line: Line
    name: str
    source: str
    """The name of the stream, the table or the bus. `-` for a queue."""

    title: ClassVar[str] = "messages"
    meets: ClassVar[bool] = True
    """True: there are enough messages that one always meets another of its key."""
    ordered: ClassVar[bool] = False
    """True: the messages of a key take effect in the order in which they were sent."""
    held: ClassVar[bool] = False
    """True: a message waits until all attempts on the earlier ones of its key are over."""
    stamped: ClassVar[bool] = False
    """True if copies of a message differ in what their source adds."""

    @classmethod
    def of(cls, world: Sources, outputs: Mapping[str, str], name: str) -> Self:
        """Read the names from the stack's outputs."""
        return cls(Line.of(world, outputs, name), name.lower(), outputs[f"{name}Source"])

    def send(self, names: Sequence[Name]) -> None:
        """Send these messages in this order."""
        sqs = self.line.aws.client("sqs")
        for entries in batched(self._entries(names), BATCH):
            sqs.send_message_batch(QueueUrl=self.line.queue, Entries=list(entries))

    def _entries(self, names: Sequence[Name]) -> Iterator[dict[str, str]]:
        for number, name in enumerate(names):
            yield {"Id": str(number), "MessageBody": body_of(name)}

    def settled(self, sent: Sequence[Name], expected: MessagesExpected, *, timeout: float) -> Report:
        """Return the report when it has no problems, or when the queue is empty and the grace time is over."""
        prefix = f"{self.name}/"

        def report(*, counted: bool) -> Report:
            downstream = self.line.downstream
            killed = {Name(one.key, one.version) for one in downstream.killed if "/after/" in one.key}
            facts = MessageFacts(
                sent=sent,
                rows=self.rows(prefix),
                letters=self.letters(),
                calls=downstream.calls_of(prefix),
                behind=self.behind(),
                verdicts=self.line.verdicts(prefix) if counted else {},
            )
            return judge_messages(facts, replace(expected, killed=frozenset(killed)))

        return self.line.until_right(report, f"{prefix} is done with", timeout=timeout)

    def rows(self, prefix: str) -> dict[Name, Row]:
        """Return the rows of messages. The locks of keys have none."""
        return {
            Name(key, str(item["version_id"])): Row(
                str(item["status"]), str(item.get("commit_id", "")), str(item.get("reason", ""))
            )
            for key, item in self.line.items(prefix)
            if "status" in item
        }

    def letters(self) -> list[MessageLetter]:
        """Return the dead-letter messages without deleting them."""
        return [
            MessageLetter(self.named(json.loads(body)), attributes.get("reason", ""))
            for body, attributes in self.line.dead()
        ]

    def behind(self) -> Mapping[str, int]:
        """Return the number of records that a shard still has to deliver, by shard."""
        return {}

    def named(self, content: Mapping[str, Any]) -> Name:
        """Return the name of the message with this content, which is that of a dead-letter message."""
        return Name(str(content["key"]), str(content["identity"]))


class FifoIntake(Intake):
    """A deployed intake of a FIFO queue, whose groups are the keys."""

    title = "FIFO messages"
    meets = False
    ordered = True

    @override
    def _entries(self, names: Sequence[Name]) -> Iterator[dict[str, str]]:
        for number, (name, entry) in enumerate(zip(names, super()._entries(names), strict=True)):
            # Another deduplication ID for each copy: SQS itself must not drop it.
            yield entry | {"MessageGroupId": name.key, "MessageDeduplicationId": f"{name.key}/{number}"}


class EventIntake(Intake):
    """A deployed intake of a bus of EventBridge."""

    title = "events of a bus"
    meets = False
    stamped = True

    @override
    def send(self, names: Sequence[Name]) -> None:
        events = self.line.aws.client("events")
        for some in batched(names, BATCH):
            entries = [
                {"Source": EVENT_SOURCE, "DetailType": "Order", "Detail": body_of(name), "EventBusName": self.source}
                for name in some
            ]
            answer = events.put_events(Entries=entries)
            assert not answer["FailedEntryCount"], answer

    @override
    def named(self, content: Mapping[str, Any]) -> Name:
        return super().named(content["detail"])


def body_of(name: Name) -> str:
    """Return the message's content."""
    return json.dumps({"key": name.key, "identity": name.identity})
