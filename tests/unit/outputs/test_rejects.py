"""Bad rows are rejected with their place and reason, and good ones go on."""

import csv
import gzip
import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_intake_ledger.testing import LocalPipeline, LocalSets
from intake_ledger import FileSet, ObjectChange, Rejects, Unprocessable
from intake_ledger.processor.text import csv_rows
from intake_ledger.protocol import row as row_changes
from intake_ledger.protocol.row import Ordering, Retention, Row, Status
from tests.settings import THOROUGH

STREAMING = Rejects(max_share=None)
ORDERS = {"customer": str, "cents": int}
Table = dict[str, list[dict[str, Any]]]


def loading(table: Table, **options: Any) -> Callable[[ObjectChange], str]:
    """A processor that replaces the rows of its file."""

    def process(change: ObjectChange) -> str:
        rows = [] if change.kind == "removed" else list(change.csv_rows(**({"columns": ORDERS} | options)))
        table[change.key] = rows
        return f"{len(rows)} rows"

    return process


def places(rejected: list[dict[str, Any]]) -> list[tuple[int, str | None, str]]:
    return [(one["line"], one["column"], one["code"]) for one in rejected]


def row_of(pipeline: LocalPipeline, key: str = "a.csv", version_id: str | None = None) -> Row:
    row = pipeline.row(key, version_id)
    assert row is not None
    return row


def run(content: bytes | str, **options: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]], LocalPipeline]:
    """The rows that the processor got, and the rejected rows."""
    table: Table = {}
    pipeline = LocalPipeline(loading(table, **({"on_error": STREAMING} | options)), keep_rejects=True)
    pipeline.put("a.csv", content)
    pipeline.run()
    return table.get("a.csv", []), pipeline.rejected_rows("a.csv"), pipeline


FILE = 'customer,cents\nann,5\nbob,x\n"c\n,d",7\neve\nfay,8\n'


@pytest.mark.parametrize("pack", [lambda text: text, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["no mark", "byte order mark"])
def test_good_rows_go_on(mark: str, end: str, pack: Callable[[bytes], bytes]) -> None:
    """The lines are right behind quoted line ends."""
    rows, rejected, pipeline = run(pack((mark + FILE).replace("\n", end).encode()))
    assert rows == [
        {"customer": "ann", "cents": 5},
        {"customer": f"c{end},d", "cents": 7},
        {"customer": "fay", "cents": 8},
    ]
    assert places(rejected) == [(3, "cents", "value"), (6, None, "fields")]
    assert [one["row"] for one in rejected] == ["bob,x", "eve"]
    row = row_of(pipeline)
    assert (row.status, row.commit_id, row.read_rows, row.rejected_rows) == (Status.PROCESSED, "3 rows", 5, 2)
    assert {(one["source"], one["fence"], one["version_id"], one["etag"]) for one in rejected} == {
        ("a.csv", row.committed_fence, row.version_id, row.etag)
    }


def test_bytes_that_are_not_in_the_encoding_reject_their_row() -> None:
    rows, rejected, _ = run(b"customer,cents\nann,5\n\xffbob,6\nfay,7\n")
    assert [row["customer"] for row in rows] == ["ann", "fay"]
    assert places(rejected) == [(3, None, "encoding")]
    assert rejected[0]["row"] == r"\xffbob,6"


@pytest.mark.failure_mode("F490")
@pytest.mark.parametrize("max_share", [None, 0.9])
def test_a_file_whose_rows_cannot_be_told_apart_is_unprocessable(max_share: float | None) -> None:
    """The line after the broken quote would look like a good row of two columns."""
    content = 'customer,cents\nann,5\n"bob"x,"6\ncarl,7\n",8\n'
    _, rejected, pipeline = run(content, on_error=Rejects(max_share=max_share))
    assert (pipeline.outcomes["Rejected"], rejected) == (1, [])
    rows, rejected, _ = run(content, on_error=Rejects(max_share=max_share, one_line_rows=True))
    assert [row["customer"] for row in rows] == ["ann", "carl"]
    assert places(rejected) == [(3, None, "syntax"), (5, None, "syntax")]


@pytest.mark.failure_mode("F490")
def test_a_row_that_is_too_long_rejects_the_file_or_its_line() -> None:
    """A quote may begin in it. The text is not kept."""
    content = f"customer,cents\nann,5\n{'x' * 99},6\r\nfay,7\neve\n"
    _, _, pipeline = run(content, max_line=20)
    assert pipeline.outcomes["Rejected"] == 1
    one_line = Rejects(max_share=None, one_line_rows=True)
    for size in range(17, 60):  # the line end is read in one piece, or in two
        rows, rejected, _ = run(content, max_line=size, on_error=one_line)
        assert [row["customer"] for row in rows] == ["ann", "fay"]
        assert places(rejected) == [(3, None, "length"), (5, None, "fields")]
        assert rejected[0]["row"] is None
    for header in ("x" * 99, 'a\\"b'):
        _, _, pipeline = run(f'{header},"cents"\n1,2\n', max_line=20, on_error=one_line)
        assert pipeline.outcomes["Rejected"] == 1


@pytest.mark.failure_mode("F491")
def test_more_bad_rows_than_the_share_reject_the_file_before_its_first_row() -> None:
    """The reason names lines, and quotes no content. The object is read twice."""
    table: Table = {}
    pipeline = LocalPipeline(loading(table, on_error=Rejects(max_share=0.4)), keep_rejects=True)
    pipeline.put("a.csv", FILE)
    pipeline.run()
    assert len(table["a.csv"]) == 3
    assert len(pipeline.rejected_rows("a.csv")) == 2
    assert pipeline.requests.count("get_object") == 2
    pipeline.put("b.csv", FILE.replace("ann,5", "ann,y"))
    pipeline.run()
    assert "b.csv" not in table
    row = row_of(pipeline, "b.csv")
    assert (row.status, row.reason_code) == (Status.REJECTED, "too_many_rejects")
    text = "line 2 (value), line 3 (value), line 6 (fields)"
    assert row.reason == f"3 of 5 rows are bad (60.000%), and max_share is 40.000%: {text}"
    assert pipeline.rejected_rows("b.csv") == []


@pytest.mark.failure_mode("F491")
def test_an_effect_that_commits_at_the_end_needs_no_first_reading() -> None:
    """The rows of the table are replaced after the last row."""
    table: Table = {}
    rejects = Rejects(max_share=0.4, commits_at_end=True)
    pipeline = LocalPipeline(loading(table, on_error=rejects), keep_rejects=True)
    pipeline.put("a.csv", FILE)
    pipeline.put("b.csv", FILE.replace("ann,5", "ann,y"))
    pipeline.run()
    assert list(table) == ["a.csv"]
    assert pipeline.requests.count("get_object") == 2
    assert row_of(pipeline, "b.csv").reason_code == "too_many_rejects"
    assert [len(pipeline.rejected_rows(key)) for key in ("a.csv", "b.csv")] == [2, 0]
    with pytest.raises(ValueError, match="commits_at_end"):
        Rejects(max_share=None, commits_at_end=True)


@pytest.mark.failure_mode("F492")
@pytest.mark.parametrize(
    ("header", "why"),
    [
        ("cents", "line 1 is the header: the column 'customer' is missing"),
        ("cents,customer,discount", "line 1 is the header: there is a new column, number 3"),
        ("cents,name", "line 1 is the header: the column 'customer' is missing; there is a new column, number 2"),
    ],
)
def test_other_columns_reject_the_file(header: str, why: str) -> None:
    """The reason names expected columns only. Another order is no drift."""
    _, rejected, pipeline = run(f"{header}\n")
    row = row_of(pipeline)
    assert (row.reason_code, row.reason, rejected) == ("schema_drift", why, [])
    rows, _, _ = run("cents,customer\n5,ann\n")
    assert rows == [{"customer": "ann", "cents": 5}]


def test_json_lines_reject_a_line() -> None:
    content = b'{"n": 1}\n{"n": "x"}\n{"n": 2, "m": 3}\n\n{"m": 1}\n[4]\n{"n": \n{"n": 4, "\xff": 1}\n{"n": 5}\n'
    table: list[Any] = []

    def process(change: ObjectChange) -> None:
        table[:] = change.json_lines(columns={"n": int}, max_line=40, on_error=STREAMING)

    pipeline = LocalPipeline(process, keep_rejects=True)
    pipeline.put("a", content + b"9" * 99)
    pipeline.run()
    assert table == [{"n": 1}, {"n": 5}]
    assert places(pipeline.rejected_rows("a")) == [
        (2, "n", "value"),
        (3, None, "schema_drift"),
        (5, None, "schema_drift"),
        (6, None, "schema_drift"),
        (7, None, "syntax"),
        (8, None, "schema_drift"),
        (10, None, "length"),
    ]


def test_a_check_rejects_a_row() -> None:
    def check(row: dict[str, Any]) -> None:
        if row["cents"] < 0:
            raise Unprocessable("a credit note")
        {"ann": 1, "bob": 2}[row["customer"]]

    content = "customer,cents\nann,5\nbob,-1\nfay,2\n"
    rows, rejected, _ = run(content, on_error=Rejects(max_share=None, check=check))
    assert [row["customer"] for row in rows] == ["ann"]
    assert places(rejected) == [(3, None, "check"), (4, "fay", "check")]
    assert rejected[0]["reason"] == "line 3: Unprocessable: a credit note"


@pytest.mark.failure_mode("F532")
@pytest.mark.failure_mode("F491")
@pytest.mark.parametrize("options", [{}, {"commits_at_end": True}])
def test_a_check_that_remembers_rows_fails_and_rejects_no_good_row(options: dict[str, bool]) -> None:
    """It would refuse each row at the second reading, and the share was counted at the first one."""

    def process(change: ObjectChange) -> str:
        seen = set[str]()

        def check(row: dict[str, Any]) -> None:
            if row["customer"] in seen:
                raise ValueError("it is there twice")
            seen.add(row["customer"])

        rejects = Rejects(max_share=0.3, check=check, **options)
        return f"{len(list(change.csv_rows(columns=ORDERS, on_error=rejects)))} rows"

    pipeline = LocalPipeline(process, keep_rejects=True, max_attempts=2)
    pipeline.put("a.csv", "customer,cents\nann,5\nann,6\nbob,6\nfay,7\n")
    pipeline.run()
    row = row_of(pipeline)
    if options:
        assert (row.commit_id, row.rejected_rows) == ("3 rows", 1)
    else:
        assert (row.status, row.attempts) == (Status.REJECTED, 2)
        assert "refuses a row that it has accepted before" in str(row.reason)
        assert pipeline.rejected_rows("a.csv") == []


def test_a_share_that_is_just_reached_is_allowed() -> None:
    """Also 0.29 * 100, which is less than 29 as a float."""
    for bad in (1, 29, 57, 58, 99):
        lines = [f"ann,{'x' if number < bad else 5}" for number in range(100)]
        _, rejected, _ = run("\n".join(["customer,cents", *lines]), on_error=Rejects(max_share=bad / 100))
        assert len(rejected) == bad


def test_without_on_error_the_first_bad_row_raises() -> None:
    """The reason quotes no value."""
    _, _, pipeline = run("customer,cents\nann,5\nbob,secret\n", on_error=None)
    assert [letter.reason for letter in pipeline.dead_letters] == ["line 3, column 'cents': ValueError"]


def test_wrong_arguments_are_refused() -> None:
    for share in (-0.1, 1, 1.5):
        with pytest.raises(ValueError, match="max_share"):
            Rejects(max_share=share)
    for wrong, error in (({"on_error": 0.1}, TypeError), ({"fieldnames": ["a"]}, ValueError)):
        pipeline = LocalPipeline(loading({}, **wrong), raise_errors=True, keep_rejects=True)
        pipeline.put("a.csv", FILE)
        with pytest.raises(error):
            pipeline.run()


def test_without_a_place_the_attempt_fails() -> None:
    pipeline = LocalPipeline(loading({}, on_error=STREAMING), max_attempts=2)
    pipeline.put("a.csv", FILE)
    pipeline.run()
    assert "keep_rejects" in (row_of(pipeline).reason or "")


GOOD, BAD, WORSE = "customer,cents\nann,5\n", "customer,cents\nbob,x\n", "customer,cents\nbob,x\nfay,y\n"


def check_end(pipeline: LocalPipeline) -> None:
    """The rejected rows are those of the committed state, and the row counts them."""
    row, rejected = row_of(pipeline), pipeline.rejected_rows("a.csv")
    assert row.status is Status.PROCESSED
    assert row.rejected_rows == (len(rejected) or None)
    assert row.needs_review == ("local#rejected_rows" if rejected else None)
    assert {one["version_id"] for one in rejected} <= {row.version_id}


@pytest.mark.failure_mode("F493")
def test_a_newer_state_replaces_or_removes_rejected_rows() -> None:
    pipeline = LocalPipeline(loading({}, on_error=STREAMING), deletes=True, keep_rejects=True)
    numbers = []
    for content in (BAD, WORSE, GOOD, BAD, None, BAD, GOOD):
        if content is None:
            pipeline.delete("a.csv")
        else:
            pipeline.put("a.csv", content)
        pipeline.run()
        check_end(pipeline)
        numbers.append(len(pipeline.rejected_rows("a.csv")))
    assert numbers == [1, 2, 0, 1, 0, 1, 0]


@pytest.mark.failure_mode("F493")
@pytest.mark.failure_mode("F670")
def test_rejected_rows_of_a_removed_object_stay_without_deletes() -> None:
    """So does its effect. The next state removes them, however late: the row does not expire."""
    pipeline = LocalPipeline(loading({}, on_error=STREAMING), keep_rejects=True)
    pipeline.put("a.csv", BAD)
    pipeline.run()
    assert row_of(pipeline).expires_at is None
    pipeline.delete("a.csv")
    pipeline.run()
    row = row_of(pipeline)
    assert (row.settled_as, row.rejected_rows, row.expires_at) == ("removal", 1, None)
    assert row.needs_review == "local#rejected_rows", "it is listed as long as the output is there"
    assert len(pipeline.rejected_rows("a.csv")) == 1
    pipeline.put("a.csv", GOOD)
    pipeline.run()
    check_end(pipeline)
    assert pipeline.rejected_rows("a.csv") == []
    assert row_of(pipeline).expires_at is not None


@pytest.mark.failure_mode("F670")
def test_the_tag_of_an_older_version_leaves_the_list_of_removed_objects() -> None:
    """The row of an object that was removed unprocessed may have the rejected rows of a version before it."""
    pipeline = LocalPipeline(loading({}, on_error=STREAMING), keep_rejects=True)
    pipeline.put("a.csv", BAD)
    pipeline.run()
    row = replace(row_of(pipeline), tags_pending="one", needs_review="local#removed", settled_as="removed_unprocessed")
    after = row_changes.tagged(row, ["one"], now=pipeline.now, retention=Retention(1, rejects_partition="rows"))
    assert (after.rejected_rows, after.tags_pending, after.needs_review) == (1, None, "local#removed")


def test_each_version_has_its_rejected_rows() -> None:
    pipeline = LocalPipeline(loading({}, on_error=STREAMING), ordering=Ordering.EVERY_VERSION, keep_rejects=True)
    versions = [pipeline.put("a.csv", content) for content in (BAD, GOOD, WORSE)]
    pipeline.run()
    assert [len(pipeline.rejected_rows("a.csv", one)) for one in versions] == [1, 0, 2]
    assert row_of(pipeline, version_id=versions[0]).expires_at is not None


@pytest.mark.failure_mode("F494")
def test_a_duplicate_writes_nothing_twice() -> None:
    """A file without bad rows costs no request."""
    pipeline = LocalPipeline(loading({}, on_error=STREAMING), keep_rejects=True)
    pipeline.put("a.csv", BAD)
    pipeline.put("b.csv", GOOD)
    pipeline.duplicate()
    pipeline.run()
    pipeline.audit("a.csv")
    pipeline.run()
    assert cast("Any", pipeline)._outputs.requests == ["PutObject"]


@pytest.mark.failure_mode("F493")
@pytest.mark.parametrize("commit_together", [False, True])
@pytest.mark.parametrize("contents", [(BAD, GOOD), (BAD, WORSE), (GOOD, BAD), (BAD,), (WORSE, BAD, GOOD)])
def test_a_worker_may_die_at_each_request(contents: tuple[str, ...], *, commit_together: bool) -> None:
    for after in (False, True):
        for number in range(1, 100):
            pipeline = LocalPipeline(
                loading({}, on_error=STREAMING), commit_together=commit_together, keep_rejects=True
            )
            pipeline.kill(number, after=after)
            for content in contents:
                pipeline.put("a.csv", content)
                pipeline.run()
            check_end(pipeline)
            if pipeline.will_die:
                break
        assert pipeline.will_die


def test_commits_with_rejected_rows_are_not_held() -> None:
    """A statement for several commits has no room for their numbers."""
    pipeline = LocalPipeline(loading({}, on_error=STREAMING), commit_together=True, keep_rejects=True)
    contents = {"a.csv": BAD, "b.csv": GOOD, "c.csv": WORSE, "d.csv": GOOD}
    for key, content in contents.items():
        pipeline.put(key, content)
    pipeline.run()
    assert [row_of(pipeline, key).rejected_rows for key in contents] == [1, None, 2, None]
    assert pipeline.requests.count("batch_execute_statement") == 2


class Pause:
    """A worker that pauses before or after a request, until its successors have ended, and may die later.

    `at` and `death` count the points before and after each request. 0: it does not die.
    """

    def __init__(self, pipeline: LocalPipeline, at: int, death: int, meanwhile: Callable[[], object]) -> None:
        inside: Any = pipeline
        inside._dies = self._reach
        self._left, self._death, self._meanwhile = at, death, meanwhile
        self.paused = False

    def _reach(self, _: str) -> bool:
        self._left -= 1
        if self._left == 0:
            self.paused = True
            self._left = -1_000_000  # the requests of the successors
            self._meanwhile()
            self._left = 0
        return self.paused and self._left == -self._death < 0


def pauses() -> Iterator[tuple[int, int]]:
    """Points of pauses and deaths. The test ends them when no request is left."""
    deaths = (0, 1, 2, 3, 4, 5, 6, 7, 8) if THOROUGH else (0, 1, 3)
    yield from ((at, death) for at in range(1, 200) for death in deaths)


@pytest.mark.failure_mode("F495")
@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("later", [GOOD, WORSE])
@pytest.mark.parametrize("before", [None, GOOD, BAD])
def test_a_late_worker_leaves_the_rejected_rows_of_a_newer_state(
    before: str | None, later: str, *, removed: bool
) -> None:
    """It pauses at each request, and may die after a write that nothing repairs."""
    for at, death in pauses():
        pipeline = LocalPipeline(loading({}, on_error=STREAMING), keep_rejects=True)
        if before is not None:
            pipeline.put("a.csv", before)
            pipeline.run()

        def meanwhile(pipeline: LocalPipeline = pipeline) -> None:
            pipeline.clock.advance(600_000)  # the lease has ended
            if removed:
                pipeline.delete("a.csv")
                pipeline.run()
            pipeline.put("a.csv", later)
            pipeline.run()

        pause = Pause(pipeline, at, death, meanwhile)
        pipeline.put("a.csv", BAD)
        pipeline.run()
        if not pause.paused:
            assert at > 2 * len(("claim", "read", "output", "commit"))
            return
        check_end(pipeline)
        pipeline.put("a.csv", GOOD)
        pipeline.run()
        check_end(pipeline)
        assert pipeline.rejected_rows("a.csv") == []


@pytest.mark.failure_mode("F495")
def test_a_late_worker_after_a_removal_is_undone_by_the_next_state() -> None:
    """The removal is recorded without a processor, so nothing keeps the late worker out."""
    left = set()
    for at, death in pauses():
        pipeline = LocalPipeline(loading({}, on_error=STREAMING), keep_rejects=True)

        def meanwhile(pipeline: LocalPipeline = pipeline) -> None:
            pipeline.clock.advance(600_000)
            pipeline.delete("a.csv")
            pipeline.run()

        pause = Pause(pipeline, at, death, meanwhile)
        pipeline.put("a.csv", BAD)
        pipeline.run()
        if not pause.paused:
            break
        left.add(len(pipeline.rejected_rows("a.csv")))
        pipeline.put("a.csv", GOOD)
        pipeline.run()
        check_end(pipeline)
    assert left == {0, 1}


def test_the_last_reading_of_a_file_counts() -> None:
    def process(change: ObjectChange) -> None:
        for _ in range(2):
            list(change.csv_rows(columns=ORDERS, on_error=STREAMING))

    pipeline = LocalPipeline(process, keep_rejects=True)
    pipeline.put("a.csv", FILE)
    pipeline.run()
    assert len(pipeline.rejected_rows("a.csv")) == 2


def test_a_long_key_has_a_place() -> None:
    pipeline = LocalPipeline(loading({}, on_error=STREAMING), keep_rejects=True)
    key = "k" * 1020
    pipeline.put(key, BAD)
    pipeline.run()
    assert [one["source"] for one in pipeline.rejected_rows(key)] == [key]


def test_the_parts_of_a_set_share_an_output() -> None:
    loaded: list[Any] = []

    def process(files: FileSet) -> None:
        parts = [part.csv_rows(columns=ORDERS, on_error=Rejects(max_share=0.6)) for part in files.parts]
        loaded[:] = [row["customer"] for part in parts for row in part]

    sets = LocalSets(process, manifest="*/manifest.json", keep_rejects=True)
    for name, content in (("1", FILE), ("2", GOOD), ("3", FILE)):
        sets.put(f"a/{name}.csv", content)
    sets.put("a/manifest.json", json.dumps(["/a/1.csv", "/a/2.csv", "/a/3.csv"]))
    sets.run()
    assert len(loaded) == 7
    assert [(one["source"], one["line"]) for one in sets.rejected_rows("a/manifest.json")] == [
        ("a/1.csv", 3),
        ("a/1.csv", 6),
        ("a/3.csv", 3),
        ("a/3.csv", 6),
    ]
    sets.put("a/1.csv", GOOD)
    sets.put("a/3.csv", GOOD)
    sets.run()
    assert sets.rejected_rows("a/manifest.json") == []


class Collected:
    """See `RowErrors`."""

    one_line_rows = False

    def __init__(self) -> None:
        self.problems: list[Any] = []

    def bad(self, problem: Any) -> None:
        self.problems.append(problem)

    def good(self, line: int, value: Any, text: str | None) -> bool:
        return True


@pytest.mark.failure_mode("F496")
@given(
    st.lists(st.lists(st.text('ab,"\n\r1é ', max_size=4), min_size=1, max_size=3), max_size=8),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"]),
    st.booleans(),
)
def test_each_row_is_good_or_rejected(rows: list[list[str]], end: str, encoding: str, packed: bool) -> None:
    """Against `csv` itself: no row is lost, doubled or changed, and each rejected row is the text at its line."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=end).writerows([["a", "b"], *rows])
    content = text.getvalue().encode(encoding)
    errors = Collected()
    stream = io.BytesIO(gzip.compress(content) if packed else content)
    found = list(csv_rows(stream, encoding="utf-8-sig" if encoding == "utf-8" else encoding, errors=errors))
    assert [list(row.values()) for row in found] == [row for row in rows if len(row) == 2]
    for problem, row in zip(errors.problems, (row for row in rows if len(row) != 2), strict=True):
        lines = re.split("(\r\n|\r|\n)", text.getvalue())
        rest = "".join(lines[2 * (problem.line - 1) :])
        assert rest.startswith(problem.text)
        assert next(csv.reader(io.StringIO(problem.text, newline=""))) == row
