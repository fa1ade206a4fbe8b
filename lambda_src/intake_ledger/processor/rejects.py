"""Read a file whose good rows go on and whose bad rows are rejected: `on_error` of `csv_rows` and `json_lines`.

`AttemptRejects` collects the rejected rows of an attempt. `intake_ledger.kinds` writes them before the commit.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, cast, override

from intake_ledger.processor.text import RowProblem, RowReader, closing
from intake_ledger.protocol.change import State
from intake_ledger.protocol.errors import LibraryError, TooManyRejects, Unprocessable

_IN_MEMORY = 1024 * 1024
"""Bytes of rejected rows of a file. More of them are in a temporary file."""
_NAMED = 5
"""The problems that the reason of a rejected file names."""
_ESCAPED_BYTE = re.compile("[\\udc80-\\udcff]")
_BAD_ROWS = (ValueError, ArithmeticError, LookupError, Unprocessable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejects:
    """Reject the bad rows of a file, and go on with the others. Pass it as `on_error`.

    Each rejected row is a line of JSON in an output with the fence of the attempt: `source`, `version_id`, `etag`,
    `fence`, `line`, `column`, `code`, `reason` and `row`. The place of these outputs is that of `keep_rejects` of the
    pipeline or of the sets. An output belongs to the committed state of the object. The commit of another one replaces
    or removes it.

    It is not certain where the next row begins after a malformed quoted field, a damaged gzip stream, or a CSV row that
    is too long. Then the whole object is `Unprocessable`.

    Raises:
        ValueError: `max_share` is out of its range, or None with `commits_at_end`.

    """

    max_share: float | None
    """The largest share of bad rows, from 0 to below 1. The object is read twice then: `csv_rows` and `json_lines`
    count, and raise `TooManyRejects` before the processor gets the first row. With None, any share is accepted, and the
    rows stream in at one reading."""
    commits_at_end: bool = False
    """True if the effect becomes visible only after the last row: one SQL transaction, an output, or the writes of
    `Commit(transact=...)`. Then `TooManyRejects` comes after the last row, and the object is read once. An effect that
    becomes visible row by row would stay. When omitted, the rows are counted first."""
    check: Callable[[Any], object] | None = None
    """A function that takes each row. The row is rejected if it raises ValueError, ArithmeticError, LookupError or
    `Unprocessable`, with the text of the error as the reason. Its result is ignored. A `max_share` without
    `commits_at_end` reads each row twice, so it may not remember rows, such as to find doubled ones: the attempt fails
    then. No function when omitted."""
    one_line_rows: bool = False
    """True if no field of a CSV contains a line end. Then a malformed quoted field, or a row that is too long, is a bad
    row. Only say so if it is certain: parts of a field with line ends would be taken for rows. When omitted, fields may
    contain line ends."""

    def __post_init__(self) -> None:
        if self.max_share is not None and not 0 <= self.max_share < 1:
            raise ValueError(
                f"max_share is {self.max_share!r}: it must be at least 0 and below 1, such as 0.01. None accepts any "
                "share, without a first reading"
            )
        if self.commits_at_end and self.max_share is None:
            raise ValueError("commits_at_end is for a max_share, and there is none: give a max_share, or leave it out")


class Reading:
    """One reading of a file: it counts the rows. See `RowErrors`."""

    def __init__(self, rejects: Rejects) -> None:
        self.one_line_rows = rejects.one_line_rows
        self._check = rejects.check
        self._first: list[str] = []
        """The first problems, without the content that they may quote."""
        self.read = 0
        self.rejected = 0

    def bad(self, problem: RowProblem) -> None:
        """See `RowErrors`."""
        self.read += 1
        self.rejected += 1
        if len(self._first) < _NAMED:
            self._first.append(f"line {problem.line} ({problem.code})")

    def check_share(self, most: float) -> None:
        """Raise TooManyRejects if more rows are bad than this share."""
        # The product with a share such as 0.29 is rounded, and the quotient is the number that the share is.
        if self.rejected and (share := self.rejected / self.read) > most:
            named = ", ".join(self._first) + (" and others" if self.rejected > len(self._first) else "")
            raise TooManyRejects(
                f"{self.rejected:,} of {self.read:,} rows are bad ({share:.3%}), and max_share is {most:.3%}: {named}"
            )

    def check_counted(self, counted: "Reading") -> None:
        """Raise LibraryError if more rows are bad than at the reading that has counted them."""
        if self.rejected > counted.rejected:
            raise LibraryError(
                "a check or a function of columns refuses a row that it has accepted before, when the bad rows were "
                "counted: it may remember nothing of other rows. Or read the file once: commits_at_end=True"
            )

    def good(self, line: int, value: Any, text: str | None) -> bool:
        """See `RowErrors`."""
        if self._check is not None:
            try:
                self._check(value)
            except _BAD_ROWS as error:
                column = error.args[0] if isinstance(error, KeyError) and error.args else None
                why = f"line {line}: {type(error).__name__}: {error}"
                self.bad(RowProblem(line, column if isinstance(column, str) else None, "check", why, text))
                return False
        self.read += 1
        return True


class RejectedRows(Reading):
    """The rejected rows of one file, as lines of JSON."""

    def __init__(self, rejects: Rejects, source: str, state: State, fence: int) -> None:
        super().__init__(rejects)
        self._fixed = {"source": source, "version_id": state.version_id, "etag": state.etag, "fence": fence}
        self.file = cast("BinaryIO", tempfile.SpooledTemporaryFile(_IN_MEMORY))  # noqa: SIM115 - the attempt closes it
        """The lines of JSON."""

    @override
    def bad(self, problem: RowProblem) -> None:
        super().bad(problem)
        row = {
            **self._fixed,
            "line": problem.line,
            "column": problem.column and _readable(problem.column),
            "code": problem.code,
            "reason": _readable(problem.why),
            "row": None if problem.text is None else _readable(problem.text.rstrip("\r\n")),
        }
        self.file.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


class AttemptRejects:
    """The rejected rows of one attempt, by file. The last reading of a file counts."""

    def __init__(self, fence: int) -> None:
        """Make it. `fence` is that of the claim."""
        self._fence = fence
        self._files: dict[str, RejectedRows] = {}

    def begin(self, rejects: Rejects, source: str, state: State) -> RejectedRows:
        """Start a reading of the file with this key."""
        self._files[source] = RejectedRows(rejects, source, state, self._fence)
        return self._files[source]

    @property
    def read(self) -> int:
        """The rows of all files."""
        return sum(file.read for file in self._files.values())

    @property
    def rejected(self) -> int:
        """The rejected rows of all files."""
        return sum(file.rejected for file in self._files.values())

    def whole_file(self) -> BinaryIO:
        """The lines of all files, for the caller to close. It can seek, so that an upload can be repeated."""
        found = [one.file for one in self._files.values() if one.rejected]
        for file in found:
            file.seek(0)
        if len(found) == 1:
            return found[0]
        whole = cast("BinaryIO", tempfile.SpooledTemporaryFile(_IN_MEMORY))  # noqa: SIM115 - the caller closes it
        for file in found:
            shutil.copyfileobj(file, whole)
        whole.seek(0)
        return whole


def rows(
    open_stream: Callable[[], BinaryIO], read: RowReader, rejects: Rejects, begin: Callable[[Rejects], Reading]
) -> Iterator[Any]:
    """Yield the good rows, and give the others to the reading that `begin` makes.

    Raises:
        TooManyRejects: More rows are bad than `max_share` allows. No row was yielded, or each one with
            `commits_at_end`.
        LibraryError: At the second reading, more rows are bad than at the first.

    """
    if not isinstance(rejects, Rejects):
        raise TypeError(f"on_error is {type(rejects).__name__}: pass Rejects(max_share=...)")
    if rejects.max_share is None or rejects.commits_at_end:
        return _checked(open_stream(), read, begin(rejects), rejects.max_share)
    counting = Reading(rejects)
    stream = open_stream()
    for _ in closing(stream, read(stream, errors=counting)):
        pass
    counting.check_share(rejects.max_share)
    return _later(open_stream, read, begin(rejects), counting)


def _checked(stream: BinaryIO, read: RowReader, reading: Reading, most: float | None) -> Iterator[Any]:
    """Yield the rows of a stream that is open. Its share is checked at the end."""
    yield from closing(stream, read(stream, errors=reading))
    if most is not None:
        reading.check_share(most)


def _later(open_stream: Callable[[], BinaryIO], read: RowReader, reading: Reading, counted: Reading) -> Iterator[Any]:
    """Open the file when the first row is wanted, so that the parts of a set need no connection each."""
    stream = open_stream()
    for row in closing(stream, read(stream, errors=reading)):
        reading.check_counted(counted)
        yield row
    reading.check_counted(counted)


def _readable(text: str) -> str:
    """The text, with each byte that is not in the encoding as a backslash, `x` and two digits."""
    shown = _ESCAPED_BYTE.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", text)
    return shown.encode("utf-8", "backslashreplace").decode()
