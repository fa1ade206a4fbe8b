"""Objects of a bucket. The truth is the state that S3 shows for the key."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from intake_ledger.aws import Bucket, bucket_client
from intake_ledger.consumer.batch import ANY_ORDER, Batch
from intake_ledger.events import read_batch
from intake_ledger.kinds import FORMAT, ReceivedMessages
from intake_ledger.ledger import Claim, Guard, object_states
from intake_ledger.processor import ObjectChange, OpenedObject, make_object_change
from intake_ledger.protocol import Change, ConsumerSettings, ObjectGone, Ordering, Origin

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from intake_ledger.consumer.set_wakes import SetWakes
    from intake_ledger.outputs import AttemptOutputs, Output


class Objects:
    """The kind of a pipeline; see `Kind`."""

    guards: Sequence[Guard] = ()

    def __init__(
        self,
        settings: ConsumerSettings,
        bucket: Bucket,
        output_client: "Callable[[], S3Client]" = bucket_client,
        *,
        sets: "SetWakes | None" = None,
    ) -> None:
        """Make the kind.

        Args:
            settings: of the pipeline.
            bucket: reads objects.
            output_client: gives the client that writes outputs. Each attempt calls it at its first output.
            sets: wakes the sets of files that have the objects as parts. There are none when omitted.

        """
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
        return ObjectWork(claim, self._settings, self._bucket, self._output_client)

    def shortened(self, body: str) -> None:
        """See `Kind`."""

    def before_acknowledging(self, batch: Batch) -> None:
        """See `Kind`. Wake the sets of the objects."""
        if self._sets is not None:
            self._sets.before_acknowledging(batch)


class ObjectWork(OpenedObject):
    """Exactly the claimed version, and the outputs of the claim; see `Work`."""

    def __init__(
        self, claim: Claim, settings: ConsumerSettings, bucket: Bucket, output_client: "Callable[[], S3Client]"
    ) -> None:
        super().__init__(partial(bucket.open, claim.change.key, claim.state))
        self._claim = claim
        self._settings = settings
        self._output_client = output_client

    def ready(self, remaining_seconds: Callable[[], float]) -> ObjectChange:
        """See `Work`."""
        claim = self._claim
        if not claim.state.removed:
            self.open_ahead()
        return make_object_change(
            claim.change,
            claim.state,
            claim.row,
            pipeline=self._settings.pipeline,
            ordering=self._settings.ordering,
            remaining_seconds=remaining_seconds,
            opened=self,
            output=ClaimOutputs(
                claim, self._settings.ordering, self._output_client, removals=self._settings.deletes
            ).output,
        )

    def request(self, *, repeated: bool = False) -> dict[str, Any]:  # noqa: ARG002 - the row says everything
        """See `Work`. The fields of docs/processor-json.md, without the time of an event."""
        row, change = self._claim.row, self._claim.change
        # Of several messages about one state, each has another time.
        given = make_object_change(
            Change(change.bucket, change.key, Origin.EXECUTION, row.event_name or "", ""),
            self._claim.state,
            row,
            pipeline=self._settings.pipeline,
            ordering=self._settings.ordering,
            remaining_seconds=_nothing,
            opened=OpenedObject(_nothing),
            output=_nothing,
        )
        request = request_of(given)
        del request["eventTime"]
        return request

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
            from intake_ledger.outputs import AttemptOutputs, source_of  # noqa: PLC0415 - most processors need none

            version = self.claim.state.identity if self.ordering is Ordering.EVERY_VERSION else None
            self._outputs = AttemptOutputs(
                self.make_client(),
                fence=self.claim.row.fence,
                source=source_of(self.claim.change.key, version),
                # An earlier claim left a row, and perhaps the output.
                look_first=self.claim.seen is not None,
                is_version=version is not None,
                removals=self.removals,
            )
        return self._outputs.output(bucket, key)


def _nothing(*_: object) -> NoReturn:
    raise NotImplementedError("work elsewhere opens the object by itself")


def request_of(change: ObjectChange) -> dict[str, Any]:
    """The function's request, as docs/processor-json.md describes it."""
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
