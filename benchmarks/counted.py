"""Counts the requests and units of a change. The real consumer and ledger use AWS services in memory.

    python -m benchmarks.counted

The count has the consumer's requests from the arrival of a message until its deletion. It does not have the requests of
Lambda's poller, which any consumer needs (receive, delete). The processor's read of the object has a separate column.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast, override

from benchmarks import units
from benchmarks.measure import table

from cdk_intake_ledger.testing import Fault, LocalPipeline
from intake_ledger.consumer import ProcessingTime
from intake_ledger.ledger import CompletenessRecord, LedgerTable
from intake_ledger.processor import Commit, ObjectChange, Processor
from intake_ledger.protocol import Ordering, Unprocessable
from intake_ledger_testing.dynamodb_expressions import Item, inserted_item, parse_update_statement
from intake_ledger_testing.local_pipeline import TABLE
from intake_ledger_testing.memory_dynamodb import Key, MemoryDynamoDB
from intake_ledger_testing.memory_s3 import MemoryS3
from intake_ledger_testing.memory_sqs import MemorySQS

INDEX = ("needs_review", "updated_at")
"""The key attributes of the ledger's review index."""
KEY = "in/2026/11/" + "k" * (256 - len("in/2026/11/"))
"""A key with 256 bytes."""


@dataclass
class Bill:
    """Requests and units. Requests are named by service and operation."""

    requests: Counter[str] = field(default_factory=Counter)
    write_units: int = 0
    read_units: int = 0

    def clear(self) -> None:
        """Reset the counts."""
        self.requests.clear()
        self.write_units = self.read_units = 0

    def copy(self) -> "Bill":
        return Bill(self.requests.copy(), self.write_units, self.read_units)

    def minus(self, before: "Bill") -> "Bill":
        """Return the difference to earlier counts."""
        return Bill(
            self.requests - before.requests, self.write_units - before.write_units, self.read_units - before.read_units
        )

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


class MeteredDynamoDB(MemoryDynamoDB):
    """An in-memory table that counts units."""

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


class MeteredSQS(MemorySQS):
    """An in-memory queue that counts the consumer's requests."""

    def __init__(self, bill: Bill, *, clock: Callable[[], int], visibility_seconds: float) -> None:
        super().__init__(clock=clock, visibility_seconds=visibility_seconds)
        self._bill = bill

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
        processor: Processor = lambda _: "done",
        *,
        processing_time: ProcessingTime | None = None,
        batch_size: int = 1,
        commit_together: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(processor, commit_together=commit_together, **options)
        self.bill = Bill()
        self._s3 = MeteredS3(self.bill, clock=self._clock)
        self._sqs = MeteredSQS(self.bill, clock=self._clock, visibility_seconds=self._visibility_seconds)
        self._dynamodb = MeteredDynamoDB(self.bill)
        self._table = LedgerTable(cast("Any", self._dynamodb), TABLE)
        self._completeness = CompletenessRecord(self._settings, self._table, self._clock)
        self._completeness.begin()
        self.start = self.bill.copy()
        """The requests at the start of an execution environment. No other figure includes them."""
        self.bill.clear()
        self._processing_time, self._batch_size = processing_time, batch_size
        self.last = ""
        """The last message."""

    @override
    def send(self, body: str) -> None:
        self.last = body
        super().send(body)

    def resend(self) -> None:
        """Send the last message again."""
        super().send(self.last)

    def deliver_once(self) -> None:
        """Deliver one batch to one worker."""
        self._invoke(self._sqs.receive(self._batch_size, lambda visible: visible))

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


# -- counted cases ---------------------------------------------------------------------------------------------------


def new_key() -> Bill:
    pipeline = MeteredPipeline()
    pipeline.put(KEY, "1")
    pipeline.run()
    return pipeline.bill


def new_key_with_transaction() -> Bill:
    """The processor's write is not counted, because it is needed without the ledger too."""
    write = {"Put": {"TableName": "invoices", "Item": {"id": {"S": "1"}}}}
    pipeline = MeteredPipeline(lambda _: Commit("done", transact=[write]))
    pipeline.put(KEY, "1")
    pipeline.run()
    return pipeline.bill


def start() -> Bill:
    """Return the cost of an environment's start, at which the first claim reads the ledger's record."""
    return MeteredPipeline().start


def grouped(size: int, *, commit_together: bool = False) -> Bill:
    """The cost of a batch of new keys for a worker that has measured its processing time."""
    pipeline = MeteredPipeline(processing_time=ProcessingTime(1), batch_size=size, commit_together=commit_together)
    for number in range(size):
        pipeline.put(f"{KEY[:-4]}{number:04}", "1")
    pipeline.run()
    return pipeline.bill


def _settled(**options: Any) -> "MeteredPipeline":
    """Return a pipeline that has processed one key, which is not counted."""
    pipeline = MeteredPipeline(**options)
    pipeline.put(KEY, "1")
    pipeline.settle()
    return pipeline


def duplicate() -> Bill:
    pipeline = _settled()
    pipeline.resend()
    pipeline.run()
    return pipeline.bill


def duplicate_in_flight() -> Bill:
    """Deliver a message during the first attempt, and again after its lease."""
    counted: list[Bill] = []

    def meanwhile(_: ObjectChange) -> str:
        before = pipeline.bill.copy()
        pipeline.resend()
        pipeline.deliver_once()
        counted.append(pipeline.bill.minus(before))
        return "done"

    pipeline = MeteredPipeline(meanwhile)
    pipeline.put(KEY, "1")
    pipeline.deliver_once()
    before = pipeline.bill.copy()
    pipeline.run()
    [first], rest = counted, pipeline.bill.minus(before)
    return Bill(
        first.requests + rest.requests, first.write_units + rest.write_units, first.read_units + rest.read_units
    )


def overwrite(ordering: Ordering = Ordering.LATEST) -> Bill:
    pipeline = _settled(ordering=ordering)
    pipeline.put(KEY, "2")
    pipeline.run()
    return pipeline.bill


def stale() -> Bill:
    """Deliver the first version's event after the second version was processed."""
    pipeline = MeteredPipeline()
    pipeline.put(KEY, "1")
    pipeline.lose()
    late = pipeline.last
    pipeline.put(KEY, "2")
    pipeline.settle()
    pipeline.send(late)
    pipeline.run()
    return pipeline.bill


def failed_attempt() -> Bill:
    pipeline = MeteredPipeline(_failing([1]))
    pipeline.put(KEY, "1")
    pipeline.deliver_once()
    return pipeline.bill


def retry_after_failure() -> Bill:
    pipeline = MeteredPipeline(_failing([1]))
    pipeline.put(KEY, "1")
    pipeline.deliver_once()
    pipeline.bill.clear()
    pipeline.run()
    return pipeline.bill


def retry_after_crash() -> Bill:
    pipeline = MeteredPipeline()
    pipeline.put(KEY, "1")
    pipeline.next(Fault.KILLED_BEFORE_EFFECT)
    pipeline.deliver_once()
    pipeline.bill.clear()
    pipeline.run()
    return pipeline.bill


def rejected() -> Bill:
    def refuse(_: ObjectChange) -> str:
        raise Unprocessable("no invoice in it")

    pipeline = MeteredPipeline(refuse)
    pipeline.put(KEY, "1")
    pipeline.run()
    return pipeline.bill


def removal(*, deletes: bool) -> Bill:
    """Count a removal. With `deletes` the processor is called."""
    pipeline = _settled(deletes=deletes)
    pipeline.delete(KEY)
    pipeline.run()
    return pipeline.bill


def audit_resubmission() -> Bill:
    """Count the consumer's requests for a key whose event was lost and which the audit resubmits."""
    pipeline = MeteredPipeline()
    pipeline.put(KEY, "1")
    pipeline.lose()
    pipeline.audit(KEY)
    pipeline.run()
    return pipeline.bill


def reprocess() -> Bill:
    pipeline = _settled()
    pipeline.reprocess(KEY)
    pipeline.run()
    return pipeline.bill


def _failing(times: list[int]) -> Processor:
    """A processor that fails some times and then succeeds."""

    def process(_: ObjectChange) -> str:
        if times[0]:
            times[0] -= 1
            raise ConnectionError("the downstream is out")
        return "done"

    return process


CASES: dict[str, Callable[[], Bill]] = {
    "new key": new_key,
    "new key, with a transaction": new_key_with_transaction,
    "duplicate": duplicate,
    "duplicate in flight": duplicate_in_flight,
    "overwrite": overwrite,
    "overwrite, EVERY_VERSION": lambda: overwrite(Ordering.EVERY_VERSION),
    "stale": stale,
    "failed attempt": failed_attempt,
    "retry after failure": retry_after_failure,
    "retry after crash": retry_after_crash,
    "rejected": rejected,
    "removal": lambda: removal(deletes=True),
    "removal, not told": lambda: removal(deletes=False),
    "audit resubmission": audit_resubmission,
    "reprocess": reprocess,
}
GROUPS = (10, 100)


def measure() -> dict[str, dict[str, float]]:
    """Return requests by service and units for each change."""
    bills = {name: (case(), 1) for name, case in CASES.items()}
    bills |= {f"new key, batch of {size}": (grouped(size), size) for size in GROUPS}
    bills |= {f"the same, commit_together, {size}": (grouped(size, commit_together=True), size) for size in GROUPS}
    bills["start of an environment"] = (start(), 1)
    return {
        name: {
            "dynamodb requests": bill.dynamodb / changes,
            "write units": bill.write_units / changes,
            "read units": bill.read_units / changes,
            "HEAD": bill.heads / changes,
            "sqs requests": bill.sqs / changes,
            "all requests": bill.total / changes,
            "the processor's GET": bill.gets / changes,
        }
        for name, (bill, changes) in bills.items()
    }


def main() -> None:
    print(table("Requests and units per change", measure()))


if __name__ == "__main__":
    main()
