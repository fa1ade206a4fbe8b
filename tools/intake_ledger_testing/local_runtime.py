"""Delivers messages to workers of a local pipeline: the part of SQS and Lambda."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast, override

from botocore.exceptions import ClientError, ParamValidationError

from intake_ledger.aws import Bucket, Queues
from intake_ledger.consumer import Consumer, Overrun, ProcessingTime, Services
from intake_ledger.kinds import Kind
from intake_ledger.ledger import Ledger, LedgerOptions, LedgerTable, RowHistoryRecord
from intake_ledger.processor import Commit, as_commit
from intake_ledger.protocol import (
    ConsumerSettings,
    InvalidEffectError,
    NotYet,
    ObjectGone,
    Overtaken,
    Policy,
    Unprocessable,
    invalid_effect_of,
)
from intake_ledger.runners.inline import Inline
from intake_ledger_testing import events
from intake_ledger_testing.context import LambdaContext
from intake_ledger_testing.faults import STANDSTILLS, Fault
from intake_ledger_testing.local_settings import START, refuse_conditions
from intake_ledger_testing.memory_dynamodb import MemoryDynamoDB
from intake_ledger_testing.memory_outputs import MemoryOutputs
from intake_ledger_testing.memory_s3 import MemoryS3, Version
from intake_ledger_testing.memory_sqs import DEAD_LETTER_URL, QUEUE_URL, DeadLetter, MemorySQS, QueuedMessage
from intake_ledger_testing.outcome_counter import OutcomeCounter
from intake_ledger_testing.transaction_rules import check_transaction

if TYPE_CHECKING:
    from intake_ledger.observability import Telemetry

BATCH_SIZE = 10
_DUPLICATE_RATE = 0.25
_LOG = logging.getLogger("intake_ledger")
_RETURN_MARGIN_SECONDS = 30
_MAX_STANDSTILLS = 10
"""The largest number of paused workers. Each of them waits for the workers after it."""
_FAULT_RATE = 0.25


class LocalRuntime:
    """The workers and the queue of a local pipeline, with S3, SQS and DynamoDB in memory."""

    calls: list[Any]

    def __init__(
        self,
        processor: Callable[[Any], Any],
        settings: ConsumerSettings,
        *,
        versioned: bool = True,
        dynamodb: Any = None,
        raise_errors: bool = False,
    ) -> None:
        self._processor = processor
        self._now = int(START.timestamp()) * 1000
        self._settings = settings
        self._function_seconds = min(2 * settings.processing_timeout_seconds + 10, 900)
        self._visibility_seconds = self._function_seconds + settings.clock_skew_seconds + _RETURN_MARGIN_SECONDS
        self._s3 = MemoryS3(clock=self._clock, versioned=versioned)
        self._outputs = MemoryOutputs(self._clock)
        self._sqs = MemorySQS(clock=self._clock, visibility_seconds=self._visibility_seconds)
        self._dynamodb: MemoryDynamoDB = _DynamoDB(dynamodb, raise_errors=raise_errors)
        self._raise_errors = raise_errors
        self._table = LedgerTable(cast("Any", self._dynamodb), settings.table)
        # All workers are of one execution environment that has started.
        self._row_history = RowHistoryRecord(settings, self._table, self._clock)
        self._batch_size = BATCH_SIZE
        self._processing_time: ProcessingTime | None = None
        self._faults: list[Fault | None] = []
        self._standing_still = 0
        self._random: random.Random | None = None
        self._owners = 0
        self._events = 0
        self._invalid: list[InvalidEffectError] = []
        """Malformed effects of the present invocation."""
        self.verdicts: Counter[str] = Counter()
        """The ledger's verdicts: `ACCEPTED`, `DUPLICATE`, `STALE`, `BUSY` and so on."""
        self.outcomes: Counter[str] = Counter()
        """The outcomes of accepted claims: `Committed`, `Failed`, `Rejected`, `Fenced`, `VersionGone`, `Waiting`."""
        self.late_writes = 0
        """The number of overtaken workers that reported a possible write after their successor's."""
        self.removed_unprocessed = 0
        """The number of objects that were removed before they were processed."""

    def duplicate(self) -> None:
        """Send each waiting message a second time."""
        for one in list(self._sqs.messages):
            self._sqs.send(one.body, one.attributes)

    def reverse(self) -> None:
        """Reverse the order of the waiting messages."""
        self._sqs.messages.reverse()

    def redrive(self) -> None:
        """Move all messages of the dead-letter queue back to the queue."""
        self._work_queue.redrive()

    def next(self, *faults: Fault | None) -> None:
        """Inject faults into the next calls of the processor. Later calls have no fault.

        While a worker is overtaken, the calls of the other workers take the next faults.

        Args:
            faults: a fault for each call, or None for a call without a fault.

        """
        self._faults.extend(faults)

    def run(self, *, seed: int | None = None, hours: float | None = None) -> None:
        """Deliver messages until the queue is empty.

        Args:
            seed: with a seed, messages come in random order, a quarter of them a second time later, and a quarter of
                the calls has a random `Fault`. The same seed repeats the same run. When omitted, messages come once,
                in the order of the queue.
            hours: the end of the run in hours of the time in the test, with the rest still waiting; no end when
                omitted.

        Raises:
            InvalidEffectError: The return value, `transact` or an output is malformed. No attempt can succeed, so the
                work is rejected, as on AWS: `row` and `dead_letters` show it. `run` again for the other work.

        """
        self._random = None if seed is None else random.Random(seed)  # noqa: S311 - it has to be repeatable
        if self._random is not None:
            for one in self._random.sample(self._sqs.messages, round(len(self._sqs.messages) * _DUPLICATE_RATE)):
                self._sqs.send(one.body, one.attributes)
        until = None if hours is None else self._now + round(hours * 3_600_000)
        outside_event_loop(lambda: self._deliver_all(until))
        self._random = None

    @property
    def dead_letters(self) -> Sequence[DeadLetter]:
        """The messages of the dead-letter queue."""
        return self._work_queue.dead_letters

    @property
    def transacted(self) -> Sequence[Mapping[str, Any]]:
        """The elements that `Commit(transact=...)` has written, in order, each once.

        An element that AWS would refuse is refused. Elements with conditions need the option `dynamodb`.
        """
        return self._dynamodb.transacted

    @property
    def now(self) -> int:
        """The time in epoch milliseconds. It starts on 2026-01-01, and advances while messages wait."""
        return self._now

    @property
    def waiting(self) -> int:
        """The number of messages in the queue."""
        return len(self._sqs.messages)

    @property
    def _work_queue(self) -> MemorySQS:
        """The queue of the processor's work."""
        return self._sqs

    def _make_kind(self) -> Kind:
        """The kind of a new worker."""
        raise NotImplementedError

    def _queues(self) -> list[tuple[MemorySQS, Callable[[], Consumer]]]:
        """The queues, each with a function that makes a new worker of it."""
        return [(self._sqs, self._make_consumer)]

    def _clock(self) -> int:
        return self._now

    def send(self, body: str) -> None:
        """Send a message to the queue.

        Args:
            body: of `intake_ledger_testing.events`, or any other text.

        """
        self._sqs.send(body)

    def _notify(self, key: str, event: str, version_id: str | None, version: Version | None = None) -> None:
        """Send the event of a change. Each event is a second later than the one before."""
        self._events += 1
        self.send(
            events.s3_notification(
                self._settings.bucket,
                key,
                event=event,
                version_id=version_id,
                etag=version.etag if version else None,
                size=len(version.content or b"") if version else None,
                sequencer=f"{self._events:016X}",
                time=datetime.fromtimestamp(self._now / 1000, UTC),
            )
        )
        self._now += 1_000

    def _deliver_all(self, until: int | None = None) -> None:
        queues = self._queues()
        while times := [at for sqs, _ in queues if (at := sqs.next_visible_at()) is not None]:
            if until is not None and min(times) > until:
                self._now = until
                return
            self._now = max(self._now, min(times))
            for sqs, make_consumer in queues:
                if batch := sqs.receive(self._batch_size, self._order):
                    self._invoke(batch, sqs, make_consumer)
            self._now += 1_000

    def _order(self, visible: Sequence[QueuedMessage]) -> Sequence[QueuedMessage]:
        return visible if self._random is None else self._random.sample(visible, len(visible))

    def _make_telemetry(self) -> "Telemetry":
        return OutcomeCounter(self)

    def _make_consumer(self) -> Consumer:
        """A new worker. It has measured no processing time."""
        return self._consumer_of(self._make_kind(), self._settings, self._sqs, self._call)

    def _consumer_of(
        self,
        kind: Kind,
        settings: ConsumerSettings,
        sqs: MemorySQS,
        call: Callable[[Any], Any],
        telemetry: "Telemetry | None" = None,
    ) -> Consumer:
        own = settings is self._settings
        # Only groups are committed together.
        processing_time = self._processing_time or (ProcessingTime(0.0) if settings.commit_together else None)
        services = Services(
            settings,
            _Ledger(
                self._table,
                kind.look,
                options_of(settings),
                clock=self._clock,
                new_owner=self._new_owner,
                row_history=self._row_history if own else RowHistoryRecord(settings, self._table, self._clock),
                guards=kind.guards,
                invalid=self._invalid,
            ),
            self._make_bucket(),
            Queues(lambda: cast("Any", sqs), QUEUE_URL, DEAD_LETTER_URL, shortened=kind.shortened),
            telemetry=telemetry or self._make_telemetry(),
            clock=self._clock,
            jitter=lambda: 0.5,
        )
        return Consumer(services, kind, Inline(call), processing_time=processing_time)

    def _make_bucket(self) -> Bucket:
        return Bucket(lambda: cast("Any", self._s3), self._settings.bucket)

    def _invoke(
        self,
        batch: list[dict[str, Any]],
        sqs: MemorySQS | None = None,
        make_consumer: Callable[[], Consumer] | None = None,
    ) -> None:
        """Run one worker of the queue, and delete the messages that it handled, as Lambda does."""
        consumer, sqs = (make_consumer or self._make_consumer)(), sqs or self._work_queue
        context = LambdaContext(self._function_seconds, clock=lambda: self._now / 1000)
        error: Exception | None = None
        try:
            answer = consumer.handle({"Records": batch}, context)
        except _Killed:
            return
        except _ProcessorFailed as wrapper:
            error = wrapper.error
        if error is not None:
            raise error  # here, so that it keeps its own cause and context
        failed = {one["itemIdentifier"] for one in answer["batchItemFailures"]}
        sqs.delete(one["messageId"] for one in batch if one["messageId"] not in failed)
        if self._invalid:
            # The work is rejected, as on AWS. A test must not have to look for that.
            first = self._invalid[0]
            self._invalid.clear()
            raise first

    def _call(self, change: Any) -> Commit | str | None:
        fault = self._fault()
        if fault is Fault.KILLED_BEFORE_EFFECT:
            raise _Killed
        if fault in STANDSTILLS:
            self._stand_still()
        # A message has no stream, and neither has a removal.
        if fault is Fault.CONNECTION_CUT and getattr(change, "kind", "") == "created":
            self._s3.cut()
        self.calls.append(change)
        returned = self._process(change, fault)
        if fault in (Fault.KILLED_AFTER_EFFECT, Fault.OVERTAKEN_AND_KILLED):
            raise _Killed
        if fault is Fault.TIMED_OUT:
            raise Overrun
        return returned

    def _process(self, change: Any, fault: Fault | None) -> Commit | str | None:
        """Call the processor, and take its error to the test if the test wants that."""
        try:
            returned: Commit | str | None = self._processor(change)
            as_commit(returned)
        except Overtaken:
            if fault is Fault.OVERTAKEN_AND_KILLED:
                raise _Killed from None
            raise
        except (Unprocessable, NotYet, ObjectGone):
            raise
        except Exception as error:
            _LOG.warning("the processor failed for %s, attempt %d", change.key, change.attempt, exc_info=True)
            if self._raise_errors and fault is None:
                raise _ProcessorFailed(error) from error
            if (invalid := invalid_effect_of(error)) is not None:
                self._invalid.append(invalid)
            raise
        return returned

    def _fault(self) -> Fault | None:
        if self._faults and not (self._faults[0] in STANDSTILLS and self._standing_still == _MAX_STANDSTILLS):
            return self._faults.pop(0)
        if self._random is not None and self._random.random() < _FAULT_RATE:
            return self._random.choice([one for one in Fault if one is not Fault.OVERTAKEN_AND_KILLED])
        return None

    def _stand_still(self) -> None:
        """Pause until the message is visible again and other workers have done all work. They take the next faults."""
        seed, self._random = self._random, None
        self._standing_still += 1
        self._now += self._visibility_seconds * 1000
        self._deliver_all()
        self._standing_still -= 1
        self._random = seed

    def _new_owner(self) -> str:
        self._owners += 1
        return f"worker-{self._owners}"


def options_of(settings: ConsumerSettings) -> LedgerOptions:
    """The options of the ledger of a consumer with these settings."""
    policy = Policy.of(settings)
    return LedgerOptions(settings.pipeline, settings.ordering, policy, settings.max_event_age_seconds * 1000)


class _Ledger(Ledger):
    """Keeps the errors of malformed transactions for the test."""

    def __init__(self, *arguments: Any, invalid: list[InvalidEffectError], **others: Any) -> None:
        super().__init__(*arguments, **others)
        self._invalid = invalid

    @override
    def commit(self, *arguments: Any, **others: Any) -> None:
        try:
            super().commit(*arguments, **others)
        except InvalidEffectError as error:
            self._invalid.append(error)
            raise


class _DynamoDB(MemoryDynamoDB):
    """Refuses writes of the processor that AWS would refuse, so that a test that passes here also passes on AWS."""

    def __init__(self, client: Any, *, raise_errors: bool) -> None:
        super().__init__()
        self._client = client
        self._raise_errors = raise_errors

    @override
    def transact_write_items(self, **request: Any) -> dict[str, Any]:
        _, *others = request["TransactItems"]
        try:
            check_transaction(others)
            return super().transact_write_items(**request)
        except (ClientError, ParamValidationError) as error:
            if self._raise_errors and not _lost_claim(error):
                raise _ProcessorFailed(error) from error
            raise

    @override
    def write_others(self, elements: Sequence[Mapping[str, Any]]) -> None:
        if self._client is None:
            refuse_conditions(elements)
            return
        if not elements:
            return
        try:
            self._client.transact_write_items(TransactItems=elements)
        except ClientError as error:
            answer: Any = error.response
            if "CancellationReasons" in answer:
                # In DynamoDB's answer, the ledger's row comes first.
                answer["CancellationReasons"] = [{"Code": "None"}, *answer["CancellationReasons"]]
            raise


class _Killed(KeyboardInterrupt):
    """The worker's process has ended. No code of the worker can catch it."""


class _ProcessorFailed(KeyboardInterrupt):
    """Takes an error of the processor to the test. No code of the worker can catch it."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def outside_event_loop(work: Callable[[], None]) -> None:
    """Run `work` where `asyncio.run` works, as on Lambda: in a thread if the caller is in an event loop."""
    if not _in_event_loop():
        work()
        return
    with ThreadPoolExecutor(1) as thread:
        thread.submit(copy_context().run, work).result()


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _lost_claim(error: ClientError | ParamValidationError) -> bool:
    """True if the ledger's own condition did not hold: another worker has the claim."""
    answer: Any = getattr(error, "response", {})
    reasons = answer.get("CancellationReasons", [])
    return bool(reasons) and reasons[0]["Code"] != "None"
