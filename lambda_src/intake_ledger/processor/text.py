"""Read text from a stream: lines, CSV and JSON lines, with or without gzip, in constant memory.

Gzip is detected by the first bytes, because names and content types may be wrong. UTF-8 text never starts with these
bytes. The content of a version never changes. So malformed content raises `Unprocessable`, and the reason names the
line. `ObjectReadError` propagates, because it comes from the network: the change is tried again.
"""

import csv
import gzip
import io
import json
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol, Self

from intake_ledger.protocol.errors import SchemaDrift, Unprocessable

if TYPE_CHECKING:
    from intake_ledger.processor.rejects import Reading, Rejects

UTF_8 = "utf-8-sig"
"""UTF-8, with or without a byte order mark, which spreadsheets write."""
MAX_LINE = 1024 * 1024
"""Characters of a line, a CSV row or a JSON line. Without a limit, a file without line ends would be read into memory.
As Python objects a line takes up to 26 bytes for each character, so the default takes up to 26 MiB.
"""

_GZIP = b"\x1f\x8b\x08"
_BUFFER_BYTES = 128 * 1024
_LINE_END = re.compile("\r\n|\r|\n")
_ESCAPED = re.compile("[\udc80-\udcff]")
_BAD_VALUES = (ValueError, ArithmeticError, LookupError, TypeError, Unprocessable)
"""The errors by which a function refuses a value. `decimal` raises errors of arithmetic."""
_WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*", re.ASCII)
_NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", re.ASCII)
_TRUTH = {"true": True, "1": True, "false": False, "0": False}

Columns = Mapping[str, Callable[[Any], Any]] | Sequence[str]


class Dialect(NamedTuple):
    """The form of a CSV, by the names of the standard library's `csv`."""

    delimiter: str = ","
    quoting: int | None = None
    """`csv.QUOTE_NONE` or `csv.QUOTE_MINIMAL`. None: not declared. Then a tab-separated file must have no quotation."""
    quotechar: str = '"'
    escapechar: str | None = None
    skipinitialspace: bool = False

    def options(self) -> dict[str, Any]:
        """The arguments of `csv.reader`.

        Raises:
            ValueError: `quoting` is another constant, which would convert values.

        """
        if self.quoting not in (None, csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONE):
            raise ValueError(
                f"quoting is {self.quoting!r}: use csv.QUOTE_MINIMAL or csv.QUOTE_NONE, and convert values by columns"
            )
        quoting = csv.QUOTE_MINIMAL if self.quoting is None else self.quoting
        options: dict[str, Any] = self._asdict() | {"quoting": quoting, "strict": True}
        return options | ({"quoting": csv.QUOTE_NONE, "quotechar": None} if self.is_guess else {})

    @property
    def is_guess(self) -> bool:
        """True if nothing says whether a tab-separated file has quotation. The format has none (IANA,
        text/tab-separated-values), and spreadsheets write it.
        """
        return self == Dialect("\t")

    def check(self, row: Sequence[str], number: int) -> None:
        """Refuse a row whose fields depend on a guess."""
        if self.is_guess and any(field.startswith('"') for field in row):
            raise Unprocessable(
                f"the row at line {number} has a field that begins with a quotation mark: set quoting to "
                "csv.QUOTE_NONE, or to csv.QUOTE_MINIMAL if the fields are quoted"
            )


_COMMAS = Dialect()


def load_json(text: str) -> Any:
    """Decode JSON as it is defined: no name twice in an object, and no number that is infinite or NaN.

    Raises:
        ValueError: It is not JSON. A `JSONDecodeError` has the place.
        RecursionError: It is too deep.

    """
    return _DECODER.decode(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("an object has a name twice")
    return content


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is infinite or NaN")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_finite, parse_float=_finite)


def _strict_int(value: Any) -> int:
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError("not a whole number")


def _strict_float(value: Any) -> float:
    if (isinstance(value, str) and _NUMBER.fullmatch(value)) or type(value) in (int, float):
        return _finite(value)
    raise ValueError("not a number")


def _strict_decimal(value: Any) -> Any:
    if (isinstance(value, str) and _NUMBER.fullmatch(value)) or type(value) is int:
        return Decimal(value)
    if type(value) is float:
        return Decimal(repr(value))
    raise ValueError("not a number")


def _strict_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and (found := _TRUTH.get(value.strip().lower())) is not None:
        return found
    raise ValueError("not true or false")


def _strict_str(value: Any) -> str:
    if isinstance(value, str):
        return value
    if type(value) in (int, float):
        return str(value)
    raise ValueError("not a text")


_STRICT: Mapping[Any, Callable[[Any], Any]] = {
    int: _strict_int,
    float: _strict_float,
    Decimal: _strict_decimal,
    bool: _strict_bool,
    str: _strict_str,
}
"""The built-in types take texts that are no such values in a file: `1_000`, other digits, `nan`, any text as True."""


def closing[Value](stream: BinaryIO, values: Iterator[Value]) -> Iterator[Value]:
    """Yield the values, and close the stream at their end, at an error, or when the generator is dropped."""
    with stream:
        yield from values


def read_file(
    open_stream: Callable[[], BinaryIO],
    read: "RowReader",
    rejects: "Rejects | None",
    begin: "Callable[[Rejects], Reading]",
) -> Iterator[Any]:
    """Yield the rows of a file, which is closed at their end. With `rejects`, see `intake_ledger.processor.rejects`."""
    if rejects is None:
        stream = open_stream()
        return closing(stream, read(stream))
    from intake_ledger.processor.rejects import rows  # noqa: PLC0415 - most processors reject no rows

    return rows(open_stream, read, rejects, begin)


def lines(stream: BinaryIO, *, encoding: str = UTF_8, max_line: int = MAX_LINE) -> Iterator[str]:
    r"""Yield the lines without their line ends, which are `\n`, `\r\n` or `\r`.

    Raises:
        Unprocessable: Damaged gzip, bytes that the encoding does not allow, or a line of more than `max_line`
            characters.
        LookupError: There is no such encoding.

    """
    for _, line in _raw_lines(stream, encoding, max_line):
        yield line.rstrip("\r\n")


class RowReader(Protocol):
    """Reads rows of a stream: `csv_rows` or `json_lines` with their options."""

    def __call__(self, stream: BinaryIO, /, *, errors: "RowErrors | None" = None) -> Iterator[Any]: ...


class RowProblem(NamedTuple):
    """A row that cannot be used, in a file whose other rows can."""

    line: int
    """The number of its first line, from 1."""
    column: str | None
    """The name of the column, if one column has the problem."""
    code: str
    """`fields`, `syntax`, `encoding`, `length`, `schema_drift`, `value` or `check`."""
    why: str
    """For people. It may quote the content."""
    text: str | None
    """The row as it is in the file. None: it is longer than the limit."""


class RowErrors(Protocol):
    """Takes the problems of rows. Without it, the first problem raises `Unprocessable`."""

    one_line_rows: bool
    """True if no field contains a line end. Then a quote without an end is a problem of its line."""

    def bad(self, problem: RowProblem) -> None:
        """Take a bad row. Reading goes on with the next one."""

    def good(self, line: int, value: Any, text: str | None) -> bool:
        """Take a row that can be read. False: it is bad after all."""


def csv_rows(
    stream: BinaryIO,
    *,
    encoding: str = UTF_8,
    fieldnames: Sequence[str] | None = None,
    columns: Columns | None = None,
    max_line: int = MAX_LINE,
    dialect: Dialect = _COMMAS,
    errors: RowErrors | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the rows by column name. Empty lines are skipped. A quoted field may contain line ends.

    Args:
        stream: the bytes.
        encoding: of the text.
        fieldnames: the columns of a file without a header.
        columns: the expected columns; a mapping has a function for the values of each. Any columns when omitted.
        max_line: limit of a row in characters.
        dialect: delimiter and quotation; commas and quotation when omitted.
        errors: takes bad rows. When omitted, the first one raises an error.

    Raises:
        Unprocessable: As for `lines`; a row of more than `max_line` characters over all of its lines, a row with more
            or fewer fields than columns, a value that its function refuses, a header with the same column twice, a
            quoted field without an end, a field above `csv.field_size_limit()`, a quotation mark that `dialect` does
            not explain. With `errors`, only if it is not certain where the next row begins.
        SchemaDrift: The header has other columns than `columns`, or there is none.
        ValueError: Both `fieldnames` and `columns` are given, or the dialect has another `quoting`.

    """
    if fieldnames is not None and columns is not None:
        raise ValueError("fieldnames and columns are given: columns is for files whose first row names them")
    handler = _Handler(errors, columns)
    options = dialect.options()
    one_line = errors is not None and errors.one_line_rows
    source = _raw_lines(stream, encoding, max_line, escaped=errors is not None, skips_long=one_line)
    if one_line:
        yield from _one_line_rows(source, dialect, fieldnames, max_line, handler)
        return
    row_lines = _RowLines(source, max_line, keeps=errors is not None)
    reader = csv.reader(row_lines, **options)
    names = list(fieldnames) if fieldnames is not None else None
    while True:
        first = reader.line_num + 1
        row_lines.begin(first)
        try:
            row = next(reader, None)
        except csv.Error as error:
            # The end of this row is not known, so the lines after it may be parts of it.
            raise Unprocessable(f"the row at line {first} is not CSV: {error}") from error
        if row is None:
            _check_header(names, columns)
            return
        if not row:
            continue
        dialect.check(row, first)
        if names is None:
            names = _header(row, first, columns)
        elif (value := handler.value(first, names, row, row_lines.text)) is not None:
            yield value


def _one_line_rows(
    source: Iterator[tuple[int, str]],
    dialect: Dialect,
    fieldnames: Sequence[str] | None,
    max_line: int,
    handler: "_Handler",
) -> Iterator[dict[str, Any]]:
    """Yield rows without line ends in their fields."""
    options = dialect.options()
    names = list(fieldnames) if fieldnames is not None else None
    for number, line in source:
        if not line:
            if names is None:
                raise Unprocessable(_too_long(number, max_line))
            handler.bad(number, "length", _too_long(number, max_line))
            continue
        try:
            row = next(csv.reader((line,), **options), None)
        except csv.Error as error:
            why = f"the row at line {number} is not CSV: {error}"
            if names is None:
                raise Unprocessable(why) from error
            handler.bad(number, "syntax", why, line)
            continue
        if not row:
            continue
        dialect.check(row, number)
        if names is None:
            names = _header(row, number, handler.columns)
        elif (value := handler.value(number, names, row, line)) is not None:
            yield value
    _check_header(names, handler.columns)


def json_lines(
    stream: BinaryIO,
    *,
    encoding: str = UTF_8,
    columns: Columns | None = None,
    max_line: int = MAX_LINE,
    errors: RowErrors | None = None,
) -> Iterator[Any]:
    """Yield the JSON value of each line. Empty lines are skipped.

    Args:
        stream: the bytes.
        encoding: of the text.
        columns: the expected names of each object; a mapping has a function for the values of each. Any value when
            omitted.
        max_line: limit of a line in characters.
        errors: takes bad lines. When omitted, the first one raises an error.

    Raises:
        Unprocessable: As for `lines`, a line is not JSON, or a value that its function refuses. With `errors`, only if
            it is not certain where the next line begins.
        SchemaDrift: A line has other names than `columns`.

    """
    handler = _Handler(errors, columns)
    for number, line in _raw_lines(stream, encoding, max_line, escaped=errors is not None, skips_long=True):
        if not line:
            handler.bad(number, "length", _too_long(number, max_line))
            continue
        if line.isspace():
            continue
        try:
            value = load_json(line)
        except json.JSONDecodeError as error:
            handler.bad(
                number, "syntax", f"line {number} is not JSON: {error.msg} at column {error.colno}", line, error
            )
        except (ValueError, RecursionError) as error:
            # The message of the error may quote the content.
            why = f"line {number} is not JSON that can be read: {type(error).__name__}"
            handler.bad(number, "syntax", why, line, error)
        else:
            if handler.takes_object(number, value, line):
                yield value


def _check_header(names: list[str] | None, columns: Columns | None) -> None:
    """Refuse an end without a header: a cut upload is no file without rows."""
    if names is None and columns is not None:
        raise SchemaDrift("the file has no header")


def _header(row: Sequence[str], number: int, columns: Columns | None) -> list[str]:
    """The names of the columns. No text quotes a name of the file."""
    names = list(row)
    if len(set(names)) < len(names):
        raise Unprocessable(f"line {number} is the header, and names a column twice")
    if any(map(_escaped_bytes, names)):
        raise Unprocessable(f"line {number} is the header, and its bytes are not in the encoding")
    if columns is not None and (drift := _drift(names, columns)):
        raise SchemaDrift(f"line {number} is the header: {drift}")
    return names


def _drift(names: Sequence[str], columns: Columns) -> str:
    """The differences between the names of a file and the expected ones. Empty if there are none."""
    missing = [name for name in columns if name not in names]
    new = [str(number) for number, name in enumerate(names, 1) if name not in columns]
    texts = [f"the column {', '.join(map(repr, missing))} is missing"] if missing else []
    return "; ".join([*texts, f"there is a new column, number {', '.join(new)}"] if new else texts)


def _escaped_bytes(text: str) -> bool:
    """True if some bytes were not in the encoding. `surrogateescape` puts a surrogate in the place of each."""
    return not text.isascii() and _ESCAPED.search(text) is not None


class _Handler:
    """Checks rows that can be parsed, and passes bad ones on."""

    def __init__(self, errors: RowErrors | None, columns: Columns | None) -> None:
        self._errors = errors
        self.columns = columns
        functions = columns if isinstance(columns, Mapping) else {}
        self._functions = {name: _STRICT.get(function, function) for name, function in functions.items()}

    def bad(
        self,
        line: int,
        code: str,
        why: str,
        text: str | None = None,
        cause: Exception | None = None,
        *,
        column: str | None = None,
        drift: bool = False,
    ) -> None:
        """Take a bad row. Raises Unprocessable if nothing takes it."""
        if self._errors is None:
            raise (SchemaDrift if drift else Unprocessable)(why) from cause
        self._errors.bad(RowProblem(line, column, code, why, text))

    def value(self, line: int, names: Sequence[str], fields: Sequence[str], text: str | None) -> dict[str, Any] | None:
        """The row of a CSV by column name. None: it is bad."""
        if len(fields) != len(names):
            why = f"the row at line {line} has {len(fields)} fields, and there are {len(names)} columns"
            self.bad(line, "fields", why, text)
            return None
        row: dict[str, Any] = dict(zip(names, fields, strict=True))
        return row if self._converted(line, row, text) else None

    def takes_object(self, line: int, value: Any, text: str) -> bool:
        """True if the value of a line of JSON is good."""
        if self.columns is not None:
            if not isinstance(value, dict):
                self.bad(line, "schema_drift", f"line {line} is no JSON object with columns", text, drift=True)
                return False
            if drift := _drift(list(value), self.columns):
                self.bad(line, "schema_drift", f"line {line}: {drift}", text, drift=True)
                return False
        return self._converted(line, value, text)

    def _converted(self, line: int, row: Any, text: str | None) -> bool:
        """Convert the values in place. True if the row is good."""
        for name, function in self._functions.items():
            try:
                row[name] = function(row[name])
            except _BAD_VALUES as error:
                # The message of the error may quote the content, so only rejected rows have it.
                why = f"line {line}, column {name!r}: {type(error).__name__}"
                self.bad(line, "value", f"{why}: {error}" if self._errors else why, text, error, column=name)
                return False
        if self._errors is None:
            return True
        if text is not None and _escaped_bytes(text):
            self.bad(line, "encoding", f"the row at line {line} has bytes that are not in the encoding", text)
            return False
        return self._errors.good(line, row, text)


class _RowLines:
    """The lines for `csv.reader`, with a limit for each row, because a quoted field may have any number of lines."""

    def __init__(self, lines: Iterator[tuple[int, str]], max_row: int, *, keeps: bool) -> None:
        self._lines = lines
        self._max_row = max_row
        self._first = 1
        self._length = 0
        self._row: list[str] | None = [] if keeps else None

    def begin(self, number: int) -> None:
        """Start a row at the next line, which has this number."""
        self._first, self._length = number, 0
        if self._row:
            self._row = []

    @property
    def text(self) -> str | None:
        """The lines of the row, if they are kept."""
        return None if self._row is None else "".join(self._row)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        _, line = next(self._lines)
        # The limit does not count the line end after the row.
        if self._length + len(line.rstrip("\r\n")) > self._max_row:
            raise Unprocessable(f"the row at line {self._first} is longer than {self._max_row} characters")
        self._length += len(line)
        if self._row is not None:
            self._row.append(line)
        return line


def _raw_lines(
    stream: BinaryIO, encoding: str, max_line: int, *, escaped: bool = False, skips_long: bool = False
) -> Iterator[tuple[int, str]]:
    """Yield the number of each line, and the line with its line end.

    Args:
        stream: the bytes.
        encoding: of the text.
        max_line: limit of a line in characters.
        escaped: true: bytes that are not in the encoding become surrogates.
        skips_long: true: a line that is too long becomes an empty text. No other line is empty, because it has its
            line end.

    """
    text = io.TextIOWrapper(
        _unpacked(stream), encoding=encoding, newline="", errors="surrogateescape" if escaped else "strict"
    )
    number, held = 1, None
    while True:
        try:
            line = held or text.readline(max_line + 2)
            held, is_long = None, len(line.rstrip("\r\n")) > max_line
            if is_long and skips_long:
                held = _after_long_line(text, line, max_line + 2)
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
        if is_long and not skips_long:
            raise Unprocessable(_too_long(number, max_line))
        yield number, "" if is_long else line
        number += 1


def _too_long(number: int, max_line: int) -> str:
    return f"line {number} is longer than {max_line} characters"


def _after_long_line(text: io.TextIOWrapper, piece: str, size: int) -> str | None:
    """Read to the end of a line that begins with this piece. Returns the next line if it had to be read."""
    while piece and not piece.endswith(("\n", "\r")):
        piece = text.readline(size)
    # A piece may end within the line end.
    after = text.readline(size) if piece.endswith("\r") else "\n"
    return None if after == "\n" else after


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
