"""A message of each kind of work, for tests of rules that all kinds share.

Each kind has the real consumer and ledger over AWS in memory, and keeps its consumer over all invocations, as a warm
execution environment does.
"""

import json
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

from cdk_intake_ledger.testing import LocalPipeline
from intake_ledger import Commit, FileSet, ObjectChange, Unprocessable
from intake_ledger.messages import KeyedMessage, MessageSourceType
from intake_ledger.protocol import Ordering, Row, from_dynamodb, row_from_attributes
from intake_ledger.set_members import FormKind, FormSettings
from tests.inside.kit import MemoryExecution, MemorySQS
from tests.unit.executions_support import ExecutionPipeline
from tests.unit.messages_support import Intake, kinesis, sqs
from tests.unit.set_bench import SetBench
from tests.unit.support import MINUTE
from tests.unit.test_worker import Bench as WorkerBench

MANIFEST = FormSettings(FormKind.MANIFEST, "*.json")


class Kind(Protocol):
    """One kind of work, with one message whose processor rejects it while `refuses` is true."""

    refuses: bool

    @property
    def sqs(self) -> MemorySQS:
        """The queue and its dead-letter queue."""

    @property
    def row(self) -> Row:
        """The row of the work."""

    @property
    def calls(self) -> int:
        """The number of calls of the processor."""

    def upload(self) -> None:
        """Send the first message."""

    def run(self) -> None:
        """Handle all messages until the queue is empty."""


class Judge:
    """The processor of each kind."""

    refuses = True
    calls = 0

    def __call__(self, _: object) -> None:
        self.calls += 1
        if self.refuses:
            raise Unprocessable("no invoice")


class Objects(Judge):
    """Objects of a pipeline."""

    def __init__(self, ordering: Ordering = Ordering.LATEST) -> None:
        def process(change: ObjectChange) -> None:
            self(change)

        self.pipeline = LocalPipeline(process, ordering=ordering)
        make_consumer = cache(self.pipeline._make_consumer)
        self.pipeline._make_consumer = make_consumer  # type: ignore[method-assign]
        self.sqs, self._versions = self.pipeline._sqs, list[str | None]()

    def upload(self) -> None:
        self._versions.append(self.pipeline.put("a.csv", "1"))

    @property
    def row(self) -> Row:
        [row] = rows(self.pipeline._dynamodb)
        return row

    def run(self) -> None:
        self.pipeline.run()


class Messages(Judge):
    """Keyed messages of a queue or a stream."""

    def __init__(self, source: MessageSourceType) -> None:
        def process(message: KeyedMessage) -> None:
            self(message)

        self._intake = Intake(source, process)
        self.sqs = self._intake.sqs

    def upload(self) -> None:
        if self._intake.source is MessageSourceType.KINESIS:
            while self._intake.handle([kinesis("o-1", "e-1", 1)]):
                self._intake.clock.advance(MINUTE)
        else:
            self.sqs.send(sqs("o-1", "e-1")["body"])

    @property
    def row(self) -> Row:
        row = self._intake.row("o-1", "e-1")
        assert row is not None
        return row

    def step(self) -> None:
        """Handle the messages that are visible next."""
        at = self.sqs.next_visible_at()
        assert at is not None
        self._intake.clock.now = max(self._intake.clock.now, at)
        batch = self.sqs.receive(10, lambda visible: visible)
        failed = self._intake.handle([one | {"eventSource": "aws:sqs"} for one in batch])
        self.sqs.delete(one["messageId"] for one in batch if one["messageId"] not in failed)

    def run(self) -> None:
        while self.sqs.next_visible_at() is not None:
            self.step()


class Sets(Judge):
    """Sets of files."""

    def __init__(self) -> None:
        def process(files: FileSet) -> Commit | str | None:
            self(files)
            return None

        self._bench = SetBench(MANIFEST, process=process, warm=True)
        self.sqs = self._bench.sets.queue

    def upload(self) -> None:
        self._bench.put("a.csv")
        self._bench.put("set.json", json.dumps(["a.csv"]))

    @property
    def row(self) -> Row:
        return self._bench.known("set.json")

    def run(self) -> None:
        self._bench.run()


class Executions(Judge):
    """Objects that a state machine processes."""

    def __init__(self) -> None:
        self._pipeline = ExecutionPipeline()
        self.sqs = self._pipeline.sqs

    def upload(self) -> None:
        self._pipeline.put()

    @property
    def row(self) -> Row:
        return self._pipeline.row()

    def run(self) -> None:
        def process(execution: MemoryExecution) -> None:
            self.calls += 1
            output = {"unprocessable": "no invoice"} if self.refuses else {"commit": "x"}
            self._pipeline.end(execution, output=output)

        self._pipeline.run(process)


class Worker(Judge):
    """Objects of a worker outside of Lambda."""

    def __init__(self) -> None:
        self._bench = WorkerBench()
        self._bench.acts = [self] * 99
        self.sqs = self._bench.sqs

    def upload(self) -> None:
        self._change = self._bench.upload()

    @property
    def row(self) -> Row:
        return self._bench.world.known(self._change)

    def run(self) -> None:
        while (at := self.sqs.next_visible_at()) is not None:
            clock = self._bench.world.clock
            clock.now = max(clock.now, at)
            self._bench.poll()


KINDS: dict[str, Callable[[], Kind]] = {
    "objects": Objects,
    "every version": lambda: Objects(Ordering.EVERY_VERSION),
    "messages": lambda: Messages(MessageSourceType.SQS),
    "FIFO messages": lambda: Messages(MessageSourceType.FIFO),
    "records of a stream": lambda: Messages(MessageSourceType.KINESIS),
    "sets": Sets,
    "executions": Executions,
    "worker": Worker,
}


def rows(store: Any) -> list[Row]:
    """The rows of a table in memory."""
    found = [row_from_attributes(from_dynamodb(item)) for item in store.items.values()]
    return [row for row in found if row is not None]
