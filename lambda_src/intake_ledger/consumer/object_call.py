"""Call the processor for a claim on an object, with exactly the claimed version and with the outputs of the claim."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from intake_ledger.consumer.services import Services
from intake_ledger.ledger import Claim
from intake_ledger.processor import OpenedObject, Processor, make_object_change
from intake_ledger.protocol import Ordering

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from intake_ledger.outputs import AttemptOutputs, Output


class Progress:
    """The progress of an attempt."""

    begun = False
    """True once the processor has started. It may have written something then."""


class Started(Exception):  # noqa: N818 - an answer, not an error
    """A call raises this: the work goes on outside of this attempt, and the claim stays.

    `retry_after` is the time in seconds until its message asks how the work stands.
    """

    def __init__(self, retry_after: float) -> None:
        super().__init__("the work was started")
        self.retry_after = retry_after


class StartRefused(Exception):  # noqa: N818 - an answer, not an error
    """A call raises this: the work could not be started, and the same start is tried again later. The claim stays.

    `healthy` is as in `Outcome`.
    """

    def __init__(self, error: Exception, *, healthy: bool | None) -> None:
        super().__init__("the work could not be started")
        self.error = error
        self.healthy = healthy


class ProcessorCall(Protocol):
    """Calls the processor for a claim."""

    package: str
    """The top-level package of the processor, for the positions in reasons."""
    writes: bool
    """True if the call itself may write downstream. A late one may then overwrite a later effect."""

    def __call__(
        self,
        claim: Claim,
        progress: Progress,
        *,
        limit: AbstractContextManager[None],
        remaining_seconds: Callable[[], float],
    ) -> object:
        """Call the processor and return its answer. Its errors pass.

        Args:
            claim: the claim that the attempt has.
            progress: is marked as begun immediately before the processor starts.
            limit: limits the processor to its time.
            remaining_seconds: tells the processor the rest of its time.

        """


class ObjectCall:
    """Calls a processor of objects."""

    writes = True

    def __init__(self, services: Services, processor: Processor) -> None:
        self._settings = services.settings
        self._bucket = services.bucket
        self._output_client = services.output_client
        self._processor = processor
        self.package = str(getattr(processor, "__module__", "")).partition(".")[0]

    def __call__(
        self,
        claim: Claim,
        progress: Progress,
        *,
        limit: AbstractContextManager[None],
        remaining_seconds: Callable[[], float],
    ) -> object:
        """Call the processor; see `ProcessorCall`."""
        settings = self._settings
        open_stream = partial(self._bucket.open, claim.change.key, claim.state)
        # The object is closed after the limit: an attempt that has succeeded cannot overrun any more.
        with OpenedObject(open_stream) as opened, limit:
            if not settings.processor_function and not claim.state.removed:
                opened.open_ahead()
            change = make_object_change(
                claim.change,
                claim.state,
                claim.row,
                pipeline=settings.pipeline,
                ordering=settings.ordering,
                remaining_seconds=remaining_seconds,
                opened=opened,
                output=ClaimOutputs(claim, settings.ordering, self._output_client, removals=settings.deletes).output,
            )
            progress.begun = True
            return self._processor(change)


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
