"""The option `ready_when`: no version is processed before it has a tag, such as the result of a scan.

The attempt reads the tags of exactly the claimed version. So a tag that came before the message counts. A version
without it waits, and looks again after the time that it has waited so far. The event of a tag ends the wait: it finds

    no row          acknowledged: the attempt of the upload's event, or of the audit's message, reads the tags
    row in work     returned, since the attempt may have read the tags before
    row that waits  claimed, whatever its `retry_at`; likewise a row that was rejected without the tag
    any other row   acknowledged

So no order of the read, the write of the wait, the tag and its event loses a wake.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from intake_ledger.consumer.attempt import Failures
from intake_ledger.consumer.ending import NotNow
from intake_ledger.consumer.hooks import Option, refuse_without_versions
from intake_ledger.ledger.ledger import Claim
from intake_ledger.protocol.awaited_tag import AwaitedTag
from intake_ledger.protocol.change import Origin, is_directory_marker
from intake_ledger.protocol.errors import RefusedByTag, SettingsError
from intake_ledger.protocol.reasons import ReasonCode
from intake_ledger.protocol.row import Status
from intake_ledger.protocol.settings import ConsumerSettings, variable_of

_FIRST_LOOK_MS = 60_000


@dataclass(slots=True, eq=False)
class ReadyWhen(Option):
    """Lets versions wait for their tag."""

    failures: Failures
    tag: AwaitedTag

    def before_open(self, claim: Claim) -> None:
        """Read the tags of the claimed version; see `Option`.

        A version that was committed before does not wait again: it is processed again after a late write, or because a
        person asks.

        Raises:
            NotNow: It lacks the tag.
            RefusedByTag: Its tag refuses it, or it has no version.
            ObjectGone: S3 no longer holds it.
            ClientError: S3 does not show its tags. Also BotoCoreError.

        """
        state = claim.state
        if state.removed or is_directory_marker(claim.change.key, state.size):
            return
        if state.version_id is None:
            raise RefusedByTag("the object has no version, so no tag is for exactly its content: turn on versioning")
        lacking = self.tag.lacks(self.failures.services.bucket.tags(claim.change.key, state.version_id))
        if lacking is not None and claim.row.committed_state != state.identity:
            raise NotNow(self._next_look(claim), ReasonCode.TAG_MISSING, lacking, sure=False)

    def _next_look(self, claim: Claim) -> int | None:
        """When to look again, in epoch milliseconds. None: other tags do not open a rejected version."""
        seen, now = claim.seen, self.failures.services.clock()
        resumed = seen is not None and seen.status is Status.REJECTED and seen.identity == claim.state.identity
        if resumed and claim.change.origin is Origin.TAG and not claim.change.asked_for:
            return None
        waited = now - (claim.row.waiting_since or now)
        return now + round(max(waited, _FIRST_LOOK_MS) * (0.75 + self.failures.services.jitter() / 2))


def check(_settings: ConsumerSettings, kinds: Mapping[str, str], executions: str | None) -> None:
    """Refuse work that has no versions, and executions: another worker may start one whose claim this one gives up."""
    refuse_without_versions("ready_when", kinds)
    if executions is not None:
        own = variable_of(ConsumerSettings, "ready_when")
        raise SettingsError(f"{own} and {executions} are set: let the work wait for the tag by itself, and omit {own}")


def make(failures: Failures) -> ReadyWhen:
    """The option of a pipeline with `ready_when`."""
    tag = failures.services.settings.ready_when
    assert tag is not None, "the setting is set"
    return ReadyWhen(failures, tag)
