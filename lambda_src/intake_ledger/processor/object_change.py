"""The argument of a processor, its return value, and how the processor is imported."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast, override

from intake_ledger.processor.object_stream import ObjectStream, OpenedObject, ReadableObject
from intake_ledger.protocol.change import Change, State, StateKind, state_key
from intake_ledger.protocol.errors import InvalidOutputNameError, SettingsError, WrongReturnError
from intake_ledger.protocol.handover import is_sequence, shown
from intake_ledger.protocol.row import Ordering, Row

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from intake_ledger.outputs.output import Output
    from intake_ledger.processor.rejects import Reading, Rejects


@dataclass(frozen=True, slots=True)
class Commit:
    """The return value of a processor. A processor may also return the identity as text, or None."""

    identity: str | None = None
    """The downstream's name for the effect, such as a row's ID, or its whole result. Nothing is kept when omitted.

    The ledger's row keeps a text of at most 16,384 bytes in UTF-8. A longer one is left out, and the row says so. Each
    started KB is a write unit for the commit, for each later write of the row and for each duplicate."""
    transact: Sequence[Mapping[str, Mapping[str, Any]]] = ()
    """At most 99 writes to your DynamoDB tables in the same account and region, 4 MB in all, as boto3's client takes
    them: `{"Put": ...}`, `{"Update": ...}`, `{"Delete": ...}`, `{"ConditionCheck": ...}`; none when omitted.
    They are one transaction with the ledger's commit: carried out exactly once, and never after a later claim. If a
    condition does not hold, the attempt fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectChange(ReadableObject):
    """One state of one object, claimed for this call of the processor only."""

    bucket: str
    """The bucket's name."""
    key: str
    """The object's key, not percent-encoded."""
    kind: Literal["created", "removed", "deleted"]
    """`removed`: S3 answers that the key is not found. `deleted` (with EVERY_VERSION only): this version was deleted
    for good. In both cases there is nothing to open."""
    version_id: str | None
    """The claimed version, or the version of the delete marker. None in a bucket without versioning."""
    etag: str | None
    """The ETag without quotes; None for a removal. For a multipart upload it is not a checksum of the content."""
    size: int | None
    """The object's size in bytes; None for a removal."""
    event_name: str
    """The event that led to this call, such as `ObjectCreated:Put` or `IntakeLedger:Audit`. Use it for logs only."""
    event_time: int | None
    """The time of this event in epoch milliseconds. None if the message has none."""
    attempt: int
    """The number of this attempt on the state, from 1 to the pipeline's `max_attempts`."""
    fence: int
    """A number that grows with each claim on this key. A downstream write that is conditional on it cannot undo
    the write of a later worker. It starts near the time in epoch milliseconds: more than 32 bits, less than 53."""
    fenced_version: str | None
    """With EVERY_VERSION, the version whose attempts `fence` orders: its ID, or its ETag without versioning. None with
    LATEST: `fence` orders all attempts on the key."""
    idempotency_key: str
    """The same for each attempt on this state of the key. It differs when the state returns, or is reprocessed."""
    group_fence: int | None = None
    """With `exclusive_by`, a number that grows with each attempt on any key of the group: see docs/options.md. The key
    has no group when omitted."""
    _remaining_seconds: Callable[[], float]
    _open: Callable[[], ObjectStream]
    _download: Callable[[], BinaryIO]
    _output: "Callable[[str, str], Output]"
    _begin_rejects: "Callable[[Rejects], Reading]"

    @classmethod
    def of_execution(
        cls,
        event: Mapping[str, Any],
        *,
        make_client: "Callable[[], S3Client] | None" = None,
        remaining_seconds: Callable[[], float] | None = None,
    ) -> "ObjectChange":
        """The change that an execution works for, made of its input. Use it in a durable function or in a task.

        `open`, `output` and the locks of `intake_ledger.outputs.sql` work as in a processor, with the fence of the
        execution: a late step cannot write over a later execution. They use the rights of your function's role.

        Args:
            event: the event of the durable function, or the input of the state machine.
            make_client: makes boto3's client of S3, at the first request; one with boto3's defaults when omitted.
            remaining_seconds: gives the property of this name. It raises RuntimeError when omitted.

        Raises:
            ValueError: The event is not the input of an execution for an object.

        """
        from intake_ledger.processor.execution import change_of  # noqa: PLC0415 - no consumer needs it

        return change_of(event, make_client, remaining_seconds)

    @property
    def remaining_seconds(self) -> float:
        """Seconds until the processor is interrupted, at least 0.1, so that it may be the timeout of a request."""
        return self._remaining_seconds()

    @override
    def open(self) -> ObjectStream:
        """Open a stream of exactly the claimed version. It can be read once, and `with` closes it.

        It checks the length, and S3's checksum where the object has one. Reading raises `ObjectReadError` if the
        content is incomplete or altered.

        Raises:
            ObjectGone: S3 no longer holds this version. Let it propagate: the state that S3 shows now is processed.

        """
        return self._open()

    def download(self) -> BinaryIO:
        """Copy the content to a temporary file, for readers that seek, such as `zipfile` or a Parquet library.

        The file has no name. It is deleted when it is closed, at the latest at the end of the attempt.

        Raises:
            ObjectGone: As for `open`.
            ObjectReadError: As for `read`.
            OSError: The temporary directory has not enough free space (`errno.ENOSPC`). The change is retried.
            Unprocessable: The object is larger than the disk.

        """
        return self._download()

    def output(self, bucket: str, key: str) -> "Output":
        """Return an object that this call may write, and that a late worker cannot overwrite afterwards.

        Nothing is requested before `Output.put()` or `Output.remove()`. The pipeline needs
        `pipeline.grant_output(bucket, prefix)`.

        Args:
            bucket: the bucket's name.
            key: of the output. Derive it from `change.key`, so that two objects never share an output. With
                EVERY_VERSION, derive it from `change.version_id` too.

        Raises:
            InvalidOutputNameError: The bucket or the key is empty or no text, the key has more than 1,024 bytes, or the
                output is the object itself. Let it propagate: the change is rejected.

        """
        if (bucket, key) == (self.bucket, self.key):
            raise InvalidOutputNameError(
                "the output is the object itself, and each write would be a new change: use another key or bucket"
            )
        return self._output(bucket, key)

    @override
    def _begin(self, rejects: "Rejects") -> "Reading":
        return self._begin_rejects(rejects)


KINDS: dict[StateKind, Literal["created", "removed", "deleted"]] = {
    StateKind.OBJECT: "created",
    StateKind.MARKER: "removed",
    StateKind.ABSENT: "removed",
    StateKind.DELETED: "deleted",
}

Processor = Callable[[ObjectChange], Commit | str | None]
BatchProcessor = Callable[[Sequence[ObjectChange]], Mapping[str, Commit | str | Exception | None]]
"""With `max_per_call`: the results by `idempotency_key`. An exception is that of its change."""


def make_object_change(
    change: Change,
    state: State,
    row: Row,
    *,
    pipeline: str,
    ordering: Ordering,
    remaining_seconds: Callable[[], float],
    opened: OpenedObject,
    output: "Callable[[str, str], Output]",
    begin_rejects: "Callable[[Rejects], Reading]",
    fences: Mapping[str, Any] = MappingProxyType({}),
) -> ObjectChange:
    """Make the argument of the processor for a claim."""
    return ObjectChange(
        bucket=change.bucket,
        key=change.key,
        kind=KINDS[state.kind],
        version_id=state.version_id,
        etag=state.etag,
        size=state.size,
        event_name=row.event_name or "",
        event_time=change.event_time,
        attempt=row.attempts,
        fence=row.fence,
        fenced_version=state.version_id or state.etag if ordering is Ordering.EVERY_VERSION else None,
        idempotency_key=state_key(pipeline, change.bucket, change.key, state.identity, row.first_claimed_at),
        **fences,
        _remaining_seconds=remaining_seconds,
        _open=opened.open,
        _download=opened.download,
        _output=output,
        _begin_rejects=begin_rejects,
    )


def as_commit(returned: object) -> Commit:
    """Convert the processor's return value to a Commit.

    Raises:
        WrongReturnError: The value is not a Commit, a text or None, or the Commit's `transact` is not a sequence.

    """
    commit = returned if isinstance(returned, Commit) else Commit(cast("str | None", returned))
    if commit.identity is not None and not isinstance(commit.identity, str):
        what = "a Commit whose identity is " if isinstance(returned, Commit) else ""
        raise WrongReturnError(
            f"the processor returned {what}{shown(commit.identity)}, expected a Commit, a text or None: its effect has "
            "happened and is not repeated"
        )
    if not is_sequence(commit.transact):
        raise WrongReturnError(f"transact is {shown(commit.transact)}, expected a list or tuple of elements")
    return commit


def load_processor(entrypoint: str) -> Processor:
    """Import the function that `module:function` names.

    Raises:
        SettingsError: There is no such module or function. Errors of the module itself propagate.

    """
    module_name, _, function_name = entrypoint.partition(":")
    if not module_name or not function_name:
        raise SettingsError(f"the processor is {entrypoint!r}, expected module:function")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        # The processor imports a module that is missing. That error names it.
        if not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise SettingsError(
            f"the processor {entrypoint!r} was not found: the function's code has no module {module_name!r}"
        ) from None
    function = getattr(module, function_name, None)
    if not callable(function):
        raise SettingsError(
            f"the processor {entrypoint!r} was not found: {module_name} has no function {function_name!r}"
        )
    processor: Processor = function
    return processor
