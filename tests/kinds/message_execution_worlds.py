"""Search small worlds in which executions of a state machine process the messages of one key.

The worlds are those of `tests.protocol.execution_worlds`. An upload is a message. No event reports an end: polls do.
"""

import json
from dataclasses import replace
from typing import Any, cast

from intake_ledger.aws import Bucket, Queues
from intake_ledger.consumer import Consumer, Services
from intake_ledger.ledger import Ledger, LedgerOptions, LedgerTable
from intake_ledger.messages import MessageSettings, MessageSourceType
from intake_ledger.protocol import Ordering, Policy, Retention, Row, RowKey, Status
from tests.inside.executions import Later
from tests.inside.messages import KeyLock, Messages
from tests.protocol.execution_worlds import ExecutionWorld, Outside, Result, World, place_of, search, steps
from tests.settings import CONSUMER
from tests.unit.support import HOUR
from tests.unit.test_consumer import FakeTelemetry

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
}


class MessageWorld(World):
    """Everything that can matter later."""

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
        body = json.dumps({"order": "k", "event": str(self.left.puts)})
        self.queue += [body] * self.left.deliveries

    def reported(self, body: str) -> list[str]:
        """No messages."""
        return []

    def consumer(self, outside: Outside) -> Consumer:
        """The real consumer and ledger of one worker."""
        policy = Policy(9, CONSUMER.retention_seconds * 1000, deletes=False, executions=True)
        table, bucket = LedgerTable(outside.dynamodb, CONSUMER.table), Bucket(lambda: outside.s3, SETTINGS.bucket)
        intake = MessageSettings(SETTINGS, MessageSourceType.SQS, "order", "event")
        lock = KeyLock(
            table, "orders", Retention(CONSUMER.retention_seconds), clock=outside.clock, longest_work_ms=6 * HOUR
        )
        kind = Messages(intake, lock)
        options = LedgerOptions("orders", Ordering.EVERY_VERSION, policy, 6 * HOUR)
        ledger = Ledger(table, kind.look, options, clock=outside.clock, new_owner=outside.owner, guards=kind.guards)
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
        return self.left, seen, executions, held, tuple(sorted(self.queue)), self.bad

    def rest(self) -> str:
        """The violation when nothing moves any more."""
        if self.left.puts or self.queue or self.queued or self.running():
            return ""
        statuses = [one.status if one else None for one in self.rows()]
        wanted = statuses[: max(1, sum(one is not None for one in statuses))]
        fine = all(one in (Status.PROCESSED, Status.REJECTED) for one in wanted)
        return "" if fine else f"lost: the rows are {statuses}"


def explore(world: ExecutionWorld, *, states: int = 10**6) -> Result:
    """Search all worlds from here."""
    return search(MessageWorld(world), steps, states=states)
