"""The argument of a processor of sets of files."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, overload

from intake_ledger.processor import text as reading
from intake_ledger.processor.object_change import Commit
from intake_ledger.processor.object_stream import ObjectStream, OpenedObject, read_all
from intake_ledger.protocol import State

if TYPE_CHECKING:
    from intake_ledger.outputs import Output
    from intake_ledger.processor.rejects import Reading, Rejects


@dataclass(frozen=True, slots=True)
class SetFile:
    """One object of a set, in exactly the version that the set has.

    A version may be deleted for good while the set is processed. Then each method raises `ObjectGone`. Let it
    propagate: the set waits until the ledger has another version of the object.
    """

    key: str
    """The object's key, not percent-encoded."""
    state: State
    """The state of the object: its version or its ETag, and its size."""
    _opened: OpenedObject = field(repr=False)
    _begin_rejects: "Callable[[Rejects], Reading]" = field(repr=False)

    @property
    def version_id(self) -> str | None:
        """The version. None in a bucket without versioning."""
        return self.state.version_id

    @property
    def etag(self) -> str | None:
        """The ETag without quotes. None for a part in a bucket with versioning."""
        return self.state.etag

    def open(self) -> ObjectStream:
        """Open a stream of the object, as `ObjectChange.open` does. It is closed when nothing refers to it."""
        return self._opened.open()

    def read(self, max_bytes: int) -> bytes:
        """Read the whole content into memory.

        Args:
            max_bytes: limit of the size in bytes.

        Raises:
            Unprocessable: The object is larger.

        """
        with self.open() as stream:
            return read_all(stream, max_bytes)

    def download(self) -> BinaryIO:
        """Copy the content to a temporary file, as `ObjectChange.download` does.

        The file is deleted as soon as it is closed or nothing refers to it, so a loop over many parts needs the space
        of one. Keep the file while you use its descriptor.
        """
        return self._opened.download()

    def lines(self, *, encoding: str = reading.UTF_8, max_line: int = reading.MAX_LINE) -> Iterator[str]:
        """Read the lines as a stream, as `ObjectChange.lines` does.

        Args:
            encoding: the text's encoding; UTF-8 when omitted.
            max_line: limit of a line in characters; 1 Mi when omitted.

        """
        stream = self.open()
        return reading.closing(stream, reading.lines(stream, encoding=encoding, max_line=max_line))

    @overload
    def csv_rows(
        self,
        *,
        encoding: str = ...,
        delimiter: str = ...,
        fieldnames: Sequence[str] | None = ...,
        columns: Sequence[str] | None = ...,
        max_line: int = ...,
        on_error: "Rejects | None" = ...,
    ) -> Iterator[dict[str, str]]: ...

    @overload
    def csv_rows(
        self,
        *,
        encoding: str = ...,
        delimiter: str = ...,
        columns: Mapping[str, Callable[[str], Any]],
        max_line: int = ...,
        on_error: "Rejects | None" = ...,
    ) -> Iterator[dict[str, Any]]: ...

    def csv_rows(
        self,
        *,
        encoding: str = reading.UTF_8,
        delimiter: str = ",",
        fieldnames: Sequence[str] | None = None,
        columns: Mapping[str, Callable[[str], Any]] | Sequence[str] | None = None,
        max_line: int = reading.MAX_LINE,
        on_error: "Rejects | None" = None,
    ) -> Iterator[dict[str, Any]]:
        """Read the rows of a CSV as a stream, as `ObjectChange.csv_rows` does.

        Args:
            encoding: the text's encoding; UTF-8 when omitted.
            delimiter: the separator of fields; a comma when omitted.
            fieldnames: the columns of a file without a header. When omitted, the first row has them.
            columns: the expected columns of the header; any columns when omitted.
            max_line: limit of a row in characters; 1 Mi when omitted.
            on_error: rejects bad rows of this part. The output is that of the set. With `max_share`, call this for all
                parts before the first effect: the share is that of one part. The first bad row raises an error when
                omitted.

        """
        read = partial(
            reading.csv_rows,
            encoding=encoding,
            delimiter=delimiter,
            fieldnames=fieldnames,
            columns=columns,
            max_line=max_line,
        )
        return reading.read_file(self.open, read, on_error, self._begin_rejects)

    def json_lines(
        self,
        *,
        encoding: str = reading.UTF_8,
        columns: Mapping[str, Callable[[Any], Any]] | Sequence[str] | None = None,
        max_line: int = reading.MAX_LINE,
        on_error: "Rejects | None" = None,
    ) -> Iterator[Any]:
        """Read the JSON value of each line as a stream, as `ObjectChange.json_lines` does.

        Args:
            encoding: the text's encoding; UTF-8 when omitted.
            columns: the expected names of each JSON object; any values when omitted.
            max_line: limit of a line in characters; 1 Mi when omitted.
            on_error: as for `csv_rows`; the first bad line raises an error when omitted.

        """
        read = partial(reading.json_lines, encoding=encoding, columns=columns, max_line=max_line)
        return reading.read_file(self.open, read, on_error, self._begin_rejects)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSet:
    """One version of a set of files, claimed for this call of the processor only."""

    bucket: str
    """The bucket's name."""
    key: str
    """The key of the manifest or marker. For a quiet folder: the folder, with a slash at its end."""
    version: str
    """The name of this version of the set. It differs for each manifest version and for each version of a part."""
    manifest: SetFile | None
    """The manifest or marker. None for a quiet folder."""
    parts: tuple[SetFile, ...]
    """The parts in the order of the manifest. Without a manifest: in the order of their keys."""
    attempt: int
    """The number of this attempt on this version, from 1 to the pipeline's `max_attempts`."""
    fence: int
    """A number that grows with each claim on this set, as `ObjectChange.fence`."""
    idempotency_key: str
    """The same for each attempt on this version of the set."""
    _remaining_seconds: Callable[[], float] = field(repr=False)
    _output: "Callable[[str, str], Output]" = field(repr=False)

    @property
    def remaining_seconds(self) -> float:
        """Seconds until the processor is interrupted, at least 0.1, so that it may be the timeout of a request."""
        return self._remaining_seconds()

    def output(self, bucket: str, key: str) -> "Output":
        """Return an object that this call may write, and that a late worker cannot overwrite afterwards.

        Args:
            bucket: the bucket's name.
            key: of the output. Derive it from `key`, so that two sets never share an output.

        """
        return self._output(bucket, key)


SetProcessor = Callable[[FileSet], Commit | str | None]
