"""Search every order of the requests of several workers of a pipeline with groups, on the code that runs in Lambda.

The search is that of messages (`tests.protocol.message_worlds`). An object `k/a` stands for the message `ka`: its group
is `k`, and its name is `a`. After each step these promises are checked, besides those of messages without a fence:

- Of one group, one live processor runs at most.
- An object is committed by the worker whose processor was the last one of its group to start.
- An object that waits for its group has used no attempt.
"""

from dataclasses import dataclass, replace
from typing import Any, cast, override

from intake_ledger import Commit, ObjectChange
from intake_ledger.aws import Bucket
from intake_ledger.consumer import Consumer
from intake_ledger.ledger import LedgerOptions, LedgerTable
from intake_ledger.protocol import GroupPattern, Ordering, Policy, State, StateKind, row_key
from tests.inside.groups import GroupLock, holder_row
from tests.inside.kit import QUEUE_URL, MemoryS3
from tests.inside.objects import Objects
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
SHORT = {
    "a group": MessageWorld("ka kb", failures=1, deliveries=2),
    "a late worker of a group": MessageWorld("ka kb", lapses=1, deliveries=2),
    "a claim of a group that is broken by hand": MessageWorld("ka kb", breaks=1, deliveries=2),
    "a group and a death": MessageWorld("ka kb", crashes=1, deliveries=2),
    "two groups": MessageWorld("ka lb", failures=1, deliveries=2),
}
FULL = SHORT | {
    "a group and a lost answer": MessageWorld("ka kb", losses=1, deliveries=2),
    "a late worker of a group and a failure": MessageWorld("ka kb", lapses=1, failures=1, deliveries=2),
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

    def process_object(self, change: ObjectChange) -> Commit:
        group, _, name = change.key.partition("/")
        self.call("process", Given(group, name, change.attempt, self._worker.number))
        return Commit()


class GroupSearch(MessageSearch):
    """The search of one world of groups."""

    def __init__(self, world: MessageWorld) -> None:
        super().__init__(world)
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
        lock = GroupLock(table, PIPELINE, options.retention, GroupPattern("{group}/").group_of, clock=port.now)
        bucket = Bucket(lambda: cast("Any", self._s3), BUCKET)
        kind = Objects(settings, bucket, lambda: cast("Any", None), guards=[lock])
        return self._wired(port, kind, options, table, bucket, port.process_object)

    @override
    def _record(self, place: int) -> dict[str, Any]:
        group, name = self._names[place]
        body = notification(record(f"{group}/{name}", self._states[group, name], bucket=BUCKET))
        return {
            "messageId": str(place),
            "receiptHandle": f"receipt of {place}",
            "body": body,
            "attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": str(START)},
            "eventSource": "aws:sqs",
        }

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
    def _has_other_content(self, state: _State, key: str, identity: str, content: str) -> bool:
        return False

    @override
    def _status(self, state: _State, place: int) -> str | None:
        group, name = self._names[place]
        row = row_key(PIPELINE, Ordering.LATEST, BUCKET, f"{group}/{name}", None)
        status: str | None = state.items.get((row.pk, row.sk), {}).get("status", {}).get("S")
        return status
