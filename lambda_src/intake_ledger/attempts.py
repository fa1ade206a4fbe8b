"""One attempt at a claimed change: the processor is run, and the ledger learns how it ended."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import BinaryIO, Self
from urllib.parse import quote

from botocore.exceptions import ClientError

from intake_ledger.breaker import Breaker, least_wait_ms
from intake_ledger.bucket import Bucket
from intake_ledger.changes import Change
from intake_ledger.deadlines import Overrun
from intake_ledger.errors import (
    MAX_RETRY_IN,
    Fenced,
    NotBegun,
    NotYet,
    ObjectGone,
    ObjectReadError,
    Overwritten,
    OwnError,
    TransactionRefused,
    Unprocessable,
    WrongReturnError,
)
from intake_ledger.ledger import Answer, Claim, Ledger
from intake_ledger.messages import Message
from intake_ledger.object_stream import ObjectStream, downloaded
from intake_ledger.processing import Commit, Processor, as_commit, object_change
from intake_ledger.queues import Queues
from intake_ledger.reasons import describe, text_of
from intake_ledger.rows import Ordering, Row
from intake_ledger.settings import ConsumerSettings
from intake_ledger.telemetry import Outcome

_PASSING = frozenset({"RequestTimeout", "SlowDown", "Throttling", "TooManyRequests", "RequestTimeTooSkewed"})
_GROWTH = 1 / 16
"""What spends no attempt waits for this share of the time that it has been tried for: only the queue's own limit of
receives ends it, and fourteen days, the longest that SQS keeps a message, then take fewer than 200."""
_RETRY_IN_SECONDS = 60
"""Until the next try where `NotYet` does not say."""


@dataclass(frozen=True, slots=True)
class Later:
    """Give the message back, to be delivered again after so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Gone:
    """The claimed version vanished: judge the message again, by what S3 shows now."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How an accepted claim ended, and what becomes of its message; None: it is done."""

    outcome: Outcome
    why: str | None = None
    then: Later | Gone | None = None
    healthy: bool | None = None
    """Whether the downstream seems to be there; None where the ending does not tell."""
    waited_too_long: bool = False
    """Whether it was rejected since something that it needed was missing for all of `max_wait`."""
    held: Commit | None = None
    """A commit that is still to be written, together with others."""
    late_write: bool = False
    """Whether the row now says that this attempt may have written after its successor: the key has to be woken."""


@dataclass(slots=True)
class _Progress:
    """How far an attempt has come."""

    begun: bool = True
    """Whether the processor has started, so that it may have written something."""


class Attempts:
    """Runs the processor on claims. `guard` interrupts the block after so many seconds, or sees to it otherwise."""

    def __init__(
        self,
        settings: ConsumerSettings,
        ledger: Ledger,
        bucket: Bucket,
        queues: Queues,
        processor: Processor,
        *,
        clock: Callable[[], int],
        jitter: Callable[[], float],
        guard: Callable[[Claim, float], AbstractContextManager[None]],
        breaker: Breaker,
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._bucket = bucket
        self._queues = queues
        self._processor = processor
        self._clock = clock
        self._jitter = jitter
        self._guard = guard
        self._team = str(getattr(processor, "__module__", "")).partition(".")[0]
        """The package of the team's code, for the positions in reasons."""
        self._breaker = breaker

    def run(self, claim: Claim, message: Message, started: int, *, hold: bool = False) -> Ending:
        """Run the processor on the claim and write into the ledger how it ended.

        With `hold` a commit is not written but handed back, unless it is a transaction: the caller owes it to `commit`.
        `started` is in epoch milliseconds. Raises what AWS raises, where it does not answer: the message comes again.
        """
        progress = _Progress(begun=False)
        return self._unless_fenced(claim, lambda: self._run(claim, message, started, progress, hold=hold), progress)

    def commit(self, claim: Claim, commit: Commit, message: Message) -> Ending:
        """Write a commit that was held."""
        return self._unless_fenced(claim, lambda: self._commit(claim, commit, message), _Progress())

    def overran(self, claim: Claim, message: Message) -> Ending:
        """Record in the processor's place that it was not done in time; FENCED where it has ended after all."""
        return self._unless_fenced(claim, lambda: self._overran(claim, message), _Progress())

    def exhaust(self, change: Change, answer: Answer, seen: Row) -> Row | None:
        """Reject in the place of attempts that never came back; None when somebody else took the row meanwhile."""
        after = self._ledger.exhausted_row(answer.key, seen)
        self._dead_letter(change, after, after.reason or "")
        return after if self._ledger.exhaust(answer.key, seen, after) else None

    def backoff(self, attempts: int) -> float:
        """Seconds until the next attempt: exponential, from half to the whole of a step, since what failed together
        must not return together.
        """
        step = self._settings.min_backoff_seconds * 2.0 ** min(attempts - 1, 30)
        return min(step, self._settings.max_backoff_seconds) * (0.5 + self._jitter() / 2)

    def _unless_fenced(self, claim: Claim, end: Callable[[], Ending], progress: _Progress) -> Ending:
        try:
            return end()
        except Fenced as fenced:
            # Another attempt has the row. Its effect may have come before this one's.
            late = progress.begun and self._ledger.report_late_write(claim)
            return Ending(Outcome.FENCED, str(fenced), Later(self.backoff(claim.row.attempts)), late_write=late)

    def _overran(self, claim: Claim, message: Message) -> Ending:
        limit = self._settings.processing_timeout_seconds
        return self._fail(claim, message, f"the processor ran longer than its {limit} s and was interrupted")

    def _run(self, claim: Claim, message: Message, started: int, progress: _Progress, *, hold: bool) -> Ending:
        limit = self._settings.processing_timeout_seconds
        try:
            # Closed after the deadline: what has succeeded cannot overrun any more.
            with _Opened(self._bucket, claim) as opened, self._guard(claim, limit):
                if not self._settings.processor_function:
                    opened.ahead()
                change = object_change(
                    claim.change,
                    claim.state,
                    claim.row,
                    pipeline=self._settings.pipeline,
                    remaining_seconds=lambda: limit - (self._clock() - started) / 1000,
                    open_object=opened.open,
                    download_object=opened.download,
                )
                progress.begun = True
                returned = self._processor(change)
            commit = as_commit(returned)
        except (Unprocessable, NotYet, WrongReturnError) as verdict:
            return self._judged(claim, verdict)
        except ObjectGone:
            return self._gone(claim, begun=progress.begun)
        except KeyboardInterrupt:  # somebody wants the process to end
            raise
        except BaseException as error:  # whoever exits or cancels a task in there has failed, no more
            if not progress.begun and not _is_refusal(error):
                # S3's trouble is not the object's fault: it costs no attempt.
                self._ledger.release(claim)
                raise OwnError("S3 could not open the object", detail=repr(error)) from error
            if _is_overrun(error):
                return self._overran(claim, message)
            counted = not isinstance(error, NotBegun)
            # The processor may ask AWS for other things than the object.
            reads = not progress.begun or (isinstance(error, ClientError) and error.operation_name == "GetObject")
            return self._fail(
                claim,
                message,
                self._reason(error),
                counted=counted,
                begun=progress.begun,
                s3_error=s3_refusal(error) if reads else None,
            )
        if hold and not commit.transact:
            return Ending(Outcome.COMMITTED, healthy=True, held=commit)
        return self._commit(claim, commit, message)

    def _judged(self, claim: Claim, verdict: Unprocessable | NotYet | WrongReturnError) -> Ending:
        """End the claim as the processor's own verdict says."""
        if isinstance(verdict, NotYet):
            return self._wait(claim, verdict)
        if isinstance(verdict, WrongReturnError):
            # The effect has happened: another attempt would repeat it.
            return self._reject(claim, self._reason(verdict))
        # The team writes this text as the reason, so it is kept.
        return self._reject(claim, text_of(verdict) or "the processor gave no reason")

    def _commit(self, claim: Claim, commit: Commit, message: Message) -> Ending:
        try:
            self._ledger.commit(claim, commit.identity, commit.transact)
        except Overwritten as overwritten:
            # The next claim reads the late write and repeats the effect: at once, and without spending an attempt.
            self._ledger.fail(claim, overwritten.why, counted=False)
            return Ending(Outcome.FAILED, overwritten.why, Later(0), healthy=True)
        except TransactionRefused as refused:
            return self._fail(claim, message, self._reason(refused), counted=not refused.passing)
        return Ending(Outcome.COMMITTED, healthy=True)

    def _gone(self, claim: Claim, *, begun: bool) -> Ending:
        """The claimed version is not there any more; `begun`: only the processor knows what it had done by then."""
        why = f"S3 no longer holds {claim.state.identity}"
        if self._settings.ordering is Ordering.EVERY_VERSION:
            # The message is about this version and about nothing else.
            if begun or (claim.seen is not None and claim.seen.unsettled):
                self._ledger.abandon(claim, why)
            else:
                self._ledger.release(claim)
            return Ending(Outcome.GONE, why)
        if begun:
            self._ledger.fail(claim, why)
        else:
            self._ledger.release(claim)
        return Ending(Outcome.GONE, why, Gone())

    def _reason(self, error: BaseException) -> str:
        """Why an attempt failed, without the content that the error may quote."""
        return describe(error, self._settings.reasons, team=self._team)

    def _fail(
        self,
        claim: Claim,
        message: Message,
        reason: str,
        *,
        counted: bool = True,
        begun: bool = True,
        s3_error: str | None = None,
    ) -> Ending:
        """Record a failure. `counted`: it spends an attempt. `begun`: it says something about the downstream.
        `s3_error`: S3 refused to let the object be read, with this code.
        """
        # While the downstream is out nobody can tell whether the file is bad.
        out = begun and self._breaker.is_open
        healthy = False if begun else None
        if counted and not out:
            if claim.row.attempts >= self._settings.max_attempts:
                return self._reject(claim, reason, healthy=healthy, s3_error=s3_error)
        elif self.is_given_up(message):
            return self._reject(claim, reason, healthy=healthy, s3_error=s3_error)
        now = self._clock()
        if out:
            wait = max(self._breaker.held_ms(), self.least_wait_ms(message)) / 1000
        elif counted:
            wait = self.backoff(claim.row.attempts)
        else:
            wait = max(self.backoff(claim.row.attempts), (now - claim.row.first_claimed_at) / 1000 * _GROWTH)
        # Whole seconds, as SQS counts them: the message must not be back before its time.
        delay = math.ceil(wait)
        self._ledger.fail(claim, reason, retry_at=now + delay * 1000, counted=counted and not out, s3_error=s3_error)
        return Ending(Outcome.FAILED, reason, Later(delay), healthy=healthy)

    def _wait(self, claim: Claim, missing: NotYet) -> Ending:
        """Have the change tried again when what it needs may be there. That says nothing about the downstream."""
        reason = text_of(missing) or "the processor said NotYet and gave no reason"
        now = self._clock()
        waited_ms = 0 if claim.row.waiting_since is None else now - claim.row.waiting_since
        left_ms = self._settings.max_wait_seconds * 1000 - waited_ms
        if left_ms <= 0:
            ending = self._reject(claim, f"waited for {waited_ms / 3_600_000:.3g} hours (max_wait): {reason}")
            return replace(ending, waited_too_long=True)
        # Waits grow, or they would use up the queue's receives. The last try is when the time is over.
        wanted = max(missing.retry_in or _RETRY_IN_SECONDS, waited_ms / 1000 * _GROWTH)
        delay = math.ceil(min(wanted, MAX_RETRY_IN, left_ms / 1000))
        self._ledger.wait(claim, reason, retry_at=now + delay * 1000)
        return Ending(Outcome.WAITING, reason, Later(delay))

    def is_given_up(self, message: Message) -> bool:
        """Whether the message has waited for so long that an attempt which would not count is its last."""
        age_ms = 0 if message.sent_at is None else self._clock() - message.sent_at
        return age_ms >= self._settings.max_hold_seconds * 1000

    def least_wait_ms(self, message: Message) -> int:
        """The shortest wait of a message that is given back because the downstream is out."""
        settings = self._settings
        return least_wait_ms(
            message.receives, max_receives=settings.max_receives, max_hold_ms=settings.max_hold_seconds * 1000
        )

    def _reject(self, claim: Claim, reason: str, *, healthy: bool | None = None, s3_error: str | None = None) -> Ending:
        # The copy first: a death in between leaves two copies, never none.
        self._dead_letter(claim.change, claim.row, reason)
        self._ledger.reject(claim, reason, s3_error=s3_error)
        return Ending(Outcome.REJECTED, reason, healthy=healthy)

    def _dead_letter(self, change: Change, row: Row, reason: str) -> None:
        self._queues.dead_letter(
            change.body,
            {
                "reason": reason[:1024],
                "pipeline": self._settings.pipeline,
                "bucket": change.bucket,
                "key": quote(change.key),
                "version_id": row.version_id,
                "attempts": row.attempts,
                "first_claimed_at": row.first_claimed_at,
                "rejected_fence": row.fence,
            },
        )


class _Opened:
    """The streams and temporary files of the claimed version.

    On exit it raises the error of a stream again. The processor may have caught the error and returned, or may have
    rejected half an object as `Unprocessable`.
    """

    def __init__(self, bucket: Bucket, claim: Claim) -> None:
        self._bucket = bucket
        self._claim = claim
        self._streams: list[ObjectStream] = []
        self._files: list[BinaryIO] = []
        self._unread = False

    def __enter__(self) -> Self:
        return self

    def ahead(self) -> None:
        """Open it before the processor starts: if it is gone, nothing has been begun yet."""
        if not self._claim.state.removed:
            self._again()
            self._unread = True

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        failure = self._failure
        for one in (*self._streams, *self._files):
            with suppress(Exception):  # what was read was read
                one.close()
        if (
            failure is not None
            and (error is None or isinstance(error, Exception))
            and not isinstance(error, ObjectGone)
        ):
            raise failure

    @property
    def _failure(self) -> ObjectReadError | None:
        """The error of a stream. A later stream that was read completely replaces it."""
        for stream in reversed(self._streams):
            if stream.complete:
                return None
            if stream.failure is not None:
                return stream.failure
        return None

    def open(self) -> ObjectStream:
        """The stream that is open already; another one from the second call on."""
        if not self._unread:
            self._again()
        self._unread = False
        return self._streams[-1]

    def download(self) -> BinaryIO:
        """Copy the object to a temporary file, which is deleted at the end of the attempt."""
        self._files.append(downloaded(self.open()))
        return self._files[-1]

    def _again(self) -> None:
        self._streams.append(self._bucket.open(self._claim.change.key, self._claim.state))


def _is_overrun(error: BaseException) -> bool:
    """Whether the processor's time was up; asyncio's task groups wrap what is raised inside them."""
    return isinstance(error, Overrun) or (isinstance(error, BaseExceptionGroup) and error.subgroup(Overrun) is not None)


def _is_refusal(error: BaseException) -> bool:
    """Whether S3 will say the same the next time: an archived object, a key that may not be used."""
    return s3_refusal(error) is not None


def s3_refusal(error: BaseException) -> str | None:
    """S3's code, where it refuses to let an object be read and will say the same the next time."""
    if not isinstance(error, ClientError):
        return None
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = error.response["Error"].get("Code", "unknown")
    return code if 400 <= status < 500 and code not in _PASSING else None
