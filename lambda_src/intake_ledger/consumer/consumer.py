"""Handle the messages of one batch, in turn or in threads.

`Consumer` gives the batch to its drivers: one claims messages ahead, and the other handles them. `MessageHandler`
claims each change of a message, and runs its work. `Groups` claims new messages together, and writes several commits
together.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from intake_ledger.aws.invocation_context import InvocationContext
from intake_ledger.aws.queues import body_digest
from intake_ledger.consumer.attempt import Attempts, Failures
from intake_ledger.consumer.batch import (
    CLAIMED_RESERVE_SECONDS,
    NOT_AHEAD,
    RESERVE_SECONDS,
    Ahead,
    Batch,
    Driver,
    ProcessingTime,
)
from intake_ledger.consumer.circuit_breaker import CircuitBreaker
from intake_ledger.consumer.deadline import deadline
from intake_ledger.consumer.downstream import Downstream
from intake_ledger.consumer.hooks import hooks_of
from intake_ledger.consumer.returns import Crowd, ids_of, renews
from intake_ledger.consumer.services import Services
from intake_ledger.events.parser import WAY_OUT, Ignored, Message, Parsed, Unparseable, merge_unparseable
from intake_ledger.kinds import Kind
from intake_ledger.ledger.dynamodb_table import BATCH_STATEMENTS
from intake_ledger.ledger.ledger import Claim
from intake_ledger.observability.error_text import describe
from intake_ledger.protocol.change import Change, Origin
from intake_ledger.protocol.reasons import OutcomeKind, Reason, ReasonCode
from intake_ledger.protocol.row import Ordering, Row, Status
from intake_ledger.protocol.ulids import made_at
from intake_ledger.protocol.verdict import (
    Ruling,
    Verdict,
    content_differs,
    has_content,
    is_late_copy,
    keeps_copy,
    may_be_another,
)
from intake_ledger.runners import Runner, SharedRunner

if TYPE_CHECKING:
    from intake_ledger.consumer.threads import ProcessorThreads

BUSY_JITTER_SECONDS = 5.0
LATER_FORMAT_SECONDS = 900
"""A rollback ends when the later release is deployed again. The wait grows by this with each receive, so that the
message does not reach maxReceiveCount. Some 70 receives take fourteen days, the longest that SQS keeps a message."""
MAX_LATER_FORMAT_SECONDS = 6 * 3600
_REJUDGE_GONE = 2
"""A change whose version vanished is judged at most this number of times within one delivery of its message."""
_NAMES_NO_MESSAGE = frozenset({OutcomeKind.FENCED, OutcomeKind.COMMITTED})
"""Outcomes after which the row does not wait for the message of the attempt."""
_UNREAD = frozenset({Verdict.BUSY, Verdict.FORGOTTEN, Verdict.LATER_FORMAT})
"""Verdicts after which the row is left alone."""
OPEN_LETTER = "`intake-ledger retry --letter ID` opens it with the content of this dead letter"
HOLD_MS = 1_000
"""A commit that was held for this time is written before another processor starts."""


class Consumer:
    """Handles batches of messages, in turn or in as many threads as the setting `concurrency` says."""

    def __init__(
        self,
        services: Services,
        kind: Kind,
        runner: Runner,
        *,
        processing_time: ProcessingTime | None = None,
        breaker: CircuitBreaker | None = None,
        end_process: Callable[[], None] | None = None,
    ) -> None:
        """Make a consumer.

        Args:
            services: the settings, and the services that its parts share.
            kind: the kind of the things that are claimed.
            runner: does the work of claims.
            processing_time: the average time of the processor so far. Unknown when omitted.
            breaker: the circuit breaker. A new one when omitted.
            end_process: ends the process, if a thread cannot be interrupted.

        """
        settings = services.settings
        breaker = breaker or CircuitBreaker(
            settings.min_backoff_seconds * 1000, settings.max_backoff_seconds * 1000, services.jitter
        )
        processing_time = processing_time or ProcessingTime()
        failures = Failures(services, breaker)
        downstream = Downstream(services, breaker)
        threads = _threads(services) if settings.threads > 1 else None
        attempts = Attempts(
            services,
            kind,
            runner,
            failures,
            downstream,
            limit=threads.limit if threads else lambda _, limit: deadline(limit),
            processing_time=processing_time,
            hooks=hooks_of(settings, failures),
        )
        self._services = services
        self._kind = kind
        self._crowd = Crowd(
            services.queues.in_flight,
            limit=settings.in_flight_limit,
            clock=services.clock,
            report=partial(services.telemetry.log_error, "the messages in flight could not be counted"),
        )
        self._messages = MessageHandler(services, attempts, failures, downstream, runner)
        groups = Groups(services, attempts, failures, breaker, processing_time=processing_time)
        in_turn = InTurn(self._messages, groups)
        claims: Driver = groups
        handles: Driver = in_turn
        if settings.max_per_call > 1:
            from intake_ledger.consumer.calls import SharedCalls  # noqa: PLC0415 - as in `_threads`

            shared = cast("SharedRunner", runner)
            claims = SharedCalls(services, kind, shared, attempts, failures, downstream, groups, in_turn)
        if threads is not None:
            from intake_ledger.consumer.threads import ParallelGroups, exit_now  # noqa: PLC0415 - as in `_threads`

            handles = ParallelGroups(services, threads, attempts, failures, in_turn.run, end_process or exit_now)
        self._drivers = (claims, handles)

    def handle(self, event: Mapping[str, Any], context: InvocationContext) -> dict[str, list[dict[str, str]]]:
        """Process one batch. The response names the messages that the event source must not delete.

        Raises:
            ValueError: The event has no records. The function was invoked directly.

        """
        batch = Batch(self._kind.read(event), context, self._services, self._crowd, self._messages.without_copy)
        for driver in self._drivers:
            driver.run(batch)
        self._kind.before_acknowledging(batch)
        if batch.returns.waiting:
            batch.returns.flush()
        if batch.returns.copies:
            batch.wait_in_copies()
        self._services.telemetry.flush()
        return batch.response()


def _threads(services: Services) -> "ProcessorThreads":
    from intake_ledger.consumer.threads import ProcessorThreads  # noqa: PLC0415 - most cold starts need no threads

    return ProcessorThreads(services.settings.threads, services.settings.processing_timeout_seconds)


def misdirected(change: Change, services: Services) -> Reason | None:
    """Why this pipeline cannot act on the change, or None if it can."""
    settings = services.settings
    if change.bucket != settings.bucket:
        text = f"the event is about bucket {change.bucket!r}, this pipeline's is {settings.bucket!r}"
        return Reason(ReasonCode.WRONG_BUCKET, text)
    if change.origin is Origin.CLOUDTRAIL:
        text = f"the event is the call {change.event_name}. {WAY_OUT}"
        return Reason(ReasonCode.UNPARSEABLE_MESSAGE, text) if settings.wants(change.key) else None
    if change.state is None and not change.is_event and settings.ordering is Ordering.EVERY_VERSION:
        text = "the message names no version, which EVERY_VERSION requires: send it with a version ID"
        return Reason(ReasonCode.VERSION_MISSING, text)
    if change.reprocess_id is not None:
        ahead_ms = made_at(change.reprocess_id) - services.clock()
        if ahead_ms > settings.clock_skew_seconds * 1000:
            text = (
                f"reprocess ID {change.reprocess_id} was made {ahead_ms // 1000} s in the future: each later "
                "request for the key would count as served. Send the request again with a new ID"
            )
            return Reason(ReasonCode.REPROCESS_ID_AHEAD, text)
    return None


def as_copy(change: Change, message: Message, row: Row | None) -> Change | None:
    """The change with the fence that a copy without attributes cannot have. None: it is another message."""
    if row is None or row.bare_copy_digest is None or change.rejected_fence is not None:
        return None
    if not row.is_bare_copy(message.first_id, body_digest(change.body)):
        return None
    return replace(change, rejected_fence=row.rejected_fence, bare_copy_id=message.first_id, reported_as_new=False)


def settled_row(ruling: Ruling) -> Row | None:
    """The row of a ruling that needs no work. None: another attempt has it, or nothing may be written about it."""
    row = ruling.row
    return None if row is None or row.status is Status.PROCESSING or ruling.verdict in _UNREAD else row


def later_format_seconds(receives: int) -> float:
    """For how long a message is returned whose row was written by a later release."""
    return min(LATER_FORMAT_SECONDS * receives, MAX_LATER_FORMAT_SECONDS)


@dataclass(slots=True, eq=False)
class MessageHandler:
    """Handles the messages of a batch, one at a time in each thread."""

    services: Services
    attempts: Attempts
    failures: Failures
    downstream: Downstream
    runner: Runner

    def handle(self, message: Message, batch: Batch) -> float | None:
        """Handle one message. Returns the seconds until it is delivered again, or None if it is finished."""
        if (
            message.due
            and (left_ms := message.due - self.services.clock()) > 0
            and not self.downstream.is_asked(message)
        ):
            # A copy that is not due. Its delay of SQS was shorter than its wait.
            message.is_passed_on = True
            return left_ms / 1000
        try:
            if not message.is_plain:
                from intake_ledger.consumer.stops import admits  # noqa: PLC0415 - most messages are plain

                if not admits(message, batch, self.services):
                    return None
            ends = [self._handle_part(part, message, batch) for part in message.parsed]
            delays = [end for end in ends if isinstance(end, int | float)]
            refused = [end for end in ends if isinstance(end, Unparseable)]
            if refused and not delays:
                # Send one copy, when the message comes for the last time.
                reason = self.failures.refuse(merge_unparseable(refused, message.body), message)
                self.services.telemetry.unparseable(reason, message.id)
        except Exception as error:  # noqa: BLE001 - no error may lose the message
            self.services.telemetry.log_error("the message could not be handled", message.id, error)
            if self.failures.is_last_delivery(message):
                text = describe(error, self.services.settings.reasons)
                return self._copied(message, f"it could not be handled for as long as its source keeps it: {text}")
            return self.failures.in_time(message, self.failures.backoff(message.receives))
        if not delays:
            return None
        # A message that renews itself waits as a copy.
        return min(delays) if renews(message, self.services.settings) else self.without_copy(message, min(delays))

    def without_copy(self, message: Message, seconds: float) -> float | None:
        """Return the message by its visibility, or copy it to the dead-letter queue. Returns as `handle`."""
        if self.failures.may_not_return(message, seconds):
            return self._copied(message, "it is not finished, and its source keeps it no longer")
        return self.failures.in_time(message, seconds)

    def _copied(self, message: Message, why: str) -> float | None:
        """Copy a message to the dead-letter queue that its source deletes soon. Returns as `handle`."""
        try:
            letter = Unparseable(why, message.body, code=ReasonCode.CONSUMER_ERROR, about=message.only_change)
            reason = self.failures.refuse(letter, message)
        except Exception as again:  # noqa: BLE001 - no error may lose the message
            self.services.telemetry.log_error("the message could not be copied", message.id, again)
            return self.failures.backoff(1)
        self.services.telemetry.unparseable(reason, message.id)
        return None

    def _handle_part(  # noqa: PLR0911 - one return per reason
        self, parsed: Parsed, message: Message, batch: Batch
    ) -> float | Unparseable | None:
        """Handle one part of a message. Returns the seconds until a retry, or the part if it cannot be handled."""
        if isinstance(parsed, Ignored):
            self.services.telemetry.ignored(parsed.why)
            return None
        if isinstance(parsed, Change):
            of_execution = parsed.execution is not None and not self.runner.concerns(parsed)
            # One that came before may be all that is left of the work that it has woken.
            of_tag = parsed.origin is Origin.TAG and message.receives == 1
            if of_execution or (of_tag and self.services.settings.ready_when is None):
                what = "the end of an execution that is not judged" if of_execution else "a tag that no work waits for"
                self.services.telemetry.ignored(what)
                return None
            if (reason := misdirected(parsed, self.services)) is not None:
                return Unparseable(reason.text, parsed.body, code=reason.code)
        if isinstance(parsed, Unparseable):
            return parsed
        if not self.services.settings.wants(parsed.key):
            self.services.telemetry.filtered_out(parsed)
            return None
        if self.attempts.hooks.leaves_out and any(asked(parsed) for asked in self.attempts.hooks.leaves_out):
            return None
        if parsed.origin in (Origin.PART, Origin.GROUP, Origin.TAG):
            parsed = replace(parsed, waiter=message.waiter, waiter_ids=message.names)
        try:
            return self._handle_change(parsed, message, batch)
        finally:
            if self.downstream.breaker.passed:
                self.downstream.breaker.undecided(parsed.key)

    def _handle_change(self, change: Change, message: Message, batch: Batch) -> float | Unparseable | None:
        answer, hold = batch.ahead.get(message, NOT_AHEAD)
        for _ in range(_REJUDGE_GONE):
            if not isinstance(answer, Ruling):
                reserve = RESERVE_SECONDS if answer is None else CLAIMED_RESERVE_SECONDS
                wait = self._wait_before(change, message, batch, reserve)
                if wait is not None:
                    return self.attempts.release(answer, wait)
            change, answer = self._judged(change, answer, message, batch)
            if isinstance(answer, Claim) and batch.spare_ms(CLAIMED_RESERVE_SECONDS) < 0:
                # The claim itself took long. The processor must have its whole time.
                return self.attempts.release(answer, 0)
            if isinstance(answer, Ruling) and not answer.awaited:
                answer = self.runner.resolve(change, answer, batch.lease_ms)
            if isinstance(answer, Ruling):
                return self._ruled(change, answer, message)
            if batch.returns.waiting:
                # A processor may run for minutes. Messages that failed before must not wait for that.
                batch.returns.flush()
            outcome = self.attempts.run(answer, message, hold)
            message.is_named |= outcome.retry_after is not None and outcome.kind not in _NAMES_NO_MESSAGE
            if not outcome.judge_again:
                return outcome.retry_after
            # The reported state is over. From here on the change only wakes the key.
            change, answer = replace(change, reported_as_new=False), None
        return self.failures.backoff(1)

    def _ruled(self, change: Change, ruling: Ruling, message: Message) -> float | Unparseable | None:
        """Act on a verdict that gives no claim, and let the options act. Returns as `_handle_part`."""
        end = self._without_claim(change, ruling, message)
        if end is None and self.attempts.hooks.settled and (row := settled_row(ruling)) is not None:
            return self.attempts.settled(self.services.ledger.key_of(change), change, row, message)
        return end

    def _judged(
        self, change: Change, answer: Claim | Ruling | None, message: Message, batch: Batch
    ) -> tuple[Change, Claim | Ruling]:
        """The change and the ledger's answer. A copy without attributes gets the fence of its rejection."""
        answer = answer or self._claim(change, batch)
        if isinstance(answer, Ruling) and (copy := as_copy(change, message, answer.row)) is not None:
            return copy, self._claim(copy, batch) if answer.verdict is Verdict.REJECTED else answer
        return change, answer

    def _claim(self, change: Change, batch: Batch) -> Claim | Ruling:
        answer = self.services.ledger.claim(change, lease_ms=batch.lease_ms)
        try:
            self.services.telemetry.decided(change, answer, now=self.services.clock())
        except BaseException:
            if isinstance(answer, Claim):
                self.services.ledger.let_go(answer, ended=False)
            raise
        return answer

    def _wait_before(self, change: Change, message: Message, batch: Batch, reserve_seconds: float) -> float | None:
        """Seconds until an attempt may start; None: now."""
        if batch.spare_ms(reserve_seconds) < 0:
            return 0
        if not self.downstream.breaker.is_open or self.failures.is_given_up(message):
            # SQS would drop a message soon that is given up, so this attempt decides.
            return None
        # Each delivery of a record of a shard looks like the first one.
        first = message.receives == 1 and not (message.in_shard and self.downstream.breaker.has_failed(change.key))
        wait_ms = self.downstream.wait_ms(change.key, first=first)
        return max(wait_ms, self.failures.least_wait_ms(message)) / 1000 if wait_ms else None

    def _without_claim(self, change: Change, ruling: Ruling, message: Message) -> float | Unparseable | None:
        """Act on a verdict that gives no claim. Returns as `_handle_part`."""
        if ruling.verdict is Verdict.BUSY:
            return self._busy(change, ruling, message)
        if (letter := self._own_letter(change, ruling, message)) is not None:
            return letter
        if ruling.verdict is Verdict.LATER_FORMAT:
            why = "a later release wrote its row, and its source keeps it no longer: deploy that release again"
            copied = Unparseable(why, change.body, code=ReasonCode.CONSUMER_ERROR, about=change)
            return copied if self.failures.is_last_delivery(message) else later_format_seconds(message.receives)
        if ruling.unprocessed:
            self.services.telemetry.removed_unprocessed(change, ruling.row)
        if keeps_copy(change, ruling.row, unprocessed=ruling.unprocessed):
            self.failures.keep_copy(change, message, ruling.row)
        if ruling.verdict is Verdict.EXHAUSTED and ruling.row is not None:
            return self._exhaust(change, message, ruling.row)
        return None

    def _own_letter(self, change: Change, ruling: Ruling, message: Message) -> Unparseable | None:
        """The dead letter of a message that was taken for a copy, but is none. None: it is one. The row stays as it is.

        Nothing else has its content.
        """
        row = ruling.row
        if row is None or change.letter_ms is None:
            return None
        if ruling.verdict is Verdict.REJECTED and row.status is Status.REJECTED:
            if is_late_copy(change, row, self.services.clock()):
                return None
            other = "the dead letter has expired" if has_content(row, change) else "this one may have other content"
            why = f"a message with its key and identity was rejected before, and {other}. {OPEN_LETTER}"
            return Unparseable(why, change.body, code=ReasonCode.IDENTITY_REJECTED, about=change)
        # A dead letter without attributes looks like any other message. Only what was rejected has dead letters.
        may_be_letter = message.is_letter or row.redrive_count > 0
        came = "another message with its key and identity came before, and"
        if (change.must_equal or row.unfinished) and content_differs(change, ruling):
            differs = "their fingerprints differ" if change.must_equal else "is not finished, with other content"
            why = f"{came} {differs}: give each message its own identity"
        elif may_be_letter and ruling.verdict is Verdict.DUPLICATE and not has_content(row, change):
            why = f"{came} was processed, with other content: give each message its own identity"
        else:
            return None
        return Unparseable(why, change.body, code=ReasonCode.IDENTITY_COLLIDES, about=change)

    def _busy(self, change: Change, ruling: Ruling, message: Message) -> float | None:
        """Seconds until a busy key is judged again. None: another message comes again for it."""
        row = ruling.row
        # An event of Step Functions only wakes. The message of the claim is in the queue and comes again.
        if ruling.awaited or change.execution is not None:
            return None
        if row is not None:
            message.is_named |= row.waiter_id == message.id
            needless = message.is_needless(row, self.services.clock()) and not may_be_another(change, row)
            if needless and renews(message, self.services.settings):
                # Each death of a worker between a copy and its acknowledgement has left one message more.
                return None
        return self._until_free(row)

    def _exhaust(self, change: Change, message: Message, row: Row) -> float | None:
        after = self.failures.exhaust(change, message, row)
        if after is None:
            return 0
        if after.status is Status.FAILED:
            # The dead-letter queue has not taken the copy.
            return self._until_free(after)
        self.services.telemetry.exhausted(change, after)
        return None

    def _until_free(self, row: Row | None) -> float:
        """The rest of the lease, or of the wait before the next attempt, in seconds."""
        free_at = (row.lease_until or row.retry_at or 0) if row else 0
        rest = (free_at - self.services.clock()) / 1000
        return max(rest, 0.0) + self.services.jitter() * BUSY_JITTER_SECONDS


@dataclass(slots=True, eq=False)
class Groups:
    """Claims new messages together, and writes the commits that a batch holds."""

    services: Services
    attempts: Attempts
    failures: Failures
    breaker: CircuitBreaker
    processing_time: ProcessingTime

    def run(self, batch: Batch) -> None:
        """Claim as many new messages in one request as can surely be started in time.

        A message that was received before is claimed alone, just before it is processed. A neighbour may have ended the
        worker then, and must not use up the attempts of the others.
        """
        fitting = self.processing_time.fits(batch.spare_ms(RESERVE_SECONDS)) * self.services.settings.threads
        if not fitting or self.breaker.is_open:
            return
        fresh = (
            (message, change)
            for message in batch.messages
            if message.receives == 1 and (change := self.admitted(message, batch)) is not None
        )
        changes = dict(islice(fresh, fitting))
        # Threads write their commits alone.
        holds = self.services.settings.commit_together and self.services.settings.threads == 1
        answers = self.claim(changes, batch) if changes else []
        for (message, change), answer in zip(changes.items(), answers, strict=True):
            if answer is not None:
                hold = batch.held.append if holds and isinstance(answer, Claim) else None
                batch.ahead[message] = Ahead(answer, hold)
                self.services.telemetry.decided(change, answer, now=self.services.clock())

    def claim(
        self, changes: Mapping[Message, Change], batch: Batch, *, for_call: bool = False
    ) -> Sequence[Claim | Ruling | None]:
        """Claim these changes in one request. None for each that is claimed alone; see `Ledger.claim_together`."""
        try:
            return self.services.ledger.claim_together([*changes.values()], lease_ms=batch.lease_ms, for_call=for_call)
        except Exception as error:  # noqa: BLE001 - then each is claimed alone
            self.services.telemetry.log_error("a group could not be claimed", ids_of(changes), error)
            return [None] * len(changes)

    def admitted(self, message: Message, batch: Batch) -> Change | None:
        """The only change of the message, if it may be claimed with others. None: it is judged in its turn."""
        change = message.only_change
        if change is None or not self.services.settings.takes(change.key) or misdirected(change, self.services):
            return None
        if change.origin is Origin.TAG and self.services.settings.ready_when is None:
            return None
        if message.is_plain:
            return change
        from intake_ledger.consumer.stops import admits_ahead  # noqa: PLC0415 - most messages are plain

        return change if admits_ahead(message, batch, self.services) else None

    def commit(self, batch: Batch) -> None:
        """Write the held commits. Their messages are finished only then."""
        commits = {held.claim.key: held for held in batch.held}
        batch.held.clear()
        together = [(held.claim, held.commit.identity) for held in commits.values()]
        written = self.services.ledger.commit_together(together)
        for held in [held for key, held in commits.items() if key not in written]:
            message = held.message
            try:
                outcome = self.attempts.commit(held.claim, held.commit, message, held.duration_ms)
            except Exception as error:  # noqa: BLE001 - its lease runs out, and the message comes again
                self.services.telemetry.log_error("a commit could not be written", message.id, error)
                batch.finish(message, self.failures.backoff(message.receives))
                continue
            batch.finish(message, outcome.retry_after)
        for key, row in written.items():
            note = Reason(ReasonCode.RESULT_NOT_KEPT, row.reason) if row.reason else None
            ended = commits[key]
            self.services.telemetry.ended(ended.claim, OutcomeKind.COMMITTED, note, duration_ms=ended.duration_ms)
        if self.attempts.hooks.settled:
            for key, row in written.items():
                claim, message = commits[key].claim, commits[key].message
                wait = self.attempts.settled(key, claim.change, row, message)
                if wait is not None:
                    batch.finish(message, wait)


@dataclass(slots=True, eq=False)
class InTurn:
    """Handles messages one after the other."""

    handler: MessageHandler
    groups: Groups

    def run(self, batch: Batch, messages: Sequence[Message] | None = None) -> None:
        """Handle these messages of the batch, or all, except those that were finished before."""
        for message in batch.messages if messages is None else messages:
            if message in batch.retry_after:
                continue
            if batch.held and not self._may_wait(message, batch):
                self.groups.commit(batch)
            waits = batch.order.wait_behind(message)
            batch.finish(message, self.handler.handle(message, batch) if waits is None else waits)
        if batch.held:
            self.groups.commit(batch)

    def _may_wait(self, message: Message, batch: Batch) -> bool:
        """True if the processor of this message may start before the held commits are written.

        A message that was received before may have ended its worker. Slow processors gain nothing by held commits.
        """
        young = self.handler.services.clock() - batch.held[0].since < HOLD_MS
        holds = batch.ahead.get(message, NOT_AHEAD).hold is not None
        return young and len(batch.held) < BATCH_STATEMENTS and holds
