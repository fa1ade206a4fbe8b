"""Lines, CSV and JSON lines are read as a stream, and errors name the position of malformed content."""

import bz2
import csv
import gzip
import io
import tracemalloc
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any, BinaryIO, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdk_intake_ledger.testing import LocalPipeline
from intake_ledger import ObjectChange, ObjectReadError, Rejects, Unprocessable
from intake_ledger.processor.object_change import make_object_change
from intake_ledger.processor.object_stream import ObjectStream, OpenedObject
from intake_ledger.processor.rejects import Reading
from intake_ledger.processor.text import MAX_LINE, Dialect, csv_rows, json_lines, lines
from intake_ledger.protocol import row as row_changes
from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.row import Ordering
from tests.settings import examples
from tests.unit.support import LEASE, PIPELINE, START, created


def stream(content: bytes) -> BinaryIO:
    """A stream as `change.open()` returns it."""
    return ObjectStream(io.BytesIO(content), len(content))


class Generated:
    """A stream of any length that is never in memory as a whole."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._left = b""
        self.given = 0

    def read(self, amount: int) -> bytes:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._left = piece
        data, self._left = self._left[:amount], self._left[amount:]
        self.given += len(data)
        return data


def generated(pieces: Iterable[bytes]) -> BinaryIO:
    return cast("BinaryIO", Generated(pieces))


def why(read: Iterator[Any]) -> str:
    """Read to the error, and return the text of the `Unprocessable`."""
    with pytest.raises(Unprocessable) as refused:
        list(read)
    return str(refused.value)


def flipped(packed: bytes) -> bytes:
    """A gzip stream with one bit of its checksum flipped."""
    return packed[:-5] + bytes([packed[-5] ^ 1]) + packed[-4:]


QUOTED = 'id,text\r\n1,"a ""b"", c\r\nd"\r\n\r\n2,\r\n'
GOOD = "".join(f"line {number} ä\n" for number in range(1, 3001)).encode()
LONG_GZIP = gzip.compress("".join(f"{number}\n" for number in range(50_000)).encode())
READ: dict[str, tuple[Iterator[Any], list[Any]]] = {
    **{
        f"lines that end in {end!r}, of which the last one needs none{last!r}": (
            lines(stream((end.join(["ä", "", "b "]) + last).encode())),
            ["ä", "", "b "],
        )
        for end in ("\n", "\r\n", "\r")
        for last in ("", end)
    },
    "an empty object has no lines": (lines(stream(b"")), []),
    "an empty gzip has no lines": (lines(stream(gzip.compress(b""))), []),
    **{
        f"{encoding} is decoded": (lines(stream("ä\r\nö".encode(encoding)), encoding=encoding), ["ä", "ö"])
        for encoding in ("utf-16", "utf-16-le", "latin-1", "cp1252", "utf-8")
    },
    "a byte order mark, as spreadsheets write one, is removed": (lines(stream("\ufeffa\nb".encode())), ["a", "b"]),
    "gzip of several members, as log writers append them": (
        lines(stream(gzip.compress(b"a\nb") + gzip.compress(b"c\n"))),
        ["a", "bc"],
    ),
    "quoted fields may hold delimiters, quotes and line ends, and empty lines are nothing": (
        csv_rows(stream(QUOTED.encode())),
        [{"id": "1", "text": 'a "b", c\r\nd'}, {"id": "2", "text": ""}],
    ),
    "names of fields replace the header, and delimiters vary": (
        csv_rows(stream(b"1;a\n2;b"), dialect=Dialect(";"), fieldnames=("id", "text")),
        [{"id": "1", "text": "a"}, {"id": "2", "text": "b"}],
    ),
    "a header alone is a file without rows": (csv_rows(stream(b"id,text\n"), columns=("id", "text")), []),
    "and so is an empty file": (csv_rows(stream(b"")), []),
    "empty lines of JSON are nothing, and values need not be objects": (
        json_lines(stream('{"a": "ä"}\r\n\n  \n[1, null]\n2'.encode())),
        [{"a": "ä"}, [1, None], 2],
    ),
}


@pytest.mark.parametrize(("read", "expected"), READ.values(), ids=READ)
def test_text_is_read(read: Iterator[Any], expected: list[Any]) -> None:
    assert list(read) == expected


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (lines(stream(GOOD + b"a\xff\n")), "line 3001 is not utf-8: invalid start byte"),
        (lines(stream(b"a\n\nb" + "ä".encode()[:1])), "line 3 is not utf-8: unexpected end of data"),
        (lines(stream(b"a\r\nb\r\n\xff\r\n")), "line 3 ..."),
        (lines(stream(bz2.compress(b"a" * 1000))), "line 1 is not utf-8..."),
        (lines(stream(LONG_GZIP[:-20])), "the gzip stream is damaged at or after line ..."),
        (lines(stream(flipped(gzip.compress(b"a\nb\n" * 100)))), "the gzip stream is damaged..."),
        (lines(stream(gzip.compress(b"a\n") + b"rubbish")), "the gzip stream is damaged..."),
        # A row with a missing field must not shift the next values into other columns.
        (csv_rows(stream(b'a,b\n1,"x\ny"\n1,2,3\n')), "the row at line 4 has 3 fields, and there are 2 columns"),
        (csv_rows(stream(b"a,b\n1,2\n\n1\n")), "the row at line 4 has 1 fields, and there are 2 columns"),
        (csv_rows(stream(b"\na,b,a\n")), "line 2 is the header, and names a column twice"),
        (csv_rows(stream(b'a,b\n1,2\n1,"x\ny\n')), "the row at line 3 is not CSV: unexpected end of data"),
        (csv_rows(stream(b'a,b\n1,"x"y\n')), "the row at line 2 is not CSV: ',' expected after '\"'"),
        (json_lines(stream(b'{}\n\n{"a": tru}\n')), "line 3 is not JSON: Expecting value at column 7..."),
        (json_lines(stream(b"{} {}\n")), "line 1 is not JSON: Extra data at column 4..."),
        (json_lines(stream(b'{"a":\n1}\n')), "line 1 is not JSON: Expecting value at column 1..."),
        *(
            (json_lines(stream(content.encode())), "line 1 is not JSON that can be read...")
            for content in (
                *("1" * 5000, '{"id": 1, "amount": 10, "amount": 99}', '{"a": {"b": 1, "b": 1}}', '{"a": NaN}'),
                *("[-Infinity]", "1e999", "[" * 200_000),
            )
        ),
    ],
)
def test_unreadable_text_names_its_line(read: Iterator[Any], reason: str) -> None:
    """And nothing of its content, since reasons are logged. Lines before the damage were yielded."""
    told = why(read)
    assert told.startswith(reason[:-3]) if reason.endswith("...") else told == reason


class TestLines:
    """`change.lines()`."""

    def test_an_unknown_encoding_raises_lookup_error(self) -> None:
        """The object is not the cause, so it is not rejected."""
        with pytest.raises(LookupError):
            list(lines(stream(b"a"), encoding="utf-99"))

    @given(content=st.text(st.sampled_from("aä😀\n\r"), max_size=60), size=st.integers(1, 5), packed=st.booleans())
    def test_lines_are_the_same_for_each_chunk_size(self, content: str, size: int, packed: bool) -> None:
        """Pieces of any size give the same lines, gzipped or not."""
        data = gzip.compress(content.encode()) if packed else content.encode()
        pieces = (data[at : at + size] for at in range(0, len(data), size))
        expected = [line.rstrip("\r\n") for line in io.StringIO(content, newline="")]
        assert list(lines(generated(pieces))) == expected

    def test_a_line_without_end_is_unprocessable(self) -> None:
        """Reading stops after the limit, so the line is not read into memory."""
        endless = Generated(b"x" * 1000 for _ in range(10**4))
        assert why(lines(cast("BinaryIO", endless), max_line=5_000)) == "line 1 is longer than 5000 characters"
        assert endless.given < 200_000
        assert [len(one) for one in lines(stream(b"x" * 10 + b"\r\nyy"), max_line=10)] == [10, 2]
        assert why(lines(stream(b"a\n" + b"x" * 11 + b"\n"), max_line=10)) == "line 2 is longer than 10 characters"


class TestGzip:
    """Gzip is detected by content."""

    @pytest.mark.failure_mode("F93")
    def test_a_broken_connection_is_not_the_objects_fault(self) -> None:
        """Half of a gzip looks like a truncated one: the stream's own error comes first, and is retried."""
        packed = gzip.compress(bytes(range(256)) * 100)
        for sent in (0, 2, len(packed) // 2, len(packed) - 1):
            with pytest.raises(ObjectReadError):
                list(lines(ObjectStream(io.BytesIO(packed[:sent]), len(packed)), encoding="latin-1"))


class TestCsv:
    """`change.csv_rows()`."""

    @pytest.mark.failure_mode("F650")
    # Without `mtime`, gzip writes the time, and workers of xdist collect tests of other names.
    @pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", b"\r\n\r\n", gzip.compress(b"", mtime=0)])
    @pytest.mark.parametrize(
        "errors", [None, Reading(Rejects(max_share=None)), Reading(Rejects(max_share=None, one_line_rows=True))]
    )
    def test_a_file_without_its_header_is_no_file_without_rows(self, content: bytes, errors: Reading | None) -> None:
        """A processor that replaces the rows of its file would delete them after a cut upload."""
        read = csv_rows(stream(content), columns={"id": int}, errors=errors)
        assert why(read) == "the file has no header"

    @pytest.mark.failure_mode("F651")
    @given(
        rows=st.lists(st.lists(st.text("a\t \"'\\\n", max_size=5), min_size=2, max_size=2), min_size=1, max_size=4),
        delimiter=st.sampled_from(",\t;"),
        quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONE]),
        quotechar=st.sampled_from("\"'"),
    )
    @settings(max_examples=examples(200))
    def test_a_declared_dialect_reads_what_the_standard_library_writes(
        self, rows: list[list[str]], delimiter: str, quoting: Any, quotechar: str
    ) -> None:
        dialect = Dialect(delimiter, quoting, quotechar, "\\")
        written = io.StringIO()
        writer = csv.writer(
            written, delimiter=delimiter, quoting=quoting, quotechar=quotechar, escapechar="\\", lineterminator="\n"
        )
        writer.writerow(("x", "y"))
        writer.writerows(rows)
        expected = csv.reader(io.StringIO(written.getvalue(), newline=""), **dialect.options())
        try:
            wanted = [dict(zip("xy", row, strict=True)) for row in expected if row][1:]
        except (ValueError, csv.Error):
            return
        assert list(csv_rows(stream(written.getvalue().encode()), dialect=dialect)) == wanted

    @pytest.mark.failure_mode("F651")
    @pytest.mark.parametrize("one_line", [False, True])
    def test_a_quotation_mark_in_a_tab_separated_file_is_no_guess(self, one_line: bool) -> None:
        """Two stray marks would join rows. The error names the option."""
        content = b'id\tname\n1\t"5 inch\n2\tb\n3\t6 inch"\n4\t"d"\n'
        errors = Reading(Rejects(max_share=None, one_line_rows=True)) if one_line else None
        guessed = why(csv_rows(stream(content), dialect=Dialect("\t"), errors=errors))
        assert guessed == (
            "the row at line 2 has a field that begins with a quotation mark: set quoting to csv.QUOTE_NONE, or to "
            "csv.QUOTE_MINIMAL if the fields are quoted"
        )
        bare = csv_rows(stream(content), dialect=Dialect("\t", csv.QUOTE_NONE), errors=errors)
        assert [row["name"] for row in bare] == ['"5 inch', "b", '6 inch"', '"d"']
        quoted = csv_rows(stream(b'id\tname\n1\t"a\tb"\n'), dialect=Dialect("\t", csv.QUOTE_MINIMAL), errors=errors)
        assert [row["name"] for row in quoted] == ["a\tb"]
        with pytest.raises(ValueError, match="convert values by columns"):
            next(csv_rows(stream(content), dialect=Dialect("\t", csv.QUOTE_NONNUMERIC)))

    @pytest.mark.failure_mode("F652")
    @pytest.mark.parametrize(
        ("kind", "good", "bad"),
        [
            (int, {"+5": 5, " 12 ": 12, "-0": 0}, ("1_000", "\u0661", "1e3", "0x10", "1.0", "", "nan")),
            (float, {"1.5": 1.5, ".5": 0.5, "1e3": 1000.0, "-2.": -2.0}, ("nan", "inf", "1_0.5", "1e400", "")),
            (Decimal, {"1.50": Decimal("1.50"), "7": Decimal(7)}, ("NaN", "sNaN", "Infinity", "1_0.5", "\uff11")),
            (bool, {"True": True, "false": False, "0": False, "1": True}, ("yes", "", "2")),
            (str, {"": "", "x": "x"}, ()),
        ],
    )
    def test_built_in_types_are_strict(self, kind: Any, good: dict[str, Any], bad: tuple[str, ...]) -> None:
        """In files, Python's own would take values that other programs do not write so."""
        for text, value in good.items():
            assert list(csv_rows(stream(f'x,y\n"{text}",\n'.encode()), columns={"x": kind, "y": str})) == [
                {"x": value, "y": ""}
            ]
        for text in bad:
            assert why(csv_rows(stream(f'x,y\n"{text}",\n'.encode()), columns={"x": kind, "y": str})) == (
                "line 2, column 'x': ValueError"
            )

    def test_a_quotation_without_end_is_unprocessable(self) -> None:
        """It does not read the rest of the file into one field."""
        endless = Generated([b'a,b\n1,"', *(b"text\n" for _ in range(10**6))])
        assert "line 2 is not CSV: field larger than" in why(csv_rows(cast("BinaryIO", endless)))
        assert endless.given < 4 * csv.field_size_limit()

    @pytest.mark.failure_mode("F103")
    def test_a_row_without_end_is_unprocessable(self) -> None:
        """A field for each line, none of them long: the row as a whole is bounded, and its first line named."""
        endless = Generated([b'a,b\n1,2\n1,"', *(b'text\n","' for _ in range(10**6))])
        read = csv_rows(cast("BinaryIO", endless), max_line=5_000)
        assert why(read) == "the row at line 3 is longer than 5000 characters"
        assert endless.given < 200_000

    @pytest.mark.failure_mode("F103")
    def test_the_limit_is_for_each_row(self) -> None:
        """The limit counts the characters of all lines of a row, without the line end after the row."""
        fits, longer = b'1,"x\ny"\r\n', b'1,"x\nyz"\n'
        assert len(list(csv_rows(stream(fits * 9), max_line=7, fieldnames="ab"))) == 9
        read = csv_rows(stream(fits + longer), max_line=7, fieldnames="ab")
        assert why(read) == "the row at line 3 is longer than 7 characters"

    @pytest.mark.failure_mode("F103")
    def test_a_row_without_end_rejects_its_object_only(self) -> None:
        """At once, with the line in the dead letter's reason."""
        pipeline = LocalPipeline(lambda change: str(len(list(change.csv_rows(max_line=5_000)))))
        pipeline.put("bad.csv", b"a\n1\n" + b'"' + b"x\n" * 10_000)
        pipeline.put("good.csv", b"a\n1\n")
        pipeline.run()
        assert [one.reason for one in pipeline.dead_letters] == ["the row at line 3 is longer than 5000 characters"]
        assert (len(pipeline.calls), pipeline.outcomes) == (2, {"Rejected": 1, "Committed": 1})


class TestMemory:
    """It does not grow with the object."""

    MOST = 4 * 1024 * 1024

    def peak(self, read: Iterator[Any], count: int) -> int:
        """The highest number of bytes that Python allocated while reading."""
        tracemalloc.start()
        try:
            assert sum(1 for _ in read) == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def test_a_large_object_is_read_in_constant_memory(self) -> None:
        """8 MB of each kind."""
        text, count = b"x" * 999 + b"\n", 8_000
        assert self.peak(lines(generated(text for _ in range(count))), count) < self.MOST
        record = b'{"value": "' + b"x" * 985 + b'"}\n'
        assert self.peak(json_lines(generated(record for _ in range(count))), count) < self.MOST
        row = b"x" * 499 + b"," + b"y" * 499 + b"\n"
        columns = ("one", "two")
        assert self.peak(csv_rows(generated(row for _ in range(count)), fieldnames=columns), count) < self.MOST

    def test_a_small_gzip_of_a_large_file_is_read_in_constant_memory(self) -> None:
        """16 MB from 16 kB. Only the part that is read is decompressed."""
        packed = gzip.compress((b"x" * 999 + b"\n") * 16_000)
        assert len(packed) < 50_000
        assert self.peak(lines(stream(packed)), 16_000) < self.MOST

    @pytest.mark.failure_mode("F103")
    @pytest.mark.parametrize(
        ("read", "start", "piece"),
        [(lines, b"", b"x"), (csv_rows, b"", b"ab,"), (csv_rows, b'a,b\n1,"', b'\n","'), (json_lines, b"[", b"[],")],
        ids=["a line", "fields", "lines of a row", "values"],
    )
    def test_a_gzip_bomb_is_unprocessable(self, read: Any, start: bytes, piece: bytes) -> None:
        """16 MB in a single line, row or value, from some ten kB."""
        packed = gzip.compress(start + piece * (16_000_000 // len(piece)), compresslevel=1)
        assert len(packed) < 100_000
        tracemalloc.start()
        try:
            assert "is longer than 100000 characters" in why(read(stream(packed), max_line=100_000))
            assert tracemalloc.get_traced_memory()[1] < self.MOST
        finally:
            tracemalloc.stop()

    @pytest.mark.failure_mode("F103")
    def test_a_line_of_small_values_stays_below_the_documented_memory(self) -> None:
        """The values with the most memory for their length, at the limit."""
        worst = b"[" + b"{}," * ((MAX_LINE - 3) // 3) + b"0]\n"
        assert self.peak(json_lines(stream(worst)), 1) < 32 * 1024 * 1024


class TestOnTheChange:
    """The same functions as methods of `ObjectChange`."""

    def change(self, content: bytes) -> ObjectChange:
        state = State(StateKind.OBJECT, "1", "e1", len(content), START)
        row = row_changes.claimed(None, created(state), state, owner="me", now=START, lease_until=START + LEASE)
        return make_object_change(
            created(state),
            state,
            row,
            pipeline=PIPELINE,
            ordering=Ordering.LATEST,
            remaining_seconds=lambda: 1.0,
            opened=OpenedObject(lambda: ObjectStream(io.BytesIO(content), len(content))),
            output=lambda *_: pytest.fail("no output is written"),
            begin_rejects=lambda *_: pytest.fail("no row is rejected"),
        )

    def test_each_option_is_passed_on(self) -> None:
        """Each method reads the claimed version."""
        text = "a;b\n1;ä\n"
        assert list(self.change(text.encode("latin-1")).lines(encoding="latin-1")) == ["a;b", "1;ä"]
        assert list(self.change(text.encode("utf-16")).csv_rows(encoding="utf-16", delimiter=";")) == [
            {"a": "1", "b": "ä"}
        ]
        assert list(self.change(b"1,2").csv_rows(fieldnames=["x", "y"])) == [{"x": "1", "y": "2"}]
        assert list(self.change('{"a": "ä"}'.encode("cp1252")).json_lines(encoding="cp1252")) == [{"a": "ä"}]
        change = self.change(b"123456")
        for read in (change.lines(max_line=5), change.csv_rows(max_line=5), change.json_lines(max_line=5)):
            assert why(iter(read)) == "line 1 is longer than 5 characters"
