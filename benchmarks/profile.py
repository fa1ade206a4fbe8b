"""Profiles rows of `benchmarks.cpu` by part of the code, in hundredths of the floor.

    python -m benchmarks.profile [--changes N]

A timer samples the stack after some CPU time. This changes the figures less than cProfile does, which overstates code
with many small calls. With a few thousand samples, a share of a tenth is exact to about a hundredth. Each sample counts
for the first part in the list that has a file on the stack, so that `json` and `email` count for their callers.
"""

import argparse
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from benchmarks.cpu import FLOOR, Payloads, cpu_ms, environment, rows, silence
from benchmarks.measure import table
from benchmarks.stub import stub

ROWS = (
    FLOOR,
    "two bare calls, the ledger's client",
    "group claims, batches of 10",
    "group claims, grouped commits, batches of 10",
    "group claims, grouped commits, batches of 100",
)
BOTO = "boto: "
PARTS: dict[str, tuple[str, ...]] = {
    "Powertools' metrics": ("/aws_lambda_powertools/metrics/",),
    "log lines": ("/intake_ledger/observability/powertools.py", "/intake_ledger/observability/log_lines.py"),
    "boto: signing": ("/botocore/signers.py", "/botocore/auth.py"),
    "boto: sending, receiving": ("/botocore/httpsession.py", "/urllib3/"),
    "boto: reading the answer": ("/botocore/parsers.py",),
    "boto: finding the endpoint": ("/botocore/regions.py", "/botocore/endpoint_provider.py"),
    # botocore validates parameters during serialization.
    "boto: writing the body": ("/botocore/serialize.py",),
    "boto: checking parameters": ("/botocore/validate.py",),
    "boto: the user agent": ("/botocore/useragent.py",),
    "boto: everything else": ("/botocore/",),
    "reading messages": ("/intake_ledger/events/",),
    "rows and statements": (
        "/intake_ledger/protocol/row.py",
        "/intake_ledger/ledger/conditions.py",
        "/intake_ledger/ledger/dynamodb_table.py",
    ),
    "the deadline": ("/intake_ledger/consumer/deadline.py",),
    "deciding, and the rest": ("/intake_ledger/",),
}
"""The parts in order of priority. Code that a part calls counts for the part, except for the parts above it."""
REST = "the benchmark itself"
SECONDS = 0.001
"""The shortest CPU time between two samples. The machine's clock may be coarser."""


def part(frame: FrameType | None) -> str:
    """Return the part of a stack."""
    files = set()
    while frame is not None:
        files.add(frame.f_code.co_filename)
        frame = frame.f_back
    for name, marks in PARTS.items():
        if any(mark in file for file in files for mark in marks):
            return name
    return REST


@contextmanager
def looking(found: Callable[[], Counter[str]]) -> Iterator[None]:
    """Count the samples of a block by part, in the counter that `found` returns.

    The timer does not restart: a timer that starts with each piece never samples its start.
    """

    def look(_signal: int, frame: FrameType | None) -> None:
        found()[part(frame)] += 1

    before = signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, SECONDS, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def shares(found: Counter[str], of_the_floor: float) -> dict[str, float]:
    """Return each part in hundredths of the floor, the sum of boto's parts, the total, and the number of samples."""
    looks = found.total()
    each = {name: 100 * of_the_floor * found[name] / max(looks, 1) for name in (*PARTS, REST)}
    boto = sum(value for name, value in each.items() if name.startswith(BOTO))
    return each | {"all of boto": boto, "all": 100 * of_the_floor, "looks at the stack": looks}


def measure(*, changes: int = 4_000) -> dict[str, dict[str, float]]:
    """Return the hundredths of the floor that each part takes in each row."""
    with stub() as endpoint, environment(endpoint), silence():
        payloads = Payloads(changes)
        runs = rows(payloads)
        found: dict[str, Counter[str]] = {name: Counter() for name in ROWS}
        spent = dict.fromkeys(ROWS, 0.0)
        for name in ROWS:
            runs[name](0)
        now = FLOOR
        with looking(lambda: found[now]):
            for piece in range(len(payloads)):
                # Alternate the direction, so that other load on the machine affects all rows.
                for now in ROWS[:: 1 if piece % 2 else -1]:
                    spent[now] += cpu_ms(runs[now], piece)
    columns = {name: shares(found[name], spent[name] / spent[FLOOR]) for name in ROWS}
    return {name: {row: parts[name] for row, parts in columns.items()} for name in columns[FLOOR]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=4_000, help="a multiple of 100")
    found = measure(changes=parser.parse_args().changes)
    print(table("Where the CPU goes, in hundredths of the floor", found))


if __name__ == "__main__":
    main()
