"""Call the processor for a claim on a message."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, cast

from intake_ledger.consumer.object_call import Progress
from intake_ledger.keyed import idempotency_key
from intake_ledger.ledger import Claim
from intake_ledger.messages.keyed_message import KeyedMessage, MessageChange, MessageProcessor
from intake_ledger.messages.settings import MessageSource
from intake_ledger.protocol import LibraryError, ObjectGone

if TYPE_CHECKING:
    from intake_ledger.keyed import KeyedClaim


class MessageCall:
    """Calls a processor of messages; see `ProcessorCall`."""

    writes = True

    def __init__(self, source: MessageSource, processor: MessageProcessor) -> None:
        self._source = source
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
        """Call the processor and return its answer. Its errors pass."""
        keyed, change = cast("KeyedClaim", claim), cast("MessageChange", claim.change)
        identity = str(claim.state.version_id)
        message = KeyedMessage(
            key=change.key,
            identity=identity,
            body=change.content,
            raw=change.raw,
            source=self._source.value,
            sent_at=change.event_time,
            attempt=claim.row.attempts,
            fence=keyed.lock.fence,
            idempotency_key=idempotency_key(change.bucket, change.key, identity),
            _remaining_seconds=remaining_seconds,
        )
        with limit:
            progress.begun = True
            try:
                return self._processor(message)
            except ObjectGone as gone:
                # Of an object, this would settle the row without a commit.
                raise LibraryError("the processor raised ObjectGone, which is about objects of S3 only") from gone
