"""A pipeline whose processor is a state machine: the real consumer and ledger over AWS in memory."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

from cdk_intake_ledger.testing import MemoryDynamoDB
from intake_ledger.aws import Bucket, Queues
from intake_ledger.consumer import Consumer, Services
from intake_ledger.executions import StateMachine
from intake_ledger.ledger import Ledger, LedgerOptions, LedgerTable
from intake_ledger.protocol import ExecutionSettings, Policy, Row, row_key
from tests.inside.executions import Later
from tests.inside.kit import (
    DEAD_LETTER_URL,
    MACHINE,
    QUEUE_URL,
    MemoryExecution,
    MemoryS3,
    MemorySQS,
    MemoryStepFunctions,
    object_ledger,
    s3_notification,
)
from tests.inside.objects import Objects
from tests.settings import CONSUMER
from tests.unit.support import HOUR, SECOND, Clock
from tests.unit.test_consumer import Context, FakeTelemetry

EXECUTION_SECONDS = 6 * 3600
LONGEST_TASK_SECONDS = 2 * 3600
SETTINGS = replace(
    CONSUMER, queue_url=QUEUE_URL, dlq_url=DEAD_LETTER_URL, max_attempts=3, processing_timeout_seconds=30
)


@dataclass
class ExecutionPipeline:
    """The pipeline. Each invocation takes 90 seconds at most."""

    clock: Clock = field(default_factory=Clock)
    lost_events: bool = False
    """True if EventBridge loses each event."""
    deletes: bool = True
    telemetry: Any = field(default_factory=FakeTelemetry)

    def __post_init__(self) -> None:
        self.s3 = MemoryS3(clock=self.clock)
        self.store = MemoryDynamoDB()
        self.sqs = MemorySQS(clock=self.clock, visibility_seconds=300)
        self.machine = MemoryStepFunctions(clock=self.clock)
        self._owners = 0
        self.consumer = self.make_consumer()

    def make_consumer(self, before_start: Callable[[], None] = lambda: None) -> Consumer:
        """Another worker. `before_start` runs between its claims and StartExecution."""
        settings = SETTINGS
        ledger, bucket = self.ledger(), self._bucket()
        queues = Queues(lambda: cast("Any", self.sqs), QUEUE_URL, DEAD_LETTER_URL)
        services = Services(
            settings, ledger, bucket, queues, cast("Any", self.telemetry), self.clock, jitter=lambda: 0.0
        )
        times = ExecutionSettings(MACHINE, EXECUTION_SECONDS, LONGEST_TASK_SECONDS)

        def make_client() -> MemoryStepFunctions:
            return self.machine

        class Interrupted(Later):
            def start(self, *plain: Any, **named: Any) -> object:
                before_start()
                return super().start(*plain, **named)

        return Consumer(
            services,
            Objects(settings, bucket),
            Interrupted(services, StateMachine(make_client, times), sleep=self._sleep),
        )

    def ledger(self) -> Ledger:
        """The ledger of another worker."""
        settings = SETTINGS
        policy = Policy.of(replace(settings, deletes=self.deletes), executions=True)
        return object_ledger(
            LedgerTable(cast("Any", self.store), settings.table),
            self._bucket(),
            LedgerOptions(settings.pipeline, settings.ordering, policy, 6 * HOUR),
            clock=self.clock,
            new_owner=self._owner,
        )

    def _bucket(self) -> Bucket:
        return Bucket(lambda: cast("Any", self.s3), SETTINGS.bucket)

    def put(self, key: str = "a.csv", content: str = "1") -> str:
        """Upload an object and send its event. Returns its version ID."""
        version = self.s3.put(key, content.encode())
        self.sqs.send(self.event(key, version.version_id))
        return str(version.version_id)

    def event(self, key: str, version_id: str | None) -> str:
        """The body of S3's event."""
        return s3_notification(SETTINGS.bucket, key, version_id=version_id, etag="e", size=1)

    def turn(self, consumer: Consumer | None = None, most: int = 10) -> int:
        """Handle the oldest visible messages, `most` at most. Returns their number."""
        records = self.sqs.receive(most, lambda visible: visible)
        if not records:
            return 0
        context = Context(self.clock, self.clock() + 90 * SECOND)
        answer = (consumer or self.consumer).handle({"Records": records}, cast("Any", context))
        failed = {one["itemIdentifier"] for one in answer["batchItemFailures"]}
        self.sqs.delete(str(one["messageId"]) for one in records if one["messageId"] not in failed)
        return len(records)

    def end(self, execution: MemoryExecution, status: str = "SUCCEEDED", **details: Any) -> None:
        """End an execution and send its event."""
        body = self.machine.end(execution.name, status, **details)
        if not self.lost_events:
            self.sqs.send(body)

    def running(self) -> list[MemoryExecution]:
        """The executions that run."""
        return [one for one in self.machine.executions.values() if one.status == "RUNNING"]

    def run(self, processor: Callable[[MemoryExecution], None], *, seconds: int = 60, turns: int = 400) -> None:
        """Handle all messages until the queue is empty. `processor` ends each execution after these seconds."""
        due: dict[str, int] = {}
        for _ in range(turns):
            while self.turn():
                pass
            for one in self.running():
                due.setdefault(one.name, self.clock() + seconds * 1000)
            times = [at for name, at in due.items() if self.machine.executions[name].status == "RUNNING"]
            if (visible := self.sqs.next_visible_at()) is not None:
                times.append(visible)
            if not times:
                return
            self.clock.now = max(self.clock.now, min(times))
            for one in self.running():
                if due[one.name] <= self.clock():
                    del due[one.name]
                    processor(one)
        raise AssertionError(f"not quiet after {turns} turns: {len(self.sqs.messages)} messages")

    def row(self, key: str = "a.csv") -> Row:
        """The key's row."""
        place = row_key(SETTINGS.pipeline, SETTINGS.ordering, SETTINGS.bucket, key, None)
        row = LedgerTable(cast("Any", self.store), SETTINGS.table).get(place)
        assert row is not None
        return row

    def versions(self) -> list[str]:
        """The version of each execution, in the order of their starts."""
        return [str(one.given["versionId"]) for one in self.machine.executions.values()]

    def _sleep(self, seconds: float) -> None:
        self.clock.advance(round(seconds * 1000))

    def _owner(self) -> str:
        self._owners += 1
        return f"owner-{self._owners}"


def given_event(execution: MemoryExecution, **changes: object) -> str:
    """An event about an execution, with another detail."""
    detail = {"name": execution.name, "status": "SUCCEEDED", "input": execution.input} | changes
    return json.dumps(
        {"source": "aws.states", "detail-type": "Step Functions Execution Status Change", "detail": detail}
    )
