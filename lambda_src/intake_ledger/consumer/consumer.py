"""Handle the messages of one SQS batch, in turn or in threads."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from intake_ledger.aws import LambdaContext
from intake_ledger.consumer.attempt import Attempts
from intake_ledger.consumer.batch import Batch, ProcessingTime
from intake_ledger.consumer.circuit_breaker import CircuitBreaker
from intake_ledger.consumer.deadline import deadline
from intake_ledger.consumer.downstream import Downstream
from intake_ledger.consumer.failures import Failures
from intake_ledger.consumer.groups import Groups
from intake_ledger.consumer.message_handler import MessageHandler
from intake_ledger.consumer.object_call import ObjectCall, ProcessorCall
from intake_ledger.consumer.services import Services
from intake_ledger.events import Message, read_batch
from intake_ledger.processor import Processor

if TYPE_CHECKING:
    from intake_ledger.consumer.executions import Executions
    from intake_ledger.consumer.set_wakes import SetWakes
    from intake_ledger.consumer.threads import ParallelGroups, ProcessorThreads


class Consumer:
    """Handles batches of SQS messages, in turn or in as many threads as the setting `concurrency` says."""

    def __init__(
        self,
        services: Services,
        processor: Processor,
        *,
        call: ProcessorCall | None = None,
        executions: "Executions | None" = None,
        sets: "SetWakes | None" = None,
        processing_time: ProcessingTime | None = None,
        breaker: CircuitBreaker | None = None,
        end_process: Callable[[], None] | None = None,
    ) -> None:
        """Make a consumer.

        Args:
            services: the settings, and the services that its parts share.
            processor: the function that is called for each claim.
            call: calls the processor; as for objects when omitted.
            executions: starts and ends executions, if a state machine is the processor.
            sets: wakes the sets of files that have the pipeline's objects as parts. There are none when omitted.
            processing_time: the average time of the processor so far. Unknown when omitted.
            breaker: the circuit breaker. A new one when omitted.
            end_process: ends the process, if a thread cannot be interrupted.

        """
        settings = services.settings
        call = executions or call or ObjectCall(services, processor)
        breaker = breaker or CircuitBreaker(
            settings.min_backoff_seconds * 1000, settings.max_backoff_seconds * 1000, services.jitter
        )
        processing_time = processing_time or ProcessingTime()
        failures = Failures(services, breaker)
        downstream = Downstream(services, breaker)
        self._threads = _threads(services) if settings.threads > 1 else None
        attempts = Attempts(
            services,
            call if sets is None else sets.around(call),
            failures,
            downstream,
            guard=self._threads.guard if self._threads else lambda _, limit: deadline(limit),
            processing_time=processing_time,
        )
        self._services = services
        self._sets = sets
        self._groups = Groups(services, attempts, failures, breaker, processing_time=processing_time)
        self._messages = MessageHandler(services, attempts, failures, downstream, executions)
        self._parallel: ParallelGroups | None = None
        if self._threads is not None:
            from intake_ledger.consumer import threads  # noqa: PLC0415 - as in `_threads`

            self._parallel = threads.ParallelGroups(
                services,
                self._threads,
                attempts,
                failures=failures,
                end_process=end_process or threads.exit_now,
            )

    def handle(self, event: Mapping[str, Any], context: LambdaContext) -> dict[str, list[dict[str, str]]]:
        """Process one batch. The response names the messages that Lambda must not delete."""
        batch = Batch(read_batch(event), context, self._services)
        self._groups.claim(batch)
        if self._parallel is None:
            self._in_turn(batch.messages, batch)
        else:
            self._parallel.run(batch, self._in_turn)
        if self._sets is not None:
            self._sets.before_acknowledging(batch)
        batch.returns.flush()
        self._services.telemetry.flush()
        return batch.response()

    def _in_turn(self, messages: Sequence[Message], batch: Batch) -> None:
        """Handle these messages of the batch, one after the other."""
        for message in messages:
            if batch.held and not self._groups.may_wait(message, batch):
                self._groups.commit(batch)
            batch.finish(message, self._messages.handle(message, batch))
        if batch.held:
            self._groups.commit(batch)


def _threads(services: Services) -> "ProcessorThreads":
    from intake_ledger.consumer.threads import ProcessorThreads  # noqa: PLC0415 - most cold starts need no threads

    return ProcessorThreads(services.settings.threads, services.settings.processing_timeout_seconds)
