"""The argument of a processor of sets of files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, override

from intake_ledger.processor.object_change import Commit
from intake_ledger.processor.object_stream import ObjectStream, OpenedObject, ReadableObject
from intake_ledger.protocol.change import State

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from intake_ledger.outputs.output import Output
    from intake_ledger.processor.rejects import Reading, Rejects


@dataclass(frozen=True, slots=True)
class SetFile(ReadableObject):
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

    @override
    def open(self) -> ObjectStream:
        """Open a stream of the object, as `ObjectChange.open` does. It is closed when nothing refers to it."""
        return self._opened.open()

    def download(self) -> BinaryIO:
        """Copy the content to a temporary file, as `ObjectChange.download` does.

        The file is deleted as soon as it is closed or nothing refers to it, so a loop over many parts needs the space
        of one. Keep the file while you use its descriptor.
        """
        return self._opened.download()

    @override
    def _begin(self, rejects: "Rejects") -> "Reading":
        return self._begin_rejects(rejects)


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
    group_fence: int | None = None
    """As `ObjectChange.group_fence`, about the group of the set. The set has none when omitted."""
    _remaining_seconds: Callable[[], float] = field(repr=False)
    _output: "Callable[[str, str], Output]" = field(repr=False)

    @classmethod
    def of_execution(
        cls,
        event: Mapping[str, Any],
        *,
        make_client: "Callable[[], S3Client] | None" = None,
        remaining_seconds: Callable[[], float] | None = None,
    ) -> "FileSet":
        """The set that an execution works for, made of its input; see `ObjectChange.of_execution`.

        It reads the list of the parts from S3. `manifest` is None, and the size of a part is not known: neither is in
        the input.

        Args:
            event: the event of the durable function, or the input of the state machine.
            make_client: makes boto3's client of S3; one with boto3's defaults when omitted.
            remaining_seconds: gives the property of this name. It raises RuntimeError when omitted.

        Raises:
            ValueError: The event is not the input of an execution for a set.
            ObjectGone: The list is not there. Let it propagate: the next attempt has another list.
            ClientError: S3 refuses the list.

        """
        from intake_ledger.processor.execution import set_of  # noqa: PLC0415 - no consumer needs it

        return set_of(event, make_client, remaining_seconds)

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
