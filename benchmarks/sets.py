"""Counts the requests and units of sets of files. The real consumers use AWS services in memory.

    python -m benchmarks.sets [--write]     # --write writes the table into docs/file-sets.md

The count has the requests about sets: those of the function of sets, and the queries and messages with which the
consumer of the parts wakes sets. It does not have the other requests about the parts, which cost as much without sets.
Each worker is new. A worker that has seen the manifest before does not read it again.
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast, override

from benchmarks import units
from benchmarks.metered import Bill, MeteredDynamoDB, MeteredS3, MeteredSQS
from tests.inside.kit import LocalWorker
from tests.unit.set_bench import SetBench

from intake_ledger.ledger import LedgerTable, RowHistoryRecord
from intake_ledger.set_members import FormKind, FormSettings

PAGE = Path(__file__).parents[1] / "docs" / "file-sets.md"
BEGIN, END = "<!-- begin: cost of sets -->\n", "\n<!-- end -->"
FORM = FormSettings(FormKind.MANIFEST, "loads/*/manifest.json")
FOLDER = "loads/2026-11-23/"
MANIFEST = f"{FOLDER}manifest.json"
SIZES = (10, 100, 300)


class _Table(MeteredDynamoDB):
    """Counts the requests of the function of sets, and the queries of the parts' consumer."""

    def __init__(self, bill: Bill) -> None:
        super().__init__(bill)
        self._counted, self._other = bill, Bill()

    def count(self, *, on: bool) -> None:
        self._bill = self._counted if on else self._other

    @override
    def query(self, **request: Any) -> dict[str, Any]:
        answer = super().query(**request)
        self._counted.requests["dynamodb.Query"] += 1
        size = sum(map(units.item_size, answer["Items"]))
        self._counted.read_units += max(1, -(-size // units.READ_UNIT))
        return answer

    @override
    def batch_write_item(self, **request: Any) -> dict[str, Any]:
        self._bill.requests["dynamodb.BatchWriteItem"] += 1
        [writes] = request["RequestItems"].values()
        for item in (write["PutRequest"]["Item"] for write in writes):
            before = self.items.get((item["pk"]["S"], item["sk"]["S"]))
            self._bill.write_units += units.write_units(before, item)
        return super().batch_write_item(**request)


class _Objects(MeteredS3):
    def __init__(self, bill: Bill, *, clock: Callable[[], int]) -> None:
        super().__init__(bill, clock=clock)
        self._counted, self._other = bill, Bill()

    def count(self, *, on: bool) -> None:
        self._bill = self._counted if on else self._other


class MeteredSets(SetBench):
    """A pipeline with sets that counts the requests about sets."""

    def __init__(self, parts: int) -> None:
        super().__init__(FORM)
        self.bill = Bill()
        self._objects = self._s3 = _Objects(self.bill, clock=self.clock)
        self._items = self._dynamodb = _Table(self.bill)
        self._table = LedgerTable(cast("Any", self._items), "ledger")
        self._row_history = RowHistoryRecord(self._settings, self._table, self.clock)
        self._sqs = MeteredSQS(self.bill, clock=self.clock, visibility_seconds=self._visibility_seconds)
        self._sqs.send = self._hooked(self._sqs.send)  # type: ignore[method-assign]
        self.parts._use(self)  # noqa: SLF001 - as `LocalSets` does
        self._items.count(on=False)
        self._objects.count(on=False)
        self.keys = [f"{FOLDER}part-{number:05}.csv" for number in range(parts)]

    def put_manifest(self) -> None:
        self.put(MANIFEST, json.dumps([key.removeprefix(FOLDER) for key in self.keys]))

    def settle(self) -> None:
        """Process all messages, and reset the counts."""
        self.run()
        self.bill.clear()

    @override
    def _hooked(self, send: Callable[..., None]) -> Callable[..., None]:
        hooked = super()._hooked(send)

        def wake(body: str, *plain: object, **named: object) -> None:
            self.bill.requests["sqs.SendMessage"] += 1
            hooked(body, *plain, **named)

        return wake

    @override
    def _handled(self, worker: LocalWorker, batch: Sequence[dict[str, Any]]) -> list[str]:
        self._items.count(on=True)
        self._objects.count(on=True)
        failed = super()._handled(worker, batch)
        self._items.count(on=False)
        self._objects.count(on=False)
        return failed


def new(parts: int) -> Bill:
    """The parts are committed, and then the manifest arrives."""
    sets = _with_parts(parts)
    sets.run()
    sets.put_manifest()
    sets.run()
    assert len(sets.runs) == 1
    return sets.bill


def new_manifest_first(parts: int) -> Bill:
    """The manifest waits, and the parts arrive together. A batch has ten messages, and wakes the set once."""
    sets = MeteredSets(parts)
    sets.put_manifest()
    sets.run(0.01)
    for key in sets.keys:
        sets.put(key)
    sets.run()
    assert len(sets.runs) == 1
    return sets.bill


def _with_parts(parts: int) -> MeteredSets:
    sets = MeteredSets(parts)
    for key in sets.keys:
        sets.put(key)
    return sets


def _processed(parts: int) -> MeteredSets:
    sets = _with_parts(parts)
    sets.put_manifest()
    sets.settle()
    assert len(sets.runs) == 1
    return sets


def replaced(parts: int) -> Bill:
    """One part of a processed set is replaced."""
    sets = _processed(parts)
    sets.put(sets.keys[0], "corrected")
    sets.run()
    assert len(sets.runs) == 2
    return sets.bill


def duplicate(parts: int) -> Bill:
    """The event of a part of a processed set is delivered again."""
    sets = _with_parts(parts)
    body = sets.parts._sqs.messages[-1].body  # noqa: SLF001 - as below
    sets.put_manifest()
    sets.settle()
    sets.parts.send(body)
    sets.run()
    assert len(sets.runs) == 1
    return sets.bill


def waiting_look(parts: int) -> Bill:
    """The message of a waiting set comes back. One part is missing."""
    sets = MeteredSets(parts)
    for key in sets.keys[1:]:
        sets.put(key)
    sets.put_manifest()
    sets.run(0.01)
    [message] = sets.queue.messages
    sets.bill.clear()
    sets.now = max(sets.now, message.visible_at)
    sets.turn()
    return sets.bill


CASES: dict[str, Callable[[int], Bill]] = {
    "a new set, whose manifest arrives last": new,
    "a new set, whose manifest arrives first": new_manifest_first,
    "a part of it is replaced": replaced,
    "a copy of the event of a part": duplicate,
    "a look at a set that waits for one part": waiting_look,
}


def lines() -> str:
    """The table of the page."""
    rows: list[tuple[str, ...]] = [
        ("", "parts", "DynamoDB requests", "write units", "read units", "S3 requests", "SQS requests")
    ]
    for name, count in CASES.items():
        for parts in SIZES:
            bill = count(parts)
            numbers = (parts, bill.dynamodb, bill.write_units, bill.read_units, bill.of("s3"), bill.sqs)
            rows.append((name, *(f"{number:,}" for number in numbers)))
    head, *rest = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "| --- |" + " ---: |" * (len(rows[0]) - 1), *rest])


def shown() -> str:
    """The table as the page has it."""
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def main() -> None:
    counted = lines()
    print(counted)
    if "--write" in sys.argv[1:]:
        head, begin, rest = PAGE.read_text().partition(BEGIN)
        assert begin, f"{PAGE} has no place for the table"
        PAGE.write_text(head + begin + counted + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
