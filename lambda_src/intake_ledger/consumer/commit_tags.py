"""Tags the versions of a row after their commit, before the message is acknowledged (`after_commit`).

The commit's own write names the version in the row. So each later message of the key, and the audit's, find a tag that
a worker did not set. A tag is set by version, again and again until S3 has taken it: that changes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

from botocore.exceptions import ClientError

from intake_ledger.aws import s3_refusal
from intake_ledger.consumer.services import Services
from intake_ledger.events import Message
from intake_ledger.ledger import AWS_ERRORS, Claim
from intake_ledger.observability import describe
from intake_ledger.protocol import (
    Change,
    CommitTag,
    Reason,
    ReasonCode,
    Row,
    RowCounts,
    RowKey,
    Ruling,
    Status,
    TagRefused,
    TagsFull,
    Verdict,
    code_of,
)

_GROWTH = 1 / 16
"""A tag that is refused for longer is tried again after this share of the age of its message."""
_UNREAD = frozenset({Verdict.BUSY, Verdict.FORGOTTEN, Verdict.LATER_FORMAT})
"""Verdicts after which the row is left alone: another attempt has it, or nothing may be written about it."""


@dataclass(slots=True, eq=False)
class CommitTags:
    """Sets the tag on committed versions."""

    services: Services
    tag: CommitTag
    is_given_up: Callable[[Message], bool]
    backoff: Callable[[int], float]

    def after_commit(
        self, claim: Claim, message: Message, counts: RowCounts | None = None, note: Reason | None = None
    ) -> float | None:
        """Tag the versions of a row that this claim has just committed.

        Args:
            claim: the claim.
            message: its message.
            counts: the rejected rows that the commit wrote.
            note: the reason that it wrote.

        Returns:
            the seconds until the message tries again, or None if the tags are set, or the audit tries again.

        """
        row = self.services.ledger.committed_row(claim, counts, note)
        return self._tagged(claim.key, claim.change.key, row, message)

    def after_ruling(self, change: Change, ruling: Ruling, message: Message) -> float | None:
        """Tag the versions of a row that needs no work. Returns as `after_commit`.

        A worker may have died after the commit of one of them.
        """
        row = ruling.row
        if row is None or row.status is Status.PROCESSING or ruling.verdict in _UNREAD:
            return None
        return self._tagged(self.services.ledger.key_of(change), change.key, row, message)

    def _tagged(self, place: RowKey, key: str, row: Row, message: Message) -> float | None:
        if row.tags_pending is None:
            return None
        done: list[str] = []
        problem: TagRefused | None = None
        for version in row.untagged:
            try:
                self.services.bucket.tag(key, version, self.tag)
            except TagsFull as full:
                problem = full
            except AWS_ERRORS as error:
                problem = _refusal(error)
                if s3_refusal(error) is None:
                    break  # S3 does not answer. It may refuse one version only, and take the others
            else:
                done.append(version)
        try:
            self._note(place, row, done, problem)
        except AWS_ERRORS as error:
            problem = problem or _refusal(error)
        if problem is None:
            return None
        self.services.telemetry.log_error("a committed version has no tag yet", message.id, problem)
        if self.is_given_up(message) or 2 * message.receives > self.services.settings.max_receives:
            return None  # the row says so, and each audit sends a message
        message.waits_for_tag = True
        age = (self.services.clock() - (message.sent_at or self.services.clock())) / 1000
        return max(self.backoff(message.receives), age * _GROWTH)

    def _note(self, place: RowKey, row: Row, done: list[str], problem: TagRefused | None) -> None:
        """Record the tags that are set in the row, and the reason for the others."""
        if done:
            self.services.ledger.tagged(place, row, done)
        elif problem is not None:
            code = code_of(problem, ReasonCode.TAG_REFUSED)
            self.services.ledger.untagged(place, row, Reason(code, describe(problem, self.services.settings.reasons)))


def _refusal(error: Exception) -> TagRefused:
    code = error.response["Error"].get("Code", "") if isinstance(error, ClientError) else type(error).__name__
    operation = error.operation_name if isinstance(error, ClientError) else "the request"
    return TagRefused(f"{operation} was refused: {code}", detail=str(error))
