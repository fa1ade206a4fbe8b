"""The option `after_commit`: tag the versions of a row after their commit, before the message is acknowledged.

The commit's own write names the version in the row. So each later message of the key, and the audit's, find a tag that
a worker did not set. A tag is set by version, again and again until S3 has taken it: that changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from botocore.exceptions import ClientError

from intake_ledger.aws.bucket import s3_refusal
from intake_ledger.consumer.attempt import Failures
from intake_ledger.consumer.hooks import Option, refuse_without_versions
from intake_ledger.consumer.services import Services
from intake_ledger.events.parser import Message
from intake_ledger.ledger.dynamodb_table import AWS_ERRORS
from intake_ledger.observability.error_text import describe
from intake_ledger.protocol.change import Change
from intake_ledger.protocol.commit_tag import CommitTag
from intake_ledger.protocol.errors import TagRefused, TagsFull
from intake_ledger.protocol.reasons import Reason, ReasonCode, code_of
from intake_ledger.protocol.row import Row, RowKey
from intake_ledger.protocol.settings import ConsumerSettings

_GROWTH = 1 / 16
"""A tag that is refused for longer is tried again after this share of the age of its message."""


@dataclass(slots=True, eq=False)
class CommitTags(Option):
    """Sets the tag on committed versions."""

    services: Services
    failures: Failures
    tag: CommitTag

    def settled(self, key: RowKey, change: Change, row: Row, message: Message) -> float | None:
        """Tag the versions of the row. A worker may have died after the commit of one of them; see `Option`.

        None: the tags are set, or the audit tries again.
        """
        if row.tags_pending is None:
            return None
        done: list[str] = []
        problem: TagRefused | None = None
        for version in row.untagged:
            try:
                self.services.bucket.tag(change.key, version, self.tag)
            except TagsFull as full:
                problem = full
            except AWS_ERRORS as error:
                problem = _refusal(error)
                if s3_refusal(error) is None:
                    break  # S3 does not answer. It may refuse one version only, and take the others
            else:
                done.append(version)
        try:
            self._note(key, row, done, problem)
        except AWS_ERRORS as error:
            problem = problem or _refusal(error)
        if problem is None:
            return None
        self.services.telemetry.log_error("a committed version has no tag yet", message.id, problem)
        if self.failures.is_given_up(message) or 2 * message.receives > self.services.settings.max_receives:
            return None  # the row says so, and each audit sends a message
        age = (self.services.clock() - (message.sent_at or self.services.clock())) / 1000
        return max(self.failures.backoff(message.receives), age * _GROWTH)

    def _note(self, key: RowKey, row: Row, done: list[str], problem: TagRefused | None) -> None:
        """Record the tags that are set in the row, and the reason for the others."""
        if done:
            self.services.ledger.tagged(key, row, done)
        elif problem is not None:
            code = code_of(problem, ReasonCode.TAG_REFUSED)
            self.services.ledger.untagged(key, row, Reason(code, describe(problem, self.services.settings.reasons)))


def _refusal(error: Exception) -> TagRefused:
    code = error.response["Error"].get("Code", "") if isinstance(error, ClientError) else type(error).__name__
    operation = error.operation_name if isinstance(error, ClientError) else "the request"
    return TagRefused(f"{operation} was refused: {code}", detail=str(error))


def check(_settings: ConsumerSettings, kinds: Mapping[str, str], _executions: str | None) -> None:
    """Refuse work that has no versions; see `check_options`."""
    refuse_without_versions("after_commit", kinds)


def make(failures: Failures) -> CommitTags:
    """The option of a pipeline with `after_commit`."""
    tag = failures.services.settings.after_commit
    assert tag is not None, "the setting is set"
    return CommitTags(failures.services, failures, tag)
