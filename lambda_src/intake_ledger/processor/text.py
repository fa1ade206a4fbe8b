"""Read text from a stream: lines, CSV and JSON lines, with or without gzip, in constant memory.

Gzip is detected by the first bytes, because names and content types may be wrong. UTF-8 text never starts with these
bytes. The content of a version never changes. So malformed content raises `Unprocessable`, and the reason names the
line. `ObjectReadError` propagates, because it comes from the network: the change is tried again.
"""

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, Self

from intake_ledger.protocol import Unprocessable

UTF_8 = "utf-8-sig"
"""UTF-8, with or without a byte order mark, which spreadsheets write."""
MAX_LINE = 1024 * 1024
"""Characters of a line, a CSV row or a JSON line. Without a limit, a file without line ends would be read into memory.
As Python objects a line takes up to 26 bytes for each character, so the default takes up to 26 MiB.
"""

_GZIP = b"\x1f\x8b\x08"
_BUFFER_BYTES = 128 * 1024
_LINE_END = re.compile("\r\n|\r|\n")


def closing[Value](stream: BinaryIO, values: Iterator[Value]) -> Iterator[Value]:
    """Yield the values, and close the stream at their end, at an error, or when the generator is dropped."""
    with stream:
        yield from values


def lines(stream: BinaryIO, *, encoding: str = UTF_8, max_line: int = MAX_LINE) -> Iterator[str]:
    r"""Yield the lines without their line ends, which are `\n`, `\r\n` or `\r`.

    Raises:
        Unprocessable: Damaged gzip, bytes that the encoding does not allow, or a line of more than `max_line`
            characters.
        LookupError: There is no such encoding.

    """
    for line in _raw_lines(stream, encoding, max_line):
        yield line.rstrip("\r\n")


def csv_rows(
    stream: BinaryIO,
    *,
    encoding: str = UTF_8,
    delimiter: str = ",",
    fieldnames: Sequence[str] | None = None,
    max_line: int = MAX_LINE,
) -> Iterator[dict[str, str]]:
    """Yield the rows by column name. Empty lines are skipped. A quoted field may contain line ends.

    Raises:
        Unprocessable: As for `lines`; a row of more than `max_line` characters over all of its lines, a row with more
            or fewer fields than columns, a header with the same column twice, a quoted field without an end, a field
            above `csv.field_size_limit()`.

    """
    row_lines = _RowLines(_raw_lines(stream, encoding, max_line), max_line)
    reader = csv.reader(row_lines, delimiter=delimiter, strict=True)
    columns = list(fieldnames) if fieldnames is not None else None
    while True:
        first = reader.line_num + 1
        row_lines.begin(first)
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise Unprocessable(f"the row at line {first} is not CSV: {error}") from error
        if row is None:
            return
        if not row:
            continue
        if columns is None:
            columns = row
            if len(set(columns)) < len(columns):
                raise Unprocessable(f"line {first} is the header, and names a column twice")
            continue
        if len(row) != len(columns):
            raise Unprocessable(f"the row at line {first} has {len(row)} fields, and there are {len(columns)} columns")
        yield dict(zip(columns, row, strict=True))


def json_lines(stream: BinaryIO, *, encoding: str = UTF_8, max_line: int = MAX_LINE) -> Iterator[Any]:
    """Yield the JSON value of each line. Empty lines are skipped.

    Raises:
        Unprocessable: As for `lines`, or a line is not JSON.

    """
    for number, line in enumerate(_raw_lines(stream, encoding, max_line), 1):
        if line.isspace():
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise Unprocessable(f"line {number} is not JSON: {error.msg} at column {error.colno}") from error
        except (ValueError, RecursionError) as error:
            # The message of the error may quote the content.
            raise Unprocessable(f"line {number} is not JSON that can be read: {type(error).__name__}") from error
        yield value


class _RowLines:
    """The lines for `csv.reader`, with a limit for each row, because a quoted field may have any number of lines."""

    def __init__(self, lines: Iterator[str], max_row: int) -> None:
        self._lines = lines
        self._max_row = max_row
        self._first = 1
        self._length = 0

    def begin(self, number: int) -> None:
        """Start a row at the next line, which has this number."""
        self._first, self._length = number, 0

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        # The limit does not count the line end after the row.
        if self._length + len(line.rstrip("\r\n")) > self._max_row:
            raise Unprocessable(f"the row at line {self._first} is longer than {self._max_row} characters")
        self._length += len(line)
        return line


def _raw_lines(stream: BinaryIO, encoding: str, max_line: int) -> Iterator[str]:
    """Yield the lines with their line ends."""
    text = io.TextIOWrapper(_unpacked(stream), encoding=encoding, newline="")
    number = 1
    while True:
        try:
            line = text.readline(max_line + 2)
        except UnicodeDecodeError as error:
            # The text is decoded in pieces. Lines of this piece before the error were not yielded.
            before = bytes(error.object[: error.start]).decode(error.encoding, "replace")
            number += len(_LINE_END.findall(before))
            raise Unprocessable(f"line {number} is not {error.encoding}: {error.reason}") from error
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            # The message of the error may quote bytes of the content.
            raise Unprocessable(
                f"the gzip stream is damaged at or after line {number}: {type(error).__name__}"
            ) from error
        if not line:
            return
        if len(line.rstrip("\r\n")) > max_line:
            raise Unprocessable(f"line {number} is longer than {max_line} characters")
        yield line
        number += 1


def _unpacked(stream: BinaryIO) -> Any:
    """The bytes, decompressed if they are gzip."""
    head = b""
    while len(head) < len(_GZIP) and (more := stream.read(len(_GZIP) - len(head))):
        head += more
    whole = io.BufferedReader(_Rest(head, stream), _BUFFER_BYTES)
    return gzip.GzipFile(fileobj=whole) if head == _GZIP else whole


class _Rest(io.RawIOBase):
    """A stream that starts with bytes that were read before. Closing it does not close the stream."""

    def __init__(self, head: bytes, stream: BinaryIO) -> None:
        self._head = head
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = self._head or self._stream.read(len(buffer))
        self._head = b""
        buffer[: len(data)] = data
        return len(data)
