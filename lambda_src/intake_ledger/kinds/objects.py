"""Objects of a bucket. The truth is the state that S3 shows for the key."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from intake_ledger.aws.bucket import Bucket
from intake_ledger.aws.clients import bucket_client
from intake_ledger.consumer.batch import ANY_ORDER, Batch
from intake_ledger.events.parser import read_batch
from intake_ledger.kinds import FORMAT, ReceivedMessages, fences_of
from intake_ledger.ledger.ledger import Claim, FencingGuard, object_states
from intake_ledger.processor.object_change import ObjectChange, make_object_change
from intake_ledger.processor.object_stream import OpenedObject
from intake_ledger.protocol.errors import ObjectGone, OutputError
from intake_ledger.protocol.row import Ordering, RowCounts
from intake_ledger.protocol.settings import ConsumerSettings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from intake_ledger.consumer.set_wakes import SetWakes
    from intake_ledger.options.rejects import ClaimRejects
    from intake_ledger.outputs.output import AttemptOutputs, Output
    from intake_ledger.processor.rejects import Reading, Rejects


class Objects:
    """The kind of a pipeline; see `Kind`."""

    def __init__(
        self,
        settings: ConsumerSettings,
        bucket: Bucket,
        output_client: "Callable[[], S3Client]" = bucket_client,
        *,
        sets: "SetWakes | None" = None,
        guards: Sequence[FencingGuard] = (),
    ) -> None:
        """Make the kind.

        Args:
            settings: of the pipeline.
            bucket: reads objects.
            output_client: gives the client that writes outputs. Each attempt calls it at its first output.
            sets: wakes the sets of files that have the objects as parts. There are none when omitted.
            guards: of claims, which options bring. There are none when omitted.

        """
        self.guards = guards
        self.look = object_states(bucket, settings.ordering)
        self._settings = settings
        self._bucket = bucket
        self._output_client = output_client
        self._sets = sets

    def read(self, event: Mapping[str, Any]) -> ReceivedMessages:
        """See `Kind`."""
        return ReceivedMessages(read_batch(event), ANY_ORDER)

    def work(self, claim: Claim) -> "ObjectWork | None":
        """See `Kind`. Manifests and markers of sets are not processed."""
        if self._sets is not None and self._sets.is_control(claim.change.key):
            return None
        return ObjectWork(claim, self._settings, self._bucket, self._output_client, self.guards)

    def shortened(self, body: str) -> None:
        """See `Kind`."""

    def before_acknowledging(self, batch: Batch) -> None:
        """See `Kind`. Wake the sets of the objects."""
        if self._sets is not None:
            self._sets.before_acknowledging(batch)


class ObjectWork(OpenedObject):
    """Exactly the claimed version, and the outputs of the claim; see `Work`."""

    def __init__(
        self,
        claim: Claim,
        settings: ConsumerSettings,
        bucket: Bucket,
        output_client: "Callable[[], S3Client]",
        guards: Sequence[FencingGuard] = (),
    ) -> None:
        super().__init__(partial(bucket.open, claim.change.key, claim.state))
        self._claim = claim
        self._settings = settings
        self._output_client = output_client
        self._guards = guards
        self._rejects: ClaimRejects | None = None

    def ready(self, remaining_seconds: Callable[[], float], *, together: bool = False) -> ObjectChange:
        """See `Work`."""
        claim, settings = self._claim, self._settings
        if not claim.state.removed and not together:
            self.open_ahead()
        outputs = ClaimOutputs(claim, settings.ordering, self._output_client, removals=settings.deletes)
        begin: Callable[[Rejects], Reading] = no_place
        if settings.rejects is not None:
            self._rejects = claim_rejects(outputs, settings, self._keep)
            begin = partial(self._rejects.begin, source=claim.change.key, state=claim.state)
        return make_object_change(
            claim.change,
            claim.state,
            claim.row,
            pipeline=self._settings.pipeline,
            ordering=self._settings.ordering,
            remaining_seconds=remaining_seconds,
            opened=self,
            output=outputs.output,
            begin_rejects=begin,
            fences=fences_of(self._guards, claim) if self._guards else {},
        )

    def returned(self) -> RowCounts | None:
        """See `Work`."""
        return None if self._rejects is None else self._rejects.write()

    def request(self, *, repeated: bool = False) -> dict[str, Any]:  # noqa: ARG002 - the row says everything
        """See `Work`. The fields of docs/processor.md, without the time of an event."""
        # Of several messages about one state, each has another time. The name of the event is the row's.
        given = make_object_change(
            self._claim.change,
            self._claim.state,
            self._claim.row,
            pipeline=self._settings.pipeline,
            ordering=self._settings.ordering,
            remaining_seconds=_nothing,
            opened=OpenedObject(_nothing),
            output=_nothing,
            begin_rejects=_nothing,
        )
        request = request_of(given)
        del request["eventTime"]
        return request | fences_of(self._guards, self._claim, in_json=True) if self._guards else request

    def gone(self, error: ObjectGone) -> ObjectGone:
        """See `Work`. Its version vanished while it was read."""
        return error


@dataclass(slots=True)
class ClaimOutputs:
    """Makes the outputs of a claim. Its method is the function behind `ObjectChange.output`."""

    claim: Claim
    ordering: Ordering
    make_client: Callable[[], "S3Client"]
    removals: bool = field(kw_only=True)
    """True if removals are processed, so that the output of another object may be removed."""
    _outputs: "AttemptOutputs | None" = field(default=None, init=False)

    def output(self, bucket: str, key: str) -> "Output":
        """The output with this name. The first call imports the modules and makes the client."""
        if self._outputs is None:
            from intake_ledger.outputs.conditional_put import source_of  # noqa: PLC0415 - most processors need none
            from intake_ledger.outputs.output import AttemptOutputs, Output  # noqa: PLC0415 - as above

            version = self.claim.state.identity if self.ordering is Ordering.EVERY_VERSION else None
            make = partial(
                Output,
                self.make_client(),
                fence=self.claim.row.fence,
                source=source_of(self.claim.change.key, version),
                # An earlier claim left a row, and perhaps the output.
                look_first=self.claim.seen is not None,
                is_version=version is not None,
                removals=self.removals,
            )
            self._outputs = AttemptOutputs(make)
        return self._outputs.output(bucket, key)


def claim_rejects(
    outputs: ClaimOutputs, settings: ConsumerSettings, keep: Callable[[BinaryIO], object]
) -> "ClaimRejects":
    """The rejected rows of a claim, with the setting `rejects`. `keep` closes a file at the end of the attempt."""
    from intake_ledger.options.rejects import ClaimRejects  # noqa: PLC0415 - most pipelines have no place for them

    return ClaimRejects(outputs, settings, keep)


def no_place(rejects: "Rejects") -> NoReturn:  # noqa: ARG001 - as `ClaimRejects.begin`
    """Refuse `on_error`, without a place for rejected rows."""
    raise OutputError(
        "on_error needs a place for the rejected rows: call keep_rejects(bucket, prefix) of the pipeline or of "
        "the sets in the stack. In tests: LocalPipeline(process, keep_rejects=True)"
    )


def _nothing(*_: object) -> NoReturn:
    raise NotImplementedError("work elsewhere opens the object by itself")


def request_of(change: ObjectChange) -> dict[str, Any]:
    """The function's request, as docs/processor.md describes it."""
    return {
        "format": FORMAT,
        "bucket": change.bucket,
        "key": change.key,
        "kind": change.kind,
        "versionId": change.version_id,
        "etag": change.etag,
        "size": change.size,
        "eventName": change.event_name,
        "eventTime": change.event_time,
        "attempt": change.attempt,
        "fence": change.fence,
        "idempotencyKey": change.idempotency_key,
    }
