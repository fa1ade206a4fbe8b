"""Print the calls for one record in the runtime, from the consumer's handler to the commit, and the totals.

Run it from the root of the project: `python scripts/trace_record.py`. Calls of the local pipeline and of libraries are
left out. The totals show the length of the route that a reader follows.
"""

import itertools
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


class Route(NamedTuple):
    """The size of a route: its calls, the different functions and files, and the changes from one file to another."""

    calls: int
    functions: int
    files: int
    changes: int


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


def route(calls: list[Call]) -> Route:
    """Count the calls, functions, files and changes of file."""
    files = [call.file for call in calls]
    changes = sum(file != before for before, file in itertools.pairwise([None, *files]))
    return Route(len(calls), len({(call.file, call.function) for call in calls}), len(set(files)), changes)


def main() -> None:
    """Print the calls and the totals."""
    calls = trace()
    for call in calls:
        print(f"{'  ' * call.depth}{call.file}  {call.function}")
    size = route(calls)
    print(f"{size.calls} calls of {size.functions} functions in {size.files} files, {size.changes} changes of file")


if __name__ == "__main__":
    main()
