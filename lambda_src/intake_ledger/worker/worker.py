"""Poll the queue, handle each batch, and delete the messages that are finished."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, wraps
from threading import Event
from typing import TYPE_CHECKING, Any

from intake_ledger.aws import POOL, make_client
from intake_ledger.consumer import Consumer, Services, make_processor, make_services, make_sets
from intake_ledger.consumer.threads import exit_now
from intake_ledger.processor import Commit, ObjectChange, Processor
from intake_ledger.protocol import (
    WorkerSettings,
    consumer_settings,
    lease_length,
    refuse_other_kinds,
    worker_settings,
)
from intake_ledger.worker.heartbeat import Extensions, Heartbeat
from intake_ledger.worker.held import HeldLedger, HeldQueues

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

    from intake_ledger.consumer.set_wakes import SetWakes

MAX_BATCH = 10
"""SQS gives at most ten messages in one request."""
BATCH_SECONDS = 900
"""The messages of a batch wait for one another for about this time at most. Other workers may have them instead."""
GRACE_SECONDS = 30
"""A processor is interrupted at its limit, and has this time to end. Then the process ends."""
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 1.0, 60.0
"""The waits after requests to SQS that failed."""
_PLENTY_MS = 600_000
"""A worker has no timeout. Claims that are made together have to fit into this time and the time of one processor."""


class Worker:
    """Handles messages of the pipeline's queue until `stop`. Call `run` in the main thread.

    Only the main thread can interrupt a processor that overruns its limit.
    """

    def __init__(
        self,
        services: Services,
        processor: Processor,
        settings: WorkerSettings,
        heartbeat: Heartbeat,
        *,
        make_sqs: "Callable[[], SQSClient]",
        sets: "SetWakes | None" = None,
    ) -> None:
        self._services = services
        self._settings = settings
        self._heartbeat = heartbeat
        self._make_sqs = make_sqs
        self._stopping = Event()
        self._consumer = Consumer(services, _watched(processor, heartbeat), sets=sets)

    def run(self) -> None:
        """Handle messages until `stop`. Returns when the record in work is finished and the others are returned."""
        self._heartbeat.start()
        wait = _FIRST_WAIT_SECONDS
        while not self._stopping.is_set():
            try:
                messages = self._receive()
            except Exception as error:  # noqa: BLE001 - a worker outlives an outage of SQS
                self._services.telemetry.log_error("no messages could be received", "", error)
                self._stopping.wait(wait)
                wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
                continue
            wait = _FIRST_WAIT_SECONDS
            if messages:
                self._handle(messages)
        self._heartbeat.stop()

    def stop(self) -> None:
        """Finish the record in work, return the others to the queue, and end `run`. It may be called by a signal."""
        self._stopping.set()

    def get_remaining_time_in_millis(self) -> int:
        """The time left for further records, as Lambda's context gives it. After `stop` there is none."""
        return 0 if self._stopping.is_set() else self._services.settings.processing_timeout_seconds * 1000 + _PLENTY_MS

    def _receive(self) -> Sequence[Mapping[str, Any]]:
        """Receive messages. The wait for them is one long poll."""
        answer = self._sqs.receive_message(
            QueueUrl=self._services.settings.queue_url,
            MaxNumberOfMessages=batch_size(self._services.settings.processing_timeout_seconds),
            WaitTimeSeconds=self._settings.poll_seconds,
            VisibilityTimeout=self._settings.hold_seconds,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        return [as_record(message) for message in answer.get("Messages", ())]

    def _handle(self, records: Sequence[Mapping[str, Any]]) -> None:
        with self._heartbeat.batch([record["receiptHandle"] for record in records]):
            try:
                response = self._consumer.handle({"Records": records}, self)
            except Exception as error:  # noqa: BLE001 - nothing is deleted, so nothing is lost
                self._services.telemetry.log_error("the batch could not be handled", _ids(records), error)
                return
        returned = {failure["itemIdentifier"] for failure in response["batchItemFailures"]}
        done = [record["receiptHandle"] for record in records if record["messageId"] not in returned]
        try:
            self._services.queues.delete(done)
        except Exception as error:  # noqa: BLE001 - they come again, as duplicates
            self._services.telemetry.log_error("messages could not be deleted", _ids(records), error)

    @cached_property
    def _sqs(self) -> "SQSClient":
        return self._make_sqs()


def batch_size(processing_timeout_seconds: int) -> int:
    """The number of messages that a worker takes at once, 1 to 10."""
    return max(1, min(MAX_BATCH, BATCH_SECONDS // processing_timeout_seconds))


def as_record(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message of `ReceiveMessage` in the form in which Lambda gives it to a function."""
    attributes = message.get("MessageAttributes", {})
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message.get("Attributes", {}),
        "messageAttributes": {
            name: {"stringValue": value.get("StringValue"), "dataType": value.get("DataType")}
            for name, value in attributes.items()
        },
    }


def make_worker(environment: Mapping[str, str]) -> Worker:
    """Make the worker that these environment variables describe.

    Raises:
        SettingsError: A variable is missing or malformed, or belongs to another kind of work.

    """
    refuse_other_kinds(environment, "a worker")
    consumer, settings = consumer_settings(environment), worker_settings(environment)
    services = make_services(consumer, ledger_class=HeldLedger, queues_class=HeldQueues)
    heartbeat = make_heartbeat(services, settings)
    return Worker(
        services,
        make_processor(consumer),
        settings,
        heartbeat,
        # Longer than a long poll.
        make_sqs=lambda: make_client("sqs", POOL, read_timeout=settings.poll_seconds + 10),
        sets=make_sets(environment, services),
    )


def make_heartbeat(services: Services, settings: WorkerSettings) -> Heartbeat:
    """Make the heartbeat of these services, whose ledger and queues have to be of the classes in `held`."""
    ledger, queues, consumer = services.ledger, services.queues, services.settings
    if not isinstance(ledger, HeldLedger) or not isinstance(queues, HeldQueues):
        raise TypeError("a worker needs a HeldLedger and HeldQueues")
    telemetry = services.telemetry
    extensions = Extensions(
        lease=ledger.extend_lease,
        visibility=lambda receipts: queues.hide(receipts, settings.hold_seconds),
        report=lambda text, error: telemetry.log_error(text, "", error),
        end_process=exit_now,
    )
    heartbeat = Heartbeat(
        extensions,
        hold_seconds=settings.hold_seconds,
        limit_seconds=consumer.processing_timeout_seconds + GRACE_SECONDS,
        clock=time.monotonic,
    )
    ledger.heartbeat = queues.heartbeat = heartbeat
    ledger.lease_ms = lease_length(settings.hold_seconds, consumer.clock_skew_seconds) * 1000
    return heartbeat


def _watched(processor: Processor, heartbeat: Heartbeat) -> Processor:
    """The processor, watched by the heartbeat."""

    @wraps(processor)
    def watched(change: ObjectChange) -> Commit | str | None:
        with heartbeat.processor():
            return processor(change)

    return watched


def _ids(records: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(record["messageId"] for record in records)
