"""The stream that a processor reads an object through.

It checks the length that S3 announced, and S3's checksum where there is one. Short or altered content raises
`ObjectReadError` and never looks like an end of file. botocore's `StreamingBody` does not guarantee that. In a `with`
statement it returns the response of urllib3, and only some releases of urllib3 check the length (botocore issue 3564).
"""

import io
import shutil
import tempfile
from contextlib import suppress
from typing import Any, BinaryIO, Protocol, Self

from intake_ledger.processor.checksums import Checksum
from intake_ledger.protocol import NoSpaceError, ObjectReadError, Unprocessable

_BUFFER_BYTES = 128 * 1024
_COPY_BYTES = 1024 * 1024


class Body(Protocol):
    """The methods of botocore's `StreamingBody` that this module calls."""

    def read(self, amt: int) -> bytes: ...

    def close(self) -> object: ...


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
        self._checked = _Checked(body, length, checksum)
        super().__init__(self._checked, _BUFFER_BYTES)

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
        return self._checked.failure

    @property
    def complete(self) -> bool:
        """True after the last byte, if length and checksum are right."""
        return self._checked.complete


class _Checked(io.RawIOBase):
    def __init__(self, body: Body, length: int, checksum: Checksum | None) -> None:
        self._body = body
        self._checksum = checksum
        self._position = 0
        self.length = length
        self.failure: ObjectReadError | None = None
        self.complete = False

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        data = self._next(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        pieces = []
        while data := self._next(self.length - self._position):
            pieces.append(data)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        super().close()
        with suppress(Exception):  # the bytes that were read are right
            self._body.close()

    def _next(self, size: int) -> bytes:
        """Return at least one byte, unless none is left. Check everything before the last bytes are returned."""
        if self.failure is not None:
            raise self.failure
        missing = self.length - self._position
        data = self._received(min(size, missing)) if missing and size else b""
        self._position += len(data)
        if self._checksum is not None:
            self._checksum.update(data)
        if self._position == self.length and not self.complete:
            if self._checksum is not None and not self._checksum.matches:
                raise self._failed(f"the content does not have the {self._checksum.name} checksum that S3 keeps for it")
            self.complete = True
        return data

    def _received(self, size: int) -> bytes:
        progress = f"{self._position:,} of {self.length:,} bytes"
        try:
            data = self._body.read(size)
        except Exception as error:  # each release of the HTTP client raises other errors
            raise self._failed(f"reading from S3 failed after {progress}: {type(error).__name__}") from error
        if not data:
            raise self._failed(f"the connection to S3 ended after {progress}")
        return data

    def _failed(self, text: str) -> ObjectReadError:
        self.failure = ObjectReadError(text)
        return self.failure


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
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller's to close
    try:
        shutil.copyfileobj(stream, file, _COPY_BYTES)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file
