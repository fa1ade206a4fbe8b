"""The states that S3 shows for one key during a script of operations.

versioned    p     put: version n is the n-th operation
             o     the same with an old Last-Modified: a replica, a restored object, a long multipart upload
             m     delete marker, a version too
             dN    version N deleted for good
unversioned  A, B  upload of those bytes: the ETag is the identity
             D     the object deleted
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from intake_ledger.protocol.change import StateKind
from tests.protocol.program import BUCKET, KEY, Message, moment


class Shown(NamedTuple):
    """The state of the key after an operation."""

    identity: str
    kind: StateKind
    operation: int
    """The operation that created it; 0 for absence."""


ABSENT = Shown("absent", StateKind.ABSENT, 0)


class Script:
    """The operations, and what each of them makes true. Index 0 is before everything."""

    def __init__(self, text: str) -> None:
        self.operations = text.split()
        self.versioned = not set(self.operations) & {"A", "B", "D"}
        self.shown = [ABSENT]
        self.alive: list[tuple[Shown, ...]] = [()]
        alive: list[Shown] = []
        for number, operation in enumerate(self.operations, 1):
            if operation in ("p", "o"):
                alive.append(Shown(f"v#{number}", StateKind.OBJECT, number))
            elif operation == "m":
                alive.append(Shown(f"v#{number}", StateKind.MARKER, number))
            elif operation[0] == "d":
                alive = [one for one in alive if one.operation != int(operation[1:])]
            elif operation == "D":
                alive = []
            else:
                alive = [Shown(f"e#{operation}", StateKind.OBJECT, number)]
            self.shown.append(alive[-1] if alive else ABSENT)
            self.alive.append(tuple(alive))
        self.epoch = [0]
        """The epoch of the key after each operation."""
        self.states = [ABSENT]
        """The state of each epoch."""
        for before, after in zip(self.shown, self.shown[1:], strict=False):
            if after.identity != before.identity:
                self.states.append(after)
            self.epoch.append(len(self.states) - 1)

    def has_been(self, identity: str, kind: str, done: int) -> bool:
        """Return whether this version was created, replaced by a marker, or deleted, as the processor is told."""
        number = int(identity[2:]) if identity[1:2] == "#" and identity[2:].isdecimal() else 0
        if kind == "deleted":
            return f"d{number}" in self.operations[:done]
        was_marker = 0 < number <= done and self.operations[number - 1] == "m"
        return was_marker is (kind == "removed")

    def readable(self, identity: str, done: int) -> bool:
        """Return whether this state's content can be read, or its removal can be handled."""
        return identity == "absent" or any(one.identity == identity for one in self.alive[done])

    def event(self, number: int, tick: int, place: int, *, late: bool = False) -> Message:
        """S3's notification of an operation that happened at this tick; `place` is what its sequencer claims. `late`:
        a day later than it should be.
        """
        operation = self.operations[number - 1]
        item: dict[str, object] = {"key": KEY, "sequencer": f"00{place + 1:X}"}
        name = "ObjectCreated:Put"
        if operation in ("p", "o"):
            item |= {"versionId": str(number), "eTag": f"etag-{number}", "size": 1}
        elif operation == "m":
            name = "ObjectRemoved:DeleteMarkerCreated"
            item |= {"versionId": str(number)}
        elif operation[0] == "d":
            name = "ObjectRemoved:Delete"
            item |= {"versionId": operation[1:]}
        elif operation == "D":
            name = "ObjectRemoved:Delete"
        else:
            item |= {"eTag": operation, "size": 1}
        at = moment(tick) - timedelta(days=1 if late else 0)
        return Message(_notification(name, item, at), f"event {number} ({operation})", number)


def forged_marker(version: int, tick: int) -> Message:
    """Return a recent, forged event that says that the version is a delete marker."""
    item = {"key": KEY, "sequencer": "00FF", "versionId": str(version)}
    body = _notification("ObjectRemoved:DeleteMarkerCreated", item, moment(tick))
    return Message(body, f"forged marker {version}")


def _notification(name: str, item: Mapping[str, object], at: datetime) -> str:
    record = {
        "eventVersion": "2.6",
        "eventSource": "aws:s3",
        "eventName": name,
        "eventTime": at.isoformat(),
        "s3": {"bucket": {"name": BUCKET}, "object": item},
    }
    return json.dumps({"Records": [record]})
