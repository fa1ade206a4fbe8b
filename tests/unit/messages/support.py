"""A message intake in memory: its table, its queues, its clock, and a new worker for each batch if a test wants one."""

import base64
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, cast

from cdk_intake_ledger.testing import MemoryDynamoDB
from intake_ledger.aws.bucket import Bucket
from intake_ledger.aws.queues import Queues
from intake_ledger.consumer.consumer import Consumer
from intake_ledger.consumer.services import Services
from intake_ledger.keyed.key_lock import KeyLock
from intake_ledger.kinds.messages import Messages
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.forgotten import ForgottenKeys
from intake_ledger.ledger.ledger import Guard, Ledger, LedgerOptions
from intake_ledger.messages.keyed_message import KeyedMessage, MessageChange
from intake_ledger.messages.settings import MessageSettings, MessageSourceType
from intake_ledger.protocol.row import Ordering, Row, RowKey, row_from_attributes
from intake_ledger.protocol.settings import ConsumerSettings
from intake_ledger.protocol.verdict import Policy
from intake_ledger.runners.inline import Inline
from intake_ledger_testing.memory_sqs import DEAD_LETTER_URL, QUEUE_URL, MemorySQS
from intake_ledger_testing.outcome_counter import OutcomeCounter
from tests.settings import CONSUMER
from tests.unit.support import MINUTE, START, Clock

SOURCE_NAME = "messages:orders"
STREAM_ARN = "arn:aws:kinesis:eu-central-1:123456789012:stream/orders"
INVOCATION_MS = 5 * MINUTE
"""The rest of each invocation. The lease of a claim is longer by the setting `clock_skew`."""
LEASE_MS = INVOCATION_MS + CONSUMER.clock_skew_seconds * 1000
SETTINGS = replace(
    CONSUMER,
    pipeline="orders",
    bucket=SOURCE_NAME,
    queue_url=QUEUE_URL,
    dlq_url=DEAD_LETTER_URL,
    ordering=Ordering.EVERY_VERSION,
    deletes=False,
    max_attempts=3,
)


class Killed(KeyboardInterrupt):
    """The worker's process ends: nothing that follows is carried out."""


@dataclass
class Intake:
    """One intake. `process` is the processor; it notes each call before that."""

    source: MessageSourceType = MessageSourceType.SQS
    process: Callable[[KeyedMessage], Any] = lambda message: message.identity
    key: str = "order"
    identity: str = "event"
    clock: Clock = field(default_factory=Clock)
    table: Any = field(default_factory=MemoryDynamoDB)
    calls: list[KeyedMessage] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    verdicts: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    late_writes: int = 0
    removed_unprocessed: int = 0
    fifo_sends: list[dict[str, Any]] = field(default_factory=list)
    dlq_url: str = DEAD_LETTER_URL
    settings: ConsumerSettings = SETTINGS
    delays: dict[str, int] = field(default_factory=dict)
    """Seconds after which each message is delivered again, by its receipt handle."""
    delayed: list[dict[str, Any]] = field(default_factory=list)
    """The entries of copies that wait."""
    unwrap_sns: bool = False
    fingerprint: str = ""
    _owners: "count[int]" = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        self.sqs = MemorySQS(clock=self.clock, visibility_seconds=600, dead_letter_url=self.dlq_url)
        self.consumer = self.worker()

    @property
    def options(self) -> LedgerOptions:
        """The options of the ledger."""
        policy = Policy(self.settings.max_attempts, self.settings.retention_seconds * 1000, deletes=False)
        return LedgerOptions("orders", Ordering.EVERY_VERSION, policy, self.settings.max_event_age_seconds * 1000)

    @property
    def ledger(self) -> Ledger:
        """A new worker's ledger."""
        return self.ledger_of(self.kind())

    def kind(self) -> Messages:
        """The kind of a new worker."""
        lock = KeyLock(LedgerTable(self.table, "table"), "orders", self.options.retention, clock=self.clock)
        settings = MessageSettings(
            self.settings, self.source, self.key, self.identity, self.unwrap_sns, self.fingerprint
        )
        return Messages(settings, lock, sleep=self._sleep)

    def ledger_of(self, kind: Messages, *guards: Guard) -> Ledger:
        """A ledger with the guards of the kind and these."""
        table, held = LedgerTable(self.table, "table"), (*kind.guards, *guards)
        forgotten = ForgottenKeys("orders", table, self.clock)
        options: Any = {"clock": self.clock, "new_owner": self._owner, "forgotten": forgotten, "guards": held}
        return Ledger(table, kind.look, self.options, **options)

    def worker(self) -> Consumer:
        """A new execution environment."""
        kind = self.kind()
        queues = Queues(lambda: cast("Any", self), QUEUE_URL, self.dlq_url, shortened=kind.shortened)
        services = Services(
            replace(self.settings, dlq_url=self.dlq_url),
            self.ledger_of(kind),
            Bucket(lambda: cast("Any", None), SOURCE_NAME),
            queues,
            OutcomeCounter(self),
            self.clock,
            lambda: 0.0,
        )
        return Consumer(services, kind, Inline(self._process))

    def change(self, record: dict[str, Any]) -> MessageChange:
        """The change of a record of SQS."""
        [message] = self.kind().read({"Records": [record]}).messages
        [change] = message.parsed
        assert isinstance(change, MessageChange)
        return change

    def handle(self, records: Sequence[dict[str, Any]], worker: Consumer | None = None) -> list[str]:
        """Process a batch. Returns the ids that Lambda must deliver again."""
        answer = (worker or self.consumer).handle({"Records": records}, self)
        return [one["itemIdentifier"] for one in answer["batchItemFailures"]]

    def get_remaining_time_in_millis(self) -> int:
        return INVOCATION_MS

    def row(self, key: str, identity: str) -> Row | None:
        """The row of a message."""
        return LedgerTable(self.table, "table").get(RowKey(f"{SOURCE_NAME}/{key}", f"orders@v#{identity}"))

    def status(self, key: str, identity: str) -> str | None:
        row = self.row(key, identity)
        return row.status.value if row else None

    def lock(self, key: str) -> dict[str, Any]:
        """The item of the key's lock."""
        wanted = RowKey(f"{SOURCE_NAME}/{key}", "orders@lock")
        item = LedgerTable(self.table, "table").get_items([wanted]).get(wanted, {})
        assert row_from_attributes(item) is None, "the lock is no row"
        return item

    def is_locked(self, key: str) -> bool:
        """True if the row that the lock names is in work under the fence with which it took the lock."""
        item = self.lock(key)
        holder = LedgerTable(self.table, "table").get(RowKey(f"{SOURCE_NAME}/{key}", item.get("holder") or "nobody"))
        return holder is not None and holder.is_live(self.clock()) and holder.fence == item["holder_fence"]

    def get_queue_attributes(self, **request: Any) -> dict[str, Any]:
        return self.sqs.get_queue_attributes(**request)

    def change_message_visibility_batch(self, **request: Any) -> dict[str, Any]:
        """Each message has its receipt: tests deliver the records themselves."""
        self.delays |= {entry["ReceiptHandle"]: entry["VisibilityTimeout"] for entry in request["Entries"]}
        return {"Successful": [{"Id": entry["Id"]} for entry in request["Entries"]]}

    def send_message_batch(self, **request: Any) -> dict[str, Any]:
        """Messages that wait send copies of themselves. Tests deliver them: see `redelivered`."""
        self.delayed += request["Entries"]
        return {"Successful": [{"Id": entry["Id"]} for entry in request["Entries"]]}

    def send_message(self, **request: Any) -> None:
        if request["QueueUrl"].endswith(".fifo"):
            self.fifo_sends.append(request)
        self.sqs.send_message(**request)

    @property
    def called(self) -> list[str]:
        """The identities of all calls of the processor, in order."""
        return [one.identity for one in self.calls]

    def _process(self, message: KeyedMessage) -> Any:
        self.calls.append(message)
        return self.process(message)

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.advance(round(seconds * 1000))

    def _owner(self) -> str:
        return f"owner-{next(self._owners)}"


def sqs(order: object, event: object, *, receives: int = 1, group: str | None = None, **more: Any) -> dict[str, Any]:
    """A record of SQS whose body has an order, an event, and more. Its id has both."""
    attributes = {"ApproximateReceiveCount": str(receives), "SentTimestamp": str(START)}
    return {
        "messageId": f"{order}.{event}",
        "receiptHandle": f"receipt of {order}.{event}",
        "body": json.dumps({"order": order, "event": event, **more}),
        "attributes": attributes | ({} if group is None else {"MessageGroupId": group}),
        "eventSource": "aws:sqs",
    }


def kinesis(order: object, event: object, number: int, data: str | None = None) -> dict[str, Any]:
    """A record of Kinesis with this sequence number."""
    text = json.dumps({"order": order, "event": event}) if data is None else data
    return {
        "kinesis": {
            "kinesisSchemaVersion": "1.0",
            "partitionKey": str(order),
            "sequenceNumber": f"{number:056}",
            "data": base64.b64encode(text.encode()).decode(),
            "approximateArrivalTimestamp": START / 1000,
        },
        "eventSource": "aws:kinesis",
        "eventVersion": "1.0",
        "eventID": f"shardId-000000000000:{number:056}",
        "eventName": "aws:kinesis:record",
        "awsRegion": "eu-central-1",
        "eventSourceARN": STREAM_ARN,
    }


def dynamodb(order: str, event: str, number: int) -> dict[str, Any]:
    """A record of a DynamoDB stream."""
    return {
        "eventID": event,
        "eventName": "MODIFY",
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "eu-central-1",
        "dynamodb": {
            "ApproximateCreationDateTime": START // 1000,
            "Keys": {"order": {"S": order}},
            "NewImage": {
                "order": {"S": order},
                "amount": {"N": "12.50"},
                "lines": {"L": [{"M": {"count": {"N": "3"}, "gift": {"BOOL": True}, "note": {"NULL": True}}}]},
                "tags": {"SS": ["new", "paid"]},
                "photo": {"B": base64.b64encode(b"\x00\xff").decode()},
            },
            "SequenceNumber": str(number),
            "SizeBytes": 30,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
        "eventSourceARN": "arn:aws:dynamodb:eu-central-1:123456789012:table/orders/stream/2026-01-01T00:00:00.000",
    }


def copy_record(entry: Mapping[str, Any], *, name: str, sent_at: int) -> dict[str, Any]:
    """The record of a delayed copy, at its first delivery."""
    return {
        "messageId": name,
        "receiptHandle": f"receipt of {name}",
        "body": entry["MessageBody"],
        "attributes": {
            "ApproximateReceiveCount": "1",
            "SentTimestamp": str(sent_at),
            "AWSTraceHeader": entry["MessageSystemAttributes"]["AWSTraceHeader"]["StringValue"],
        },
        "messageAttributes": {
            name: {"stringValue": one["StringValue"], "dataType": one["DataType"]}
            for name, one in entry["MessageAttributes"].items()
        },
    }
