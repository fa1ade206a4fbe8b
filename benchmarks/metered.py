"""A local pipeline that counts the requests and units of its consumer, and the bytes of its log lines and metrics."""

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from io import TextIOBase
from typing import Any, cast, override
from unittest import mock

from benchmarks import units

from cdk_intake_ledger.testing import LocalPipeline
from intake_ledger.consumer.batch import ProcessingTime
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.row_history import RowHistoryRecord
from intake_ledger.observability.powertools import PowertoolsTelemetry
from intake_ledger.observability.telemetry import Telemetry
from intake_ledger.processor.object_change import BatchProcessor, Processor
from intake_ledger_testing.dynamodb_expressions import Item, inserted_item, parse_update_statement
from intake_ledger_testing.local_settings import TABLE
from intake_ledger_testing.local_worker import LocalWorker
from intake_ledger_testing.memory_dynamodb import Key, MemoryDynamoDB
from intake_ledger_testing.memory_s3 import MemoryS3
from intake_ledger_testing.memory_sqs import MemorySQS

INDEX = ("needs_review", "updated_at")
"""The key attributes of the ledger's review index."""


_SERVICES = (f"Invoices-Pipeline-{number:08}" for number in itertools.count())
"""Names of pipelines, of equal length. Powertools keeps the output of a logger for each name."""


@dataclass
class Bill:
    """Requests and units. Requests are named by service and operation."""

    requests: Counter[str] = field(default_factory=Counter)
    write_units: int = 0
    read_units: int = 0
    lines: int = 0
    """The number of log lines."""
    line_bytes: int = 0
    metric_bytes: int = 0
    """The bytes of the lines with metrics, which CloudWatch takes in as log lines."""

    def clear(self) -> None:
        """Reset the counts."""
        vars(self).update(vars(Bill()))

    def copy(self) -> "Bill":
        return self.plus(Bill())

    def plus(self, other: "Bill") -> "Bill":
        return Bill(**{name: value + getattr(other, name) for name, value in vars(self).items()})

    def minus(self, before: "Bill") -> "Bill":
        """Return the difference to earlier counts."""
        return Bill(**{name: value - getattr(before, name) for name, value in vars(self).items()})

    def of(self, service: str) -> int:
        """Return the number of requests to a service."""
        return sum(number for name, number in self.requests.items() if name.startswith(f"{service}."))

    @property
    def dynamodb(self) -> int:
        return self.of("dynamodb")

    @property
    def heads(self) -> int:
        return self.requests["s3.HeadObject"]

    @property
    def gets(self) -> int:
        """The number of reads of the object by the processor."""
        return self.requests["s3.GetObject"]

    @property
    def sqs(self) -> int:
        return self.of("sqs")

    @property
    def total(self) -> int:
        """The number of requests without the processor's reads."""
        return self.requests.total() - self.gets


class MeteredOutput(TextIOBase):
    """The standard output of the function. Each line becomes an event of its log."""

    def __init__(self, bill: Bill) -> None:
        self._bill = bill
        self.metrics: set[str] = set()
        """The names of the metrics that were written."""

    @override
    def write(self, text: str) -> int:
        line = text.removesuffix("\n")
        if '"_aws"' in line:
            self._bill.metric_bytes += len(line.encode())
            [directive] = json.loads(line)["_aws"]["CloudWatchMetrics"]
            self.metrics |= {metric["Name"] for metric in directive["Metrics"]}
        elif line:
            self._bill.lines += 1
            self._bill.line_bytes += len(line.encode())
        return len(text)


class _Both:
    """Reports to two telemetries."""

    def __init__(self, *telemetries: Telemetry) -> None:
        self._telemetries = telemetries

    def __getattr__(self, name: str) -> Callable[..., None]:
        def report(*arguments: Any, **named: Any) -> None:
            for telemetry in self._telemetries:
                getattr(telemetry, name)(*arguments, **named)

        return report


class MeteredDynamoDB(MemoryDynamoDB):
    """An in-memory table that counts units, and takes each request."""

    busy = None

    def __init__(self, bill: Bill) -> None:
        super().__init__()
        self._bill = bill
        self._times = 1

    @override
    def put_item(self, **request: Any) -> dict[str, Any]:
        with self._write("PutItem", request["Item"], request["Item"]):
            return super().put_item(**request)

    @override
    def update_item(self, **request: Any) -> dict[str, Any]:
        with self._write("UpdateItem", request["Key"]):
            return super().update_item(**request)

    @override
    def delete_item(self, **request: Any) -> dict[str, Any]:
        with self._write("DeleteItem", request["Key"]):
            return super().delete_item(**request)

    @override
    def transact_write_items(self, **request: Any) -> dict[str, Any]:
        """Count only the ledger's element. The other elements are the team's writes."""
        self._bill.requests["dynamodb.TransactWriteItems"] += 1
        self._bill.requests["dynamodb.UpdateItem"] -= 1  # the table executes the ledger's element as an UpdateItem
        self._times = 2
        try:
            return super().transact_write_items(**request)
        finally:
            self._times = 1

    @override
    def batch_execute_statement(self, **request: Any) -> dict[str, Any]:
        self._bill.requests["dynamodb.BatchExecuteStatement"] += 1
        statements = request["Statements"]
        new = [None if one["Statement"].startswith("UPDATE") else inserted_item(one) for one in statements]
        keys = [_key(item or parse_update_statement(one)[2]) for item, one in zip(new, statements, strict=True)]
        before = [self.items.get(key) for key in keys]
        answer = super().batch_execute_statement(**request)
        after = [self.items.get(key) for key in keys]
        self._bill.write_units += sum(map(units.write_units, before, after, new))
        return answer

    @override
    def get_item(self, **request: Any) -> dict[str, Any]:
        self._bill.requests["dynamodb.GetItem"] += 1
        answer = super().get_item(**request)
        self._bill.read_units += units.read_units(answer.get("Item"))
        return answer

    @override
    def batch_get_item(self, **request: Any) -> dict[str, Any]:
        self._bill.requests["dynamodb.BatchGetItem"] += 1
        [wanted] = request["RequestItems"].values()
        self._bill.read_units += sum(units.read_units(self.items.get(_key(key))) for key in wanted["Keys"])
        return super().batch_get_item(**request)

    @override
    def query(self, **request: Any) -> dict[str, Any]:
        self._bill.requests["dynamodb.Query"] += 1
        answer = super().query(**request)
        self._bill.read_units += sum(map(units.read_units, answer["Items"] or [None]))
        return answer

    @contextmanager
    def _write(self, operation: str, key: Item, proposed: Item | None = None) -> Iterator[None]:
        """Count a write that succeeds or is refused."""
        before = self.items.get(_key(key))
        self._bill.requests[f"dynamodb.{operation}"] += 1
        try:
            yield
        finally:
            after = self.items.get(_key(key))
            in_index = units.index_units(before, after, INDEX)
            self._bill.write_units += self._times * (units.write_units(before, after, proposed) + in_index)


class MeteredS3(MemoryS3):
    """An in-memory bucket that counts requests."""

    def __init__(self, bill: Bill, *, clock: Callable[[], int]) -> None:
        super().__init__(clock=clock)
        self._bill = bill

    @override
    def head_object(self, **request: Any) -> dict[str, Any]:
        self._bill.requests["s3.HeadObject"] += 1
        return super().head_object(**request)

    @override
    def get_object(self, **request: Any) -> dict[str, Any]:
        self._bill.requests["s3.GetObject"] += 1
        return super().get_object(**request)

    @override
    def get_object_tagging(self, **request: Any) -> dict[str, Any]:
        self._bill.requests["s3.GetObjectTagging"] += 1
        return super().get_object_tagging(**request)

    @override
    def put_object_tagging(self, **request: Any) -> dict[str, Any]:
        self._bill.requests["s3.PutObjectTagging"] += 1
        return super().put_object_tagging(**request)


class MeteredSQS(MemorySQS):
    """An in-memory queue that counts the consumer's requests."""

    def __init__(self, bill: Bill, *, clock: Callable[[], int], visibility_seconds: float) -> None:
        super().__init__(clock=clock, visibility_seconds=visibility_seconds)
        self._bill = bill

    @override
    def get_queue_attributes(self, **request: Any) -> dict[str, Any]:
        self._bill.requests["sqs.GetQueueAttributes"] += 1
        return super().get_queue_attributes(**request)

    @override
    def change_message_visibility_batch(self, **request: Any) -> dict[str, Any]:
        self._bill.requests["sqs.ChangeMessageVisibilityBatch"] += 1
        return super().change_message_visibility_batch(**request)

    @override
    def send_message(self, **request: Any) -> None:
        self._bill.requests["sqs.SendMessage"] += 1
        super().send_message(**request)


class MeteredPipeline(LocalPipeline):
    """A local pipeline that counts. With `processing_time`, its workers are warm and claim in groups."""

    def __init__(
        self,
        processor: Processor | BatchProcessor = lambda _: "done",
        *,
        processing_time: ProcessingTime | None = None,
        batch_size: int = 1,
        commit_together: bool = False,
        execution_hours: float = 0,
        **options: Any,
    ) -> None:
        super().__init__(processor, commit_together=commit_together, **options)
        self._execution_ms = round(execution_hours * 3_600_000) or self._execution_ms
        self.bill = Bill()
        on_tags = self._s3.on_tags
        self._s3 = MeteredS3(self.bill, clock=self.clock)
        self._s3.on_tags = on_tags
        self._sqs = MeteredSQS(self.bill, clock=self.clock, visibility_seconds=self._visibility_seconds)
        self._dynamodb = MeteredDynamoDB(self.bill)
        self._table = LedgerTable(cast("Any", self._dynamodb), TABLE)
        self._row_history = RowHistoryRecord(self._settings, self._table, self.clock)
        self._row_history.begin()
        self.start = self.bill.copy()
        """The requests at the start of an execution environment. No other figure includes them."""
        self.bill.clear()
        self._processing_time, self._batch_size = processing_time, batch_size
        self.stdout = MeteredOutput(self.bill)
        self._os_variables = {
            "POWERTOOLS_SERVICE_NAME": next(_SERVICES),
            "POWERTOOLS_METRICS_NAMESPACE": "IntakeLedger",
            "POWERTOOLS_LOG_LEVEL": "INFO",
            "_X_AMZN_TRACE_ID": "Root=1-67450dd2-0123456789abcdef01234567;Parent=0123456789abcdef;Sampled=0",
        }
        self.last = ""
        """The last message."""

    @override
    def _make_telemetry(self) -> Telemetry:
        return cast("Telemetry", _Both(super()._make_telemetry(), PowertoolsTelemetry()))

    @override
    def turn(self, worker: LocalWorker | None = None) -> int:
        with mock.patch.dict(os.environ, self._os_variables), redirect_stdout(self.stdout):
            return super().turn(worker)

    @override
    def send(self, body: str) -> None:
        self.last = body
        super().send(body)

    def resend(self) -> None:
        """Send the last message again."""
        super().send(self.last)

    def deliver_once(self) -> None:
        """Deliver one batch to one worker."""
        self.turn()

    def item(self) -> Item:
        """Return the only row as it is stored."""
        [found] = [item for item in self._dynamodb.items.values() if "status" in item]
        return found

    def settle(self) -> None:
        """Process all messages, and reset the counts."""
        self.run()
        self.bill.clear()


def _key(item: Item) -> Key:
    return item["pk"]["S"], item["sk"]["S"]
