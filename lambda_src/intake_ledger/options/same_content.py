"""The option `same_content`: a copy in place is committed without a call of the processor.

Each attempt asks S3 for the content of exactly the claimed version, and the commit records it. The next version of the
key is a copy if it has the content of the version that is committed now: `Row.held_content` says whether the downstream
has it for certain. A removal, a late write, or an attempt that may have begun since ends that.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from intake_ledger.consumer.attempt import Failures
from intake_ledger.consumer.ending import Unchanged
from intake_ledger.consumer.hooks import Option, refuse_without_versions
from intake_ledger.ledger.dynamodb_table import AWS_ERRORS
from intake_ledger.ledger.ledger import Claim
from intake_ledger.protocol.change import StateKind
from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.row import Ordering
from intake_ledger.protocol.same_content import ContentRule
from intake_ledger.protocol.settings import ConsumerSettings, variable_of


@dataclass(slots=True, eq=False)
class SameContent(Option):
    """Knows copies in place."""

    failures: Failures
    rule: ContentRule

    def before_open(self, claim: Claim) -> Claim | None:
        """Compare the content of the claimed version with that of the committed one; see `Option`.

        A version that a person asks for is processed, whatever its content.

        Raises:
            Unchanged: Its content is committed.
            ObjectGone: S3 no longer holds it.
            ClientError: S3 does not answer. Also BotoCoreError.

        """
        state, services = claim.state, self.failures.services
        if state.kind is not StateKind.OBJECT or state.version_id is None:
            return None
        head = services.bucket.head(claim.change.key, state.version_id)
        digest = self.rule.digest(head) if head is not None else None
        if digest is None:
            return None
        asked = claim.change.asked_for or claim.row.reprocess_id is not None
        if not asked and self._is_committed(claim, digest):
            raise Unchanged
        return replace(claim, content=f"{services.clock()} {digest}")

    def _is_committed(self, claim: Claim, digest: str) -> bool:
        """True if the downstream has this content, and it was processed within the time for which that counts."""
        _, _, known = (claim.row.content or "").partition(" ")
        at, _, committed = known.partition(" ")
        held = committed == digest and self.failures.services.clock() - int(at) < self.rule.hold_seconds * 1000
        return held and self._is_after_restore(claim, int(at))

    def _is_after_restore(self, claim: Claim, at: int) -> bool:
        """False if the row may come from a backup, after which other contents of the key were committed."""
        services = self.failures.services
        try:
            restored_to = services.ledger.row_history.restored_to()
        except AWS_ERRORS as error:
            text = "DynamoDB does not say whether its table was restored, so a copy is processed"
            services.telemetry.log_error(text, claim.change.event_id or "", error)
            return False
        return restored_to is None or at > restored_to + services.settings.clock_skew_seconds * 1000


def check(settings: ConsumerSettings, kinds: Mapping[str, str], executions: str | None) -> None:
    """Refuse work without versions, and each version's own row. Executions commit in another invocation."""
    refuse_without_versions("same_content", kinds)
    own, other = variable_of(ConsumerSettings, "same_content"), executions
    if settings.ordering is Ordering.EVERY_VERSION:
        other = Ordering.EVERY_VERSION.value
    if other is not None:
        raise SettingsError(f"{own} and {other} are set: each version is processed there, so omit {own}")


def make(failures: Failures) -> SameContent:
    """The option of a pipeline with `same_content`."""
    rule = failures.services.settings.same_content
    assert rule is not None, "the setting is set"
    return SameContent(failures, rule)
