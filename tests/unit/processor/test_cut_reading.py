"""F93: an attempt whose processor reads half an object fails, also if the processor returns normally."""

import csv
import gzip
import io
import zipfile
from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from PIL import Image
from pyarrow import csv as arrow_csv
from pyarrow import parquet

from cdk_intake_ledger.testing import Fault, LocalPipeline
from intake_ledger import Commit, ObjectChange, ObjectReadError, ObjectStream, Unprocessable
from intake_ledger.processor.object_change import Processor
from tests.known import known

ROWS = "".join(f"{number},row\n" for number in range(40_000)).encode()


def rows(stream: ObjectStream) -> int:
    return sum(1 for _ in csv.reader(io.TextIOWrapper(stream, encoding="utf-8", newline="")))


def plainly(change: ObjectChange) -> str:
    with change.open() as stream:
        return str(rows(stream))


def swallowing(change: ObjectChange) -> str:
    """Keep the rows that came."""
    found = 0
    with change.open() as stream:
        try:
            for _ in csv.reader(io.TextIOWrapper(stream, encoding="utf-8", newline="")):
                found += 1
        except Exception:  # noqa: BLE001 - processors do this
            print("the file seems to end here")
    return str(found)


def judging(change: ObjectChange) -> str:
    """Blame the file for each error."""
    try:
        return str(rows(change.open()))
    except Exception as error:
        raise Unprocessable("no CSV") from error


def replacing(change: ObjectChange) -> str:
    """Raise another error, as a library may do."""
    try:
        return str(rows(change.open()))
    except Exception:  # noqa: BLE001 - processors do this
        raise ValueError("cannot identify this file") from None


def reading_on(change: ObjectChange) -> str:
    """Catch the stream's own error and return."""
    with change.open() as stream:
        try:
            stream.read(len(ROWS))
        except ObjectReadError:
            return "0"
    return "40000"


def by_rows(change: ObjectChange) -> str:
    return str(sum(1 for _ in change.csv_rows(fieldnames=("number", "text"))))


def by_bytes(change: ObjectChange) -> str:
    return str(change.read(len(ROWS)).count(b"\n"))


def by_download(change: ObjectChange) -> str:
    with change.download() as file:
        return str(sum(1 for _ in file))


def by_arrow(change: ObjectChange) -> str:
    """In blocks, as pandas reads with `chunksize`."""
    options = arrow_csv.ReadOptions(column_names=["number", "text"], block_size=20_000)
    with change.open() as stream, arrow_csv.open_csv(stream, read_options=options) as reader:
        return str(sum(batch.num_rows for batch in reader))


@pytest.mark.failure_mode("F93")
@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
@pytest.mark.parametrize(
    "process", [plainly, swallowing, judging, replacing, reading_on, by_rows, by_bytes, by_download, by_arrow]
)
def test_half_an_object_is_never_committed(process: Processor, together: bool) -> None:
    """The attempt fails. The next attempt reads the complete object and commits."""
    pipeline = LocalPipeline(process, commit_together=together)
    pipeline.put("a", ROWS)
    pipeline.next(Fault.CONNECTION_CUT)
    pipeline.run()
    row = known(pipeline.row("a"))
    assert (row.status, row.commit_id) == ("PROCESSED", "40000")
    assert pipeline.outcomes == {"Failed": 1, "Committed": 1}
    assert len(pipeline.calls) == 2
    assert not pipeline.dead_letters


@pytest.mark.failure_mode("F93")
def test_half_a_gzip_is_not_rejected() -> None:
    """It looks like a damaged gzip, which would be rejected."""
    pipeline = LocalPipeline(by_rows)
    pipeline.put("a", gzip.compress(ROWS))
    pipeline.next(Fault.CONNECTION_CUT)
    pipeline.run()
    assert pipeline.outcomes == {"Failed": 1, "Committed": 1}


def test_a_processor_may_try_again_by_itself() -> None:
    """The second stream is complete, so the error of the first does not matter."""

    def process(change: ObjectChange) -> str:
        try:
            return str(rows(change.open()))
        except ObjectReadError:
            return str(rows(change.open()))

    pipeline = LocalPipeline(process)
    pipeline.put("a", ROWS)
    pipeline.next(Fault.CONNECTION_CUT)
    pipeline.run()
    assert (pipeline.outcomes, len(pipeline.calls)) == ({"Committed": 1}, 1)


@pytest.mark.failure_mode("F93")
def test_a_second_stream_that_is_not_read_to_its_end_makes_up_for_nothing() -> None:
    """Its last bytes were not checked."""

    def process(change: ObjectChange) -> str:
        try:
            return str(rows(change.open()))
        except ObjectReadError:
            return change.open().readline().decode()

    pipeline = LocalPipeline(process)
    pipeline.put("a", ROWS)
    pipeline.next(Fault.CONNECTION_CUT)
    pipeline.run()
    assert pipeline.outcomes == {"Failed": 1, "Committed": 1}


def test_what_is_always_cut_ends_with_its_reason() -> None:
    """After as many attempts as any other failure."""
    pipeline = LocalPipeline(swallowing, max_attempts=3)
    pipeline.put("a", ROWS)
    pipeline.next(*[Fault.CONNECTION_CUT] * 3)
    pipeline.run()
    assert len(pipeline.calls) == 3
    [letter] = pipeline.dead_letters
    assert f" of {len(ROWS):,} bytes" in letter.reason


@pytest.mark.failure_mode("F661")
@pytest.mark.parametrize(("whole", "commits"), [(True, 0), (False, 1)])
def test_altered_content_is_found_at_the_last_byte_only(
    monkeypatch: pytest.MonkeyPatch, whole: bool, commits: int
) -> None:
    """A processor that stops at a trailer record has compared nothing, as the page says."""

    def process(change: ObjectChange) -> None:
        for row in change.csv_rows():
            if row["0"] == "4000" and not whole:
                return

    pipeline = LocalPipeline(process, max_attempts=2)
    pipeline.put("a", ROWS)
    get = pipeline.s3.get_object

    def altered(**request: Any) -> Any:
        return get(**request) | {"Body": io.BytesIO(ROWS.replace(b"7,row", b"7,wor", 1))}

    monkeypatch.setattr(pipeline.s3, "get_object", altered)
    pipeline.run()
    assert pipeline.outcomes["Committed"] == commits


def test_what_is_not_read_cannot_be_cut() -> None:
    """A processor that reads only the key, and a removal."""
    pipeline = LocalPipeline(lambda _: "done", deletes=True)
    pipeline.put("a", ROWS)
    pipeline.run()
    pipeline.delete("a")
    pipeline.next(Fault.CONNECTION_CUT)
    pipeline.run()
    assert pipeline.outcomes == {"Committed": 2}


class TestRead:
    """`change.read(max_bytes)`."""

    def test_an_object_of_at_most_max_bytes_is_read(self) -> None:
        """Up to the limit itself, and nothing at all."""
        seen = []

        def process(change: ObjectChange) -> None:
            seen.append(change.read(5))

        pipeline = LocalPipeline(process)
        pipeline.put("a", b"12345")
        pipeline.put("b", b"")
        pipeline.run()
        assert seen == [b"12345", b""]

    @pytest.mark.failure_mode("F103")
    def test_what_does_not_is_refused_with_the_way_out(self) -> None:
        """The object is rejected without being read, and the neighbour is processed."""
        pipeline = LocalPipeline(lambda change: str(len(change.read(max_bytes=1_000))))
        pipeline.put("large", ROWS)
        pipeline.put("small", b"x")
        pipeline.run()
        [letter] = pipeline.dead_letters
        size = f"the object has {len(ROWS):,} bytes, and read(max_bytes=1000) takes no more"
        assert letter.reason == f"{size}: raise max_bytes, or use open() or download()"
        assert pipeline.outcomes == {"Rejected": 1, "Committed": 1}


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("one.csv", ROWS)
        archive.writestr("two.csv", b"")
    return file.getvalue()


def in_parquet() -> bytes:
    file = io.BytesIO()
    parquet.write_table(pa.table({"number": range(1_000)}), file)
    return file.getvalue()


def image() -> bytes:
    file = io.BytesIO()
    Image.effect_noise((100, 80), 50).save(file, "PNG")
    return file.getvalue()


def size(change: ObjectChange) -> str:
    """Pillow reads a stream that cannot seek into memory first."""
    with change.open() as stream, Image.open(stream) as picture:
        picture.load()
        return str(picture.size)


def names(change: ObjectChange) -> str:
    with change.download() as file, zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        return " ".join(archive.namelist())


def total(change: ObjectChange) -> Commit:
    with change.download() as file:
        return Commit(str(sum(cast("list[int]", parquet.read_table(file)["number"].to_pylist()))))


class TestDownload:
    """`change.download()`."""

    @pytest.mark.parametrize(
        ("content", "process", "commit"),
        [(zipped, names, "one.csv two.csv"), (in_parquet, total, "499500"), (image, size, "(100, 80)")],
    )
    def test_readers_that_seek(self, content: Callable[[], bytes], process: Processor, commit: str) -> None:
        """A ZIP archive and Parquet begin at their end, and Pillow goes back and forth. Half of each is retried."""
        pipeline = LocalPipeline(process)
        pipeline.put("a", content())
        pipeline.next(Fault.CONNECTION_CUT)
        pipeline.run()
        row = known(pipeline.row("a"))
        assert (row.commit_id, pipeline.outcomes) == (commit, {"Failed": 1, "Committed": 1})

    def test_it_is_deleted_at_the_end_of_the_attempt(self) -> None:
        """After a failure and after a success, if the processor does not close it."""
        files = []

        def process(change: ObjectChange) -> None:
            files.append(change.download())
            assert files[-1].read() == ROWS
            if change.attempt == 1:
                raise ValueError("no")

        pipeline = LocalPipeline(process)
        pipeline.put("a", ROWS)
        pipeline.run()
        assert [file.closed for file in files] == [True, True]

    @pytest.mark.failure_mode("F103")
    @pytest.mark.parametrize(
        ("total", "free", "outcomes", "reason"),
        [
            (10**6, 1_000, {"Failed": 1, "Rejected": 1}, "and /tmp has 1,000 free"),
            (1_000, 1_000, {"Rejected": 1}, "and /tmp has 1,000 in all"),
        ],
        ids=["no space left", "a disk that is too small"],
    )
    def test_the_space_is_checked_first(
        self, monkeypatch: pytest.MonkeyPatch, total: int, free: int, outcomes: dict[str, int], reason: str
    ) -> None:
        """Free space may come back, so that is retried. The neighbour is processed."""
        monkeypatch.setattr("tempfile.gettempdir", lambda: "/tmp")
        monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"total": total, "free": free}))
        pipeline = LocalPipeline(by_download, max_attempts=2)
        pipeline.put("large", ROWS)
        pipeline.put("small", b"1\n")
        pipeline.run()
        assert pipeline.outcomes == outcomes | {"Committed": 1}
        [letter] = pipeline.dead_letters
        assert reason in letter.reason
        assert "ephemeral" in letter.reason
