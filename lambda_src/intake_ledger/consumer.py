"""The Lambda function behind the queue: whatever arrives and whatever breaks, no message is lost.

One record at a time, or `concurrency` of them, claimed just before it is processed. A message is acknowledged only when
all that it says has come to an end in the ledger; everything else goes back to the queue, with a delay that fits the
reason.
"""

import os
import random
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import islice
from threading import Event
from typing import TYPE_CHECKING, Any, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from intake_ledger.attempts import Attempts, Ending, Gone, Later
from intake_ledger.breaker import Breaker
from intake_ledger.bucket import Bucket
from intake_ledger.changes import Change, Ignored, Origin, Parsed, Unparseable, own_message, together
from intake_ledger.clients import POOL, bucket_client, ledger_client, make_client
from intake_ledger.completeness import CompletenessRecord
from intake_ledger.deadlines import deadline
from intake_ledger.errors import Fenced
from intake_ledger.lanes import lanes
from intake_ledger.ledger import Answer, Claim, Ledger, LedgerOptions
from intake_ledger.messages import Message, read_batch
from intake_ledger.pace import Pace
from intake_ledger.processing import Commit, Processor, load_processor
from intake_ledger.queues import Queues
from intake_ledger.returns import Returns
from intake_ledger.rows import Ordering, Row
from intake_ledger.settings import ConsumerSettings, consumer_settings
from intake_ledger.table import BATCH_STATEMENTS, LedgerTable
from intake_ledger.telemetry import Outcome, Telemetry
from intake_ledger.ulids import made_at
from intake_ledger.verdicts import Policy, Verdict

if TYPE_CHECKING:
    from intake_ledger.crew import Crew

RESERVE_SECONDS = 3.0
"""What a claim, a commit and the answer to Lambda may take on top of the processor's own time."""
BUSY_JITTER_SECONDS = 5.0
HOLD_MS = 1_000
"""A commit that waits for others is written before another record is begun once it has waited for so long."""
LATER_FORMAT_SECONDS, MAX_LATER_FORMAT_SECONDS = 900, 6 * 3600
"""A rollback is over when the later release is deployed again. The wait grows with each receive, since the queue's own
limit of receives must not end the message: about 90 of them take fourteen days, the longest that SQS keeps one."""
_REJUDGE_GONE = 2
"""How often a vanished version is judged anew within one delivery, before the message takes its turn in the queue."""


class LambdaContext(Protocol):
    """The part of Lambda's context that is used."""

    def get_remaining_time_in_millis(self) -> int: ...


@dataclass(frozen=True, slots=True)
class _Batch:
    """One invocation's messages, in the order in which they are handled."""

    messages: Sequence[Message]
    context: LambdaContext
    returns: Returns
    answers: Mapping[Message, Answer]
    """Of those that were claimed together. Not by id: one message may be in a batch twice."""
    ends: dict[Message, Later | None] = field(default_factory=dict)
    """What became of each message so far; None: it is done, once what is held is committed."""
    held: "list[_Held]" = field(default_factory=list)
    """Commits that are written together."""

    def claimed(self, message: Message) -> bool:
        """Whether the message was received for the first time and claimed together with others."""
        answer = self.answers.get(message)
        return answer is not None and answer.claim is not None


@dataclass(frozen=True, slots=True)
class _Held:
    """The commit of a message's only change, whose effect has happened at this time, in epoch milliseconds."""

    message: Message
    claim: Claim
    commit: Commit
    since: int
    duration_ms: int


def later_format_seconds(receives: int) -> float:
    """For how long a message is given back whose row a later release wrote."""
    return min(LATER_FORMAT_SECONDS * receives, MAX_LATER_FORMAT_SECONDS)


def _end_process() -> None:
    """As abruptly as it takes to stop threads; what was logged is out before."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


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
        breaker: Breaker | None = None,
        end_process: Callable[[], None] = _end_process,
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._queues = queues
        self._telemetry = telemetry
        self._clock = clock
        self._jitter = jitter
        self._pace = pace or Pace()
        self._breaker = breaker or Breaker(
            settings.min_backoff_seconds * 1000, settings.max_backoff_seconds * 1000, jitter
        )
        self._end_process = end_process
        self._stopping = Event()
        """Set while no other processor may begin."""
        self._crew = _crew(settings)
        self._attempts = Attempts(
            settings,
            ledger,
            bucket,
            queues,
            processor,
            clock=clock,
            jitter=jitter,
            guard=self._crew.guard if self._crew else lambda _, limit: deadline(limit),
            breaker=self._breaker,
        )

    def handle(self, event: Mapping[str, Any], context: LambdaContext) -> dict[str, list[dict[str, str]]]:
        """Process one batch; the answer names the messages that Lambda must not delete."""
        messages = read_batch(event)
        batch = _Batch(messages, context, self._returns(context), self._claim_together(messages, context))
        if self._crew is None:
            self._lane(messages, batch)
        else:
            self._stopping.clear()
            places = lanes([message.keys for message in messages])
            work = [partial(self._lane, [messages[place] for place in lane], batch) for lane in places]
            overrun = self._crew.run(work, self._stopping.set, batch.returns.flush)
            self._give_back(overrun, batch)
            if overrun:
                self._leave(overrun, batch)
        batch.returns.flush()
        self._telemetry.flush()
        failures = dict.fromkeys(message.id for message in messages if batch.ends[message] is not None)
        return {"batchItemFailures": [{"itemIdentifier": one} for one in failures]}

    def _lane(self, messages: Sequence[Message], batch: _Batch) -> None:
        """One message after the other."""
        for message in messages:
            if batch.held and not self._may_wait(message, batch):
                self._commit_held(batch)
            self._ended(message, batch, self._message(message, batch))
        self._commit_held(batch)

    def _may_wait(self, message: Message, batch: _Batch) -> bool:
        """Whether this message may be begun before the commits that are held are written.

        What came before may be what brings the worker down; where the processor is slow nothing is gained by waiting.
        """
        young = self._clock() - batch.held[0].since < HOLD_MS
        return young and len(batch.held) < BATCH_STATEMENTS and batch.claimed(message)

    def _commit_held(self, batch: _Batch) -> None:
        """Only then are their messages done."""
        held = {one.claim.key: one for one in batch.held}
        batch.held.clear()
        alone = self._ledger.commit_together([(one.claim, one.commit.identity) for one in held.values()])
        for one in [held.pop(claim.key) for claim in alone]:
            try:
                ending = self._attempts.commit(one.claim, one.commit, one.message)
            except Exception as error:  # noqa: BLE001 - its lease runs out, and it comes again
                self._telemetry.troubled("a commit could not be written", one.message.id, error)
                self._ended(one.message, batch, Later(self._attempts.backoff(one.message.receives)))
                continue
            self._report(one.claim, ending, one.duration_ms)
            self._ended(one.message, batch, ending.then if isinstance(ending.then, Later) else None)
        for one in held.values():
            self._telemetry.ended(one.claim, Outcome.COMMITTED, duration_ms=one.duration_ms)

    def _ended(self, message: Message, batch: _Batch, later: Later | None) -> None:
        if later is not None:
            batch.returns.add(message, later.seconds)
        batch.ends[message] = later

    def _give_back(self, overrun: Sequence[Claim], batch: _Batch) -> None:
        """What overruns is failed, and what no thread has begun goes back: that may be there although what overran has
        come to its end after all.
        """
        keys = {claim.change.key: claim for claim in overrun}
        for message in batch.messages:
            if message in batch.ends:
                continue
            # The first of its lane is the one that was in work.
            claim = next((keys.pop(key) for key in message.keys & keys.keys()), None)
            try:
                answer = batch.answers.get(message)
                later = self._unstarted(answer, Later(0)) if claim is None else self._overran(claim, message)
            except Exception as error:  # noqa: BLE001 - its lease runs out, and it comes again
                self._telemetry.troubled("what was in work could not be given back", message.id, error)
                later = Later(self._attempts.backoff(message.receives))
            self._ended(message, batch, later if later or message.only_change else Later(0))

    def _leave(self, overrun: Sequence[Claim], batch: _Batch) -> None:
        """Threads cannot be interrupted, so the process has to end; everything has come to its end before.

        Lambda then takes the invocation for failed and deletes nothing, so that is done here.
        """
        batch.returns.flush()
        done = [message.receipt for message in batch.messages if batch.ends[message] is None]
        try:
            self._queues.delete(done, in_time=batch.returns.in_time)
        except Exception as error:  # noqa: BLE001 - they come again, as duplicates
            self._telemetry.troubled("messages could not be deleted", _ids(batch.messages), error)
        self._telemetry.process_ends([claim.change.key for claim in overrun])
        self._telemetry.flush()
        self._end_process()

    def _overran(self, claim: Claim, message: Message) -> Later | None:
        ending = self._attempts.overran(claim, message)
        self._report(claim, ending, self._settings.processing_timeout_seconds * 1000)
        return ending.then if isinstance(ending.then, Later) else None

    def _claim_together(self, messages: Sequence[Message], context: LambdaContext) -> dict[Message, Answer]:
        """Claim as many fresh messages at once as will surely be started in time.

        What came before is claimed one by one, just before it is processed: a batch that its neighbour brings down must
        not cost an innocent one attempt after another.
        """
        if self._breaker.is_open:
            return {}
        window = context.get_remaining_time_in_millis() - self._needed_ms(RESERVE_SECONDS)
        fresh = {
            message: change
            for message in messages
            if message.receives == 1 and (change := message.only_change) is not None and self._takes(change)
        }
        some = dict(islice(fresh.items(), self._pace.fits(window) * self._settings.concurrency))
        try:
            answers = self._ledger.claim_together(list(some.values()), lease_ms=self._lease_ms(context))
        except Exception as error:  # noqa: BLE001 - then each is claimed alone
            self._telemetry.troubled("a group could not be claimed", _ids(some), error)
            return {}
        answered = {message: one for message, one in zip(some, answers, strict=True) if one is not None}
        for message, answer in answered.items():
            self._telemetry.decided(some[message], answer, now=self._clock())
        return answered

    def _claim(self, change: Change, context: LambdaContext) -> Answer:
        answer = self._ledger.claim(change, lease_ms=self._lease_ms(context))
        self._telemetry.decided(change, answer, now=self._clock())
        return answer

    def _lease_ms(self, context: LambdaContext) -> int:
        """The rest of the function's time: nothing of this worker can run on after that but by another clock."""
        return context.get_remaining_time_in_millis() + self._settings.clock_skew_seconds * 1000

    def _message(self, message: Message, batch: _Batch) -> Later | None:
        """None when all that the message says has come to an end."""
        try:
            ends = [self._one(one, message, batch) for one in message.parsed]
            delays = [end.seconds for end in ends if isinstance(end, Later)]
            refused = [end for end in ends if isinstance(end, Unparseable)]
            if refused and not delays:
                # Last of all: one copy, however often its neighbours bring the message back.
                self._refuse(together(refused, message.body), message)
        except Exception as error:  # noqa: BLE001 - whatever it is, the message must not be lost
            self._telemetry.troubled("the message could not be handled", message.id, error)
            return Later(self._attempts.backoff(message.receives))
        return Later(min(delays)) if delays else None

    def _one(self, parsed: Parsed, message: Message, batch: _Batch) -> Later | Unparseable | None:
        """None: it is done. What nobody can do anything with comes back."""
        if isinstance(parsed, Ignored):
            self._telemetry.ignored(parsed.why)
            return None
        if isinstance(parsed, Change) and (why := self._misdirected(parsed)):
            return Unparseable(why, parsed.body)
        if isinstance(parsed, Unparseable):
            return parsed
        if not self._settings.wants(parsed.key):
            self._telemetry.filtered_out(parsed)
            return None
        try:
            return self._change(parsed, message, batch)
        finally:
            self._breaker.undecided(parsed.key)

    def _refuse(self, refused: Unparseable, message: Message) -> None:
        count = refused.records
        why = refused.why if count == 1 else f"{count} records cannot be handled, the first one: {refused.why}"
        attributes: dict[str, str | int | None] = {
            "reason": why[:1024],
            "pipeline": self._settings.pipeline,
            "unreadable_records": count,
        }
        self._queues.dead_letter(refused.body, attributes)
        self._telemetry.unparseable(why, message.id)

    def _change(self, change: Change, message: Message, batch: _Batch) -> Later | None:
        context, answer = batch.context, batch.answers.get(message)
        for _ in range(_REJUDGE_GONE):
            if answer is None or answer.claim is not None:
                obstacle = self._obstacle(change, message, context, RESERVE_SECONDS / (1 if answer is None else 2))
                if obstacle is not None:
                    return self._unstarted(answer, obstacle)
            if answer is None:
                answer = self._claim(change, context)
                if answer.claim is not None and not self._has_time(context, RESERVE_SECONDS / 2):
                    # The claim itself took long: the processor must have its whole time or none.
                    return self._unstarted(answer, Later(0))
            ending = self._carry_out(change, answer, message, batch)
            if not isinstance(ending, Gone):
                return ending
            # What it reported is over: from here on it only wakes.
            change, answer = replace(change, reported_as_new=False), None
        return Later(self._attempts.backoff(1))

    def _takes(self, change: Change) -> bool:
        """Whether this pipeline may act on the change."""
        return self._settings.wants(change.key) and not self._misdirected(change)

    def _misdirected(self, change: Change) -> str | None:
        """Why this pipeline can do nothing with the change, if that is so."""
        if change.bucket != self._settings.bucket:
            return f"the event is about bucket {change.bucket!r}, this pipeline's is {self._settings.bucket!r}"
        if change.state is None and not change.is_event and self._settings.ordering is Ordering.EVERY_VERSION:
            return "the message names no version, and in EVERY_VERSION each is on its own: name one"
        if change.reprocess_id is not None:
            ahead_ms = made_at(change.reprocess_id) - self._clock()
            if ahead_ms > self._settings.clock_skew_seconds * 1000:
                return (
                    f"reprocess id {change.reprocess_id} was made {ahead_ms // 1000} s in the future: every later "
                    "request for the key would be taken for served, make a new id"
                )
        return None

    def _obstacle(self, change: Change, message: Message, context: LambdaContext, reserve: float) -> Later | None:
        """Why an attempt must not begin now, as the time after which it may."""
        if not self._has_time(context, reserve):
            return Later(0)
        if self._attempts.is_given_up(message):
            # SQS would drop the message before long: this attempt decides.
            return None
        self._hear_of_successes()
        if wait_ms := self._breaker.wait_ms(change.key, self._clock(), first=message.receives == 1):
            self._telemetry.held_back()
            return Later(max(wait_ms, self._attempts.least_wait_ms(message)) / 1000)
        return None

    def _hear_of_successes(self) -> None:
        """Of the other execution environments, while the downstream is taken to be out."""
        now = self._clock()
        if not self._breaker.wants_news(now):
            return
        with suppress(BotoCoreError, ClientError):  # it is no more than a hint
            at = self._ledger.last_success()
            if at is not None and self._breaker.heard(at, now):
                self._telemetry.downstream_back()

    def _succeeded(self, key: str, now: int) -> None:
        if self._breaker.succeeded(key, now):
            self._telemetry.downstream_back()
        if self._breaker.owes_news(now):
            with suppress(BotoCoreError, ClientError):
                self._ledger.tell_success(now)

    def _unstarted(self, answer: Answer | None, later: Later) -> Later:
        """Nothing was begun under the claim, if there is one: it is as if it had never been made."""
        if answer is None or answer.claim is None:
            return later
        try:
            self._ledger.release(answer.claim)
        except Fenced as fenced:
            self._telemetry.ended(answer.claim, Outcome.FENCED, str(fenced), duration_ms=0)
            return Later(self._attempts.backoff(answer.claim.row.attempts))
        return later

    def _carry_out(self, change: Change, answer: Answer, message: Message, batch: _Batch) -> Later | Gone | None:
        if answer.claim is not None:
            return self._process(answer.claim, message, batch)
        if answer.verdict is Verdict.BUSY:
            return Later(self._until_free(answer.row))
        if answer.verdict is Verdict.LATER_FORMAT:
            return Later(later_format_seconds(message.receives))
        if answer.verdict is Verdict.EXHAUSTED and answer.row is not None:
            after = self._attempts.exhaust(change, answer, answer.row)
            if after is None:
                return Later(0)
            self._telemetry.exhausted(change, after)
        return None

    def _process(self, claim: Claim, message: Message, batch: _Batch) -> Later | Gone | None:
        # A processor may run for minutes: what failed before it must not wait for that.
        batch.returns.flush()
        started = self._clock()
        # What is held belongs to one thread.
        hold = self._settings.commit_together and self._crew is None and batch.claimed(message)
        ending = self._attempts.run(claim, message, started, hold=hold)
        now = self._clock()
        self._pace.took(now - started)
        if ending.held is not None:
            batch.held.append(_Held(message, claim, ending.held, now, now - started))
        else:
            self._report(claim, ending, now - started)
        if ending.healthy:
            self._succeeded(claim.change.key, now)
        if ending.healthy is False and self._breaker.failed(claim.change.key, now):
            self._telemetry.downstream_out(ending.why, pause_ms=self._breaker.pause_ms)
        return ending.then

    def _report(self, claim: Claim, ending: Ending, duration_ms: int) -> None:
        """Report how a claim ended, and wake the key after a late write.

        The late worker's own message was delivered again when its lease ended, and may be acknowledged by now. The
        worker has no time left to process: its lease lasted as long as its function's time.
        """
        self._telemetry.ended(claim, ending.outcome, ending.why, duration_ms=duration_ms)
        if ending.waited_too_long:
            self._telemetry.waited_too_long()
        if not ending.late_write:
            return
        self._telemetry.late_write(claim)
        try:
            self._queues.wake(own_message(Origin.LATE, claim.change.bucket, claim.change.key))
        except Exception as error:  # noqa: BLE001 - the row says it, and the audit finds it
            self._telemetry.troubled("a late write was recorded and its key not woken", claim.change.key, error)

    def _has_time(self, context: LambdaContext, reserve_seconds: float) -> bool:
        if self._stopping.is_set():
            return False
        return context.get_remaining_time_in_millis() >= self._needed_ms(reserve_seconds)

    def _needed_ms(self, reserve_seconds: float) -> float:
        return (self._settings.processing_timeout_seconds + reserve_seconds) * 1000

    def _until_free(self, row: Row | None) -> float:
        """The rest of the lease, or of the wait before the next attempt."""
        free_at = (row.lease_until or row.retry_at or 0) if row else 0
        rest = (free_at - self._clock()) / 1000
        return max(rest, 0.0) + self._jitter() * BUSY_JITTER_SECONDS

    def _returns(self, context: LambdaContext) -> Returns:
        return Returns(
            self._queues,
            clock=self._clock,
            time_left_ms=context.get_remaining_time_in_millis,
            report=partial(self._telemetry.troubled, "messages could not be returned"),
        )


@cache
def _consumer() -> Consumer:
    """The consumer of this function, made once per execution environment."""
    settings = consumer_settings(os.environ)
    # Each thread has a call under way, and a stream or two beside it.
    pool = max(POOL, 3 * settings.concurrency)
    clock = _epoch_ms
    table = LedgerTable(ledger_client(pool), settings.table)
    make_s3 = _maker(settings, partial(bucket_client, pool))
    bucket = Bucket(make_s3, settings.bucket, settings.bucket_owner)
    policy = Policy(settings.max_attempts, settings.retention_seconds * 1000, settings.deletes, settings.keeps_rows)
    options = LedgerOptions(settings.pipeline, settings.ordering, policy, settings.max_event_age_seconds * 1000)
    ledger = Ledger(
        table,
        bucket,
        options,
        clock=clock,
        new_owner=lambda: secrets.token_hex(8),
        completeness=CompletenessRecord(settings, table, clock),
    )
    make_sqs = _maker(settings, partial(make_client, "sqs", pool))
    queues = Queues(make_sqs, settings.queue_url, settings.dlq_url)
    return Consumer(
        settings,
        ledger,
        bucket,
        queues,
        _processor(settings),
        telemetry=Telemetry(settings.reasons),
        clock=clock,
        jitter=random.SystemRandom().random,
    )


def _crew(settings: ConsumerSettings) -> "Crew | None":
    if settings.concurrency == 1:
        return None
    from intake_ledger.crew import Crew  # noqa: PLC0415 - threads are not in every cold start

    return Crew(settings.concurrency, settings.processing_timeout_seconds)


def _processor(settings: ConsumerSettings) -> Processor:
    if settings.processor_function is None:
        return load_processor(settings.processor)
    from intake_ledger.remote import remote_processor  # noqa: PLC0415 - as above

    # The function's own timeout comes first, then the consumer's interruption; and a call is never repeated here.
    make = partial(
        make_client,
        "lambda",
        max(POOL, settings.concurrency),
        read_timeout=settings.processing_timeout_seconds + 5,
        tcp_keepalive=True,
        retries={"total_max_attempts": 1},
    )
    return remote_processor(_maker(settings, make), settings.processor_function)


def _maker[Client](settings: ConsumerSettings, make: Callable[[], Client]) -> Callable[[], Client]:
    """Makes a client when it is first needed; before there are threads, where there will be any: a session is not for
    several at once.
    """
    if settings.concurrency == 1:
        return make
    client = make()
    return lambda: client


def _ids(messages: Iterable[Message]) -> str:
    return ", ".join(message.id for message in messages)


def _epoch_ms() -> int:
    return time.time_ns() // 1_000_000


def handler(event: Mapping[str, Any], context: LambdaContext) -> dict[str, list[dict[str, str]]]:
    """Lambda's entry point."""
    return _consumer().handle(event, context)
