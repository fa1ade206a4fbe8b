"""Counts the requests of `change.output` to S3, in the real consumer with AWS in memory, and their dollars."""

from collections import Counter
from collections.abc import Callable

from cdk_intake_ledger.testing import Fault, LocalPipeline
from intake_ledger import ObjectChange, Rejects
from intake_ledger.outputs.upload import PART_BYTES
from intake_ledger.processor.object_change import Processor
from intake_ledger_testing import prices

KEY = "in/a"
PARTS = 3
_READS = frozenset({"HeadObject"})


def process(change: ObjectChange) -> None:
    """Write an output. The object's content is the number of its parts."""
    output = change.output("outputs", f"out/{change.key}")
    if change.kind == "created":
        output.put(str(change.fence).encode().ljust((int(change.read(10)) - 1) * PART_BYTES + 1))
    else:
        output.remove()


def process_rows(change: ObjectChange) -> None:
    """Reject the bad rows of a file of numbers."""
    list(change.csv_rows(columns={"n": int}, on_error=Rejects(max_share=None)))


GOOD, BAD = "n\n1\n", "n\nx\n"


class Counting(LocalPipeline):
    """A pipeline whose requests to output buckets are counted."""

    def __init__(self, processor: Processor = process) -> None:
        super().__init__(processor, deletes=True, keep_rejects=processor is process_rows)

    def count(self) -> Counter[str]:
        """Run, and return the requests since the last call by operation."""
        self.run()
        counted = Counter(self._outputs.requests)
        self._outputs.requests.clear()
        return counted


def first(parts: int = 1) -> Counter[str]:
    pipeline = Counting()
    pipeline.put(KEY, str(parts))
    return pipeline.count()


def later(parts: int = 1) -> Counter[str]:
    pipeline = Counting()
    pipeline.put(KEY, "1")
    pipeline.count()
    pipeline.put(KEY, str(parts))
    return pipeline.count()


def removal() -> Counter[str]:
    pipeline = Counting()
    pipeline.put(KEY, "1")
    pipeline.count()
    pipeline.delete(KEY)
    return pipeline.count()


def retry() -> Counter[str]:
    """The first worker died before its effect. Its row remains, so the second one looks first."""
    pipeline = Counting()
    pipeline.put(KEY, "1")
    pipeline.next(Fault.KILLED_BEFORE_EFFECT)
    return pipeline.count()


def rows(*contents: str, fault: Fault | None = None) -> Counter[str]:
    """The requests of the last of some states of a file, whose first worker may die."""
    pipeline = Counting(process_rows)
    for content in contents[:-1]:
        pipeline.put(KEY, content)
        pipeline.count()
    pipeline.put(KEY, contents[-1])
    pipeline.next(fault)
    return pipeline.count()


CASES: dict[str, Callable[[], Counter[str]]] = {
    "the first output of a key": first,
    "a later output": later,
    "the first output, after a worker that died": retry,
    "a removal": removal,
    f"the first output, {PARTS} parts": lambda: first(PARTS),
    f"a later output, {PARTS} parts": lambda: later(PARTS),
    "a file without rejected rows": lambda: rows(GOOD),
    "a file with rejected rows": lambda: rows(BAD),
    "the repaired file": lambda: rows(BAD, GOOD),
    "a file without rejected rows, after a worker that died": lambda: rows(GOOD, fault=Fault.KILLED_BEFORE_EFFECT),
}


def measure() -> dict[str, dict[str, float]]:
    """Return the requests of one output, and the dollars of a million."""
    rows = {}
    for name, case in CASES.items():
        requests = case()
        heads = sum(number for operation, number in requests.items() if operation in _READS)
        writes = requests.total() - heads
        dollars = (heads * prices.S3_GET + writes * prices.S3_PUT) * prices.MILLION
        rows[name] = {
            "HEAD": heads,
            "PUT, parts, begin and end of an upload": writes,
            "dollars for a million": round(dollars, 2),
        }
    return rows
