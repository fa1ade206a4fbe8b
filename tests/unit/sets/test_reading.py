"""The parts of a set are read one after the other, with the connections, the memory and the disk of one."""

import gc
import io
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intake_ledger import FileSet, ObjectReadError, SetFile
from intake_ledger.processor.object_stream import ObjectStream, OpenedObject
from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.row import Status
from intake_ledger.set_members.forms import FormKind, FormSettings
from tests.settings import examples
from tests.unit.sets.bench import SetBench

MARKER = FormSettings(FormKind.MARKER, "exports/*/_SUCCESS")
CONTENT = b"key,value\n" + b"1,2\n" * 50_000


class Bodies:
    """Open streams and their number."""

    def __init__(self, content: bytes = CONTENT) -> None:
        self.content = content
        self.open = 0
        self.most = 0

    def __call__(self) -> ObjectStream:
        self.open += 1
        self.most = max(self.most, self.open)
        return ObjectStream(_Body(self), len(self.content))


class _Body(io.BytesIO):
    def __init__(self, bodies: Bodies) -> None:
        super().__init__(bodies.content)
        self._bodies = bodies

    def close(self) -> None:
        if not self.closed:
            self._bodies.open -= 1
        super().close()


def parts(number: int, bodies: Bodies) -> tuple[list[SetFile], list[OpenedObject]]:
    """The files of a set, as its call makes them."""
    state = State(StateKind.OBJECT, "version")
    opened = [OpenedObject(bodies, one_of_many=True) for _ in range(number)]
    files = [SetFile(f"part-{index}", state, one, lambda _: pytest.fail("no row")) for index, one in enumerate(opened)]
    return files, opened


def files_of_this_process() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


WAYS: dict[str, Callable[[SetFile], object]] = {
    "all lines": lambda part: sum(1 for _ in part.lines()),
    "the first row": lambda part: next(part.csv_rows()),
    "a generator that is never begun": lambda part: part.json_lines(),
    "the content": lambda part: part.read(len(CONTENT)),
    "a stream without with": lambda part: part.open().readline(),
    "a text": lambda part: io.TextIOWrapper(part.open()).readline(),
    "a temporary file": lambda part: part.download().read(10),
}


@pytest.mark.failure_mode("F270")
@pytest.mark.parametrize("way", WAYS)
def test_a_part_that_was_read_keeps_nothing_open(way: str) -> None:
    bodies = Bodies()
    files_before = files_of_this_process()
    for part in parts(20, bodies)[0]:
        WAYS[way](part)
        assert bodies.open == 0
        assert files_of_this_process() == files_before
    assert bodies.most == 1


@pytest.mark.failure_mode("F270")
def test_ten_thousand_parts_are_read_in_flat_memory() -> None:
    bodies, number = Bodies(CONTENT[:50_000]), examples(10_000)
    members, opened = parts(number, bodies)
    gc.collect()
    tracemalloc.start()
    try:
        for part in members:
            next(part.csv_rows())
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(opened) == number
    assert bodies.most == 1
    # Some hundred bytes for each part, and the buffers of one.
    assert kept < 500 * number, kept
    assert peak < kept + 2_000_000


@pytest.mark.failure_mode("F270")
def test_a_stream_and_a_file_that_are_in_use_stay_open_until_the_end_of_the_attempt() -> None:
    bodies = Bodies()
    [part], [opened] = parts(1, bodies)
    with opened:
        stream, file = part.open(), part.download()
        gc.collect()
        assert (stream.readline(), file.readline()) == (b"key,value\n", b"key,value\n")
    assert stream.closed
    assert file.closed


@pytest.mark.failure_mode("F270")
def test_a_read_that_failed_fails_the_attempt_although_its_stream_is_forgotten() -> None:
    """The processor may catch the error of a part, and return."""
    bodies = Bodies()
    [part], [opened] = parts(1, bodies)

    def cut() -> ObjectStream:
        return ObjectStream(io.BytesIO(CONTENT[:100]), len(CONTENT))

    opened._open_stream = cut
    opened.__enter__()
    with pytest.raises(ObjectReadError):
        part.read(len(CONTENT))
    gc.collect()
    with pytest.raises(ObjectReadError):
        opened.__exit__(None, None, None)


@pytest.mark.failure_mode("F270")
def test_the_call_of_a_set_reads_its_parts_with_one_connection() -> None:
    """With the loop of the page: `for row in part.csv_rows()`."""
    bench = SetBench(MARKER)
    connections: list[Any] = []
    open_at_once: list[int] = []
    open_files: list[int] = []
    get_object = bench.s3.get_object

    def counted(**request: Any) -> dict[str, Any]:
        answer = get_object(**request)
        connections.append(bench.s3._last)
        open_at_once.append(sum(not one.closed for one in connections))
        return answer

    bench.s3.get_object = counted  # type: ignore[method-assign]

    def load(files: FileSet) -> None:
        for part in files.parts:
            for _ in part.csv_rows():
                break
            part.open().readline()
            part.download()
            open_at_once.append(sum(not one.closed for one in connections))
            open_files.append(files_of_this_process())

    bench.process = load
    for number in range(30):
        bench.put(f"exports/1/{number}", "a,b\n1,2\n")
    bench.put("exports/1/_SUCCESS", "")
    bench.run()
    assert bench.known("exports/1/_SUCCESS").status is Status.PROCESSED
    assert len(connections) == 30 + 90, "each part was opened by its own pipeline before"
    assert max(open_at_once) == 1
    assert len(set(open_files)) == 1
