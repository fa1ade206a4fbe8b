"""How an attempt ends: a pure function of its error, its claim and the time. `Attempts` carries out its outcome.

The first line that fits decides. "Counts" says whether the attempt is one of `max_attempts`.

| the attempt | counts | the ledger writes |
| --- | --- | --- |
| raised Unprocessable | yes | rejected |
| raised NotYet, or its group is held | no | waits; rejected after `max_wait`, or when its source deletes the message |
| may not start now, by an option | no | waits; rejected as above. Work elsewhere keeps a claim that may run |
| may never start, by an option | no | released |
| could not start work elsewhere | no | keeps the claim, and starts the same work again |
| lost its version before it began | no | released, and judged again; settled in EVERY_VERSION |
| lost its version later | yes | failed, and judged again; settled in EVERY_VERSION |
| wrote, and a late write came after it | no | failed, and claimed again at once |
| was an execution that was stopped, since a newer state came | no | failed, and the newer state is judged |
| gave an effect that is malformed | yes | rejected: another attempt would repeat the effect and end in the same way |
| could not open the object, which is not the cause | no | released, and the error is raised |
| failed, ran too long, or its transaction was refused | yes | failed; rejected at the last attempt |
| failed while the downstream is out | no | failed; rejected after `max_hold` |
| failed before the processor began | no | failed; rejected after `max_hold` |
| was in a call with other changes that died | no | failed, and given alone from then on |
"""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from botocore.exceptions import ClientError

from intake_ledger.aws.bucket import is_own_read, s3_refusal
from intake_ledger.consumer.deadline import Overrun
from intake_ledger.ledger.ledger import Claim
from intake_ledger.observability.error_text import describe, text_of
from intake_ledger.protocol.errors import (
    MAX_RETRY_IN,
    ExecutionStopped,
    Fenced,
    LateWriteFound,
    NotBegun,
    NotYet,
    ObjectGone,
    OutputReserved,
    TransactionRefused,
    Unprocessable,
)
from intake_ledger.protocol.handover import invalid_effect_of, wait_seconds
from intake_ledger.protocol.reasons import OutcomeKind, Reason, ReasonCode, code_of
from intake_ledger.protocol.row import Ordering, Row, RowCounts, Status
from intake_ledger.protocol.settings import ConsumerSettings
from intake_ledger.protocol.verdict import keeps_copy
from intake_ledger.runners import StartRefused

GROWTH = 1 / 16
"""A retry that counts no attempt waits for this share of the time since the first try. Only the queue's maxReceiveCount
ends such retries. In fourteen days, the longest that SQS keeps a message, there are fewer than 200 of them."""
_RETRY_IN_SECONDS = 60
"""The wait after a `NotYet` that names none."""


class Stage(Enum):
    """The progress of an attempt."""

    OPENING = auto()
    """The processor has not started, so it has had no effect."""
    PROCESSING = auto()
    """The processor has started. It may have written something."""
    COMMITTING = auto()
    """The processor has returned. The error is that of the ledger's commit."""


class Write(Enum):
    """The ledger's write at the end of an attempt."""

    NOTHING = auto()
    RELEASE = auto()
    ABANDON = auto()
    FAIL = auto()
    POSTPONE = auto()
    WAIT = auto()
    REJECT = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The conditions of an end besides the claim and the error. Times are in epoch milliseconds."""

    settings: ConsumerSettings
    now: int
    stage: Stage
    package: str
    """The processor's package, for positions in reasons."""
    given_up: bool
    """The message is older than `max_hold`."""
    last_try_at: int | None
    """The time at which the last attempt has to begin, if the source deletes the message then and no audit finds it."""
    renews: bool
    """The message copies itself before its source deletes it; see `consumer.returns`."""
    too_old: bool
    """The first message of its chain of copies would have no attempt left before its source deletes it."""
    out: bool
    """The downstream seems to be out, and the failure of this message cannot show the opposite."""
    held_seconds: Callable[[], float]
    """The wait that the circuit breaker wants."""
    backoff: Callable[[int], float]
    """The wait after this number of attempts, in seconds."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of an attempt on a claim, and the time until its message is delivered again."""

    kind: OutcomeKind
    write: Write = Write.NOTHING
    reason: Reason | None = None
    retry_after: float | None = None
    """Seconds until SQS delivers the message again. None: it is finished, or `judge_again` is true."""
    at_once: bool = False
    """The row names no time before which no message may retry."""
    counted: bool = True
    """The attempt is one of `max_attempts`."""
    alone: bool = False
    """The state is given to no call with other changes until its commit."""
    healthy: bool | None = None
    """True: the downstream works. False: it may be out. None: the attempt does not show it."""
    judge_again: bool = False
    """The claimed state is over. Judge the change again, by the state that is shown now."""
    s3_error: str | None = None
    """S3's code, if S3 refused the read of the object."""
    waited_too_long: bool = False
    """The change was rejected because something that it needs was missing for all of `max_wait`."""
    becomes_long: bool = False
    """The wait has become long since the last look, or surely becomes long before the next look. A person should see
    it, once.
    """
    unprocessed: bool = False
    """The object was removed before it was processed."""
    keeps_copy: bool = False
    """The message is the copy of a rejection, and goes back to the dead-letter queue."""
    row: Row | None = None
    """The committed row."""
    counts: RowCounts | None = None
    """The rejected rows of the committed file. None: the commit says nothing about them."""
    late_write: bool = False
    """The row now records that this attempt may have written after its successor. Wake the key."""


class NotNow(Exception):  # noqa: N818 - an answer, not an error
    """An option does not let the work start now."""

    def __init__(self, at: int | None, code: ReasonCode, why: str, *, sure: bool = True) -> None:
        """Make it.

        Args:
            at: when to ask again, in epoch milliseconds. None: never. The row stays as it was before the claim.
            code: the reason of the wait, and of the rejection at its end.
            why: the reason for people.
            sure: whether the work cannot start before `at`.

        """
        super().__init__(why)
        self.at = at
        self.code = code
        self.sure = sure


class Unchanged(Exception):  # noqa: N818 - an answer, not an error
    """The claimed version has the content of the committed one. It is committed without a call."""


def ending(claim: Claim, error: BaseException, facts: Facts) -> Outcome:  # noqa: C901, PLR0911 - one return per line of the table
    """The end of an attempt that raised this error."""
    committing = facts.stage is Stage.COMMITTING
    if isinstance(error, Unprocessable):
        # The processor gives this text as the reason, so it is kept.
        return _rejected(
            Reason(code_of(error, ReasonCode.UNPROCESSABLE), text_of(error) or "the processor gave no reason")
        )
    if isinstance(error, NotYet):
        return _waiting(claim, error, facts)
    if isinstance(error, NotNow):
        return _not_now(claim, error, facts)
    if isinstance(error, StartRefused):
        return _postponed(claim, error, facts)
    if isinstance(error, ObjectGone):
        return _gone(claim, facts)
    if isinstance(error, ExecutionStopped) or (committing and isinstance(error, LateWriteFound)):
        return _again_at_once(error, facts)
    if (invalid := invalid_effect_of(error)) is not None:
        return _rejected(_reason(invalid, facts))
    if committing and isinstance(error, TransactionRefused):
        return _failed(claim, _reason(error, facts), facts, counted=not error.passing)
    if facts.stage is Stage.OPENING and s3_refusal(error) is None:
        # The object is not the cause, so this counts no attempt.
        return Outcome(OutcomeKind.FAILED, Write.RELEASE)
    if is_overrun(error):
        limit = facts.settings.processing_timeout_seconds
        reason = Reason(ReasonCode.PROCESSOR_TIMEOUT, f"the processor ran longer than its limit of {limit} s")
        return _failed(claim, reason, facts)
    return _raised(claim, error, facts)


def _again_at_once(error: BaseException, facts: Facts) -> Outcome:
    """The next claim comes at once, and no attempt is spent.

    After a late write, it repeats the effect. After a stop, it is on the newer state, or on the same one if the newer
    one is gone again.
    """
    stopped, reason = isinstance(error, ExecutionStopped), _reason(error, facts)
    kind = OutcomeKind.OVERTAKEN if stopped else OutcomeKind.FAILED
    return Outcome(kind, Write.FAIL, reason, 0, at_once=True, counted=False, healthy=None if stopped else True)


def call_died(error: BaseException, facts: Facts, *, size: int) -> Outcome:
    """The end of one of `size` changes whose call raised this error, which names none of them."""
    invalid = invalid_effect_of(error)
    if is_overrun(error):
        limit = facts.settings.processing_timeout_seconds
        reason = Reason(ReasonCode.PROCESSOR_TIMEOUT, f"the processor ran longer than its limit of {limit} s")
    else:
        text = describe(invalid or error, facts.settings.reasons, processor_package=facts.package)
        reason = Reason(code_of(invalid, ReasonCode.PROCESSOR_ERROR) if invalid else ReasonCode.PROCESSOR_ERROR, text)
    wait = facts.backoff(1)
    if facts.last_try_at is not None:
        wait = min(wait, max(facts.last_try_at - facts.now, 0) / 1000)
    about_input = isinstance(error, Unprocessable | NotYet | ObjectGone | OutputReserved)
    return Outcome(
        OutcomeKind.FAILED,
        Write.FAIL,
        Reason(reason.code, f"in a call with {size} changes: {reason.text}"),
        math.ceil(wait),
        counted=False,
        alone=True,
        healthy=None if about_input or invalid or is_own_read(error) else False,
    )


def _raised(claim: Claim, error: BaseException, facts: Facts) -> Outcome:
    """The processor failed, or S3 refused the object."""
    begun = facts.stage is not Stage.OPENING
    # The processor may send other requests to AWS than the read of the object.
    reads = not begun or (isinstance(error, ClientError) and getattr(error, "operation_name", "") == "GetObject")
    s3_error = s3_refusal(error) if reads else None
    # A processor's Fenced is about another ledger. This claim is still owned, or the write of its end shows the truth.
    code = ReasonCode.PROCESSOR_ERROR if isinstance(error, Fenced) else None
    return _failed(
        claim,
        _reason(error, facts, ReasonCode.S3_REFUSED if s3_error else code),
        facts,
        counted=not isinstance(error, NotBegun | OutputReserved),
        # Another object has the output for a moment. That says nothing about the downstream.
        downstream=begun and not isinstance(error, OutputReserved),
        healthy=None if is_own_read(error) else False,
        s3_error=s3_error,
    )


def _failed(
    claim: Claim,
    reason: Reason,
    facts: Facts,
    *,
    counted: bool = True,
    downstream: bool = True,
    healthy: bool | None = False,
    s3_error: str | None = None,
) -> Outcome:
    """Retry, or reject if this was the last attempt. `downstream`: the attempt may have reached the downstream."""
    settings, last_try_at = facts.settings, facts.last_try_at
    # While the downstream is out, a failure does not show that the file is bad. A message that no audit would find
    # again gets the rest of its attempts while its source still has it.
    out = downstream and facts.out and not (facts.given_up and last_try_at is not None)
    healthy = healthy if downstream else None
    if counted and not out:
        last = claim.row.attempts >= settings.max_attempts
    else:
        last = (facts.given_up and last_try_at is None) or (facts.renews and facts.too_old)
    if last:
        return _rejected(reason, healthy=healthy, s3_error=s3_error)
    if out:
        wait = facts.held_seconds()
    elif counted:
        wait = facts.backoff(claim.row.attempts)
    else:
        wait = growing_wait(claim.row, facts.now, facts.backoff)
    if last_try_at is not None:
        left = (last_try_at - facts.now) / 1000
        if left <= 0:
            text = f"its source keeps it too short for another attempt: {reason.text}"
            return _rejected(Reason(reason.code, text), healthy=healthy, s3_error=s3_error)
        if counted and not out:
            # Each of the attempts that are left gets an equal share of the time.
            share = left / (settings.max_attempts - claim.row.attempts)
            left = max(share - settings.processing_timeout_seconds, 0)
        wait = min(wait, left)
    # SQS counts whole seconds. The message must not come back before the row's `retry_at`.
    return Outcome(
        OutcomeKind.FAILED,
        Write.FAIL,
        reason,
        math.ceil(wait),
        counted=counted and not out,
        healthy=healthy,
        s3_error=s3_error,
    )


def _postponed(claim: Claim, refused: StartRefused, facts: Facts) -> Outcome:
    """Keep a claim whose work could not be started.

    It is never given up: no object is the cause, and the fence may not grow before this start is over.
    """
    wait = growing_wait(claim.row, facts.now, facts.backoff)
    if refused.healthy is False and facts.out:
        wait = facts.held_seconds()
    reason = _reason(refused.error, facts, ReasonCode.START_REFUSED)
    return Outcome(OutcomeKind.START_REFUSED, Write.POSTPONE, reason, math.ceil(wait), healthy=refused.healthy)


def _waiting(claim: Claim, missing: NotYet, facts: Facts) -> Outcome:
    """Retry when the missing thing may be there. This says nothing about the downstream."""
    text = text_of(missing) or "the processor said NotYet and gave no reason"
    # Waits grow, so that they do not use up the queue's maxReceiveCount.
    wanted = max(wait_seconds(missing) or _RETRY_IN_SECONDS, _waited_ms(claim, facts) / 1000 * GROWTH)
    held = claim.held is not None
    wanted *= _spread(claim) if held else 1
    reason = Reason(code_of(missing, ReasonCode.NOT_YET), text)
    return _wait(claim, wanted, reason, facts, rejected=ReasonCode.MAX_WAIT, share=0.1 if held else 0.5)


def _spread(claim: Claim) -> float:
    """A number from 0.75 to 1.25 that differs between claims, so that keys that came together look at other times."""
    return 0.75 + zlib.crc32(f"{claim.key.pk} {claim.row.fence}".encode()) / 2**33


def _not_now(claim: Claim, later: NotNow, facts: Facts) -> Outcome:
    """Wait until the option may let it start. A claim that may have started work elsewhere keeps its fence."""
    reason = Reason(later.code, str(later))
    if later.at is None:
        return Outcome(OutcomeKind.WAITING, Write.RELEASE, reason)
    wanted = max(later.at - facts.now, 0) / 1000
    if claim.continued:
        reason = reason._replace(code=ReasonCode.START_REFUSED)
        return Outcome(OutcomeKind.WAITING, Write.POSTPONE, reason, math.ceil(wanted))
    return _wait(claim, wanted, reason, facts, rejected=later.code, share=0.1, sure=later.sure)


def _waited_ms(claim: Claim, facts: Facts) -> int:
    return 0 if claim.row.waiting_since is None else facts.now - claim.row.waiting_since


def _wait(
    claim: Claim, wanted: float, reason: Reason, facts: Facts, *, rejected: ReasonCode, share: float, sure: bool = False
) -> Outcome:
    """Retry after these seconds, without an attempt. The last try is at the end of `max_wait`.

    The wait is long after this `share` of `max_wait`, or after `alarm_after`. `sure`: it cannot end before.
    """
    waited_ms = _waited_ms(claim, facts)
    left_ms, limit = facts.settings.max_wait_seconds * 1000 - waited_ms, "max_wait"
    if facts.last_try_at is not None and not facts.renews and facts.last_try_at - facts.now < left_ms:
        left_ms, limit = facts.last_try_at - facts.now, "the retention of its source"
    if left_ms <= 0:
        text = f"waited for {waited_ms / 3_600_000:.3g} hours ({limit}): {reason.text}"
        return _rejected(Reason(rejected, text), waited_too_long=True)
    delay = math.ceil(min(wanted, MAX_RETRY_IN, left_ms / 1000))
    long_ms = 1000 * (facts.settings.alarm_after_seconds or share * facts.settings.max_wait_seconds)
    becomes_long = _counted_ms(claim, sure=sure) < long_ms <= waited_ms + (1000 * delay if sure else 0)
    return Outcome(OutcomeKind.WAITING, Write.WAIT, reason, delay, becomes_long=becomes_long)


def _counted_ms(claim: Claim, *, sure: bool) -> int:
    """The part of the wait that the look before has counted. Looks may come late, and a wake comes early."""
    since, seen = claim.row.waiting_since, claim.seen
    if since is None or seen is None:
        return 0
    return max(seen.retry_at or 0 if sure else 0, seen.updated_at) - since


def _gone(claim: Claim, facts: Facts) -> Outcome:
    """The claimed version vanished. If the processor had started, it may have written something."""
    begun = facts.stage is not Stage.OPENING
    reason = Reason(ReasonCode.OBJECT_GONE, f"S3 no longer holds {claim.state.identity}")
    if facts.settings.ordering is not Ordering.EVERY_VERSION:
        # A continued claim has no earlier row to go back to: released, its row would be this claim again.
        write = Write.FAIL if begun or claim.continued else Write.RELEASE
        return Outcome(OutcomeKind.GONE, write, reason, at_once=True, judge_again=True)
    # The message is only about this version.
    seen, change = claim.seen, claim.change
    open_ = seen is not None and (seen.unfinished or seen.status is Status.REJECTED)
    young = facts.now - facts.settings.retention_seconds * 1000
    return Outcome(
        OutcomeKind.GONE,
        Write.ABANDON if begun or open_ else Write.RELEASE,
        reason,
        unprocessed=begun or open_ or (seen is None and change.reports_upload_since(young)),
        keeps_copy=keeps_copy(change, seen, unprocessed=open_),
    )


def _rejected(
    reason: Reason, *, healthy: bool | None = None, s3_error: str | None = None, waited_too_long: bool = False
) -> Outcome:
    return Outcome(
        OutcomeKind.REJECTED,
        Write.REJECT,
        reason,
        healthy=healthy,
        s3_error=s3_error,
        waited_too_long=waited_too_long,
    )


def growing_wait(row: Row, now: int, backoff: Callable[[int], float]) -> float:
    """Seconds until a retry that counts no attempt. `now` is in epoch milliseconds."""
    return max(backoff(row.attempts), (now - row.first_claimed_at) / 1000 * GROWTH)


def _reason(error: BaseException, facts: Facts, code: ReasonCode | None = None) -> Reason:
    """Describe the error without the content that it may quote. The code follows from its type if it is omitted."""
    text = describe(error, facts.settings.reasons, processor_package=facts.package)
    return Reason(code or code_of(error, ReasonCode.PROCESSOR_ERROR), text)


def is_overrun(error: BaseException) -> bool:
    """True if the processor overran its limit. Task groups of asyncio wrap the errors that are raised inside them."""
    return isinstance(error, Overrun) or (isinstance(error, BaseExceptionGroup) and error.subgroup(Overrun) is not None)
