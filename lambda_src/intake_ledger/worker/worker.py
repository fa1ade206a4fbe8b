"""Poll the queue, handle each batch, and delete the messages that are finished."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial, wraps
from threading import Event
from typing import TYPE_CHECKING, Any

from intake_ledger.aws.clients import POOL
from intake_ledger.consumer.composition import AWS, Platform, make_parts, make_runner
from intake_ledger.consumer.consumer import Consumer
from intake_ledger.consumer.services import Services
from intake_ledger.consumer.threads import exit_now
from intake_ledger.kinds import Kind
from intake_ledger.ledger.ledger import Guard
from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.row import lease_length
from intake_ledger.protocol.settings import MESSAGE_SOURCE, ConsumerSettings, settings_from
from intake_ledger.protocol.settings_worker import WorkerSettings
from intake_ledger.runners import Runner
from intake_ledger.worker.heartbeat import Extensions, Heartbeat

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

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
        kind: Kind,
        runner: Runner,
        settings: WorkerSettings,
        heartbeat: Heartbeat,
        *,
        make_sqs: "Callable[[], SQSClient]",
    ) -> None:
        self._services = services
        self._settings = settings
        self._heartbeat = heartbeat
        self._make_sqs = make_sqs
        self._stopping = Event()
        self._consumer = Consumer(services, kind, runner)

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


@dataclass(slots=True)
class WorkerHost:
    """Short leases that a heartbeat extends; see `Host`. `heartbeat` and `guards` are those of one worker."""

    settings: WorkerSettings
    heartbeat: Heartbeat

    @property
    def guards(self) -> Sequence[Guard]:
        """See `Host`. It has to be the last guard of a ledger, so that it extends claims that all others hold."""
        return (self.heartbeat,)

    def lease_ms(self, time_left_ms: int, clock_skew_ms: int) -> int:  # noqa: ARG002 - a worker has no timeout
        """See `Host`."""
        return lease_length(self.settings.hold_seconds * 1000, clock_skew_ms)

    def returning(self, receipts: Sequence[str]) -> AbstractContextManager[None]:
        """See `Host`."""
        return self.heartbeat.returning(receipts)


def make_worker(environment: Mapping[str, str], platform: Platform = AWS) -> Worker:
    """Make the worker that these environment variables describe, of any kind and with any runner, on this platform.

    Raises:
        SettingsError: A variable is missing or malformed, or the source of messages is a stream.

    """
    settings, source = settings_from(WorkerSettings, environment), environment.get(MESSAGE_SOURCE)
    if source in ("kinesis", "dynamodb"):
        raise SettingsError(
            f"{MESSAGE_SOURCE} is {source}: a worker receives from SQS only. Let the construct's function read "
            "the stream"
        )
    host = make_host(settings, settings_from(ConsumerSettings, environment))
    kind, services = make_parts(environment, host, platform)
    host.heartbeat.extensions = extensions_of(services, host)
    return Worker(
        services,
        kind,
        make_runner(environment, services, partial(watched, heartbeat=host.heartbeat), platform),
        settings,
        host.heartbeat,
        # Longer than a long poll.
        make_sqs=lambda: platform.client("sqs", POOL, read_timeout=settings.poll_seconds + 10),
    )


def make_host(settings: WorkerSettings, consumer: ConsumerSettings) -> WorkerHost:
    """Make the host of a worker. Its heartbeat has no requests before `extensions_of` gives them."""
    heartbeat = Heartbeat(
        None,
        hold_seconds=settings.hold_seconds,
        limit_seconds=consumer.processing_timeout_seconds + GRACE_SECONDS,
        clock=time.monotonic,
    )
    return WorkerHost(settings, heartbeat)


def extensions_of(services: Services, host: WorkerHost) -> Extensions:
    """The requests of the heartbeat of this host."""
    telemetry, hold = services.telemetry, host.settings.hold_seconds
    lease_ms = host.lease_ms(0, services.settings.clock_skew_seconds * 1000)
    return Extensions(
        lease=lambda claim: services.ledger.extend(claim, lease_ms=lease_ms),
        visibility=lambda receipts: services.queues.deliver_later([(receipt, hold) for receipt in receipts]),
        report=lambda text, error: telemetry.log_error(text, "", error),
        end_process=exit_now,
    )


def watched(processor: Callable[[Any], object], heartbeat: Heartbeat) -> Callable[[Any], object]:
    """The processor, watched by the heartbeat."""

    @wraps(processor)
    def watching(given: Any) -> object:
        with heartbeat.processor():
            return processor(given)

    return watching


def _ids(records: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(record["messageId"] for record in records)
