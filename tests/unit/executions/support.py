"""`LocalPipeline` with a state machine, whose executions end as a test says, and the telemetry of these tests."""

import json
from collections.abc import Callable
from typing import Any, override

from cdk_intake_ledger.testing import LocalPipeline, LocalRunner, MemoryDynamoDB
from intake_ledger.protocol.row import Row
from intake_ledger_testing.events import s3_notification
from intake_ledger_testing.local_settings import BUCKET
from intake_ledger_testing.local_worker import LocalWorker
from intake_ledger_testing.memory_sqs import MemorySQS
from intake_ledger_testing.memory_step_functions import MemoryExecution, MemoryStepFunctions
from tests.unit.consumer.test_consumer import FakeTelemetry

LONGEST_TASK_SECONDS = 2 * 3600


class ExecutionPipeline(LocalPipeline):
    """The pipeline. One worker lives on."""

    def __init__(self, *, lost_events: bool = False, deletes: bool = True, telemetry: Any = None) -> None:
        """Create it. With `lost_events`, EventBridge loses each event."""
        super().__init__(
            lambda _: None,
            deletes=deletes,
            max_attempts=3,
            processing_timeout=30,
            runner=LocalRunner.STATE_MACHINE,
        )
        self.lost_events = lost_events
        self.telemetry = telemetry or FakeTelemetry()
        self._ends: Callable[[MemoryExecution], None] = lambda _: None
        self._worker: LocalWorker | None = None

    @property
    def sqs(self) -> MemorySQS:
        """The queue."""
        return self._sqs

    @property
    def store(self) -> MemoryDynamoDB:
        """The ledger's table."""
        return self._dynamodb

    @property
    def machine(self) -> MemoryStepFunctions:
        """The state machine."""
        assert isinstance(self.executions, MemoryStepFunctions)
        return self.executions

    @override
    def new_worker(self) -> LocalWorker:
        self._worker = self._worker or self.another_worker()
        return self._worker

    def another_worker(self) -> LocalWorker:
        """A second worker."""
        return super().new_worker()

    @override
    def put(self, key: str = "a.csv", content: bytes | str = "1", **others: Any) -> str:
        return str(super().put(key, content, **others))

    def event(self, key: str, version_id: str | None) -> str:
        """The body of S3's event."""
        return s3_notification(BUCKET, key, version_id=version_id, etag="e", size=1)

    @override
    def turn(self, worker: LocalWorker | None = None, *, most: int = 10) -> int:
        self._batch_size = most
        return super().turn(worker)

    def finish(self, execution: MemoryExecution, status: str = "SUCCEEDED", **details: Any) -> None:
        """End an execution and send its event."""
        body = self.machine.end(execution.name, status, **details)
        if not self.lost_events:
            self.send(body)

    @override
    def end(self, execution: MemoryExecution) -> None:
        self._ends(execution)

    def drain(self, ends: Callable[[MemoryExecution], None]) -> None:
        """Handle all messages until the queue is empty. `ends` finishes each execution after a minute."""
        self._ends, self._batch_size = ends, 10
        self.run()

    @override
    def row(self, key: str = "a.csv", version_id: str | None = None) -> Row:
        row = super().row(key, version_id)
        assert row is not None
        return row

    def versions(self) -> list[str]:
        """The version of each execution, in the order of their starts."""
        return [str(one.given["versionId"]) for one in self.machine.executions.values()]

    @override
    def _make_telemetry(self) -> Any:
        return self.telemetry


def given_event(execution: MemoryExecution, **changes: object) -> str:
    """An event about an execution, with another detail."""
    detail = {"name": execution.name, "status": "SUCCEEDED", "input": execution.input} | changes
    return json.dumps(
        {"source": "aws.states", "detail-type": "Step Functions Execution Status Change", "detail": detail}
    )
