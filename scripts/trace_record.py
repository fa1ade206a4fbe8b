"""Print each call that one record causes in the runtime, from the consumer's handler to the commit, and the totals.

Run it from the root of the project: `python scripts/trace_record.py`. Calls of the local pipeline and of libraries are
left out. The totals show how long the route is that a reader has to follow.
"""

import sys
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import intake_ledger
from cdk_intake_ledger.testing import LocalPipeline
from intake_ledger import ObjectChange

RUNTIME = Path(intake_ledger.__file__).parent


class Call(NamedTuple):
    """A call of a function of the runtime."""

    depth: int
    file: str
    function: str


def process(change: ObjectChange) -> str:
    """Read the object and name the effect."""
    with change.open() as stream:
        stream.read()
    return change.key


def trace() -> list[Call]:
    """Process one record, and return its calls in order."""
    pipeline = LocalPipeline(process)
    pipeline.put("a.csv", b"10 EUR")
    calls: list[Call] = []
    depth = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal depth
        path = Path(frame.f_code.co_filename)
        name = frame.f_code.co_qualname
        if RUNTIME not in path.parents or "<" in name:
            return
        if event == "call" and (depth or name == "Consumer.handle"):
            calls.append(Call(depth, str(path.relative_to(RUNTIME)), name))
            depth += 1
        elif event == "return" and depth:
            depth -= 1

    sys.setprofile(profile)
    try:
        pipeline.run()
    finally:
        sys.setprofile(None)
    return calls


def main() -> None:
    """Print the calls and the totals."""
    calls = trace()
    for call in calls:
        print(f"{'  ' * call.depth}{call.file}  {call.function}")
    files = [call.file for call in calls]
    changes = sum(one != other for one, other in zip(files, [None, *files], strict=False))
    functions = len({(call.file, call.function) for call in calls})
    print(f"{len(calls)} calls of {functions} functions in {len(set(files))} files, {changes} changes of file")


if __name__ == "__main__":
    main()
