"""Compare and swap on the ETag of an object: look at it, and write it only if it is unchanged.

S3 has no condition on metadata. The metadata name the last writer, and the ETag in the condition excludes
all writes since.
"""

import hashlib
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from botocore.exceptions import ClientError

from intake_ledger.protocol.errors import OutputConflict, OutputError, OutputReserved, OutputTaken, Overtaken

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

FENCE, SOURCE, REMOVED = "intake-fence", "intake-source", "intake-removed"
"""The names of metadata. A tombstone has the last one."""
MAX_TRIES = 10
_MARK = re.compile(r"(\d+)\.(\d+)")
_CONFLICTS = frozenset({404, 409, 412})
"""404: a condition on an ETag, and the object was deleted. 409: a concurrent conditional write. 412: it was changed."""
_LONGEST_PAUSE = 1.0


class PartsLost(OutputError):  # noqa: N818 - `Output` uploads them again
    """S3 refuses to complete an upload whose condition holds. Its parts have to be uploaded again."""


@dataclass(frozen=True, slots=True, order=True)
class WriteMark:
    """The number of one write to an output. A later claim has a higher one, and so has a later write of one attempt."""

    fence: int
    number: int
    """The n-th write of the attempt to this output, from 1."""

    def __str__(self) -> str:
        return f"{self.fence}.{self.number}"


def source_of(key: str, version: str | None) -> str:
    """Identify the object that an output is derived from.

    The bucket and the pipeline are not part of it, so that both can be replaced.

    Args:
        key: of the object in the intake bucket.
        version: the identity of the version with EVERY_VERSION, because fences of different versions have no order.

    """
    name = key if version is None else f"{key}\n{version}"
    return hashlib.sha256(name.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Present:
    """The object that an output shows."""

    etag: str | None = None
    """None: the object does not exist."""
    mark: WriteMark | None = None
    """None: it was not written as an output, for example before the pipeline existed."""
    source: str | None = None
    removed_by: int | None = None
    """The time by which S3 had a tombstone, in milliseconds. None: it is no tombstone."""

    @classmethod
    def of(cls, head: Mapping[str, Any]) -> Self:
        """Read the answer to HeadObject. Raises OutputError if a later release wrote the metadata."""
        metadata = head["Metadata"]
        text = metadata.get(FENCE)
        if text is None:
            return cls(head["ETag"])
        match = _MARK.fullmatch(text)
        if match is None:
            raise OutputError(
                f"the output has the metadata {FENCE} in another format than <fence>.<number>: deploy the release that "
                "wrote it, or remove the object",
                detail=repr(text),
            )
        # Last-Modified has whole seconds.
        removed_by = int(head["LastModified"].timestamp() + 1) * 1000 if REMOVED in metadata else None
        return cls(head["ETag"], WriteMark(int(match[1]), int(match[2])), metadata.get(SOURCE), removed_by)

    @property
    def condition(self) -> dict[str, str]:
        """The condition of a write: this object is still the present one."""
        return {"IfNoneMatch": "*"} if self.etag is None else {"IfMatch": self.etag}


class ConditionalPut:
    """Writes one output, if no later claim has written it.

    `look_first`: an earlier attempt may have written the output. Then a HEAD request costs
    less than a put that is refused. `removals`: the removal of another object may be processed, and its output removed.
    """

    def __init__(
        self,
        client: "S3Client",
        bucket: str,
        key: str,
        source: str,
        *,
        look_first: bool,
        removals: bool = True,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._client = client
        self._where: Any = {"Bucket": bucket, "Key": key}
        self._name = f"s3://{bucket}/{key}"
        self._source = source
        self._present = None if look_first else Present()
        """None: it is not known."""
        self._removals = removals
        self._pause = pause

    def written(self, fence: int) -> int:
        """The number of the last write with this fence. 0: there is none."""
        self._present = self._present or self._look()
        mark = self._present.mark
        return mark.number if mark is not None and mark.fence == fence else 0

    def metadata(self, mark: WriteMark) -> dict[str, str]:
        """The metadata of a write."""
        return {FENCE: str(mark), SOURCE: self._source}

    def swap(
        self,
        mark: WriteMark,
        write: Callable[[dict[str, str]], str | None],
        *,
        repeatable: bool = True,
        removes: bool = False,
    ) -> None:
        """Write under a condition until S3 accepts it.

        Args:
            mark: of this write.
            write: sends the request with the condition, and returns the new ETag.
            repeatable: False if the same request cannot be sent again after a 409 answer.
            removes: True for a tombstone that is not needed if the output shows another object.

        Raises:
            Overtaken: A later claim has written the output.
            OutputConflict: The output was written for another object, and shows it.
            OutputTaken: As before, and the other object is never reported as removed.
            OutputReserved: Another object has left a tombstone since the claim.
            PartsLost: The request is not repeatable, and S3 refuses it for good. The output may still be written.
            OutputError: S3 refuses, or other writers changed the object at each try.
            ClientError: S3 answers with any other error.

        """
        for tries in range(1, MAX_TRIES + 1):
            present = self._present or self._look()
            if self._is_done(present, mark, removes=removes):
                return
            self._present = None
            try:
                etag = write(present.condition)
            except ClientError as error:
                if not _is_conflict(error):
                    raise self._explained(error) from error
                if not repeatable and _is_final(error):
                    # It may be this write: its first answer was lost, and botocore sent it again.
                    if self._is_done(self._look(), mark, removes=removes):
                        return
                    raise PartsLost(
                        f"S3 answered {_code(error)} when it completed the output, whose parts have to be uploaded "
                        "again: the next attempt does that",
                        detail=self._name,
                    ) from error
                if _status(error) == 409:
                    self._pause(random.uniform(0.5, 1) * min(0.05 * 2**tries, _LONGEST_PAUSE))  # noqa: S311 - a pause
            else:
                self._present = Present(etag, mark, self._source) if etag else None
                return
        raise OutputError(
            f"other writers changed the output at each of {MAX_TRIES} tries: the next attempt tries again",
            detail=self._name,
        )

    def _is_done(self, present: Present, mark: WriteMark, *, removes: bool) -> bool:
        """True if this write has happened, and only its answer was lost. Raises if it must not happen."""
        if present.mark is None:
            return False
        if present.source not in (None, self._source):
            return self._is_absent(present, present.mark, mark, removes=removes)
        if present.mark.fence > mark.fence:
            raise Overtaken(
                f"a worker with fence {present.mark.fence} has written the output. This one has fence {mark.fence}: "
                "let this error propagate",
                detail=self._name,
            )
        return present.mark >= mark

    def _is_absent(self, present: Present, found: WriteMark, mark: WriteMark, *, removes: bool) -> bool:
        """True if the output shows another object, and this write is a removal. Raises if this write must not happen.

        A claim that is later than the tombstone of another object replaces it. Then no late worker of this object
        writes: its fence is lower than that of its object's tombstone, which the other one replaced, or its claim came
        before the removal that found the other object.
        """
        detail = f"{self._name} has the metadata {SOURCE}={present.source}, and this object is {self._source}"
        if present.removed_by is None:
            if removes:
                return True
            raise (OutputConflict if self._removals else OutputTaken)(
                "the output belongs to another object: derive its key from the key of one object", detail=detail
            )
        if found.fence >= mark.fence or (not removes and present.removed_by >= mark.fence):
            raise OutputReserved(
                "the output of another object was removed after this claim began: the next attempt writes it",
                detail=detail,
            )
        return False

    def _look(self) -> Present:
        try:
            head = self._client.head_object(**self._where)
        except ClientError as error:
            if _status(error) == 404:
                return Present()
            raise self._explained(error) from error
        return Present.of(head)

    def _explained(self, error: ClientError) -> Exception:
        """The error with its fix, or the same error."""
        if _status(error) == 403:
            return OutputError(
                f"S3 refuses {error.operation_name} of the output with {_code(error)}: give the pipeline its "
                "permissions with pipeline.grant_output(bucket, prefix)",
                detail=self._name,
            )
        if _code(error) == "NoSuchBucket":
            return OutputError("the bucket of the output does not exist: create it", detail=self._name)
        return error


def _is_conflict(error: ClientError) -> bool:
    return _status(error) in _CONFLICTS and _code(error) != "NoSuchBucket"


def _is_final(error: ClientError) -> bool:
    """True if a completion cannot be repeated: S3 requires a new upload after a 409, or has no such upload.

    S3 answers 409 to each completion with a condition if the key was written or deleted since the upload began, even if
    the condition names the present object (recorded on AWS).
    """
    return _status(error) == 409 or _code(error) == "NoSuchUpload"


def _status(error: ClientError) -> int:
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"])


def _code(error: ClientError) -> str:
    return error.response["Error"].get("Code", "unknown")
