"""The wire between S3 and the queues. It forwards S3's messages unchanged, with the faults of the script.

Each fault of a message applies to all queues at the same time.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from examples.harness.objects import Objects
from examples.harness.tap import Tap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from examples.demo.script import Operation
    from examples.demo.world import World


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
        world = self.world
        self._objects = Objects(world.aws, world.bucket)
        self._tap: Tap[tuple[Done, str, str]] = Tap(world.aws, world.outputs["TapQueueUrl"])
        self._known: dict[tuple[str, ...], Done] = {}
        self._late: list[tuple[Done, str]] = []

    def put_in_between(self) -> None:
        """Change S3's notification from the pipeline's queue to the wire's queue."""
        self._tap.put_in_between(self.world.bucket, self.prefix)

    def operate(self, operation: Operation) -> Done:
        """Carry out one operation on the bucket."""
        content = operation.content.read_bytes() if operation.content else b""
        version_id, current, event_name = self._objects.operate(operation.key, operation.action, content)
        done = Done(operation, _now(), version_id, current, event_name)
        self.done.append(done)
        self._known[operation.key, version_id, event_name] = done
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
            received = self._tap.receive(self._claim)
            self._forward(self._tap.due())
            tick()
            if failed:
                raise failed[0]
            if received or uploading.is_alive():
                last_news = time.monotonic()
                continue
            if self._tap.is_idle and self.tapped == expected:
                return
            if time.monotonic() - last_news > give_up_after:
                raise TimeoutError(f"S3 sent {self.tapped} messages about {expected} operations")
            time.sleep(0.02)

    def deliver_late_copies(self) -> int:
        """Deliver the late copies in any order, after newer versions were committed."""
        late = list(self._late)
        random.Random(self.seed).shuffle(late)
        self._forward([(done, "late", body) for done, body in late])
        self._late.clear()
        return len(late)

    def _claim(self, identity: tuple[str, ...], body: str) -> bool:
        if (done := self._known.get(identity[1:])) is None:
            return False
        self.tapped += 1
        fate = done.operation.fate
        if fate.lost:
            self.deliveries.append(Delivery(done, _now(), "lost"))
            return True
        for n, delay in enumerate((fate.delay, *(fate.delay + later for later in fate.copies))):
            self._tap.wait(time.monotonic() + delay, (done, "copy" if n else "sent", body))
        if fate.late:
            self._late.append((done, body))
        return True

    def _forward(self, due: Sequence[tuple[Done, str, str]]) -> None:
        # Few at a time, so that no consumer gets all of its messages long before the others.
        for few in itertools.batched(due, 10):
            for side in self.world.sides:
                self._tap.send(self.world.queue(side), [body for _, _, body in few])
            self.deliveries += [Delivery(done, _now(), what) for done, what, _ in few]
            self.forwarded += len(few)


def _now() -> int:
    return time.time_ns() // 1_000_000
