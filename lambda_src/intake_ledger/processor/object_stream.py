"""The stream that a processor reads an object through, the ways to read it, and the object of an attempt.

The stream checks the length that S3 announced, and S3's checksum where there is one. Short or altered content raises
`ObjectReadError` and never looks like an end of file. botocore's `StreamingBody` does not guarantee that. In a `with`
statement it returns the response of urllib3, and only some releases of urllib3 check the length (botocore issue 3564).

Only a checksum of the full object can be compared. Objects that were uploaded in parts may have a checksum of the
parts' checksums, which S3 marks with `-` and the number of parts.
"""

import hashlib
import io
import shutil
import tempfile
import weakref
import zlib
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol, Self, overload

from intake_ledger.processor import text
from intake_ledger.protocol.change import State
from intake_ledger.protocol.errors import NoSpaceError, ObjectGone, ObjectReadError, Unprocessable

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from intake_ledger.processor.rejects import Reading as RowReading
    from intake_ledger.processor.rejects import Rejects

_GONE = frozenset({"404", "405", "412", "NoSuchKey", "NoSuchVersion", "MethodNotAllowed", "PreconditionFailed"})
_BUFFER_BYTES = 128 * 1024
_COPY_BYTES = 1024 * 1024


class Body(Protocol):
    """The methods of botocore's `StreamingBody` that this module calls."""

    def read(self, amt: int) -> bytes: ...

    def close(self) -> object: ...


class Digest(Protocol):
    """The methods of hashlib's objects that this module calls."""

    def update(self, data: Any, /) -> None: ...

    def digest(self) -> bytes: ...


class _Cyclic:
    """A cyclic redundancy check of `size` bytes, by a function that continues from the value so far."""

    def __init__(self, function: Callable[[Any, int], int], size: int) -> None:
        self._function = function
        self._size = size
        self._value = 0

    def update(self, data: Any, /) -> None:
        self._value = self._function(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(self._size, "big")


class Checksum(NamedTuple):
    """S3's checksum of an object, and the algorithm that computes it again from the bytes that arrive."""

    name: str
    expected: bytes
    digest: Digest


class ObjectStream(io.BufferedReader):
    """The bytes of exactly the claimed version, to be read once. For readers that seek, use `ObjectChange.download()`.

    It is a binary file: iteration gives lines, and `io.TextIOWrapper`, `csv` on top of that, `gzip`, pandas and Pillow
    can read it. Each way of reading raises `ObjectReadError` if the content is incomplete or altered.
    """

    def __init__(self, body: Body, length: int, checksum: Checksum | None = None) -> None:
        """Make a stream, for example in a test: `ObjectStream(io.BytesIO(content), len(content))`.

        Args:
            body: the source of the bytes, such as botocore's `StreamingBody`.
            length: the expected number of bytes.
            checksum: the expected checksum; only the length is checked when omitted.

        """
        self.reading = Reading()
        """How far the content was read. It stays when the stream is closed and forgotten."""
        self._checked = _Checked(body, length, checksum, self.reading)
        # A small object gets a small buffer.
        super().__init__(self._checked, max(min(length, _BUFFER_BYTES), 1))

    # As in the C implementation. It is explicit here because botocore's method returns another object.
    def __enter__(self) -> Self:
        return self

    @property
    def length(self) -> int:
        """The object's size in bytes."""
        return self._checked.length

    @property
    def failure(self) -> ObjectReadError | None:
        """The error that a read has raised, or None."""
        return self.reading.failure

    @property
    def complete(self) -> bool:
        """True after the last byte, if length and checksum are right."""
        return self.reading.complete


@dataclass(slots=True)
class Reading:
    """How the reads of one stream have ended."""

    complete: bool = False
    failure: ObjectReadError | None = None


class _Checked(io.RawIOBase):
    def __init__(self, body: Body, length: int, checksum: Checksum | None, reading: "Reading") -> None:
        self._body = body
        self._checksum = checksum
        self._position = 0
        self._reading = reading
        self.length = length

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        data = self._next(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        pieces = [self._next(self.length)]
        while pieces[-1] and not self._reading.complete:
            pieces.append(self._next(self.length))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        super().close()
        with suppress(Exception):  # the bytes that were read are right
            self._body.close()

    def _next(self, size: int) -> bytes:
        """Return at least one byte, unless none is left. Check everything before the last bytes are returned."""
        if self._reading.failure is not None:
            raise self._reading.failure
        data, missing = b"", self.length - self._position
        if missing and size:
            try:
                data = self._body.read(min(size, missing))
            except Exception as error:  # each release of the HTTP client raises other errors
                raise self._failed(f"reading from S3 failed {self._progress()}: {type(error).__name__}") from error
            if not data:
                raise self._failed(f"the connection to S3 ended {self._progress()}")
            self._position += len(data)
            if self._checksum is not None:
                self._checksum.digest.update(data)
        if self._position == self.length and not self._reading.complete:
            if self._checksum is not None and self._checksum.digest.digest() != self._checksum.expected:
                raise self._failed(f"the content does not have the {self._checksum.name} checksum that S3 keeps for it")
            self._reading.complete = True
        return data

    def _progress(self) -> str:
        return f"after {self._position:,} of {self.length:,} bytes"

    def _failed(self, text: str) -> ObjectReadError:
        self._reading.failure = ObjectReadError(text)
        return self._reading.failure


class OpenedObject:
    """The streams and temporary files of an attempt. `open_stream` opens the claimed version.

    On exit it raises the error of a stream again. The processor may have caught the error and returned, or may have
    rejected half an object as `Unprocessable`.
    """

    def __init__(self, open_stream: Callable[[], ObjectStream], *, one_of_many: bool = False) -> None:
        """Make the streams and files of one object.

        Args:
            open_stream: opens the claimed version.
            one_of_many: true: a stream or file that the processor drops is closed at once, as Python closes a file.
                Otherwise a loop over the parts of a set would keep a connection for each part.

        """
        self._open_stream = open_stream
        self._reference: Callable[[Any], Callable[[], Any]] = weakref.ref if one_of_many else _strong
        self._readings: list[Reading] = []
        self._files: list[Callable[[], BinaryIO | None]] = []
        self._ahead: ObjectStream | None = None

    def __enter__(self) -> Self:
        return self

    def open_ahead(self) -> None:
        """Open the object before the processor starts. If it is gone then, nothing has been begun."""
        self._ahead = self._opened()

    def open(self) -> ObjectStream:
        """The stream that is open already; another one from the second call on."""
        stream, self._ahead = self._ahead or self._opened(), None
        return stream

    def download(self) -> BinaryIO:
        """Copy the object to a temporary file, which is deleted at the end of the attempt."""
        with self.open() as stream:
            file = download_to_file(stream)
        self._keep(file)
        return file

    def _opened(self) -> ObjectStream:
        stream = self._open_stream()
        self._readings.append(stream.reading)
        self._keep(stream)
        return stream

    def _keep(self, file: BinaryIO) -> None:
        self._files = [known for known in self._files if not _is_closed(known())]
        self._files.append(self._reference(file))

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        failure: ObjectReadError | None = None
        for reading in self._readings:
            # A later stream that was read completely replaces the error of an earlier one.
            failure = None if reading.complete else reading.failure or failure
        for known in self._files:
            if (file := known()) is not None:
                with suppress(Exception):  # the data was read before
                    file.close()
        if (
            failure is not None
            and (error is None or isinstance(error, Exception))
            and not isinstance(error, ObjectGone)
        ):
            raise failure


def _strong(file: BinaryIO) -> Callable[[], BinaryIO]:
    return lambda: file


def _is_closed(file: BinaryIO | None) -> bool:
    return file is None or file.closed


def read_all(stream: ObjectStream, max_bytes: int) -> bytes:
    """Return the whole content if it has at most `max_bytes`.

    Raises:
        Unprocessable: The object is larger.

    """
    if stream.length > max_bytes:
        raise Unprocessable(
            f"the object has {stream.length:,} bytes, and read(max_bytes={max_bytes}) takes no more: raise max_bytes, "
            "or use open() or download()"
        )
    return stream.read()


class _TemporaryFile(io.BufferedRandom):
    """A file that is closed, without a warning, when nothing refers to it."""

    def __del__(self) -> None:
        self.close()


def download_to_file(stream: ObjectStream) -> BinaryIO:
    """Copy the content to a temporary file without a name. It is deleted when it is closed or when the worker dies.

    Raises:
        Unprocessable: The disk is smaller than the object.
        NoSpaceError: The disk has not enough free space at the moment.

    """
    folder = tempfile.gettempdir()
    disk = shutil.disk_usage(folder)
    if stream.length > disk.total:
        raise Unprocessable(
            f"the object has {stream.length:,} bytes, and {folder} has {disk.total:,} in all: give the processor a "
            "larger ephemeral_storage_size, or use open()"
        )
    if stream.length > disk.free:
        raise NoSpaceError(
            f"the object has {stream.length:,} bytes, and {folder} has {disk.free:,} free: delete what the processor "
            "leaves there, or give it a larger ephemeral_storage_size",
        )
    file = _TemporaryFile(tempfile.TemporaryFile().detach())  # noqa: SIM115 - the caller's to close
    try:
        shutil.copyfileobj(stream, file, _COPY_BYTES)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def checksum_of(answer: Mapping[str, Any]) -> Checksum | None:
    """Choose the checksum in GetObject's answer that this runtime can compute; None when there is none."""
    if answer.get("ChecksumType") == "COMPOSITE":
        return None
    for name, make in _ALGORITHMS.items():
        value = answer.get(f"Checksum{name}")
        if isinstance(value, str) and "-" not in value and (digest := make()) is not None:
            return Checksum(name, b64decode(value), digest)
    return None


def _crt(function: str, size: int) -> Digest | None:
    """Make an algorithm of the AWS Common Runtime. It is imported for the first object that needs it."""
    try:
        checksums = import_module("awscrt.checksums")
    except ImportError:
        return None
    compute = getattr(checksums, function, None)
    return None if compute is None else _Cyclic(compute, size)


_ALGORITHMS: Mapping[str, Callable[[], Digest | None]] = {
    "CRC32": lambda: _Cyclic(zlib.crc32, 4),
    "CRC64NVME": partial(_crt, "crc64nvme", 8),
    "CRC32C": partial(_crt, "crc32c", 4),
    "SHA256": hashlib.sha256,
    "SHA1": partial(hashlib.sha1, usedforsecurity=False),
    "SHA512": hashlib.sha512,
}
"""S3's algorithms in Python's standard library, and two in `awscrt`."""


class ReadableObject:
    """The ways to read the content of one object. A subclass opens it."""

    __slots__ = ()

    def open(self) -> ObjectStream:
        """Open a stream of exactly the claimed version."""
        raise NotImplementedError

    def _begin(self, rejects: "Rejects") -> "RowReading":
        """Start a reading that collects rejected rows."""
        raise NotImplementedError

    def read(self, max_bytes: int) -> bytes:
        """Read the whole content into memory.

        Args:
            max_bytes: limit of the size in bytes, so that a large object does not use up the function's memory.

        Raises:
            ObjectGone: As for `open`.
            ObjectReadError: The content is incomplete or altered. Let it propagate: the change is retried.
            Unprocessable: The object is larger than `max_bytes`.

        """
        with self.open() as stream:
            return read_all(stream, max_bytes)

    def lines(self, *, encoding: str = text.UTF_8, max_line: int = text.MAX_LINE) -> Iterator[str]:
        """Read the object's lines as a stream, without their line ends. Gzip is detected by content and decompressed.

        Args:
            encoding: the text's encoding; UTF-8, with or without a byte order mark, when omitted.
            max_line: limit of a line in characters; 1 Mi when omitted.

        Raises:
            ObjectGone: As for `open`.
            Unprocessable: The content is malformed; the text names the line. Let it propagate.

        """
        stream = self.open()
        return text.closing(stream, text.lines(stream, encoding=encoding, max_line=max_line))

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
        quoting: int | None = ...,
        quotechar: str = ...,
        escapechar: str | None = ...,
        skipinitialspace: bool = ...,
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
        quoting: int | None = ...,
        quotechar: str = ...,
        escapechar: str | None = ...,
        skipinitialspace: bool = ...,
    ) -> Iterator[dict[str, Any]]: ...

    def csv_rows(
        self,
        *,
        encoding: str = text.UTF_8,
        delimiter: str = ",",
        fieldnames: Sequence[str] | None = None,
        columns: Mapping[str, Callable[[str], Any]] | Sequence[str] | None = None,
        max_line: int = text.MAX_LINE,
        on_error: "Rejects | None" = None,
        quoting: int | None = None,
        quotechar: str = '"',
        escapechar: str | None = None,
        skipinitialspace: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """Read the rows of a CSV as a stream, by column name.

        For another reader, take a text file: `io.TextIOWrapper(change.open(), "utf-8-sig", newline="")`.
        `lines()` is not one: without their line ends, a quoted field that has one is joined.

        Args:
            encoding: the text's encoding; UTF-8, with or without a byte order mark, when omitted.
            delimiter: the separator of fields; a comma when omitted.
            fieldnames: the columns of a file without a header. When omitted, the first row has them.
            columns: the expected columns of the header, in any order. A mapping has a function for the values of each
                column, which refuses a value by ValueError, TypeError or an error of arithmetic or look-up. `int`,
                `float`, `Decimal`, `bool` and `str` are strict: ASCII digits without `_`, finite numbers, `true`,
                `false`, `1` and `0`. Any columns when omitted.
            max_line: limit of a row in characters, over all of its lines; 1 Mi when omitted.
            on_error: [rejects bad rows](outputs.md#rejected-rows) and goes on with the others; the first bad row
                raises an error when omitted. The output of a part is that of its set. With `max_share`, call this for
                all parts of a set before the first effect: the share is that of one part.
            quoting: `csv.QUOTE_MINIMAL`, or `csv.QUOTE_NONE` for fields without quotation. When omitted, fields may be
                quoted. In a tab-separated file, which has no quotation by its definition and has it from spreadsheets,
                a field that begins with a quotation mark is then an error.
            quotechar: the quotation mark, `"` when omitted.
            escapechar: takes the meaning from the character after it; none when omitted.
            skipinitialspace: whether spaces after the delimiter are skipped; false when omitted.

        Raises:
            ObjectGone: As for `open`.
            Unprocessable: As for `lines`; also a row with more or fewer fields than columns, or with a value that the
                function of its column refuses.
            SchemaDrift: An `Unprocessable`: the header lacks one of `columns`, or has another one, or there is none.
            TooManyRejects: An `Unprocessable`: more rows are bad than `on_error` allows.
            OutputError: `on_error` is given, and the pipeline has no place for rejected rows.
            ValueError: Both `fieldnames` and `columns` are given, or `quoting` is another constant.

        """
        read = partial(
            text.csv_rows,
            dialect=text.Dialect(delimiter, quoting, quotechar, escapechar, skipinitialspace),
            encoding=encoding,
            fieldnames=fieldnames,
            columns=columns,
            max_line=max_line,
        )
        return text.read_file(self.open, read, on_error, self._begin)

    def json_lines(
        self,
        *,
        encoding: str = text.UTF_8,
        columns: Mapping[str, Callable[[Any], Any]] | Sequence[str] | None = None,
        max_line: int = text.MAX_LINE,
        on_error: "Rejects | None" = None,
    ) -> Iterator[Any]:
        """Read the JSON value of each line as a stream. Empty lines are skipped.

        Args:
            encoding: the text's encoding; UTF-8, with or without a byte order mark, when omitted.
            columns: the expected names of each JSON object, as for `csv_rows`. Any values when omitted.
            max_line: limit of a line in characters; 1 Mi when omitted.
            on_error: as for `csv_rows`; the first bad line raises an error when omitted.

        Raises:
            ObjectGone: As for `open`.
            Unprocessable: As for `csv_rows`, with its other errors; also a line that is not JSON.
            SchemaDrift: An `Unprocessable`: a line lacks one of `columns`, or has another one. With `on_error`, the
                line is rejected.

        """
        read = partial(text.json_lines, encoding=encoding, columns=columns, max_line=max_line)
        return text.read_file(self.open, read, on_error, self._begin)


def open_state(client: "S3Client", place: Mapping[str, Any], key: str, state: State) -> ObjectStream:
    """A stream of exactly this version. Without versions, of exactly the content with this ETag.

    `ChecksumMode` makes S3 return the object's checksum. For objects under a KMS key, both the checksum and the
    content need kms:Decrypt. `place` has the name of the bucket, as boto3 takes it.

    Raises:
        ObjectGone: The version no longer exists.
        ObjectReadError: S3's answer has no length.
        ValueError: The state is a removal.
        ClientError: S3 refuses for any other reason.

    """
    from botocore.exceptions import ClientError  # noqa: PLC0415 - tests of processors need no botocore

    if state.removed:
        raise ValueError(f"{key} was removed, there is nothing to open: check the kind of the change first")
    version: dict[str, Any] = {"VersionId": state.version_id} if state.version_id else {"IfMatch": f'"{state.etag}"'}
    try:
        answer = client.get_object(**place, Key=key, **version, ChecksumMode="ENABLED")
    except ClientError as error:
        if error.response["Error"]["Code"] in _GONE:
            raise ObjectGone(f"{key}: S3 no longer holds {state.identity}") from error
        raise
    length = answer.get("ContentLength")
    if length is None:
        answer["Body"].close()
        raise ObjectReadError(f"{key}: S3's answer has no Content-Length, so its end cannot be checked")
    return ObjectStream(answer["Body"], length, checksum_of(answer))
