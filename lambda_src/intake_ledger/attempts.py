"""One attempt at a claimed change: the processor is run, and the ledger learns how it ended."""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, cast
from urllib.parse import quote

from botocore.exceptions import ClientError

from intake_ledger.bucket import Bucket
from intake_ledger.changes import Change
from intake_ledger.deadlines import Overrun
from intake_ledger.errors import Fenced, NotBegun, ObjectGone, TransactionRefused, Unprocessable
from intake_ledger.ledger import Answer, Claim, Ledger
from intake_ledger.processing import Commit, Processor, as_commit, object_change
from intake_ledger.queues import Queues
from intake_ledger.rows import Ordering, Row
from intake_ledger.settings import ConsumerSettings
from intake_ledger.telemetry import Outcome

if TYPE_CHECKING:
    from typing import BinaryIO

    from botocore.response import StreamingBody

_PASSING = frozenset({"RequestTimeout", "SlowDown", "Throttling", "TooManyRequests", "RequestTimeTooSkewed"})
_GROWTH = 1 / 16
"""What spends no attempt waits for this share of the time that it has been tried for: only the queue's own limit of
receives ends it, and fourteen days, the longest that SQS keeps a message, then take fewer than 200."""


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
    held: Commit | None = None
    """A commit that is still to be written, together with others."""


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
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._bucket = bucket
        self._queues = queues
        self._processor = processor
        self._clock = clock
        self._jitter = jitter
        self._guard = guard

    def run(self, claim: Claim, started: int, *, hold: bool = False) -> Ending:
        """Run the processor on the claim and write into the ledger how it ended.

        With `hold` a commit is not written but handed back, unless it is a transaction: the caller owes it to `commit`.
        `started` is in epoch milliseconds. Raises what AWS raises, where it does not answer: the message comes again.
        """
        return self._unless_fenced(claim, lambda: self._run(claim, started, hold=hold))

    def commit(self, claim: Claim, commit: Commit) -> Ending:
        """Write a commit that was held."""
        return self._unless_fenced(claim, lambda: self._commit(claim, commit))

    def overran(self, claim: Claim) -> Ending:
        """Record in the processor's place that it was not done in time; FENCED where it has ended after all."""
        return self._unless_fenced(claim, lambda: self._overran(claim))

    def exhaust(self, change: Change, answer: Answer, seen: Row) -> Row | None:
        """Reject in the place of attempts that never came back; None when somebody else took the row meanwhile."""
        after = self._ledger.exhausted_row(seen)
        self._dead_letter(change, after, after.reason or "")
        return after if self._ledger.exhaust(answer.key, seen, after) else None

    def backoff(self, attempts: int) -> float:
        """Seconds until the next attempt: exponential, from half to the whole of a step, since what failed together
        must not return together.
        """
        step = self._settings.min_backoff_seconds * 2.0 ** min(attempts - 1, 30)
        return min(step, self._settings.max_backoff_seconds) * (0.5 + self._jitter() / 2)

    def _unless_fenced(self, claim: Claim, end: Callable[[], Ending]) -> Ending:
        try:
            return end()
        except Fenced as fenced:
            # Somebody else has the row: the message comes again, to see what became of it.
            return Ending(Outcome.FENCED, str(fenced), Later(self.backoff(claim.row.attempts)))

    def _overran(self, claim: Claim) -> Ending:
        limit = self._settings.processing_timeout_seconds
        return self._fail(claim, f"the processor ran longer than its {limit} s and was interrupted")

    def _run(self, claim: Claim, started: int, *, hold: bool) -> Ending:
        limit, begun = self._settings.processing_timeout_seconds, False
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
                )
                begun = True
                returned = self._processor(change)
            commit = as_commit(returned)
        except Unprocessable as verdict:
            return self._reject(claim, _told(verdict) or "the processor gave no reason")
        except ObjectGone as gone:
            return self._gone(claim, _told(gone), begun=begun)
        except KeyboardInterrupt:  # somebody wants the process to end
            raise
        except BaseException as error:  # whoever exits or cancels a task in there has failed, no more
            if not begun and not _is_refusal(error):
                # S3's trouble is not the object's fault: it costs no attempt.
                self._ledger.release(claim)
                raise RuntimeError(f"S3 could not open the object: {error!r}") from error
            if _is_overrun(error):
                return self._overran(claim)
            return self._fail(claim, f"{type(error).__name__}: {_told(error)}", counted=not isinstance(error, NotBegun))
        if hold and not commit.transact:
            return Ending(Outcome.COMMITTED, healthy=True, held=commit)
        return self._commit(claim, commit)

    def _commit(self, claim: Claim, commit: Commit) -> Ending:
        try:
            self._ledger.commit(claim, commit.identity, commit.transact)
        except TransactionRefused as refused:
            return self._fail(claim, str(refused), counted=not refused.passing)
        return Ending(Outcome.COMMITTED, healthy=True)

    def _gone(self, claim: Claim, why: str, *, begun: bool) -> Ending:
        """The claimed version is not there any more; `begun`: only the processor knows what it had done by then."""
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

    def _fail(self, claim: Claim, reason: str, *, counted: bool = True) -> Ending:
        if counted and claim.row.attempts >= self._settings.max_attempts:
            return self._reject(claim, reason, healthy=False)
        now, wait = self._clock(), self.backoff(claim.row.attempts)
        if not counted:
            wait = max(wait, (now - claim.row.first_seen_at) / 1000 * _GROWTH)
        # Whole seconds, as SQS counts them: the message must not be back before its time.
        delay = math.ceil(wait)
        self._ledger.fail(claim, reason, retry_at=now + delay * 1000, counted=counted)
        return Ending(Outcome.FAILED, reason, Later(delay), healthy=False)

    def _reject(self, claim: Claim, reason: str, *, healthy: bool | None = None) -> Ending:
        # The copy first: a death in between leaves two copies, never none.
        self._dead_letter(claim.change, claim.row, reason)
        self._ledger.reject(claim, reason)
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
                "first_seen_at": row.first_seen_at,
                "rejected_fence": row.fence,
            },
        )


class _Opened:
    """The streams of the claimed version."""

    def __init__(self, bucket: Bucket, claim: Claim) -> None:
        self._bucket = bucket
        self._claim = claim
        self._streams: list[StreamingBody] = []
        self._unread = False

    def __enter__(self) -> Self:
        return self

    def ahead(self) -> None:
        """Open it before the processor starts: if it is gone, nothing has been begun yet."""
        if not self._claim.state.removed:
            self._again()
            self._unread = True

    def __exit__(self, *_: object) -> None:
        for stream in self._streams:
            with suppress(Exception):  # what was read was read
                stream.close()

    def open(self) -> "BinaryIO":
        """The stream that is open already; another one from the second call on."""
        if not self._unread:
            self._again()
        self._unread = False
        return cast("BinaryIO", self._streams[-1])

    def _again(self) -> None:
        self._streams.append(self._bucket.open(self._claim.change.key, self._claim.state))


def _told(error: BaseException) -> str:
    """What it says of itself; its text is made by the team's code, which may fail in turn."""
    try:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - whatever it is, there has to be a reason
        return f"{type(error).__name__}, which cannot tell what it is about"


def _is_overrun(error: BaseException) -> bool:
    """Whether the processor's time was up; asyncio's task groups wrap what is raised inside them."""
    return isinstance(error, Overrun) or (isinstance(error, BaseExceptionGroup) and error.subgroup(Overrun) is not None)


def _is_refusal(error: BaseException) -> bool:
    """Whether S3 will say the same the next time: an archived object, a key that may not be used."""
    if not isinstance(error, ClientError):
        return False
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return 400 <= status < 500 and error.response["Error"].get("Code") not in _PASSING
