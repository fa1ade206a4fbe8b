"""Run any code once for each key and identity, without a queue, a consumer or the CDK.

    ledger = OnceLedger("payments", table="ledger")
    try:
        with ledger.once(key=order_id, identity=event_id) as claim:
            claim.result = charge(order, idempotency_key=claim.idempotency_key)
    except Duplicate as done:
        return done.result
    except Busy as busy:
        retry_later(busy.retry_after)

The block is committed at its end. An exception records a failure, frees the key at once, and propagates. If the process
dies, the key is free when the lease has ended.
"""

import logging
import random
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

from intake_ledger.aws.clients import ledger_client
from intake_ledger.keyed.key_lock import KeyLock
from intake_ledger.keyed.names import idempotency_key, name_of
from intake_ledger.ledger.dynamodb_table import AWS_ERRORS, LedgerTable
from intake_ledger.ledger.ledger import Claim, Ledger, LedgerOptions
from intake_ledger.ledger.starts import Starts
from intake_ledger.observability.error_text import describe, text_of
from intake_ledger.protocol.change import Change, Origin, State, StateKind
from intake_ledger.protocol.errors import Fenced, InvalidTransactionError, NotYet, TransactionRefused, Unprocessable
from intake_ledger.protocol.handover import Element, invalid_effect_of, kept_result, wait_seconds
from intake_ledger.protocol.rate import Rate
from intake_ledger.protocol.reasons import OutcomeKind, Reason, ReasonCode, code_of
from intake_ledger.protocol.row import Ordering
from intake_ledger.protocol.settings import Reasons
from intake_ledger.protocol.verdict import Policy, Ruling, Verdict

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

__all__ = [
    "Busy",
    "Duplicate",
    "Fenced",
    "InvalidTransactionError",
    "NotYet",
    "OnceClaim",
    "OnceLedger",
    "OnceOptions",
    "Rate",
    "Rejected",
    "TransactionRefused",
    "Unprocessable",
]

_DAY_SECONDS = 86_400
_NOT_YET_SECONDS = 60
_NO_LIMIT = 10**9
_LATER_FORMAT_SECONDS = 900
_LONGEST_SECONDS = 366 * _DAY_SECONDS
_RESULT_NOT_KEPT = "ResultNotKept"
_LOG = logging.getLogger(__name__)


class Duplicate(Exception):  # noqa: N818 - an answer, not an error
    """The identity was committed before. Its block does not run."""

    def __init__(self, result: str | None, at: int) -> None:
        super().__init__("this identity of the key was committed before")
        self.result = result
        """The `result` of the block that was committed. None if it had none, or one that a row does not keep."""
        self.at = at
        """The time of the commit in epoch milliseconds."""


class Busy(Exception):  # noqa: N818 - an answer, not an error
    """The block cannot run now: the key is held by another block, or the identity's next attempt is not due."""

    def __init__(self, why: str, retry_after: float) -> None:
        super().__init__(f"{why}: try again in {retry_after:.3g} s")
        self.retry_after = retry_after
        """Seconds after which another try may succeed."""


class Rejected(Exception):  # noqa: N818 - an answer, not an error
    """The identity was rejected by an earlier attempt. Its block did not run now.

    An earlier block raised `Unprocessable`, its `transact` was malformed, or all attempts were used up.
    `OnceLedger.reopen` lets the identity run again.
    """

    def __init__(self, reason: str, code: str = "") -> None:
        super().__init__(
            "the identity was rejected earlier, and its block did not run now. OnceLedger.reopen lets it run again. "
            f"The reason was: {reason}"
        )
        self.reason = reason
        """The reason of the rejection."""
        self.code = code
        """Its code, such as `unprocessable`, `invalid_transaction` or `attempts_exhausted`."""


@dataclass(slots=True)
class OnceClaim:
    """The right to run one block. No other block with its key runs meanwhile."""

    key: str
    identity: str
    attempt: int
    """The number of this attempt on the identity, from 1 on."""
    fence: int
    """A number that grows with each block of this key. A write that is conditional on it cannot undo a later one."""
    idempotency_key: str
    """The same for each attempt on this identity, at any time. Different for any other one."""
    _extend: Callable[[float], None]
    result: str | None = None
    """Set this to a text of at most 16,384 bytes in UTF-8. `Duplicate` has it later, as long as the row is kept.

    Any other type and a longer text are not kept: the block is committed without it, and TypeError or ValueError says
    so. Each started KB is a write unit for the commit and for each duplicate."""
    transact: Sequence[Element] = ()
    """Set this to at most 98 writes to other DynamoDB tables, in the form of boto3's client. They and the commit are
    carried out together, or not at all. Malformed ones reject the identity."""

    def extend(self, seconds: float) -> None:
        """Hold the key for this time from now on.

        Args:
            seconds: above 0.

        Raises:
            Fenced: The lease has ended, and another block has the key.
            ValueError: `seconds` is not above 0.

        """
        self._extend(_seconds("extend", seconds, above=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class OnceOptions:
    """The settings of a `OnceLedger`."""

    lease_seconds: float = 60
    """The time for which a block holds its key, unless it extends it. It must be longer than the block runs."""
    clock_skew_seconds: float = 120
    """The largest difference between the clocks of two machines. Leases are longer by it."""
    retention_seconds: int = 35 * _DAY_SECONDS
    """The time for which the commit of an identity is known. After it, the identity is new again."""
    max_attempts: int | None = None
    """The number of attempts after which an identity is rejected. No limit when omitted.

    1 is at most once: a block that failed, or whose process died, does not run again, even if it had no effect. Use it
    only if a second effect is worse than none, and look after the identities that are rejected."""

    def __post_init__(self) -> None:
        """Refuse values with which a block would not be protected.

        Raises:
            ValueError: The text has the option, the value and the allowed values.

        """
        _seconds("lease_seconds", self.lease_seconds, above=0)
        _seconds("clock_skew_seconds", self.clock_skew_seconds, above=None)
        _whole("retention_seconds", self.retention_seconds)
        if self.max_attempts is not None:
            _whole("max_attempts", self.max_attempts)


def _seconds(name: str, value: Any, *, above: float | None) -> float:
    """The value, if it is a finite number of seconds above the bound. Without a bound, zero is allowed."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    enough = is_number and (value >= 0 if above is None else value > above)
    if not enough or not value <= _LONGEST_SECONDS:
        least = "of at least 0" if above is None else f"above {above:g}"
        raise ValueError(f"{name} is {value!r}: it must be a number of seconds {least}, and at most a year")
    return float(value)


def _whole(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is {value!r}: it must be a whole number of at least 1")


@dataclass(slots=True)
class OnceLedger:
    """Runs blocks of code once for each key and identity. Threads may share it.

    Use the table of `IntakeLedger`, or any table whose keys `pk` and `sk` are texts, with a TTL on `expires_at`.
    """

    name: str
    """The name of the work, such as `payments`. The same key and identity are new under another name."""
    table: str
    """The name of the DynamoDB table."""
    options: OnceOptions = field(default_factory=OnceOptions)
    """Times and limits; their defaults when omitted."""
    client: "DynamoDBClient | None" = None
    """boto3's client of DynamoDB. One with short timeouts and retries is made when omitted."""
    clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    """Gives epoch milliseconds; the machine's clock when omitted."""
    count: Callable[[str], object] | None = None
    """Called with the name of each outcome, for a metric: `Committed`, `Failed`, `Rejected`, `Waiting` or `Fenced`.
    Also with `ResultNotKept` after a commit without its result. An exception that it raises is logged. Nothing is
    counted when omitted."""
    _ledger: Ledger = field(init=False, repr=False)
    _table: LedgerTable = field(init=False, repr=False)
    _starts: dict[str, Starts] = field(default_factory=dict, init=False, repr=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.name or "@" in self.name or "#" in self.name:
            raise ValueError(f"the name is {self.name!r}: it must not be empty, and have neither @ nor #")
        options = self.options
        policy = Policy(options.max_attempts or _NO_LIMIT, options.retention_seconds * 1000, deletes=False)
        # No message is late: a key and an identity are new if they have no row.
        given = LedgerOptions(self.name, Ordering.EVERY_VERSION, policy, max_event_age_ms=10**15)
        table = self._table = LedgerTable(self.client or ledger_client(), self.table)
        self._ledger = Ledger(
            table,
            lambda change, _: change.state,
            given,
            clock=self.clock,
            new_owner=lambda: secrets.token_hex(8),
            guards=[KeyLock(table, self.name, given.retention, clock=self.clock)],
        )

    @contextmanager
    def once(self, key: str | int, identity: str | int, rate: Rate | None = None) -> Iterator[OnceClaim]:
        """Run the block once.

        Args:
            key: blocks with one key exclude each other.
            identity: the block runs until it was committed once for this identity of the key.
            rate: the maximum number of blocks of this ledger that start per second, on all machines; no limit when
                omitted. Rates with other names are counted apart. A block that finds no start stands in line, and
                `Busy` says when its place is. It takes none as long as `Duplicate` answers.

        Raises:
            Duplicate: The identity was committed before.
            Busy: Another block holds the key, the identity's next attempt is not due, or the rate has no start now.
            Rejected: The identity was rejected earlier.
            Fenced: The lease ended before the block did, and another block has the key. Nothing was committed.
            InvalidTransactionError: `claim.transact` is malformed. Nothing was committed, and the identity is rejected.
            TransactionRefused: DynamoDB refused `claim.transact`. Nothing was committed, and the block may run again.
            TypeError: `claim.result` is not a text. The block is committed without it, and does not run again.
            ValueError: `claim.result` is too long: the block is committed as above. Or, before the block: a name is
                neither a text nor a whole number, or has not 1 to 1,024 bytes. Or another rate has the name of `rate`.
            ClientError: DynamoDB did not answer. Also BotoCoreError.

        """
        starts = None if rate is None else self._starts_of(rate)
        held = self._claim(name_of("key", key), name_of("identity", identity))
        if starts is not None:
            self._start(held, starts)
        ledger = self._ledger
        claim = OnceClaim(
            key=held.change.key,
            identity=str(held.state.version_id),
            attempt=held.row.attempts,
            fence=held.lock_fence or held.row.fence,
            idempotency_key=idempotency_key(self._source, held.change.key, str(held.state.version_id)),
            _extend=lambda seconds: ledger.extend(held, lease_ms=self._lease_ms(seconds)),
        )
        try:
            yield claim
        except BaseException as error:
            self._record(held, error, in_block=True)
            raise
        self._commit(held, claim)

    def reopen(self, key: str | int, identity: str | int) -> bool:
        """Let a rejected identity run again, for example after its code was fixed.

        The next `once` for it runs the block: with the same `idempotency_key`, a higher `fence`, and attempts that are
        counted from 1. This changes nothing for an identity that was committed or is in work.

        Args:
            key: as for `once`.
            identity: as for `once`.

        Returns:
            True if the identity was rejected, and is open now. False: it was not rejected, and nothing has changed.

        Raises:
            ValueError: As for `once`.
            ClientError: DynamoDB did not answer. Also BotoCoreError.

        """
        return self._ledger.reopen(self._change(name_of("key", key), name_of("identity", identity)))

    @property
    def _source(self) -> str:
        return f"once:{self.name}"

    def _lease_ms(self, seconds: float) -> int:
        return round((seconds + self.options.clock_skew_seconds) * 1000)

    def _claim(self, key: str, identity: str) -> Claim:
        change = self._change(key, identity)
        answer = self._ledger.claim(change, lease_ms=self._lease_ms(self.options.lease_seconds))
        if isinstance(answer, Ruling):
            raise self._refusal(change, answer)
        return answer

    def _starts_of(self, rate: Rate) -> Starts:
        with self._lock:
            if rate.name not in self._starts:
                self._starts[rate.name] = Starts(
                    self._table, self.name, rate, clock=self.clock, jitter=random.SystemRandom().random
                )
            starts = self._starts[rate.name]
        if starts.rate != rate:
            raise ValueError(
                f"{rate} and {starts.rate} have the name {rate.name!r} and would share their starts: give each rate of "
                f"{self.name!r} a name of its own, such as Rate({rate.per_second:g}, name='mail')"
            )
        return starts

    def _start(self, held: Claim, starts: Starts) -> None:
        """Take a start for the claim, or let the identity wait for its place. Raises Busy then."""
        try:
            at = starts.take(in_line=held.seen is not None and held.seen.in_line)
            if at is None:
                return
            reason = Reason(ReasonCode.MAX_RATE, "the rate had no start for it")
            self._ledger.wait(held, reason, retry_at=at)
        except Fenced:
            at = self.clock()
        except BaseException:
            # The block has not started: it spends no attempt, and holds no key.
            with suppress(Fenced, *AWS_ERRORS):
                self._ledger.release(held)
            raise
        self._counted(OutcomeKind.WAITING)
        raise Busy("the rate has no start now", max(at - self.clock(), 0) / 1000)

    def _change(self, key: str, identity: str) -> Change:
        return Change(
            self._source,
            key,
            Origin.S3,
            event_name="IntakeLedger:Once",
            body="",
            state=State(StateKind.OBJECT, version_id=identity),
            reported_as_new=True,
            event_time=self.clock(),
        )

    def _refusal(self, change: Change, ruling: Ruling) -> Exception:
        row = ruling.row
        if row is not None and ruling.verdict is Verdict.DUPLICATE:
            return Duplicate(row.commit_id, row.updated_at)
        if row is not None and ruling.verdict in (Verdict.REJECTED, Verdict.EXHAUSTED):
            if ruling.verdict is Verdict.EXHAUSTED:
                after = self._ledger.exhausted_row(change, row)
                if not self._ledger.exhaust(change, row, after):
                    return Busy("the row has changed meanwhile", 0)
                self._counted(OutcomeKind.REJECTED)
                row = after
            return Rejected(row.reason or ruling.why, row.reason_code or "")
        if ruling.verdict is Verdict.LATER_FORMAT:
            return Busy(ruling.why, _LATER_FORMAT_SECONDS)
        free_at = (row.lease_until or row.retry_at or 0) if row else 0
        return Busy(ruling.why, max(free_at - self.clock(), 0) / 1000)

    def _commit(self, held: Claim, claim: OnceClaim) -> None:
        """Commit the block. A result that is not kept must not undo its effect."""
        try:
            self._ledger.commit(held, claim.result, claim.transact)
        except BaseException as error:
            self._record(held, error, in_block=False)
            raise
        self._counted(OutcomeKind.COMMITTED)
        _, problem = kept_result(claim.result)
        if problem:
            _LOG.warning("committed without its result: key %s, identity %s: %s", claim.key, claim.identity, problem)
            self._counted(_RESULT_NOT_KEPT)
            raise ValueError(problem) if isinstance(claim.result, str) else TypeError(problem)

    def _record(self, held: Claim, error: BaseException, *, in_block: bool) -> None:
        """Record how the block or its commit failed. The error of the block counts, so no other one replaces it.

        A lease that has ended may have let another block in already.
        """
        try:
            outcome = self._failed(held, error, in_block=in_block)
        except Fenced:
            outcome = OutcomeKind.FENCED
        except BaseException as problem:
            # The row does not show the end. Its key must not wait for the end of the lease.
            self._ledger.let_go(held, ended=False)
            if not isinstance(problem, AWS_ERRORS):
                raise
            outcome = OutcomeKind.FAILED
            _LOG.warning(
                "a failure was not recorded: key %s, identity %s: the next attempt waits for the end of the lease",
                held.change.key,
                held.state.version_id,
                exc_info=True,
            )
        self._counted(outcome)

    def _failed(self, held: Claim, error: BaseException, *, in_block: bool) -> OutcomeKind:
        if isinstance(error, Unprocessable):
            text = text_of(error) or "the block gave no reason"
            self._ledger.reject(held, Reason(ReasonCode.UNPROCESSABLE, text))
            return OutcomeKind.REJECTED
        if isinstance(error, NotYet):
            retry_at = self.clock() + round((wait_seconds(error) or _NOT_YET_SECONDS) * 1000)
            reason = Reason(ReasonCode.NOT_YET, text_of(error) or "something is missing")
            self._ledger.wait(held, reason, retry_at=retry_at)
            return OutcomeKind.WAITING
        # A Fenced of another ledger says nothing about this claim. The write of the failure shows who has it.
        others = in_block and isinstance(error, Fenced)
        code = ReasonCode.PROCESSOR_ERROR if others else code_of(error, ReasonCode.PROCESSOR_ERROR)
        if (invalid := invalid_effect_of(error)) is not None:
            code = code_of(invalid, ReasonCode.PROCESSOR_ERROR)
            self._ledger.reject(held, Reason(code, describe(invalid, Reasons.TYPES)))
            return OutcomeKind.REJECTED
        reason = Reason(code, describe(error, Reasons.TYPES))
        passing = not in_block and isinstance(error, TransactionRefused) and error.passing
        # Nothing is wrong with writes that met others. But with one attempt, the block must not run a second time.
        self._ledger.fail(held, reason, counted=not passing or self.options.max_attempts == 1)
        return OutcomeKind.FAILED

    def _counted(self, name: str) -> None:
        if self.count is None:
            return
        try:
            self.count(name)
        except Exception:  # noqa: BLE001 - the effect has happened
            _LOG.exception("the outcome %s was not counted", name)
