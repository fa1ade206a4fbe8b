"""The object of a claim, as the processor reads it, and which of S3's errors are refusals."""

from contextlib import suppress
from typing import BinaryIO, Self

from botocore.exceptions import ClientError

from intake_ledger.aws import Bucket
from intake_ledger.ledger import Claim
from intake_ledger.processor import ObjectStream, download_to_file
from intake_ledger.protocol import ObjectGone, ObjectReadError

_PASSING = frozenset({"RequestTimeout", "SlowDown", "Throttling", "TooManyRequests", "RequestTimeTooSkewed"})
"""S3's client errors that may pass."""


class OpenedObject:
    """The streams and temporary files of the claimed version.

    On exit it raises the error of a stream again. The processor may have caught the error and returned, or may have
    rejected half an object as `Unprocessable`.
    """

    def __init__(self, bucket: Bucket, claim: Claim) -> None:
        self._bucket = bucket
        self._claim = claim
        self._streams: list[ObjectStream] = []
        self._files: list[BinaryIO] = []
        self._unread = False

    def __enter__(self) -> Self:
        return self

    def ahead(self) -> None:
        """Open the object before the processor starts. If it is gone then, nothing has been begun."""
        if not self._claim.state.removed:
            self._again()
            self._unread = True

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        failure = self._failure
        for file in (*self._streams, *self._files):
            with suppress(Exception):  # the data was read before
                file.close()
        if (
            failure is not None
            and (error is None or isinstance(error, Exception))
            and not isinstance(error, ObjectGone)
        ):
            raise failure

    @property
    def _failure(self) -> ObjectReadError | None:
        """The error of a stream. A later stream that was read completely replaces it."""
        for stream in reversed(self._streams):
            if stream.complete:
                return None
            if stream.failure is not None:
                return stream.failure
        return None

    def open(self) -> ObjectStream:
        """The stream that is open already; another one from the second call on."""
        if not self._unread:
            self._again()
        self._unread = False
        return self._streams[-1]

    def download(self) -> BinaryIO:
        """Copy the object to a temporary file, which is deleted at the end of the attempt."""
        self._files.append(download_to_file(self.open()))
        return self._files[-1]

    def _again(self) -> None:
        self._streams.append(self._bucket.open(self._claim.change.key, self._claim.state))


def s3_refusal(error: BaseException) -> str | None:
    """S3's code, if it refuses the read and will refuse it again: an archived object, a key that may not be used."""
    if not isinstance(error, ClientError):
        return None
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = error.response["Error"].get("Code", "unknown")
    return code if 400 <= status < 500 and code not in _PASSING else None
