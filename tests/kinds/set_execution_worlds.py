"""Search small worlds in which executions of a state machine process a set of files, with the real consumer and ledger.

The worlds are those of `tests.protocol.execution_worlds`. An upload replaces one part of the set, commits it and wakes
the set. Each wake has as many tabs as its number, and a message that was delivered before ends with a space.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from intake_ledger.aws.bucket import Bucket
from intake_ledger.consumer.consumer import Consumer
from intake_ledger.consumer.services import Services
from intake_ledger.events.parser import own_message
from intake_ledger.kinds.sets import S3PartLists, Sets
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import Claim, Ledger, LedgerOptions
from intake_ledger.protocol.change import Change, Origin, State, StateKind
from intake_ledger.protocol.row import Ordering
from intake_ledger.protocol.verdict import Policy
from intake_ledger.runners.later import Later
from intake_ledger.set_members.forms import FormKind, FormSettings
from intake_ledger.set_members.membership import Membership
from intake_ledger.sets.reader import SetReader
from intake_ledger.sets.settings import SetSettings
from intake_ledger_testing.consumers import object_ledger
from intake_ledger_testing.events import sqs_event, sqs_record
from intake_ledger_testing.memory_s3 import MemoryS3
from intake_ledger_testing.memory_step_functions import MemoryExecution
from tests.protocol.execution_worlds import (
    KEY,
    ExecutionWorld,
    Outside,
    Result,
    World,
    place_of,
    search,
    steps,
)
from tests.settings import CONSUMER
from tests.unit.consumer.test_consumer import FakeTelemetry
from tests.unit.support import HOUR

if TYPE_CHECKING:
    from intake_ledger.aws.queues import Queues

PARTS = ("1", "2")
SETTINGS = SetSettings(CONSUMER, FormSettings(FormKind.MANIFEST, KEY), replace(CONSUMER, pipeline="parts"))

WORLDS = {
    "sets, deaths": ExecutionWorld(deaths=2, losses=1),
    "sets, deaths while a part is missing": ExecutionWorld(deaths=2, incomplete=True),
    "sets, durable while a part is missing": ExecutionWorld(deaths=1, incomplete=True, durable=True),
    "sets, pauses while a part is missing": ExecutionWorld(pauses=1, incomplete=True),
    "sets, overwrites": ExecutionWorld(puts=2, deaths=1, losses=1),
    "sets, pauses": ExecutionWorld(pauses=1, losses=1),
    "sets, pauses and overwrites": ExecutionWorld(puts=2, pauses=1),
    "sets, duplicates": ExecutionWorld(puts=2, deliveries=2, losses=1),
    "sets, durable with queued starts": ExecutionWorld(puts=2, queued=1, durable=True),
    "sets, failures": ExecutionWorld(puts=2, fails=1, losses=1),
}


class _S3(MemoryS3):
    """S3 with the lists of the parts."""

    def __init__(self, *, clock: Callable[[], int]) -> None:
        super().__init__(clock=clock)
        self.lists: dict[str, bytes] = {}

    def put_object(self, **request: Any) -> None:
        """Answer as boto3's client."""
        self.lists[request["Key"]] = request["Body"]


@dataclass
class SetWorld(World):
    """Everything that can matter later."""

    versions: dict[str, str] = field(default_factory=dict)
    sent: int = 0
    """The number of wakes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.s3: _S3 = _S3(clock=self.clock)
        self.s3.put(KEY, b'["/1", "/2"]')
        self._commit("2")
        if self.left.incomplete:
            self._wake()

    @property
    def current(self) -> str:
        table = LedgerTable(cast("Any", self.store), CONSUMER.table)
        reader = SetReader(table, Bucket(lambda: cast("Any", self.s3), CONSUMER.bucket), SETTINGS, self.clock)
        return str(reader.look(KEY, None).version_id)

    def upload(self) -> None:
        """Replace and commit a part, and wake the set."""
        self._commit("1")
        self._wake()

    def _wake(self) -> None:
        body = own_message(Origin.PART, CONSUMER.bucket, KEY)
        for _ in range(self.left.deliveries):
            self.sent += 1
            self.queue.append(body + "\t" * self.sent)

    def _commit(self, key: str) -> None:
        version = self.s3.put(key, str(self.left.puts).encode()).version_id
        policy = Policy(9, CONSUMER.retention_seconds * 1000, deletes=False)
        ledger = object_ledger(
            LedgerTable(cast("Any", self.store), CONSUMER.table),
            Bucket(lambda: cast("Any", self.s3), CONSUMER.bucket),
            LedgerOptions("parts", Ordering.LATEST, policy, 6 * HOUR),
            clock=self.clock,
            new_owner=lambda: f"part-{version}",
        )
        state = State(StateKind.OBJECT, version)
        claim = ledger.claim(Change(CONSUMER.bucket, key, Origin.AUDIT, "", "", state=state), lease_ms=HOUR)
        assert isinstance(claim, Claim)
        ledger.commit(claim)

    def consumer(self, outside: Outside) -> Consumer:
        """The real consumer and ledger of one worker."""
        policy = Policy(9, CONSUMER.retention_seconds * 1000, deletes=False, executions=True)
        table, bucket = LedgerTable(outside.dynamodb, CONSUMER.table), Bucket(lambda: outside.s3, CONSUMER.bucket)
        membership = Membership(outside.dynamodb, CONSUMER.table, CONSUMER.bucket)
        lists = S3PartLists(lambda: outside.s3, "lists/")
        kind = Sets(SETTINGS, table, bucket, membership, outside.clock, lists=lists)
        options = LedgerOptions(CONSUMER.pipeline, CONSUMER.ordering, policy, 6 * HOUR)
        ledger = Ledger(table, kind.look, options, clock=outside.clock, new_owner=outside.owner)
        queues, telemetry = cast("Queues", outside.queues), cast("Any", FakeTelemetry())
        services = Services(CONSUMER, ledger, bucket, queues, telemetry, outside.clock, lambda: 1.0)
        return Consumer(services, kind, Later(services, place_of(outside)))

    def event(self, body: str) -> dict[str, Any]:
        """The event that a worker gets."""
        return sqs_event(
            sqs_record(body.rstrip(), message_id=str(body.count("\t")), receives=2 if body.endswith(" ") else 1)
        )

    def returned(self, body: str) -> str:
        """The message when it comes again."""
        return f"{body.rstrip(' ')} "

    def can_begin(self, execution: MemoryExecution) -> bool:
        """False if the list of the parts is not there."""
        return execution.given["parts"]["key"] in self.s3.lists

    def state(self) -> object:
        """The world without the times and names that make no difference."""
        awaited = self.row.waiter_id if self.row else None
        wakes = [(str(body.count("\t")) == awaited, body[-1]) for body in self.queue if "intakeLedger" in body]
        return super().state(), awaited is None, tuple(sorted(wakes)), frozenset(self.s3.lists)


def explore(world: ExecutionWorld, *, states: int = 10**6, receipts_end: bool = True) -> Result:
    """Search all worlds from here. `receipts_end`: a receipt is void when SQS has delivered the message again."""
    return search(SetWorld(world, receipts_end=receipts_end), steps, states=states)
