"""The Lambda function behind the queue: whatever arrives and whatever breaks, no message is lost.

One record at a time, claimed just before it is processed. A message is acknowledged only when all that it says has come
to an end in the ledger; everything else goes back to the queue, with a delay that fits the reason.
"""

import math
import os
import random
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, Self, cast
from urllib.parse import quote

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from intake_ledger.bucket import Bucket
from intake_ledger.changes import Change, Ignored, Origin, Parsed, Unparseable, parse_message
from intake_ledger.deadlines import Overrun, deadline
from intake_ledger.errors import Fenced, ObjectGone, TransactionRefused, Unprocessable
from intake_ledger.ledger import Answer, Claim, Ledger, LedgerOptions
from intake_ledger.pace import Pace
from intake_ledger.processing import Commit, Processor, as_commit, load_processor, object_change
from intake_ledger.queues import Queues
from intake_ledger.remote import remote_processor
from intake_ledger.rows import Ordering, Row
from intake_ledger.settings import ConsumerSettings, consumer_settings
from intake_ledger.table import LedgerTable
from intake_ledger.telemetry import Outcome, Telemetry
from intake_ledger.verdicts import Policy, Verdict

if TYPE_CHECKING:
    from typing import BinaryIO

    from botocore.response import StreamingBody

RESERVE_SECONDS = 3.0
"""What a claim, a commit and the answer to Lambda may take on top of the processor's own time."""
BUSY_JITTER_SECONDS = 5.0
PATIENCE = 10
"""A message that was received more often than this waits no longer behind fresh ones."""
_PASSING = frozenset({"RequestTimeout", "SlowDown", "Throttling", "TooManyRequests", "RequestTimeTooSkewed"})
_REJUDGE_GONE = 2
"""How often a vanished version is judged anew within one delivery, before the message takes its turn in the queue."""


class LambdaContext(Protocol):
    """The part of Lambda's context that is used."""

    def get_remaining_time_in_millis(self) -> int: ...


@dataclass(frozen=True, slots=True)
class _Later:
    """Give the message back, to be delivered again after so many seconds."""

    seconds: float


class Consumer:
    """Handles batches of SQS messages. `clock` gives epoch milliseconds, `jitter` a number from 0 to 1."""

    def __init__(
        self,
        settings: ConsumerSettings,
        ledger: Ledger,
        bucket: Bucket,
        queues: Queues,
        processor: Processor,
        *,
        telemetry: Telemetry,
        clock: Callable[[], int],
        jitter: Callable[[], float],
        pace: Pace | None = None,
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._bucket = bucket
        self._queues = queues
        self._processor = processor
        self._telemetry = telemetry
        self._clock = clock
        self._jitter = jitter
        self._pace = pace or Pace()

    def handle(self, event: Mapping[str, Any], context: LambdaContext) -> dict[str, list[dict[str, str]]]:
        """Process one batch; the answer names the messages that Lambda must not delete."""
        failures = []
        messages = [_Message(record) for record in sorted(event["Records"], key=_turn)]
        answers = self._claim_together(messages, context)
        for message in messages:
            later = self._message(message, context, answers.get(message.id))
            if later is not None:
                failures.append({"itemIdentifier": message.id})
                self._delay(message, later.seconds)
        self._telemetry.flush()
        return {"batchItemFailures": failures}

    def _claim_together(self, messages: "list[_Message]", context: LambdaContext) -> dict[str, Answer]:
        """Claim as many fresh messages at once as will surely be started in time.

        What came before is claimed one by one, just before it is processed: a batch that its neighbour brings down must
        not cost an innocent one attempt after another.
        """
        window = context.get_remaining_time_in_millis() - self._needed_ms(RESERVE_SECONDS)
        fresh = {
            message.id: change
            for message in messages
            if message.receives == 1 and (change := message.only_change) is not None and not self._misdirected(change)
        }
        some = dict(islice(fresh.items(), self._pace.fits(window)))
        try:
            answers = self._ledger.claim_together(list(some.values()), lease_ms=self._lease_ms(context))
        except Exception as error:  # noqa: BLE001 - then each is claimed alone
            self._telemetry.troubled("a group could not be claimed", ", ".join(some), error)
            return {}
        answered = {message_id: one for message_id, one in zip(some, answers, strict=True) if one is not None}
        for message_id, answer in answered.items():
            self._telemetry.decided(some[message_id], answer, now=self._clock())
        return answered

    def _claim(self, change: Change, context: LambdaContext) -> Answer:
        answer = self._ledger.claim(change, lease_ms=self._lease_ms(context))
        self._telemetry.decided(change, answer, now=self._clock())
        return answer

    def _lease_ms(self, context: LambdaContext) -> int:
        """The rest of the function's time: nothing of this worker can run on after that but by another clock."""
        return context.get_remaining_time_in_millis() + self._settings.clock_skew_seconds * 1000

    def _message(self, message: "_Message", context: LambdaContext, answer: Answer | None) -> _Later | None:
        """None when all that the message says has come to an end."""
        try:
            delays = [
                later.seconds
                for one in message.parsed
                if (later := self._one(one, message, context, answer)) is not None
            ]
        except Exception as error:  # noqa: BLE001 - whatever it is, the message must not be lost
            self._telemetry.troubled("the message could not be handled", message.id, error)
            return _Later(self._backoff(message.receives))
        return _Later(min(delays)) if delays else None

    def _one(self, parsed: Parsed, message: "_Message", context: LambdaContext, answer: Answer | None) -> _Later | None:
        if isinstance(parsed, Ignored):
            self._telemetry.ignored(parsed.why)
            return None
        if isinstance(parsed, Change) and (why := self._misdirected(parsed)):
            parsed = Unparseable(why, parsed.body)
        if isinstance(parsed, Unparseable):
            attributes = {"reason": parsed.why, "pipeline": self._settings.pipeline}
            self._queues.dead_letter(parsed.body, attributes)
            self._telemetry.unparseable(parsed.why, message.id)
            return None
        for _ in range(_REJUDGE_GONE):
            if answer is None:
                if not self._has_time(context, RESERVE_SECONDS):
                    return _Later(0)
                answer = self._claim(parsed, context)
            ending = self._carry_out(parsed, answer, context)
            if not isinstance(ending, _Gone):
                return ending
            # What it reported is over: from here on it only wakes.
            parsed, answer = replace(parsed, vouched=False), None
        return _Later(self._backoff(1))

    def _misdirected(self, change: Change) -> str | None:
        """Why this pipeline can do nothing with the change, if that is so."""
        if change.bucket != self._settings.bucket:
            return f"the event is about bucket {change.bucket!r}, this pipeline's is {self._settings.bucket!r}"
        told_by_s3 = change.origin in (Origin.S3, Origin.EVENTBRIDGE)
        if change.state is None and not told_by_s3 and self._settings.ordering is Ordering.EVERY_VERSION:
            return "the message names no version, and in EVERY_VERSION each is on its own: name one"
        return None

    def _carry_out(self, change: Change, answer: Answer, context: LambdaContext) -> "_Later | _Gone | None":
        if answer.claim is not None and not self._has_time(context, RESERVE_SECONDS / 2):
            # The claim itself took long, or its neighbours: the processor must have its whole time or none.
            self._ledger.release(answer.claim)
            return _Later(0)
        if answer.claim is not None:
            return self._process(answer.claim)
        if answer.verdict is Verdict.BUSY:
            return _Later(self._until_free(answer.row))
        if answer.verdict is Verdict.EXHAUSTED and answer.row is not None:
            return self._exhaust(change, answer, answer.row)
        return None

    def _process(self, claim: Claim) -> "_Later | _Gone | None":
        started = self._clock()
        try:
            ending = self._attempt(claim, started)
        except Fenced as fenced:
            ending = _Ending(Outcome.FENCED, str(fenced), _Later(self._backoff(claim.row.attempts)))
        took_ms = self._clock() - started
        self._pace.took(took_ms)
        self._telemetry.ended(claim, ending.outcome, ending.why, took_ms=took_ms)
        return ending.then

    def _attempt(self, claim: Claim, started: int) -> "_Ending":
        """Run the processor on the claim and write into the ledger how it ended."""
        limit, begun = self._settings.processing_timeout_seconds, False
        try:
            # Closed after the deadline: what has succeeded cannot overrun any more.
            with _Opened(self._bucket, claim) as opened, deadline(limit):
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
            return self._reject(claim, str(verdict) or "the processor gave no reason")
        except ObjectGone as gone:
            return self._gone(claim, str(gone), begun=begun)
        except (Exception, SystemExit, Overrun) as error:
            if not begun and not _is_refusal(error):
                # S3's trouble is not the object's fault: it costs no attempt.
                self._ledger.release(claim)
                raise RuntimeError(f"S3 could not open the object: {error!r}") from error
            if isinstance(error, Overrun):
                return self._fail(claim, f"the processor ran longer than its {limit} s and was interrupted")
            return self._fail(claim, f"{type(error).__name__}: {error}")
        return self._commit(claim, commit)

    def _commit(self, claim: Claim, commit: Commit) -> "_Ending":
        try:
            self._ledger.commit(claim, commit.identity, commit.transact)
        except TransactionRefused as refused:
            return self._fail(claim, str(refused), counted=not refused.passing)
        return _Ending(Outcome.COMMITTED)

    def _gone(self, claim: Claim, why: str, *, begun: bool) -> "_Ending":
        """The claimed version is not there any more; `begun`: only the processor knows what it had done by then."""
        if self._settings.ordering is Ordering.EVERY_VERSION:
            # The message is about this version and about nothing else.
            if begun or (claim.seen is not None and claim.seen.unsettled):
                self._ledger.abandon(claim, why)
            else:
                self._ledger.release(claim)
            return _Ending(Outcome.GONE, why)
        if begun:
            self._ledger.fail(claim, why)
        else:
            self._ledger.release(claim)
        return _Ending(Outcome.GONE, why, _Gone())

    def _fail(self, claim: Claim, reason: str, *, counted: bool = True) -> "_Ending":
        if counted and claim.row.attempts >= self._settings.max_attempts:
            return self._reject(claim, reason)
        # Whole seconds, as SQS counts them: the message must not be back before its time.
        delay = math.ceil(self._backoff(claim.row.attempts))
        self._ledger.fail(claim, reason, retry_at=self._clock() + delay * 1000, counted=counted)
        return _Ending(Outcome.FAILED, reason, _Later(delay))

    def _reject(self, claim: Claim, reason: str) -> "_Ending":
        # The copy first: a death in between leaves two copies, never none.
        self._dead_letter(claim.change, claim.row, reason)
        self._ledger.reject(claim, reason)
        return _Ending(Outcome.REJECTED, reason)

    def _exhaust(self, change: Change, answer: Answer, seen: Row) -> _Later | None:
        after = self._ledger.exhausted_row(seen)
        self._dead_letter(change, after, after.reason or "")
        if not self._ledger.exhaust(answer.key, seen, after):
            return _Later(0)
        self._telemetry.exhausted(change, after)
        return None

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

    def _has_time(self, context: LambdaContext, reserve_seconds: float) -> bool:
        return context.get_remaining_time_in_millis() >= self._needed_ms(reserve_seconds)

    def _needed_ms(self, reserve_seconds: float) -> float:
        return (self._settings.processing_timeout_seconds + reserve_seconds) * 1000

    def _until_free(self, row: Row | None) -> float:
        """The rest of the lease, or of the wait before the next attempt."""
        free_at = (row.lease_until or row.retry_at or 0) if row else 0
        rest = (free_at - self._clock()) / 1000
        return max(rest, 0.0) + self._jitter() * BUSY_JITTER_SECONDS

    def _backoff(self, attempts: int) -> float:
        """Exponential, from half to the whole of a step: what failed together must not return together."""
        step = self._settings.min_backoff_seconds * 2.0 ** min(attempts - 1, 30)
        return min(step, self._settings.max_backoff_seconds) * (0.5 + self._jitter() / 2)

    def _delay(self, message: "_Message", seconds: float) -> None:
        try:
            self._queues.deliver_later(message.record["receiptHandle"], seconds)
        except Exception as error:  # noqa: BLE001 - the message then comes back after the queue's own visibility
            self._telemetry.troubled("the message's visibility could not be changed", message.id, error)


class _Message:
    """A message of SQS, parsed."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.record = record
        self.parsed = parse_message(record["body"], rejected_fence=_rejected_fence(record))
        self.id: str = record["messageId"]
        self.receives = _receives(record)

    @property
    def only_change(self) -> Change | None:
        """The change, where the message says nothing else."""
        return self.parsed[0] if len(self.parsed) == 1 and isinstance(self.parsed[0], Change) else None


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


@dataclass(frozen=True, slots=True)
class _Gone:
    """The claimed version vanished: judge the message again, by what S3 shows now."""


@dataclass(frozen=True, slots=True)
class _Ending:
    """How an accepted claim ended, and what becomes of its message; None: it is done."""

    outcome: Outcome
    why: str | None = None
    then: _Later | _Gone | None = None


def _turn(message: Mapping[str, Any]) -> int:
    """What failed before goes last: a sick message must not take the time of the healthy ones. But what came very often
    goes first: it may be healthy, and only ever have found no time left.
    """
    receives = _receives(message)
    if receives > PATIENCE:
        return 0
    return 1 if receives == 1 else 2


def _receives(message: Mapping[str, Any]) -> int:
    return int(message.get("attributes", {}).get("ApproximateReceiveCount", "1"))


def _is_refusal(error: BaseException) -> bool:
    """Whether S3 will say the same the next time: an archived object, a key that may not be used."""
    if not isinstance(error, ClientError):
        return False
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return 400 <= status < 500 and error.response["Error"].get("Code") not in _PASSING


def _rejected_fence(message: Mapping[str, Any]) -> int | None:
    value = message.get("messageAttributes", {}).get("rejected_fence", {}).get("stringValue", "")
    return int(value) if len(value) < 20 and value.isascii() and value.isdecimal() else None


@cache
def _consumer() -> Consumer:
    """The consumer of this function, made once per execution environment."""
    settings = consumer_settings(os.environ)
    # A claim whose answer was lost is recognised by its owner, so that retries are safe; a call that hangs must not
    # outlast the time that was left for it.
    retries: Any = {"mode": "standard", "total_max_attempts": 4}
    config = Config(connect_timeout=2, read_timeout=5, retries=retries)
    streaming = Config(connect_timeout=2, read_timeout=20, retries=retries)
    clock = _epoch_ms
    table = LedgerTable(boto3.client("dynamodb", config=config), settings.table)
    bucket = Bucket(lambda: boto3.client("s3", config=streaming), settings.bucket, settings.bucket_owner)
    policy = Policy(settings.max_attempts, settings.retention_seconds * 1000, settings.deletes)
    options = LedgerOptions(settings.pipeline, settings.ordering, policy, settings.late_after_seconds * 1000)
    ledger = Ledger(table, bucket, options, clock=clock, new_owner=lambda: secrets.token_hex(8))
    queues = Queues(lambda: boto3.client("sqs", config=config), settings.queue_url, settings.dlq_url)
    return Consumer(
        settings,
        ledger,
        bucket,
        queues,
        _processor(settings),
        telemetry=Telemetry(),
        clock=clock,
        jitter=random.SystemRandom().random,
    )


def _processor(settings: ConsumerSettings) -> Processor:
    if settings.processor_function is None:
        return load_processor(settings.processor)
    # The function's own timeout comes first, then the consumer's interruption; and a call is never repeated here.
    config = Config(
        connect_timeout=2,
        read_timeout=settings.processing_timeout_seconds + 5,
        tcp_keepalive=True,
        retries={"total_max_attempts": 1},
    )
    return remote_processor(lambda: boto3.client("lambda", config=config), settings.processor_function)


def _epoch_ms() -> int:
    return time.time_ns() // 1_000_000


def handler(event: Mapping[str, Any], context: LambdaContext) -> dict[str, list[dict[str, str]]]:
    """Lambda's entry point."""
    return _consumer().handle(event, context)
