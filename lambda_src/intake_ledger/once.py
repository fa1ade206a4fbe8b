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

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from intake_ledger.aws import ledger_client
from intake_ledger.keyed import KeyedClaim, KeyedLedger, idempotency_key, name_of
from intake_ledger.ledger import AWS_ERRORS, Element, LedgerOptions, LedgerTable
from intake_ledger.observability import describe, text_of
from intake_ledger.protocol import (
    Change,
    Fenced,
    NotYet,
    Ordering,
    Origin,
    Policy,
    Reason,
    ReasonCode,
    Reasons,
    Ruling,
    State,
    StateKind,
    Unprocessable,
    Verdict,
    code_of,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

__all__ = [
    "Busy",
    "Duplicate",
    "Fenced",
    "NotYet",
    "OnceClaim",
    "OnceLedger",
    "OnceOptions",
    "Rejected",
    "Unprocessable",
]

_DAY_SECONDS = 86_400
_NOT_YET_SECONDS = 60
_NO_LIMIT = 10**9
_LATER_FORMAT_SECONDS = 900


class Duplicate(Exception):  # noqa: N818 - an answer, not an error
    """The identity was committed before. Its block does not run."""

    def __init__(self, result: str | None, at: int) -> None:
        super().__init__("this identity of the key was committed before")
        self.result = result
        """The `result` of the block that was committed."""
        self.at = at
        """The time of the commit in epoch milliseconds."""


class Busy(Exception):  # noqa: N818 - an answer, not an error
    """The block cannot run now: the key is held by another block, or the identity's next attempt is not due."""

    def __init__(self, why: str, retry_after: float) -> None:
        super().__init__(f"{why}: try again in {retry_after:.3g} s")
        self.retry_after = retry_after
        """Seconds after which another try may succeed."""


class Rejected(Exception):  # noqa: N818 - an answer, not an error
    """The identity was rejected: a block raised `Unprocessable`, or all attempts were used up."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        """The reason of the rejection."""


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
    """Set this to keep a name of the effect, at most 256 bytes of it. `Duplicate` has it later."""
    transact: Sequence[Element] = ()
    """Set this to at most 98 writes to other DynamoDB tables, in the form of boto3's client. They and the commit are
    carried out together, or not at all."""

    def extend(self, seconds: float) -> None:
        """Hold the key for this time from now on.

        Raises:
            Fenced: The lease has ended, and another block has the key.

        """
        self._extend(seconds)


@dataclass(frozen=True, slots=True)
class _NoBucket:
    """A ledger of messages sends no request to S3."""

    name: str

    def look(self, key: str) -> State:
        raise NotImplementedError(key)

    def created_at(self, key: str, marker: State) -> int | None:
        raise NotImplementedError(key, marker)

    def shows_removal(self, key: str, removal: State) -> bool:
        raise NotImplementedError(key, removal)


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
    """The number of attempts after which an identity is rejected, at least 2. No limit when omitted."""


@dataclass(slots=True)
class OnceLedger:
    """Runs blocks of code once for each key and identity. Threads may share it.

    The table is the one of `IntakeLedger`, or any table whose keys `pk` and `sk` are texts, with a TTL on `expires_at`.
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
    _ledger: KeyedLedger = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.name or "@" in self.name or "#" in self.name:
            raise ValueError(f"the name is {self.name!r}: it must not be empty, and have neither @ nor #")
        options = self.options
        policy = Policy(options.max_attempts or _NO_LIMIT, options.retention_seconds * 1000, deletes=False)
        self._ledger = KeyedLedger(
            LedgerTable(self.client or ledger_client(), self.table),
            _NoBucket(self._source),
            # No message is late: a key and an identity are new if they have no row.
            LedgerOptions(self.name, Ordering.EVERY_VERSION, policy, max_event_age_ms=10**15),
            clock=self.clock,
            new_owner=lambda: secrets.token_hex(8),
        )

    @contextmanager
    def once(self, key: str | int, identity: str | int) -> Iterator[OnceClaim]:
        """Run the block once.

        Args:
            key: blocks with one key exclude each other.
            identity: the block runs until it was committed once for this identity of the key.

        Raises:
            Duplicate: The identity was committed before.
            Busy: Another block holds the key, or the identity's next attempt is not due.
            Rejected: The identity was rejected.
            Fenced: The lease ended before the block did, and another block has the key. Nothing was committed.
            TransactionRefused: DynamoDB refused `claim.transact`. Nothing was committed.
            ValueError: A name is neither a text nor a whole number, or has not 1 to 1,024 bytes.
            ClientError: DynamoDB did not answer. Also BotoCoreError.

        """
        held = self._claim(name_of("key", key), name_of("identity", identity))
        ledger = self._ledger
        claim = OnceClaim(
            key=held.change.key,
            identity=str(held.state.version_id),
            attempt=held.row.attempts,
            fence=held.lock.fence,
            idempotency_key=idempotency_key(self._source, held.change.key, str(held.state.version_id)),
            _extend=lambda seconds: ledger.extend(held, lease_ms=self._lease_ms(seconds)),
        )
        try:
            yield claim
            ledger.commit(held, claim.result, claim.transact)
        except Fenced:
            raise
        except BaseException as error:
            # The error of the block counts. A lease that has ended has let another block in already.
            with suppress(Fenced, *AWS_ERRORS):
                self._failed(held, error)
            raise
        finally:
            ledger.free(held)

    @property
    def _source(self) -> str:
        return f"once:{self.name}"

    def _lease_ms(self, seconds: float) -> int:
        return round((seconds + self.options.clock_skew_seconds) * 1000)

    def _claim(self, key: str, identity: str) -> KeyedClaim:
        change = Change(
            self._source,
            key,
            Origin.S3,
            event_name="IntakeLedger:Once",
            body="",
            state=State(StateKind.OBJECT, version_id=identity),
            reported_as_new=True,
            event_time=self.clock(),
        )
        answer = self._ledger.claim(change, lease_ms=self._lease_ms(self.options.lease_seconds))
        if isinstance(answer, Ruling):
            raise self._refusal(change, answer)
        return cast("KeyedClaim", answer)

    def _refusal(self, change: Change, ruling: Ruling) -> Exception:
        row = ruling.row
        if row is not None and ruling.verdict is Verdict.DUPLICATE:
            return Duplicate(row.commit_id, row.updated_at)
        if row is not None and ruling.verdict in (Verdict.REJECTED, Verdict.EXHAUSTED):
            if ruling.verdict is Verdict.EXHAUSTED:
                self._ledger.exhaust(change, row, self._ledger.exhausted_row(change, row))
            return Rejected(row.reason or ruling.why)
        if ruling.verdict is Verdict.LATER_FORMAT:
            return Busy(ruling.why, _LATER_FORMAT_SECONDS)
        free_at = (row.lease_until or row.retry_at or 0) if row else 0
        return Busy(ruling.why, max(free_at - self.clock(), 0) / 1000)

    def _failed(self, held: KeyedClaim, error: BaseException) -> None:
        """Record how the block failed."""
        if isinstance(error, Unprocessable):
            text = text_of(error) or "the block gave no reason"
            self._ledger.reject(held, Reason(ReasonCode.UNPROCESSABLE, text))
        elif isinstance(error, NotYet):
            retry_at = self.clock() + round((error.retry_in or _NOT_YET_SECONDS) * 1000)
            reason = Reason(ReasonCode.NOT_YET, text_of(error) or "something is missing")
            self._ledger.wait(held, reason, retry_at=retry_at)
        else:
            code = code_of(error, ReasonCode.PROCESSOR_ERROR)
            self._ledger.fail(held, Reason(code, describe(error, Reasons.TYPES)))
