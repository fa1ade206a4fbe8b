"""The part of a pipeline's consumer that knows sets of files: it wakes them, and leaves out their manifests."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import TYPE_CHECKING

from intake_ledger.aws.queues import Queues
from intake_ledger.consumer.batch import Batch
from intake_ledger.events.parser import Message
from intake_ledger.observability.telemetry import Telemetry
from intake_ledger.protocol.change import Change
from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.row import Ordering
from intake_ledger.protocol.settings import ConsumerSettings
from intake_ledger.set_members.forms import set_targets
from intake_ledger.set_members.membership import Membership
from intake_ledger.set_members.wakes import Wake, Wakes

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

WAKE_AGAIN_SECONDS = 5.0
"""The wait of a part's message whose sets could not be woken."""


@dataclass(slots=True, eq=False)
class SetWakes:
    """Wakes the sets of a batch's objects before the messages are acknowledged.

    A message that is acknowledged without a wake would lose the set: if the worker dies between the commit of a part
    and the wake, only the part's own message comes again, with the verdict DUPLICATE or STALE. Therefore each message
    that is finished wakes its sets, with each verdict.
    """

    settings: ConsumerSettings
    telemetry: Telemetry
    wakes: Wakes
    _: KW_ONLY
    clock: Callable[[], int]
    """Gives epoch milliseconds."""

    def is_control(self, key: str) -> bool:
        """True if the object is the manifest or the marker of a set, which is not processed."""
        return self.wakes.is_control(key)

    def before_acknowledging(self, batch: Batch) -> None:
        """Wake the sets of all finished messages. A message whose sets cannot be woken is delivered again.

        A message that comes again only for an option does not hold back the sets of its object.
        """
        parts: dict[Wake, dict[str, None]] = defaultdict(dict)
        messages: dict[Wake, list[Message]] = defaultdict(list)
        settings = self.settings
        for message in batch.messages:
            if batch.retry_after[message] is not None and not message.waits_for_option:
                continue
            changes = [
                part
                for part in message.parsed
                if isinstance(part, Change) and part.bucket == settings.bucket and settings.wants(part.key)
            ]
            try:
                self._note_expirations(changes)
                for key in dict.fromkeys(change.key for change in changes):
                    for wake in self.wakes.sets_of(key):
                        parts[wake][key] = None
                        messages[wake].append(message)
            except Exception as error:  # noqa: BLE001 - no error may lose the wake
                self._return(message, batch, error)
        for wake, keys in parts.items():
            try:
                self.wakes.wake(wake, keys)
            except Exception as error:  # noqa: BLE001 - likewise
                for message in dict.fromkeys(messages[wake]):
                    self._return(message, batch, error)

    def _return(self, message: Message, batch: Batch, error: Exception) -> None:
        self.telemetry.log_error("the sets of an object could not be woken", message.id, error)
        batch.finish(message, WAKE_AGAIN_SECONDS)

    def _note_expirations(self, changes: Sequence[Change]) -> None:
        """Record lifecycle expirations before the wake, because they do not change a finished set."""
        expired = [change.key for change in changes if change.expired]
        if expired:
            keep = self.settings.retention_seconds
            self.wakes.note_expirations(expired, now=self.clock(), keep_seconds=keep)


def make_set_wakes(
    settings: ConsumerSettings,
    telemetry: Telemetry,
    make_sqs: "Callable[[], SQSClient]",
    membership: Membership,
    *,
    clock: Callable[[], int],
) -> SetWakes:
    """The wakes of a pipeline.

    Args:
        settings: of the pipeline. Its `sets` describes them.
        telemetry: reports wakes that could not be sent.
        make_sqs: makes the client that sends the wakes.
        membership: of the pipeline's objects.
        clock: gives epoch milliseconds.

    Raises:
        SettingsError: The variable is malformed, or the pipeline's ordering is EVERY_VERSION.

    """
    if settings.ordering is Ordering.EVERY_VERSION:
        raise SettingsError(
            "INTAKE_SETS: a set needs one row for each part, and EVERY_VERSION has one for each version"
        )
    client = cache(make_sqs)
    wakes = Wakes(
        set_targets(settings.sets),
        membership,
        bucket=settings.bucket,
        send=lambda url, body: Queues(client, url, "").wake(body),
    )
    return SetWakes(settings, telemetry, wakes, clock=clock)
