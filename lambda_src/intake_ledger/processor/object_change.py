"""What a processor is given, what it may return, and how it is found."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, BinaryIO, Literal, cast

from intake_ledger.processor import text as reading
from intake_ledger.processor.object_stream import ObjectStream, read_all
from intake_ledger.protocol import Change, Row, SettingsError, State, StateKind, WrongReturnError


@dataclass(frozen=True, slots=True)
class Commit:
    """What a processor may return: `identity` is the downstream's own name for the effect, kept in the ledger row.

    At most 256 characters are kept. Returning the bare text, or nothing, is the same without ceremony.
    """

    identity: str | None = None
    """A row's id, a transaction's number: something to find the effect by. Nothing is kept when omitted."""
    transact: Sequence[Mapping[str, Mapping[str, Any]]] = ()
    """At most 99 writes to the team's own DynamoDB tables (same account and region), 4 MB in all, as boto3's client
    takes them: `{"Put": ...}`, `{"Update": ...}`, `{"Delete": ...}`, `{"ConditionCheck": ...}`; none when omitted.
    They and the ledger's commit happen together or not at all: exactly once, and not after a later claim. A condition
    that does not hold fails the attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectChange:
    """One state of one object, claimed for this call of the processor and for nobody else."""

    bucket: str
    """The bucket's name."""
    key: str
    """As it is, not percent-encoded."""
    kind: Literal["created", "removed", "deleted"]
    """`removed`: the key reads as not found now. `deleted` (in EVERY_VERSION only): this one version was deleted for
    good. In both cases there is nothing to open."""
    version_id: str | None
    """The version that was claimed (of a delete marker: the marker's). None in a bucket without versions."""
    etag: str | None
    """Without quotes; None of what was removed. It is no checksum of uploads in parts."""
    size: int | None
    """Bytes; None of what was removed."""
    event_name: str
    """Of the message that led here, such as `ObjectCreated:Put` or `IntakeLedger:Audit`: for logs only."""
    event_time: int | None
    """Epoch milliseconds, of the same message."""
    attempt: int
    """1 for the first at this state; it grows until the pipeline's `max_attempts`."""
    fence: int
    """Grows with every claim on this key: a write downstream that is conditional on it cannot undo a later worker's.
    It begins near the time in milliseconds: more than 32 bits, less than 53."""
    idempotency_key: str
    """The same for every attempt at this state of the key; another when the state comes back, or is reprocessed."""
    _remaining_seconds: Callable[[], float]
    _open: Callable[[], ObjectStream]
    _download: Callable[[], BinaryIO]

    @property
    def remaining_seconds(self) -> float:
        """How long until the processor is interrupted, in seconds."""
        return self._remaining_seconds()

    def open(self) -> ObjectStream:
        """A stream of exactly the version that was claimed, to be read once; `with` closes it.

        It checks the length, and S3's checksum where the object has one. Reading raises `ObjectReadError` if the
        content is incomplete or altered.

        Raises:
            ObjectGone: S3 no longer holds it. Let this propagate: what is there now will be brought about instead.

        """
        return self._open()

    def read(self, max_bytes: int) -> bytes:
        """The whole content, in memory.

        Args:
            max_bytes: limit for the object's size, so that a large object does not exhaust the function's memory.

        Raises:
            ObjectGone: As for `open`.
            ObjectReadError: The content is incomplete or altered. Let it propagate: the change is retried.
            Unprocessable: The object is larger than `max_bytes`.

        """
        with self.open() as stream:
            return read_all(stream, max_bytes)

    def download(self) -> BinaryIO:
        """Copy the content to a temporary file, for readers that seek, such as `zipfile` or a Parquet library.

        The file has no name. It is deleted when it is closed, at the latest at the end of the attempt.

        Raises:
            ObjectGone: As for `open`.
            ObjectReadError: As for `read`.
            OSError: The temporary directory has not enough free space (`errno.ENOSPC`). The change is retried.
            Unprocessable: The object is larger than the whole disk.

        """
        return self._download()

    def lines(self, *, encoding: str = reading.UTF_8, max_line: int = reading.MAX_LINE) -> Iterator[str]:
        """The object's lines without their ends, as they stream in; gzip is unpacked, whatever the key is called.

        Args:
            encoding: of the text; UTF-8, with or without a byte order mark, when omitted.
            max_line: characters that a line may have; 1 Mi when omitted.

        Raises:
            ObjectGone: As for `open`.
            Unprocessable: The content is malformed, and stays so; the text names the line. Let it propagate.

        """
        return reading.lines(self.open(), encoding=encoding, max_line=max_line)

    def csv_rows(
        self,
        *,
        encoding: str = reading.UTF_8,
        delimiter: str = ",",
        fieldnames: Sequence[str] | None = None,
        max_line: int = reading.MAX_LINE,
    ) -> Iterator[dict[str, str]]:
        """The rows of a CSV by column name, as they stream in. For other dialects, give `lines()` to `csv.reader`.

        Args:
            encoding: of the text; UTF-8, with or without a byte order mark, when omitted.
            delimiter: between fields; a comma when omitted.
            fieldnames: the columns of a file without a header; its first row names them when omitted.
            max_line: characters that a row may have, over all of its lines; 1 Mi when omitted.

        Raises:
            ObjectGone: As for `open`.
            Unprocessable: As for `lines`; also a row that does not have a field for each column.

        """
        return reading.csv_rows(
            self.open(), encoding=encoding, delimiter=delimiter, fieldnames=fieldnames, max_line=max_line
        )

    def json_lines(self, *, encoding: str = reading.UTF_8, max_line: int = reading.MAX_LINE) -> Iterator[Any]:
        """The JSON value on each line, as they stream in; empty lines are skipped.

        Args:
            encoding: of the text; UTF-8, with or without a byte order mark, when omitted.
            max_line: characters that a line may have; 1 Mi when omitted.

        Raises:
            ObjectGone: As for `open`.
            Unprocessable: As for `lines`; also a line that is not JSON.

        """
        return reading.json_lines(self.open(), encoding=encoding, max_line=max_line)


_KINDS: dict[StateKind, Literal["created", "removed", "deleted"]] = {
    StateKind.OBJECT: "created",
    StateKind.MARKER: "removed",
    StateKind.ABSENT: "removed",
    StateKind.DELETED: "deleted",
}

Processor = Callable[[ObjectChange], Commit | str | None]


def object_change(
    change: Change,
    state: State,
    row: Row,
    *,
    pipeline: str,
    remaining_seconds: Callable[[], float],
    open_object: Callable[[], ObjectStream],
    download_object: Callable[[], BinaryIO],
) -> ObjectChange:
    """What the processor is told about a claim."""
    # A state that comes back is another change: `first_claimed_at` is kept by retries alone.
    name = "\n".join((pipeline, change.bucket, change.key, state.identity, str(row.first_claimed_at)))
    return ObjectChange(
        bucket=change.bucket,
        key=change.key,
        kind=_KINDS[state.kind],
        version_id=state.version_id,
        etag=state.etag,
        size=state.size,
        event_name=change.event_name,
        event_time=change.event_time,
        attempt=row.attempts,
        fence=row.fence,
        idempotency_key=hashlib.sha256(name.encode()).hexdigest()[:32],
        _remaining_seconds=remaining_seconds,
        _open=open_object,
        _download=download_object,
    )


def as_commit(returned: object) -> Commit:
    """What the processor returned, with ceremony.

    Raises:
        WrongReturnError: It returned something else than a Commit, a text or nothing, or a Commit whose `transact` is
            no list.

    """
    commit = returned if isinstance(returned, Commit) else Commit(cast("str | None", returned))
    if commit.identity is not None and not isinstance(commit.identity, str):
        raise WrongReturnError(
            f"the processor returned {_shown(returned)}, expected a Commit, a text or None: its effect has happened "
            "and is not repeated"
        )
    if not isinstance(commit.transact, Sequence):
        raise WrongReturnError(f"transact is {_shown(commit.transact)}, expected a list or tuple of elements")
    return commit


def _shown(returned: object) -> str:
    """A value as a reason names it: a number as it is, of anything else the type, since it may quote content."""
    if isinstance(returned, Commit):
        return f"a Commit whose identity is {_shown(returned.identity)}"
    name = type(returned).__name__
    return f"{returned!r} ({name})" if isinstance(returned, int | float) else name


def load_processor(entrypoint: str) -> Processor:
    """The function that `module:function` names.

    Raises:
        SettingsError: There is none. Errors of the module itself propagate.

    """
    module_name, _, function_name = entrypoint.partition(":")
    if not module_name or not function_name:
        raise SettingsError(f"the processor is {entrypoint!r}, expected module:function")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        # Another module that the processor itself needs is missing: its own error says more.
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
