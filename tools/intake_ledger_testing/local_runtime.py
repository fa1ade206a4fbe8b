"""Delivers messages to workers of any kind: the part of SQS, Lambda, Step Functions and of a worker's process."""

import asyncio
import io
import json
import logging
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import wraps
from typing import TYPE_CHECKING, Any, cast, override

from botocore.exceptions import ClientError, ParamValidationError

from intake_ledger.consumer.batch import ProcessingTime
from intake_ledger.consumer.composition import Platform, make_parts, make_runner
from intake_ledger.consumer.consumer import Consumer
from intake_ledger.consumer.deadline import Overrun
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.row_history import RowHistoryRecord
from intake_ledger.processor.object_change import as_commit
from intake_ledger.protocol.errors import InvalidEffectError, NotYet, ObjectGone, Overtaken, Unprocessable
from intake_ledger.protocol.handover import invalid_effect_of
from intake_ledger.protocol.row import Row, rejects_place
from intake_ledger.protocol.settings import ConsumerSettings, settings_from
from intake_ledger.runners.calls import is_failure, results_of
from intake_ledger.worker.worker import make_worker
from intake_ledger_testing.context import LambdaContext
from intake_ledger_testing.local_options import named_by_options
from intake_ledger_testing.local_settings import (
    REJECTS,
    START,
    LocalClock,
    check_processor,
    interrupted,
    is_programming_error,
    refuse_conditions,
)
from intake_ledger_testing.local_worker import STANDSTILLS, Fault, Killed, LocalConnection, LocalRunner, LocalWorker
from intake_ledger_testing.memory_durable_functions import (
    MemoryDurableFunctions,
)
from intake_ledger_testing.memory_dynamodb import MemoryDynamoDB
from intake_ledger_testing.memory_outputs import MemoryOutputs
from intake_ledger_testing.memory_s3 import MemoryS3
from intake_ledger_testing.memory_sqs import RETENTION_SECONDS, DeadLetter, MemorySQS, QueuedMessage
from intake_ledger_testing.memory_step_functions import MemoryExecution, MemoryStepFunctions
from intake_ledger_testing.outcome_counter import OutcomeCounter
from intake_ledger_testing.transaction_rules import check_transaction

if TYPE_CHECKING:
    from intake_ledger.observability.telemetry import Telemetry

BATCH_SIZE = 10
_LOG = logging.getLogger("intake_ledger")
_RETURN_MARGIN_SECONDS = 30
_MAX_STANDSTILLS = 10
"""The largest number of paused workers. Each of them waits for the workers after it."""
_FAULT_RATE, _DUPLICATE_RATE = 0.25, 0.25
_DURABLE_BOTOCORE = "1.42.1"
"""The first release with durable functions. That of the test does not matter."""


class LocalRuntime:
    """The workers and the queue of a local consumer of any kind, with its own time and AWS in memory."""

    calls: list[Any]

    def __init__(
        self,
        processor: Callable[[Any], Any],
        options: Mapping[str, Any],
        environment: Mapping[str, str],
        *,
        retention_seconds: float = RETENTION_SECONDS,
        execution_minutes: float = 1,
    ) -> None:
        """Make the runtime of a kind.

        Args:
            processor: the function of the test.
            options: of the kind, by name; see `local_options`.
            environment: the variables that the construct would set.
            retention_seconds: of the source; that of SQS when omitted.
            execution_minutes: the time of each execution; a minute when omitted.

        Raises:
            TypeError: There is no such option, or the processor is not a function with one argument.
            ValueError: The function refuses the variables.

        """
        self._runner: LocalRunner = options.get("runner", LocalRunner.PROCESS)
        if self._runner is LocalRunner.PROCESS:
            check_processor(processor, type(self).__name__)
        self._processor = interrupted(processor, options.get("processing_timeout", 60))
        self.clock = LocalClock(int(START.timestamp()) * 1000)
        """The time. Set `clock.now`, or call `clock.advance`, in milliseconds."""
        self._environment, self._read = dict(environment), dict[str, str]()
        with named_by_options(options):
            settings = self._settings
        self._on_worker = options.get("worker", False)
        self._execution_ms = round(execution_minutes * 60_000)
        self._function_seconds = min(2 * settings.processing_timeout_seconds + 10, 900)
        self._visibility_seconds = self._function_seconds + settings.clock_skew_seconds + _RETURN_MARGIN_SECONDS
        self._s3 = MemoryS3(clock=self.clock, versioned=options.get("versioned", True))
        self._outputs = MemoryOutputs(self.clock)
        self._retention_seconds = retention_seconds
        self._sqs = self._make_queue()
        durable = self._runner is LocalRunner.DURABLE_FUNCTION
        self.executions: MemoryStepFunctions | MemoryDurableFunctions = (
            MemoryDurableFunctions(clock=self.clock) if durable else MemoryStepFunctions(clock=self.clock)
        )
        """The executions of a state machine, or of a durable function."""
        self.executions.stopped = self._stopped
        self._raise_errors = raise_errors = options.get("raise_errors", False)
        self._dynamodb: MemoryDynamoDB = _DynamoDB(
            options.get("dynamodb"), raise_errors=raise_errors, own=settings.table
        )
        self._elsewhere = _Elsewhere(self)
        self._table = LedgerTable(cast("Any", self._dynamodb), settings.table)
        self._row_history = RowHistoryRecord(settings, self._table, self.clock)
        self._batch_size = max(BATCH_SIZE, settings.max_per_call)
        self._processing_time: ProcessingTime | None = None
        self._faults: list[Fault | None] = []
        self._standing_still = 0
        self._random: random.Random | None = None
        self._owners = 0
        self._invalid: list[InvalidEffectError] = []
        """Malformed effects of the present invocation."""
        self._due: dict[str, int] = {}
        """The end of each execution that runs, in epoch milliseconds."""
        self.requests: list[str] = []
        """The operations that workers have requested, in order."""
        self._death: tuple[int, bool] | None = None
        self.verdicts: Counter[str] = Counter()
        """The ledger's verdicts: `ACCEPTED`, `DUPLICATE`, `STALE`, `BUSY` and so on."""
        self.outcomes: Counter[str] = Counter()
        """The outcomes of accepted claims: `Committed`, `Failed`, `Rejected`, `Fenced`, `VersionGone`, `Waiting`."""
        self.late_writes = 0
        """The number of overtaken workers that reported a possible write after their successor's."""
        self.removed_unprocessed = 0
        """The number of objects that were removed before they were processed."""
        with named_by_options(options):
            self._make_worker(OutcomeCounter(self))

    # --- what tests do

    def send(self, body: str) -> None:
        """Send a message to the queue.

        Args:
            body: of the message.

        """
        self._sqs.send(body)

    def duplicate(self) -> None:
        """Send each waiting message a second time."""
        for one in list(self._sqs.messages):
            self._sqs.send(one.body, one.attributes, group=one.group)

    def reverse(self) -> None:
        """Reverse the order of the waiting messages. Messages of a FIFO group keep their order."""
        self._sqs.reverse()

    def lose(self) -> None:
        """Lose all waiting messages."""
        self._sqs.purge()

    def redrive(self) -> None:
        """Move all messages of the dead-letter queue back to the queue."""
        self._sqs.redrive()

    def next(self, *faults: Fault | None) -> None:
        """Inject faults into the next calls of the processor. Later calls have no fault.

        While a worker is overtaken, the calls of the other workers take the next faults.

        Args:
            faults: a fault for each call, or None for a call without a fault.

        """
        self._faults.extend(faults)

    def run(self, *, seed: int | None = None, hours: float | None = None) -> None:
        """Deliver messages until all are finished. An execution takes a minute.

        Args:
            seed: with a seed, messages come in random order, a quarter of them a second time later, and a quarter of
                the calls has a random `Fault`. Groups of a FIFO queue and streams keep their order, and records of a
                stream come once. The same seed repeats the same run. When omitted, messages come once, in the order of
                the queue.
            hours: of the local time, after which messages may still wait; until all are finished when omitted.

        Raises:
            NameError: The processor has a mistake that no retry repairs. Also ImportError, a TypeError of a call whose
                arguments do not fit, and an AttributeError of a module or of the change.
            InvalidEffectError: The return value, `transact` or an output is malformed. No attempt can succeed, so the
                change is rejected, as on AWS: `row` and `dead_letters` show it. `run` again for the other changes.

        """
        self._random = None if seed is None else random.Random(seed)  # noqa: S311 - it has to be repeatable
        if self._random is not None:
            for one in self._random.sample(self._sqs.messages, round(len(self._sqs.messages) * _DUPLICATE_RATE)):
                self._sqs.send(one.body, one.attributes, group=one.group)
        until = None if hours is None else self.now + round(hours * 3_600_000)
        outside_event_loop(lambda: self._deliver_all(until))
        self._random = None

    def kill(self, request: int, *, after: bool = False) -> None:
        """Let the worker die that sends the request with this number. The first one from now on has the number 1.

        To kill a worker everywhere, run a test again and again with the numbers 1, 2 and so on, until `will_die` is
        true at its end: it has fewer requests.

        Args:
            request: the number.
            after: true: AWS has carried the request out; before the request when omitted.

        """
        self._death = len(self.requests) + request, after

    @property
    def will_die(self) -> bool:
        """True if the request of `kill` was not sent yet."""
        return self._death is not None

    @property
    def dead_letters(self) -> Sequence[DeadLetter]:
        """The messages of the dead-letter queue."""
        return self._sqs.dead_letters

    @property
    def transacted(self) -> Sequence[Mapping[str, Any]]:
        """The elements that `Commit(transact=...)` has written, in order, each once.

        An element that AWS would refuse is refused. Elements with conditions need the option `dynamodb`.
        """
        return self._dynamodb.transacted

    @property
    def now(self) -> int:
        """The time in epoch milliseconds. It starts on 2026-01-01, and advances while messages wait."""
        return self.clock.now

    @property
    def waiting(self) -> int:
        """The number of messages that are not finished."""
        return len(self._sqs.messages)

    @property
    def expired(self) -> int:
        """The number of messages that their source deleted before they were finished."""
        return len(self._sqs.expired)

    def running(self) -> list[MemoryExecution]:
        """The executions that run."""
        return [one for one in self.executions.executions.values() if one.status == "RUNNING"]

    def end(self, execution: MemoryExecution) -> None:
        """Call the processor with the input of an execution, and end it with the answer.

        Args:
            execution: that runs.

        """
        try:
            output = self._processor(execution.given)
        except Exception as error:
            _LOG.warning("the execution %s failed", execution.name, exc_info=True)
            if self._raise_errors:
                raise
            body = self.executions.end(execution.name, "FAILED", error=type(error).__name__)
        else:
            body = self.executions.end(execution.name, output=output)
        if body is not None:
            self._ended(body)

    def _stopped(self, execution: MemoryExecution) -> None:
        """The consumer has stopped an execution."""
        if isinstance(self.executions, MemoryStepFunctions):
            self._ended(self.executions.event(execution.name))

    def new_worker(self) -> LocalWorker:
        """Make a worker, or an execution environment of the function."""
        return self._make_worker(self._make_telemetry())

    def _make_worker(self, telemetry: "Telemetry") -> LocalWorker:
        """Make it as the deployed function or a worker's process does, from the variables."""
        connection = LocalConnection(self._dies)
        environment, platform = self._variables(), _Memory(self, connection, telemetry)
        if self._on_worker:
            poller = make_worker(environment, platform)
            worker = LocalWorker(poller._consumer, connection, poller)  # noqa: SLF001 - it has no door
        else:
            parts = make_parts(environment, platform=platform)
            # Only groups are committed together.
            time = self._processing_time or (ProcessingTime(0.0) if parts.services.settings.commit_together else None)
            runner = make_runner(environment, parts.services, platform=platform)
            worker = LocalWorker(Consumer(parts.services, parts.kind, runner, processing_time=time), connection, None)
        ledger: Any = worker.services.ledger
        ledger.commit = self._noting_invalid(ledger.commit)
        return worker

    def turn(self, worker: LocalWorker | None = None) -> int:
        """Let a worker handle the messages that are visible, ten at most.

        Args:
            worker: as `new_worker` has made it; a new one when omitted.

        Returns:
            the number of messages.

        """
        worker = worker or self.new_worker()
        try:
            return self._turn(worker)
        except Killed:
            worker.connection.dead = True
            return 1
        except _ProcessorFailed as wrapper:
            error = wrapper.error
        raise error  # here, so that it keeps its own cause and context

    def _read_rejects(self, key: str, version: str | None = None) -> list[dict[str, Any]]:
        """Return the rows of the output with the rejected rows of an object or a set."""
        content = self._outputs.read(*rejects_place(REJECTS, key, version)) or b""
        return [json.loads(line) for line in content.splitlines()]

    # --- what kinds of work override

    def _use(self, other: "LocalRuntime") -> None:
        """Share bucket, table and clock with another one."""
        self.clock, self._s3, self._outputs = other.clock, other._s3, other._outputs  # noqa: SLF001 - another one of this class
        self._dynamodb, self._table = other._dynamodb, other._table  # noqa: SLF001 - as above
        self._row_history = RowHistoryRecord(self._settings, self._table, self.clock)
        self._sqs = self._make_queue()

    @property
    def _settings(self) -> ConsumerSettings:
        if self._read != self._environment:
            self._known_settings = settings_from(ConsumerSettings, self._environment)
            self._read = dict(self._environment)
        return self._known_settings

    def _variables(self) -> dict[str, str]:
        """The variables of the consumer."""
        return self._environment

    def _queues(self) -> Any:
        """The client of all queues to which workers send messages."""
        return self._sqs

    def _make_queue(self) -> MemorySQS:
        settings = self._settings
        return MemorySQS(
            clock=self.clock,
            visibility_seconds=self._visibility_seconds,
            queue_url=settings.queue_url,
            dead_letter_url=settings.dlq_url,
            retention_seconds=self._retention_seconds,
            fifo=settings.is_fifo,
        )

    def _make_telemetry(self) -> "Telemetry":
        return OutcomeCounter(self)

    def _ended(self, body: str) -> None:
        """EventBridge sends this event about an execution that has ended."""
        self.send(body)

    def _next_at(self) -> int | None:
        """The time of the next delivery, in epoch milliseconds."""
        return self._sqs.next_visible_at()

    # --- the rest

    def _deliver_all(self, until: int | None = None) -> None:
        """Handle messages and end executions, until there are none, or until this time."""
        while True:
            for one in self.running():
                self._due.setdefault(one.name, self.clock.now + self._execution_ms)
            running = self.running()
            times = [self._due[one.name] for one in running]
            if (visible_at := self._next_at()) is not None:
                times.append(visible_at)
            if not times:
                return
            if until is not None and min(times) > until:
                self.clock.now = until
                return
            self.clock.now = max(self.clock.now, min(times))
            for one in running:
                if self._due[one.name] <= self.clock.now:
                    self.end(one)
            self._deliver()
            self.clock.now += 1_000

    def _deliver(self) -> None:
        """Let a worker handle the next batch."""
        self.turn()
        self._raise_invalid()

    def _turn(self, worker: LocalWorker) -> int:
        if worker.poller is not None:
            records = worker.poller._receive()  # noqa: SLF001 - as `run` does
            if records:
                worker.poller._handle(records)  # noqa: SLF001 - likewise
            return len(records)
        batch = self._sqs.receive(self._batch_size, self._order)
        if batch:
            failed = self._handled(worker, batch)
            self._sqs.delete(one["messageId"] for one in batch if one["messageId"] not in failed)
        return len(batch)

    def _handled(self, worker: LocalWorker, batch: Sequence[dict[str, Any]]) -> list[str]:
        """Invoke the function. Returns the ids of the messages that are to be delivered again."""
        context = LambdaContext(self._function_seconds, clock=lambda: self.clock.now / 1000)
        answer = worker.consumer.handle({"Records": batch}, context)
        return [one["itemIdentifier"] for one in answer["batchItemFailures"]]

    def _order(self, visible: Sequence[QueuedMessage]) -> Sequence[QueuedMessage]:
        return visible if self._random is None else self._random.sample(visible, len(visible))

    def _dies(self, operation: str) -> bool:
        if operation:
            self.requests.append(operation)
        dies = self._death == (len(self.requests), not operation)
        if dies:
            self._death = None
        return dies

    def _sleep(self, seconds: float) -> None:
        self.clock.advance(round(seconds * 1000))

    def _noting_invalid(self, commit: Callable[..., Row]) -> Callable[..., Row]:
        """Keep the errors of malformed transactions for the test."""

        @wraps(commit)
        def noting(*arguments: Any, **others: Any) -> Row:
            try:
                return commit(*arguments, **others)
            except InvalidEffectError as error:
                self._invalid.append(error)
                raise

        return noting

    def _raise_invalid(self) -> None:
        """Raise the first malformed effect. Its change is rejected, as on AWS, and a test must not have to look."""
        if self._invalid:
            first = self._invalid[0]
            self._invalid.clear()
            raise first

    def _call(self, change: Any) -> Any:
        fault = self._fault()
        if fault is Fault.KILLED_BEFORE_EFFECT:
            raise Killed
        if fault in STANDSTILLS:
            self._stand_still()
        given = change if isinstance(change, list) else [change]
        if fault is Fault.CONNECTION_CUT and any(getattr(one, "kind", "") == "created" for one in given):
            self._s3.cut()
        self.calls.append(change)
        returned = self._process(change, fault)
        if fault in (Fault.KILLED_AFTER_EFFECT, Fault.OVERTAKEN_AND_KILLED):
            raise Killed
        if fault is Fault.TIMED_OUT:
            raise Overrun
        return returned

    def _process(self, change: Any, fault: Fault | None) -> Any:
        """Call the processor, and take its error to the test if the test wants that."""
        try:
            returned = self._processor(change)
            self._check_returned(change, returned)
        except Overtaken:
            if fault is Fault.OVERTAKEN_AND_KILLED:
                raise Killed from None
            raise
        except (Unprocessable, NotYet, ObjectGone):
            raise
        except Exception as error:
            _LOG.warning("the processor failed for %s", _name_of(change), exc_info=True)
            if fault is None and (self._raise_errors or is_programming_error(error, change)):
                raise _ProcessorFailed(error) from error
            if (invalid := invalid_effect_of(error)) is not None:
                self._invalid.append(invalid)
            raise
        return returned

    def _check_returned(self, change: Any, returned: object) -> None:
        """Raise the error of a malformed return value. Of several results, keep the errors: the others stand."""
        if not isinstance(change, list):
            if self._runner is LocalRunner.PROCESS:
                as_commit(returned)
            return
        for result in results_of(returned, change):
            try:
                if not is_failure(result):
                    as_commit(result)
            except InvalidEffectError as invalid:
                self._invalid.append(invalid)

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
        self.clock.now += self._visibility_seconds * 1000
        self._deliver_all()
        self._standing_still -= 1
        self._random = seed

    def _new_owner(self) -> str:
        self._owners += 1
        return f"worker-{self._owners}"


def _name_of(change: Any) -> str:
    """The key and the attempt of a change, of its request, or of each change of a list."""
    if isinstance(change, list):
        return "; ".join(map(_name_of, change))
    key, attempt = (change["key"], change["attempt"]) if isinstance(change, dict) else (change.key, change.attempt)
    return f"{key}, attempt {attempt}"


class _Elsewhere:
    """The clients of Lambda and Step Functions, for a processor elsewhere."""

    def __init__(self, runtime: LocalRuntime) -> None:
        self._runtime = runtime

    def invoke(self, **request: Any) -> dict[str, Any]:
        if isinstance(executions := self._runtime.executions, MemoryDurableFunctions):
            return executions.invoke(**request)
        try:
            answer = self._runtime._call(json.loads(request["Payload"]))  # noqa: SLF001 - of this module
        except Exception as error:  # noqa: BLE001 - Lambda reports each error in this way
            failure = {"errorType": type(error).__name__, "errorMessage": str(error)}
            return {"FunctionError": "Unhandled", "Payload": io.BytesIO(json.dumps(failure).encode())}
        return {"Payload": io.BytesIO(json.dumps(answer).encode())}

    def __getattr__(self, name: str) -> Callable[..., dict[str, Any]]:
        return getattr(self._runtime.executions, name)  # type: ignore[no-any-return]


class _Memory(Platform):
    """AWS in memory, as one worker reaches it."""

    def __init__(self, runtime: LocalRuntime, connection: LocalConnection, telemetry: "Telemetry") -> None:
        self._runtime, self._telemetry, self._reached = runtime, telemetry, connection.client
        self.clock, self.sleep, self.jitter = runtime.clock, runtime._sleep, lambda: 0.5  # noqa: SLF001 - of this module
        self.new_owner = runtime._new_owner  # noqa: SLF001 - as above

    @override
    def dynamodb(self, pool: int = 0) -> Any:
        return self._reached(self._runtime._dynamodb)  # noqa: SLF001 - as above

    @override
    def s3(self, pool: int = 0) -> Any:
        return self._reached(self._runtime._s3)  # noqa: SLF001 - as above

    @override
    def outputs(self, s3: object) -> Callable[[], Any]:
        return lambda: self._reached(self._runtime._outputs)  # noqa: SLF001 - as above

    @override
    def client(self, service: str, pool: int = 0, **options: Any) -> Any:
        runtime = self._runtime
        return self._reached(runtime._queues() if service == "sqs" else runtime._elsewhere)  # noqa: SLF001 - as above

    @override
    def botocore_release(self) -> str:
        return _DURABLE_BOTOCORE

    @override
    def processor(self, settings: ConsumerSettings) -> Callable[[Any], Any]:
        return self._runtime._call  # noqa: SLF001 - as above

    @override
    def telemetry(self, kind: object, settings: ConsumerSettings) -> "Telemetry":
        return self._telemetry

    @override
    def row_history(self, settings: ConsumerSettings, table: LedgerTable) -> RowHistoryRecord:
        """All workers are of one execution environment that has started."""
        return self._runtime._row_history  # noqa: SLF001 - as above


class _DynamoDB(MemoryDynamoDB):
    """Refuses writes of the processor that AWS would refuse, so that a test that passes here also passes on AWS."""

    def __init__(self, client: Any, *, raise_errors: bool, own: str) -> None:
        super().__init__()
        self._client = client
        self._own = own
        self._raise_errors = raise_errors

    @override
    def transact_write_items(self, **request: Any) -> dict[str, Any]:
        others = [
            element
            for element in request["TransactItems"]
            if "Update" not in element or element["Update"]["TableName"] != self._own
        ]
        try:
            if others:
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
