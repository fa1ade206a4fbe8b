"""Search small worlds in which executions of a state machine process the messages of one key.

The worlds are those of `tests.protocol.execution_worlds`. An upload is a message. No event reports an end: polls do.
"""

import copy
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from intake_ledger.aws.bucket import Bucket
from intake_ledger.consumer.consumer import Consumer
from intake_ledger.consumer.services import Services
from intake_ledger.keyed.key_lock import KeyLock
from intake_ledger.kinds.messages import Messages
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.forgotten import ForgottenKeys
from intake_ledger.ledger.ledger import Ledger, LedgerOptions
from intake_ledger.messages.settings import MessageSettings, MessageSourceType
from intake_ledger.protocol.row import Ordering, Retention, Row, RowKey, Status
from intake_ledger.protocol.verdict import Policy
from intake_ledger.runners.later import Later
from intake_ledger_testing.events import sqs_event, sqs_record
from tests.protocol.execution_worlds import ExecutionWorld, Outside, Result, World, place_of, search, steps
from tests.settings import CONSUMER
from tests.unit.command.forget_support import deployed_in_memory, forget, named_in, with_variables
from tests.unit.consumer.test_consumer import FakeTelemetry
from tests.unit.support import HOUR, MINUTE, START

if TYPE_CHECKING:
    from intake_ledger.aws.queues import Queues

SETTINGS = replace(
    CONSUMER, bucket="messages:orders", pipeline="orders", ordering=Ordering.EVERY_VERSION, deletes=False
)
IDENTITIES = ("1", "2")

WORLDS = {
    "messages, a redrive": ExecutionWorld(puts=2, fails=1, redrives=1),
    "messages, deaths": ExecutionWorld(deaths=2),
    "messages, two of a key": ExecutionWorld(puts=2, deaths=1),
    "messages, pauses": ExecutionWorld(puts=2, pauses=1),
    "messages, duplicates": ExecutionWorld(puts=2, deliveries=2),
    "messages, failures": ExecutionWorld(puts=2, fails=1),
    "messages, durable with queued starts": ExecutionWorld(puts=2, queued=1, durable=True),
    "messages, poison and pauses": ExecutionWorld(puts=1, pauses=1, fails=1),
    "messages, other contents and deaths": ExecutionWorld(puts=2, deaths=1, collisions=True),
    "messages, other contents and failures": ExecutionWorld(puts=2, fails=1, collisions=True),
    "messages, other contents and a rejection": ExecutionWorld(puts=2, deaths=1, poison=1, collisions=True),
    "messages, other contents, durable": ExecutionWorld(puts=2, queued=1, poison=1, collisions=True, durable=True),
    "messages, a key that is forgotten": ExecutionWorld(puts=1, forgets=2),
    "messages, a forgotten key and deaths": ExecutionWorld(puts=1, deaths=1, fails=1, forgets=2),
    "messages, a forgotten key, durable": ExecutionWorld(puts=1, deaths=1, queued=1, forgets=2, durable=True),
}


class MessageWorld(World):
    """Everything that can matter later."""

    begun: int | None = None
    """The executions that were begun before the key was forgotten. None: it was not, or the command was refused."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sent_at = START if self.left.forgets else None

    def event(self, body: str) -> dict[str, Any]:
        """The event that a worker gets. Only a message that may be forgotten tells its age."""
        return sqs_event(sqs_record(body, sent_at=self.sent_at))

    def forget(self) -> None:
        """Run the command `forget` until its end, or until it refuses."""
        self.use(forgets=1)
        if self.forgotten():
            self.begun = self.started()

    def forgotten(self) -> bool:
        """Run the command. False: the key is in use."""
        deployed = deployed_in_memory("orders", SETTINGS.bucket, Ordering.EVERY_VERSION, messages=True)
        self.clock.advance(3 * MINUTE)
        return forget(self.store, self.clock, with_variables(deployed, INTAKE_STATE_MACHINE="machine"), "k")

    def started(self) -> int:
        """The number of executions, with queued ones."""
        return len(self.machine.executions.keys() | self.queued.keys())

    def table(self) -> LedgerTable:
        return LedgerTable(cast("Any", self.store), CONSUMER.table)

    def rows(self) -> list[Row | None]:
        """The rows of both messages."""
        return [self.table().get(RowKey("messages:orders/k", f"orders@v#{one}")) for one in IDENTITIES]

    @property
    def row(self) -> Row | None:
        """A row that waits for time to pass, if there is one. Without a fence: those of two rows do not compare."""
        now, rows = self.clock(), [one for one in self.rows() if one is not None]
        waits = [one for one in rows if one.is_live(now) or (one.retry_at or 0) > now]
        return replace((waits or rows)[0], fence=0) if rows else None

    @property
    def current(self) -> str:
        return ""

    def upload(self) -> None:
        """Send a message of the key."""
        amount = self.left.puts
        body = json.dumps({"order": "k", "event": "1" if self.left.collisions else str(amount), "amount": amount})
        self.queue += [body] * self.left.deliveries

    def dead_letter(self, body: str, attributes: Any) -> str:
        """The body, with the reason of a rejection that the row records."""
        return f"{body} {attributes['reason_code']}"

    def reported(self, body: str) -> list[str]:
        """No messages."""
        return []

    def consumer(self, outside: Outside) -> Consumer:
        """The real consumer and ledger of one worker."""
        policy = Policy(9, CONSUMER.retention_seconds * 1000, deletes=False, executions=True)
        table, bucket = LedgerTable(outside.dynamodb, CONSUMER.table), Bucket(lambda: outside.s3, SETTINGS.bucket)
        fingerprint = "amount" if self.left.collisions else ""
        intake = MessageSettings(SETTINGS, MessageSourceType.SQS, "order", "event", fingerprint=fingerprint)
        lock = KeyLock(
            table, "orders", Retention(CONSUMER.retention_seconds), clock=outside.clock, longest_work_ms=6 * HOUR
        )
        kind = Messages(intake, lock)
        options = LedgerOptions("orders", Ordering.EVERY_VERSION, policy, 6 * HOUR)
        ledger = Ledger(
            table,
            kind.look,
            options,
            clock=outside.clock,
            new_owner=outside.owner,
            forgotten=ForgottenKeys("orders", table, outside.clock) if self.sent_at else None,
            guards=kind.guards,
        )
        queues, telemetry = cast("Queues", outside.queues), cast("Any", FakeTelemetry())
        services = Services(SETTINGS, ledger, bucket, queues, telemetry, outside.clock, lambda: 1.0)
        return Consumer(services, kind, Later(services, place_of(outside)))

    def state(self) -> object:
        """The world without the times that make no difference."""
        rows, now = self.rows(), self.clock()
        lock = RowKey("messages:orders/k", "orders@lock")
        item = self.table().get_items([lock]).get(lock, {})
        names = {name: int(name.rpartition("-")[2]) for name in self.machine.executions}
        names |= {name: int(name.rpartition("-")[2]) for name in self.queued}
        known = {*names.values(), *(one.fence for one in rows if one), item.get("holder_fence", 0)}
        rank = sorted(known).index
        seen = tuple(
            one and (one.status, rank(one.fence), one.attempts, one.is_live(now), (one.retry_at or 0) > now)
            for one in rows
        )
        executions = tuple(
            sorted(
                (one.given["identity"], rank(names[one.name]), one.status, self.phases.get(one.name, 0))
                for one in self.machine.executions.values()
            )
        )
        executions += tuple(
            (one.given["identity"], rank(int(name.rpartition("-")[2])), "QUEUED", one.accepted_at // HOUR - now // HOUR)
            for name, one in self.queued.items()
        )
        held = item.get("holder"), rank(item.get("holder_fence", 0))
        contents = self.contents(), tuple(self.rejected), tuple(one and one.etag for one in rows)
        marked = any("#forgotten" in place["pk"]["S"] for place in self.store.items.values())
        told = self.begun, marked
        return self.left, seen, executions, held, tuple(sorted(self.queue)), contents, self.bad, told

    def contents(self) -> tuple[int, ...]:
        """The contents of the executions of the first identity."""
        if not self.left.collisions:
            return ()
        started = [*self.machine.executions.values(), *self.queued.values()]
        return tuple(sorted({one.given["body"]["amount"] for one in started}))

    def rest(self) -> str:
        """The violation when nothing moves any more, or when executions of one identity have two contents."""
        if len(self.contents()) > 1:
            return f"two contents of one identity are processed: {self.contents()}"
        if self.begun is not None and self.started() > self.begun:
            return "the key was forgotten, and an execution begins for a message of before"
        if self.left.puts or self.queue or self.queued or self.running():
            return ""
        if self.sent_at:
            later = copy.deepcopy(self)
            kept = "" if later.forgotten() else "the command is refused"
            return kept or ("the table names the key" if named_in(later.store, "orders/k") else "")
        statuses = [one.status if one else None for one in self.rows()]
        wanted = statuses[: max(1, sum(one is not None for one in statuses))]
        fine = all(one in (Status.PROCESSED, Status.REJECTED) for one in wanted)
        if not fine:
            return f"lost: the rows are {statuses}"
        return self.lost_contents() if self.left.collisions else ""

    def lost_contents(self) -> str:
        """The violation of a content that is neither processed nor whole in the dead-letter queue."""
        [row, _] = self.rows()
        processed = self.contents() if row is not None and row.status is Status.PROCESSED else ()
        found = {*processed, *(json.loads(one.rpartition(" ")[0]).get("amount") for one in self.rejected)}
        return "" if {1, 2} <= found else f"lost: of both contents there are {found}"


def explore(world: ExecutionWorld, *, states: int = 10**6) -> Result:
    """Search all worlds from here."""
    return search(MessageWorld(world), steps, states=states)
