"""Counts the requests and units of a change. The real consumer and ledger use AWS services in memory.

    python -m benchmarks.counted

The count has the consumer's requests from the arrival of a message until its deletion. It does not have the requests of
Lambda's poller, which any consumer needs (receive, delete). The processor's read of the object has a separate column.
"""

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.measure import table
from benchmarks.metered import Bill, MeteredPipeline

from cdk_intake_ledger.testing import Fault, LocalRunner
from intake_ledger.consumer.batch import ProcessingTime
from intake_ledger.processor.object_change import Commit, ObjectChange, Processor
from intake_ledger.protocol.errors import Unprocessable
from intake_ledger.protocol.row import Ordering

KEY = "in/2026/11/" + "k" * (256 - len("in/2026/11/"))
"""A key with 256 bytes."""
GROUPED = "in/{year}/"
"""The pattern of its group."""


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


def new_key_with_tag() -> Bill:
    """The version is tagged after its commit."""
    pipeline = MeteredPipeline(after_commit=("intake", "done"))
    pipeline.put(KEY, "1")
    pipeline.run()
    return pipeline.bill


def new_key_that_awaits_a_tag() -> Bill:
    """Its first look finds no tag, and the event of the tag wakes it."""
    pipeline = MeteredPipeline(ready_when=("scan", ["clean"]))
    pipeline.put(KEY, "1")
    pipeline.deliver_once()
    pipeline.put_tag(KEY, "scan", "clean")
    del pipeline.bill.requests["s3.PutObjectTagging"]  # the scanner's
    pipeline.run()
    return pipeline.bill


def known_content(*, copied: bool) -> Bill:
    """A new key whose content is recorded, or its copy in place, by an environment that has described its table."""
    pipeline = MeteredPipeline(same_content=(86_400, None))
    pipeline.put(KEY, "1", sha256=True)
    if copied:
        pipeline.settle()
        pipeline.copy(KEY)
    pipeline.run()
    return pipeline.bill


def start() -> Bill:
    """Return the cost of an environment's start, at which the first claim reads the ledger's record."""
    return MeteredPipeline().start


def executed(runner: LocalRunner, hours: float) -> Bill:
    """A new key whose work is an execution of some hours. A poll sees its end."""
    answer: Any = {"commit": "done"}
    pipeline = MeteredPipeline(lambda _: answer, runner=runner, execution_hours=hours)
    pipeline.put(KEY, "1")
    pipeline.run()
    return pipeline.bill


def grouped(size: int, *, commit_together: bool = False) -> Bill:
    """The cost of a batch of new keys for a worker that has measured its processing time."""
    pipeline = MeteredPipeline(processing_time=ProcessingTime(1), batch_size=size, commit_together=commit_together)
    begun = pipeline.clock()
    for number in range(size):
        pipeline.clock.now = begun  # at one time: each put takes a second
        pipeline.put(f"{KEY[:-4]}{number:04}", "1")
    pipeline.run()
    return pipeline.bill


def in_calls(size: int) -> Bill:
    """The cost of a batch of new keys that one call of the processor has."""

    def load(changes: Sequence[ObjectChange]) -> dict[str, None]:
        for change in changes:
            change.read(100)
        return {change.idempotency_key: None for change in changes}

    pipeline = MeteredPipeline(load, batch_size=size, max_per_call=size)
    begun = pipeline.clock()
    for number in range(size):
        pipeline.clock.now = begun  # at one time: each put takes a second
        pipeline.put(f"{KEY[:-4]}{number:04}", "1")
    pipeline.run()
    return pipeline.bill


def new_key_of_a_group() -> Bill:
    """The second key of a group, whose lock is free."""
    pipeline = MeteredPipeline(exclusive_by=GROUPED)
    pipeline.put(f"{KEY[:-1]}0", "1")
    pipeline.settle()
    pipeline.put(KEY, "1")
    pipeline.run()
    return pipeline.bill


def wait_for_a_group(looks: int) -> Bill:
    """Deliver a message whose group is held. With two `looks`, count the second one."""
    counted: list[Bill] = []

    def meanwhile(_: ObjectChange) -> str:
        if not counted:
            pipeline.put(f"{KEY[:-1]}0", "1")
            for _look in range(looks):
                before = pipeline.bill.copy()
                pipeline.deliver_once()
                counted.append(pipeline.bill.minus(before))
                pipeline.clock.advance(60_000)
        return "done"

    pipeline = MeteredPipeline(meanwhile, exclusive_by=GROUPED)
    pipeline.put(KEY, "1")
    pipeline.deliver_once()
    return counted[-1]


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
    return first.plus(rest)


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
    "new key, with a tag": new_key_with_tag,
    "new key that awaits a tag": new_key_that_awaits_a_tag,
    "new key, with same_content": lambda: known_content(copied=False),
    "a copy in place, with same_content": lambda: known_content(copied=True),
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
    "new key of a group": new_key_of_a_group,
    "a group is held": lambda: wait_for_a_group(1),
    "a group is still held": lambda: wait_for_a_group(2),
}
GROUPS = (10, 100)


def measure() -> dict[str, dict[str, float]]:
    """Return requests by service and units for each change."""
    bills = {name: (case(), 1) for name, case in CASES.items()}
    bills |= {f"new key, batch of {size}": (grouped(size), size) for size in GROUPS}
    bills |= {f"the same, commit_together, {size}": (grouped(size, commit_together=True), size) for size in GROUPS}
    bills |= {f"the same, in one call, {size}": (in_calls(size), size) for size in GROUPS}
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
