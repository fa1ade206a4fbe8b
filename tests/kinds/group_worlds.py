"""Search every order of the requests of several workers of a pipeline with groups, on the code that runs in Lambda.

The search is that of messages (`tests.protocol.message_worlds`). An object `k/a` stands for the message `ka`: its group
is `k`, and its name is `a`. After each step these promises are checked, besides those of messages without a fence:

- Of one group, one live processor runs at most.
- An object is committed by the worker whose processor was the last one of its group to start.
- An object that waits for its group has used no attempt.
- When all workers have returned, and none has died, an object that waits for a free group has a wake of its group.

The place of a wake is that of its object, behind those of the objects.
"""

import json
from dataclasses import dataclass, replace
from typing import Any, cast, override

from intake_ledger import Commit, ObjectChange
from intake_ledger.aws.bucket import Bucket
from intake_ledger.consumer.consumer import Consumer
from intake_ledger.events.parser import own_message
from intake_ledger.kinds.objects import Objects
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import LedgerOptions
from intake_ledger.options.exclusive_by import GroupLock, holder_row
from intake_ledger.protocol.change import Origin, State, StateKind
from intake_ledger.protocol.group_pattern import GroupPattern
from intake_ledger.protocol.row import Ordering, row_key
from intake_ledger.protocol.verdict import Policy
from intake_ledger_testing.memory_s3 import MemoryS3
from intake_ledger_testing.memory_sqs import QUEUE_URL
from tests.protocol.message_worlds import (
    MessageSearch,
    MessageWorld,
    _Port,
    _Request,
    _State,
    _Violation,
    _Worker,
)
from tests.settings import CONSUMER
from tests.unit.support import START, notification, record

PIPELINE, BUCKET = "orders", "uploads"
_READS = ("batch_get_item", "get_item", "query")
SHORT = {
    "a group": MessageWorld("ka kb", failures=1, deliveries=2),
    "a late worker of a group": MessageWorld("ka kb", lapses=1, deliveries=2),
    "a claim of a group that is broken by hand": MessageWorld("ka kb", breaks=1, deliveries=2),
    "a group and a death": MessageWorld("ka kb", crashes=1, deliveries=2),
    "two groups": MessageWorld("ka lb", failures=1, deliveries=2),
    "a wake of a group": MessageWorld("ka kb", deliveries=3),
}
FULL = SHORT | {
    "a group and a lost answer": MessageWorld("ka kb", losses=1, deliveries=2),
    "a late worker of a group and a failure": MessageWorld("ka kb", lapses=1, failures=1, deliveries=2),
    "a wake of a group and a death": MessageWorld("ka kb", crashes=1, deliveries=3),
}


@dataclass(frozen=True)
class Given:
    """A call of the processor."""

    key: str
    """The group."""
    identity: str
    attempt: int
    worker: int


class _ObjectPort(_Port):
    @override
    def send_message(self, **request: Any) -> None:
        """The wake after a late write is lost. Its state is the one that the next attempt commits."""
        assert request["QueueUrl"] == QUEUE_URL, "no world rejects"

    def wake_group(self, body: str) -> None:
        self.call("wake", body)

    def process_object(self, change: ObjectChange) -> Commit:
        group, _, name = change.key.partition("/")
        self.call("process", Given(group, name, change.attempt, self._worker.number))
        return Commit()


class GroupSearch(MessageSearch):
    """The search of one world of groups."""

    def __init__(self, world: MessageWorld) -> None:
        super().__init__(world)
        self._names += self._names
        self._contents += self._contents
        self._settings = replace(
            CONSUMER,
            pipeline=PIPELINE,
            bucket=BUCKET,
            ordering=Ordering.LATEST,
            deletes=False,
            max_attempts=world.max_attempts,
            min_backoff_seconds=0,
            max_backoff_seconds=0,
            processing_timeout_seconds=30,
        )
        self._s3 = MemoryS3(clock=lambda: START, versioned=True)
        self._states = {}
        for group, name in self._names:
            stored = self._s3.put(f"{group}/{name}", b"1", {})
            self._states[group, name] = State(StateKind.OBJECT, stored.version_id, stored.etag, 1)

    @override
    def _port(self, worker: _Worker) -> _ObjectPort:
        return _ObjectPort(worker, self._world)

    @override
    def _consumer(self, port: Any) -> Consumer:
        settings, table = self._settings, LedgerTable(cast("Any", port), "table")
        policy = Policy(settings.max_attempts, settings.retention_seconds * 1000, deletes=False)
        options = LedgerOptions(PIPELINE, settings.ordering, policy, settings.max_event_age_seconds * 1000)
        lock = GroupLock(
            table, PIPELINE, options.retention, GroupPattern("{group}/").group_of, clock=port.now, wake=port.wake_group
        )
        bucket = Bucket(lambda: cast("Any", self._s3), BUCKET)
        kind = Objects(settings, bucket, lambda: cast("Any", None), guards=[lock])
        return self._wired(port, kind, options, table, bucket, port.process_object)

    @override
    def _record(self, place: int) -> dict[str, Any]:
        group, name = self._names[place]
        key, shown = f"{group}/{name}", self._states[group, name]
        body = notification(record(key, shown, bucket=BUCKET))
        if place >= self._sent:
            body = own_message(Origin.GROUP, BUCKET, key, shown)
        return {
            "messageId": str(place),
            "receiptHandle": f"receipt of {place}",
            "body": body,
            "attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": str(START)},
            "eventSource": "aws:sqs",
        }

    @override
    def _carried_out(self, state: _State, worker: _Worker, asked: _Request, times: int = 1) -> _State:
        if asked.operation != "wake":
            return super()._carried_out(state, worker, asked, times)
        group, name = json.loads(asked.argument)["intakeLedger"]["key"].split("/")
        place = self._sent + self._names.index((group, name))
        return self._answered(replace(state, waiting=tuple(sorted({*state.waiting, place}))), worker, asked, None)

    @override
    def _answered(self, state: _State, worker: _Worker, asked: _Request, error: Any, value: Any = None) -> _State:
        """A read belongs to the step of the request before it. Other workers go on before what follows from it."""
        after = super()._answered(state, worker, asked, error, value)
        [moved] = [one for one in after.workers if one.number == worker.number]
        if not isinstance(moved.asked, _Request) or moved.asked.operation not in _READS:
            return after
        others = replace(after, workers=tuple(one for one in after.workers if one is not moved))
        return self._carried_out(others, moved, moved.asked)

    @override
    def _returned(self, state: _State, worker: _Worker, failed: list[str]) -> _State:
        if worker.batch[0] < self._sent:
            after = super()._returned(state, worker, failed)
        else:
            # Its object may be unfinished: its own message comes again.
            after = super()._returned(state, replace(worker, batch=()), [])
            after = replace(after, waiting=tuple(sorted({*after.waiting, *map(int, failed)})))
        world = self._world
        # A wake is a hint: a death or a lost answer may lose it. Then the key's own message comes.
        if not after.workers and not (world.crashes or world.lapses or world.breaks or world.losses):
            self._check_woken(after)
        return after

    def _check_woken(self, state: _State) -> None:
        woken = {self._names[place][0] for place in state.waiting if place >= self._sent}
        for place, (group, name) in enumerate(self._names[: self._sent]):
            held = self._row(state, place).get("reason_code", {}).get("S") == "group_held"
            if held and self._status(state, place) == "FAILED" and group not in woken:
                raise _Violation(f"{group}{name} waits for its group, which is free, and no wake is on its way")

    @override
    def _begun(self, state: _State, message: Any) -> _State:
        given = cast("Given", message)
        workers = [one for one in state.workers if one.number not in state.broken]
        running = [one.asked for one in workers if isinstance(one.asked, _Request)]
        live = [one for one in running if one.operation == "process" and one.lease_until > state.now]
        if any(one.argument.key == given.key for one in live):
            raise _Violation(f"two live processors of the group {given.key}")
        _, crashes, lapses, _ = state.left
        failures = self._world.failures - state.left[0]
        ended = self._world.crashes - crashes + self._world.lapses - lapses + self._world.breaks - state.breaks
        if given.attempt > 1 + failures + ended:
            raise _Violation(f"{given.identity} has used an attempt while it waited")
        started = dict(state.fences) | {given.key: given.worker}
        return replace(state, fences=tuple(sorted(started.items())))

    @override
    def _check_rows(self, before: _State, after: _State, worker: _Worker) -> None:
        for key in before.items.keys() | after.items.keys():
            old, new = before.items.get(key, {}), after.items.get(key, {})
            if key[1].endswith("@lock"):
                if int(new.get("fence", {}).get("N", 0)) < int(old.get("fence", {}).get("N", 0)):
                    raise _Violation("the fence of a lock goes back")
                continue
            was, now = (one.get("status", {}).get("S") for one in (old, new))
            if old != new and now == "PROCESSED" and worker.number in before.broken:
                raise _Violation(f"worker {worker.number} commits a claim that a person has taken")
            if was == "PROCESSED" and old != new:
                raise _Violation(f"the commit of {key[0]} is changed")
            if was != now == "PROCESSED":
                group = key[0].removeprefix(f"{BUCKET}/").partition("/")[0]
                if dict(before.fences)[group] != worker.number:
                    raise _Violation(f"{key[0]} is committed after a later attempt on its group")

    @override
    def _holder(self, state: _State, lock: tuple[str, str], item: Any) -> Any:
        place = holder_row(item.get("holder", {}).get("S", ""))
        return state.items.get((place.pk, place.sk), {})

    @override
    def _status(self, state: _State, place: int) -> str | None:
        status: str | None = self._row(state, place).get("status", {}).get("S")
        return status

    def _row(self, state: _State, place: int) -> Any:
        group, name = self._names[place]
        row = row_key(PIPELINE, Ordering.LATEST, BUCKET, f"{group}/{name}", None)
        return state.items.get((row.pk, row.sk), {})
