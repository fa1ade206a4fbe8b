"""The features of worlds. Each one has its options, its steps and its invariants at rest in one place.

`make_world` refuses what the kit refuses. So a new feature meets all others by being in `FEATURES`.
"""

import base64
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import patch

from botocore.exceptions import ClientError

from cdk_intake_ledger.testing import LocalMessages
from intake_ledger import Commit, NotYet, Rejects, outcome_events
from intake_ledger.contract import OUTCOME_BUS, OUTCOME_INTAKES
from intake_ledger.events.parser import body_unknown, own_message
from intake_ledger.executions.decide import execution_name
from intake_ledger.ledger.conditions import Condition, ConditionFailed
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import break_claim, end_work
from intake_ledger.ledger.row_history import RowHistoryRecord
from intake_ledger.once import Busy, Duplicate, Fenced, OnceLedger
from intake_ledger.options.exclusive_by import holder_name, holder_row
from intake_ledger.protocol.change import Origin, StateKind, identity_of
from intake_ledger.protocol.commit_tag import CommitTag
from intake_ledger.protocol.exclude import Exclude
from intake_ledger.protocol.reasons import Reason, ReasonCode
from intake_ledger.protocol.row import (
    Ordering,
    Row,
    RowKey,
    Status,
    dismissed_partition,
    from_dynamodb,
    group_key,
    pause_key,
    rejected_rows_partition,
    removed_partition,
    review_partition,
    row_from_attributes,
    row_key,
    success_key,
    waiting_partition,
)
from intake_ledger.protocol.settings import ConsumerSettings, environment_of
from intake_ledger.requests.record import queried_batches
from intake_ledger_cli.act import dismissing, pausing
from intake_ledger_cli.errors import CliError
from intake_ledger_testing.dynamodb_expressions import Item
from intake_ledger_testing.local_worker import Killed, LocalConnection
from intake_ledger_testing.memory_s3 import sha256_of
from intake_ledger_testing.memory_sqs import DeadLetter
from intake_ledger_testing.memory_step_functions import MemoryExecution
from tests.pairs.world import (
    GROUPS,
    JUMPS,
    KEYS,
    MOODS,
    SKEW,
    Effect,
    World,
    content_of,
    executions_of,
    key_of,
)
from tests.unit.command.forget_support import MemoryAws, deployed_in_memory, forget, with_variables
from tests.unit.support import DAY, HOUR, MINUTE

if TYPE_CHECKING:
    from cdk_intake_ledger.testing import LocalPipeline, LocalSets

Action = Callable[[World, int, int], object]
MESSAGES = ("messages", "FIFO messages", "stream records")
LATER = ("machine", "durable")


@dataclass
class Feature:
    """One feature."""

    name: str
    role: str = "option"
    """`kind`, `runner`, `host` or `option`. A world has one of each of the first three."""
    cell: dict[str, Any] = field(default_factory=dict)
    """Fields of `Cell`."""
    kit: dict[str, Any] = field(default_factory=dict)
    """Options of the kit."""
    actions: dict[str, Action] = field(default_factory=dict)
    """Its steps by name."""
    beside: frozenset[str] = frozenset()
    """The features of which it needs one. Empty: it needs none."""
    without: frozenset[str] = frozenset()
    """The features that it never meets: the construct refuses both together."""

    @property
    def judges_changes(self) -> bool:
        """True if it has its own `changed`."""
        return type(self).changed is not Feature.changed

    def begin(self, world: World) -> None:
        """Before the first step."""

    def begins(self, world: World, effect: Effect) -> Iterator[str]:
        """What is wrong about a call that begins."""
        yield from ()

    def processes(self, world: World, given: Any, effect: Effect) -> None:
        """Inside a call, before its effect."""

    def commit(self, world: World, effect: Effect) -> Commit | None:
        """The return value of a call."""
        return None

    def changed(self, world: World, key: str, before: Row | None, after: Row) -> Iterator[str]:
        """What is wrong about a change of a row."""
        yield from ()

    def recorded(self, world: World, place: tuple[str, str], before: Item | None, after: Item | None) -> Iterator[str]:
        """What is wrong about a change of an item."""
        yield from ()

    def handled(self, world: World, requests: Sequence[str]) -> None:
        """A worker has handled messages with these requests, and none of them had a fault."""

    def watch(self, world: World) -> Iterator[str]:
        """What is wrong at the end of a step."""
        yield from ()

    def ends(self, world: World) -> None:
        """After the last step."""

    def judge(self, world: World) -> Iterator[str]:
        """What is wrong at rest."""
        yield from ()


def use(world: World, key: str) -> None:
    """A key is used again, after it may have been forgotten."""
    world.memory["uses"] = world.memory.get("uses", 0) + 1
    world.memory.setdefault("forgotten", set()).discard(key)


def put(world: World, key: str, mood: str, *, dirty: int) -> None:
    """Upload an object. Each content is another one, and a dirty one has a bad row."""
    use(world, key)
    local = cast("Any", world.local)
    world.puts += 1
    content = "\n".join([json.dumps({"n": world.puts}), *(["x"] if dirty else [])])
    notified = local.parts if world.kind == "sets" else local
    notify = type(notified)._notify

    def note(*arguments: Any, **others: Any) -> None:
        shown = local._s3.current(key)
        world.contents[key, shown.version_id or f"e#{shown.etag}"] = f"{mood} {world.puts}{' dirty' * dirty}"
        notify(notified, *arguments, **others)

    notified._notify = note
    try:
        local.put(key, content)
    finally:
        del notified._notify
    if world.kind == "sets":
        run_parts(world)


def run_parts(world: World) -> None:
    """Let the workers of the parts handle all."""
    cast("LocalSets", world.local).parts.run()


# --- kinds


class Common(Feature):
    """What holds in each world."""

    def recorded(self, world: World, place: tuple[str, str], before: Item | None, after: Item | None) -> Iterator[str]:
        if after is None or "expires_at" not in after or not world.is_row(place):
            return
        row = world.row_in(after)
        if row is not None and row.status is Status.PROCESSED and not row.settled:
            yield f"the row of {place[0]} expires, and {set(row.late_writes)} may have been written late"

    def judge(self, world: World) -> Iterator[str]:
        name = world.settings.pipeline
        if world.source_messages:
            yield f"{world.source_messages} messages are left"
        if world.expired and "expired" not in world.notes:
            yield f"{world.expired} messages expired in their source"
        for key, _, row in world.rows():
            what = f"{key} {row.identity}: {row.status.value}"
            place = row_key(name, world.ordering, world.settings.bucket, key, row.identity)
            if row.status is Status.PROCESSING and not may_stay(world, key):
                yield f"{what} at rest"
            if row.status is Status.PROCESSED and not row.settled:
                yield f"{what} and not settled: {set(row.late_writes)}"
            if row.status is Status.REJECTED and not row.dismissed:
                fences = [str(one.attributes.get("rejected_fence")) for one in world.letters(key)]
                if str(row.rejected_fence) not in fences and not world.notes & {
                    "restored",
                    "expired",
                    "purged",
                    "lost",
                }:
                    yield f"{what} with the fence {row.rejected_fence}, and its copies have {fences}"
            wanted = wanted_partition(world, row, place)
            if row.needs_review != wanted:
                yield f"{what} is in {row.needs_review}, not in {wanted}"
            keeps_rejects = row.rejected_rows and world.name != "every version"
            if row.expires_at is not None and (not row.settled or row.tags_pending or keeps_rejects):
                yield f"{what} expires"
            keeps = world.settings.keeps_rows or world.settings.deletes
            stays = (keeps and row.kind is StateKind.OBJECT) or (row.rejected_rows and world.name != "every version")
            if row.settled and row.expires_at is None and not (stays or row.tags_pending):
                yield f"{what} never expires"


def wanted_partition(world: World, row: Row, place: Any) -> str | None:
    """The partition of the index that a row belongs to."""
    name = world.settings.pipeline
    if row.status is Status.FAILED:
        return waiting_partition(name) if row.waiting_since else review_partition(name, place)
    if row.status is Status.REJECTED:
        return dismissed_partition(name) if row.dismissed else review_partition(name, place)
    if row.removed_unprocessed:
        return removed_partition(name)
    if row.status is Status.PROCESSED and row.rejected_rows:
        return rejected_rows_partition(name)
    return row.needs_review if row.status is Status.PROCESSED and row.tags_pending else None


def may_stay(world: World, key: str) -> bool:
    """True if nothing continues the work of a key, and the page says so. `forget` is run again after a worker died."""
    if f"forgotten {key}" in world.notes and not world.later:
        return forget(world.dynamodb, world.clock, deployed_of(world), key)
    if not isinstance(world.local, LocalMessages) or not world.notes & {"purged", "restored"}:
        return False
    world.clock.advance(DAY)  # the row of an execution is reported when its time is over
    return key in world.local.check_rows()


def turn(world: World, a: int, b: int) -> None:
    world.deliver(a % 2, b)


def pass_time(world: World, a: int, b: int) -> None:
    world.clock.advance(JUMPS[a % len(JUMPS)])


def double(world: World, a: int, b: int) -> None:
    """SQS delivers a message twice."""
    if waiting := world.sqs.messages:
        one = waiting[a % len(waiting)]
        for key in KEYS if world.kind == "messages" else ():
            use(world, key)  # the copy has a later time
        world.sqs.send(one.body, one.attributes, group=one.group)


def wake_worker(world: World, a: int, b: int) -> None:
    world.wake(a)


def audit(world: World, a: int, b: int) -> None:
    world.check_requests()
    world.check()


ALWAYS = Common(
    "always",
    "always",
    actions={
        "turn": turn,
        "turn again": turn,
        "turn once more": turn,
        "time": pass_time,
        "double": double,
        "audit": audit,
        "wake": wake_worker,
        "wake again": wake_worker,
    },
)


UNREPAIRED = frozenset({"restored", "unreported"})
"""After these, nothing repairs the downstream: see "after a late worker" on the page of the protocol."""
TAG_EVENT_LOST = frozenset({"restored", "expired", "lost", "purged", "tag lost"})
"""After these, nothing may have told the consumer of a tag that came after the end of `max_wait`."""


class Objects(Feature):
    """Objects: of LATEST, or each version."""

    def judge(self, world: World) -> Iterator[str]:
        versions = world.name == "every version"
        for key, shown in world.s3.keys.items():
            if f"forgotten {key}" in world.notes:
                continue
            present = shown if versions else shown[-1:]
            for one in present:
                yield from self._judge_state(world, key, one)
            if not versions and not shown:
                yield from self._judge_gone(world, key)
        yield from judge_commits(world)

    def _judge_state(self, world: World, key: str, shown: Any) -> Iterator[str]:
        local = cast("LocalPipeline", world.local)
        row = local.row(key, shown.version_id)
        if shown.etag is None:
            if world.name != "every version":
                yield from self._judge_gone(world, key)
            return
        state = shown.version_id or f"e#{shown.etag}"
        mood = world.contents[key, state].partition(" ")[0]
        if row is None:
            if "expired" not in world.notes and not is_left_out(world, key, shown):
                yield f"lost: {key} {state} has no row"
            return
        identity = identity_of(StateKind.OBJECT, shown.version_id, shown.etag)
        if mood == "bad" or (row.status is Status.REJECTED and row.reason_code == ReasonCode.ENDED):
            if row.status is not Status.REJECTED or row.identity != identity:
                yield f"{key} {state} is bad, and its row is {row.status.value} {row.identity}"
            return
        if "scans" in world.memory and scan_of(world, key, shown.version_id) != "clean":
            waited = row.reason_code in (ReasonCode.TAG_MISSING, ReasonCode.TAG_REFUSES)
            if row.status is not Status.REJECTED or row.identity != identity or not waited:
                yield f"{key} {state} has no tag, and its row is {row.status.value} {row.identity} ({row.reason})"
            return
        if world.notes & TAG_EVENT_LOST and row.reason_code == ReasonCode.TAG_MISSING:
            return
        if row.status is not Status.PROCESSED or row.committed_state != identity:
            yield f"lost: {key} {state} is current, its row {row.status.value} {row.committed_state} ({row.reason})"
        apart = world.name == "every version"
        effects = [one for one in downstream_of(world, key) if not apart or one.state == state]
        right = bool(effects) and has_content_of(world, key, effects[-1], state)
        if not world.notes & UNREPAIRED and not right:
            yield f"the downstream of {key} has {effects[-1].state if effects else None}, and {state} is current"

    def _judge_gone(self, world: World, key: str) -> Iterator[str]:
        row = cast("LocalPipeline", world.local).row(key)
        if row is not None and row.status in (Status.FAILED, Status.REJECTED) and row.kind is StateKind.OBJECT:
            yield f"{key} is removed, and its row is {row.status.value}"
        effects = downstream_of(world, key)
        if not world.deletes or world.name == "every version" or not effects or world.notes & UNREPAIRED:
            return
        if effects[-1].content != "ok removed":
            yield f"{key} is removed, and the downstream has {effects[-1].state}"


def downstream_of(world: World, key: str) -> list[Effect]:
    """The effects on a key. With writes in the ledger's transactions, those that were carried out."""
    effects = [one for one in world.done if one.key == key]
    if "transact" not in names_of(world):
        return effects
    written = [tuple(one["Put"]["Item"]["id"]["S"].split(" ")) for one in world.local.transacted]
    places = {(one.idempotency_key, str(one.fence)): one for one in effects}
    return [places[cast("Any", one)] for one in written if one in places]


def judge_commits(world: World) -> Iterator[str]:
    """Each state is committed once."""
    if "restored" in world.notes or "expired" in world.notes:
        return
    seen: dict[tuple[str, str], int] = {}
    for one in world.commits:
        seen[one.key, one.state] = seen.get((one.key, one.state), 0) + 1
    for (key, state), number in seen.items():
        most = 1 + world.excused[key] + world.local.late_writes
        if state == "absent":
            most += max(world.memory.get("removals", {}).get(key, 0) - 1, 0)
        if number > most and f"forgotten {key}" not in world.notes:
            yield f"{key} {state} is committed {number} times, and there are reasons for {most}"


def upload(world: World, a: int, b: int) -> None:
    put(world, key_of(a), MOODS[b % len(MOODS)], dirty=b // len(MOODS) % 2)


def remove(world: World, a: int, b: int) -> None:
    key = key_of(a)
    use(world, key)
    if cast("LocalPipeline", world.local).delete(key) is None:
        # Removals of a key without versions have the same state.
        world.memory.setdefault("removals", Counter[str]())[key] += 1


def rollback(world: World, a: int, b: int) -> None:
    """Delete the newest version or marker permanently."""
    key = key_of(a)
    if shown := world.s3.keys.get(key):
        use(world, key)
        world.excused[key] += 1
        cast("LocalPipeline", world.local).delete_version(key, cast("str", shown[-1].version_id))


def report_again(world: World, a: int, b: int) -> None:
    """S3 sends an event again, late."""
    key = key_of(a)
    local = cast("Any", world.local)
    if versions := world.s3.keys.get(key):
        one = versions[b % len(versions)]
        event = "ObjectCreated:Put" if one.etag else "ObjectRemoved:DeleteMarkerCreated"
        local._notify(key, event, one.version_id, one if one.etag else None)


def lose_event(world: World, a: int, b: int) -> None:
    """A message is lost. The audit finds its object."""
    world.notes.add("lost")
    if waiting := [one for one in world.sqs.messages if not one.receives]:
        world.sqs.delete([waiting[a % len(waiting)].id])


OBJECT_STEPS: dict[str, Action] = {
    "upload": upload, "overwrite": upload, "remove": remove, "rollback": rollback, "report again": report_again,
    "lose event": lose_event,
}  # fmt: skip


PATTERNS = (("*.tmp",), ("*.tmp", "b/"), ("a/*.json",), ())
"""The patterns of `exclude` that are deployed. The second ones match two of the keys, the third ones the other."""


def is_left_out(world: World, key: str, shown: Any) -> bool:
    """True if a pattern matches the key, or one did that ended after the upload, as the ledger knows."""
    patterns = world.memory.get("patterns")
    if patterns is None:
        return False
    place = world.settings.bucket, f"{world.settings.pipeline}@ledger"
    ends = json.loads(from_dynamodb(world.dynamodb.items.get(place, {})).get("excluded", "{}"))
    uploaded = shown.modified.timestamp() * 1000
    former = [one for one, end in ends.items() if one not in patterns and (end is None or uploaded < end)]
    return Exclude((*patterns, *former)).matches(key) or "restored" in world.notes


class Excluding(Feature):
    """Patterns leave out keys. A deployment changes them."""

    def begin(self, world: World) -> None:
        local, new_worker = cast("Any", world.local), world.new_worker
        world.memory |= {"patterns": PATTERNS[0], "of worker": {}, "deployed": [(0, PATTERNS[0])]}
        run_audit = local.run_audit

        def new(number: int) -> Any:
            worker = new_worker(number)
            world.memory["of worker"][worker] = world.memory["patterns"]
            return worker

        def audited() -> list[str]:
            found: list[str] = run_audit()
            for key in found:
                shown = world.s3.current(key)
                without = world.name != "every version" and local.row(key) is None
                if shown is None or not without or world.notes & {"restored", "expired"}:
                    continue
                uploaded = shown.modified.timestamp() * 1000
                before = [patterns for at, patterns in world.memory["deployed"] if at <= uploaded]
                if Exclude(before[-1]).matches(key):
                    raise world.broken_promise(f"the audit sends {key}, which was left out")
            return found

        world.new_worker, local.run_audit = new, audited  # type: ignore[method-assign]

    def changed(self, world: World, key: str, before: Row | None, after: Row) -> Iterator[str]:
        """No worker begins a row of a key that it leaves out."""
        new_again = world.notes & {"restored", "expired"} or f"forgotten {key}" in world.notes
        # A deleted version has the row of the version.
        if before is None and world._busy and not new_again and after.kind is not StateKind.DELETED:
            patterns = world.memory["of worker"].get(world._busy[-1], ())
            if Exclude(patterns).matches(key):
                yield f"{key} is left out by {patterns}, and has a new row {after.identity}"


def deploy_patterns(world: World, a: int, b: int) -> None:
    """The next workers, and the audit, have other patterns."""
    local = cast("Any", world.local)
    world.memory["patterns"] = PATTERNS[a % len(PATTERNS)]
    world.memory["deployed"].append((world.clock(), world.memory["patterns"]))
    local._environment["INTAKE_EXCLUDE"] = json.dumps(world.memory["patterns"])
    world.settings = local._settings
    local._row_history = RowHistoryRecord(world.settings, local._table, world.clock)
    world.process = world.start()
    world._workers.clear()
    if world._busy:
        # An old worker may insert an older version after a new one has left out the newer one. The audit finds it.
        world.notes.add("lost")


class Messages(Feature):
    """Messages of one source."""

    def watch(self, world: World) -> Iterator[str]:
        settings = world.settings

        def place_of(key: str) -> RowKey | None:
            return RowKey(f"{settings.bucket}/{key}", f"{settings.pipeline}@lock")

        def name_of(key: str, row: Row) -> str:
            return row_key(settings.pipeline, world.ordering, settings.bucket, key, row.identity).sk

        yield from check_locks(world, place_of, name_of)

    def judge(self, world: World) -> Iterator[str]:
        local = cast("LocalMessages", world.local)
        known: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for body in world.sent:
            known.setdefault((body["order"], body["event"]), []).append(body)
        for (key, event), bodies in known.items():
            row = local.row(key, event)
            if f"forgotten {key}" in world.notes or "purged" in world.notes:
                continue
            if row is None:
                if "expired" not in world.notes and "restored" not in world.notes:
                    yield f"lost: message {event} of {key} has no row"
                continue
            if row.status not in (Status.PROCESSED, Status.REJECTED) and "restored" in world.notes:
                continue  # its message is gone, and nothing finds it again
            if row.status not in (Status.PROCESSED, Status.REJECTED):
                yield f"message {event} of {key} is {row.status.value}: {row.reason}"
                continue
            yield from self._judge_contents(world, key, event, bodies, row)
        yield from judge_commits(world)
        for one in world.sqs.dead_letters if "fingerprint" in names_of(world) else ():
            rejected = one.attributes.get("reason_code") == ReasonCode.UNPROCESSABLE
            if rejected and body_of(one.body).startswith(("ok", "flaky", "later")):
                yield f"the copy of a rejection of {one.key} has {body_of(one.body)}, which is not rejected"
        if world.notes & {"restored", "expired", "dismissed", "purged"}:
            return
        for key, event, content, before in world.memory.get("redriven", ()):
            copied = [body_of(one.body) for one in world.letters(key) if one.attributes.get("version_id") == event]
            done = [one.content for one in world.done[before:] if (one.key, one.state) == (key, event)]
            if content not in (*copied, *done) and f"forgotten {key}" not in world.notes:
                yield f"message {event} of {key} with {content} was redriven, and is nowhere"

    def _judge_contents(
        self, world: World, key: str, event: str, bodies: Sequence[Mapping[str, Any]], row: Row
    ) -> Iterator[str]:
        effects = [one for one in world.done if (one.key, one.state) == (key, event)]
        copied = [body_of(one.body) for one in world.letters(key) if one.attributes.get("version_id") == event]
        wanted = {content_of(one) for one in bodies}
        told = f"message {event} of {key}, {row.status.value}, with {sorted(wanted)}"
        weak = world.notes & {"opened", "restored", "expired", "dismissed"}
        if row.status is Status.PROCESSED:
            # A late worker may come after the one that commits.
            committed = max(effects, key=lambda one: one.fence).content if effects else ""
            if not effects:
                yield f"{told} has no effect"
            elif committed.startswith("bad") and not weak:
                yield f"{told} is committed with {committed}"
            if "fingerprint" in names_of(world) and not weak and effects:
                if others := {one.content for one in effects} - {committed}:
                    yield f"{told} reached its processor as {committed} and as {others}"
                if lost := wanted - {committed} - set(copied):
                    yield f"{told} has committed {committed}, and {sorted(lost)} is nowhere"
        elif not weak and (lost := wanted - set(copied)):
            yield f"{told} has copies {copied}, and {sorted(lost)} is nowhere"


def body_of(text: str) -> str:
    """The content of a copy, of a queue or of a stream."""
    found = json.loads(text)
    if "intakeLedger" in found:
        found = found["intakeLedger"].get("record", {})
    if "kinesis" in found:
        found = json.loads(base64.b64decode(found["kinesis"]["data"]))
    return content_of(found) if "content" in found else "not known"


def names_of(world: World) -> set[str]:
    """The names of the features."""
    return {one.name for one in world.features}


_FIXED = 2


def send(world: World, a: int, b: int) -> None:
    mood = "fixed" if b % len(MOODS) == _FIXED else MOODS[b % len(MOODS)]
    content = f"{mood} {b // len(MOODS) % 2}"
    body = {"order": key_of(a), "event": str(1 + b // (2 * len(MOODS)) % 2), "content": content}
    local = cast("LocalMessages", world.local)
    use(world, body["order"])
    local.send(body, group=body["order"])
    world.sent.append(body)


class Sets(Feature):
    """Sets of files with a manifest."""

    def judge(self, world: World) -> Iterator[str]:
        local = cast("LocalSets", world.local)
        for key in KEYS:
            if f"forgotten {key}" in world.notes or not (shown := world.s3.current(key)) or shown.etag is None:
                continue
            row, truth = local.row(key), self._truth(world, key)
            if row is None:
                yield f"lost: the set {key} has no row"
            elif truth is None:
                if row.status is Status.PROCESSING:
                    yield f"the incomplete set {key} is in work"
            elif truth.startswith("bad"):
                if row.status is not Status.REJECTED:
                    yield f"the set {key} is bad, and its row is {row.status.value}: {row.reason}"
            elif row.status is not Status.REJECTED or row.reason_code != ReasonCode.ENDED:
                effects = [one for one in world.done if one.key == key]
                if row.status is not Status.PROCESSED or not effects or effects[-1].content != truth:
                    yield f"the set {key} is {truth}, its row {row.status.value} ({row.reason}), and not {effects[-1:]}"
        yield from judge_commits(world)

    def _truth(self, world: World, key: str) -> str | None:
        """What the processor has to get for the set. None: it is incomplete."""
        local = cast("LocalSets", world.local)
        found = []
        folder = key.rpartition("/")[0]
        for part in json.loads(cast("Any", world.s3.current(key)).content):
            name = f"{folder}/{part}"
            row = local.part_row(name)
            if row is None or not row.settled or (name, str(row.version_id)) not in world.contents:
                return None
            found.append((name, str(row.version_id)))
        contents = [world.contents[one] for one in found]
        moods = [one.partition(" ")[0] for one in contents]
        mood = next((one for one in ("bad", "flaky", "later") if one in moods), "ok")
        return f"{mood} {' '.join(f'{name}@{version}' for name, version in found)}"


def put_part(world: World, a: int, b: int) -> None:
    folder = key_of(a).rpartition("/")[0]
    put(world, f"{folder}/{1 + b // len(MOODS) % 2}", MOODS[b % len(MOODS)], dirty=b // (2 * len(MOODS)) % 2)


def put_manifest(world: World, a: int, b: int) -> None:
    """A manifest of one part or of two."""
    key = key_of(a)
    world.excused[key] += 1
    cast("LocalSets", world.local).put(key, json.dumps(["1", "2"][: 2 - (b % 4 == 3)]))
    run_parts(world)


def wake(world: World, a: int, b: int) -> None:
    cast("LocalSets", world.local).wake(key_of(a))


SET_STEPS: dict[str, Action] = {"part": put_part, "other part": put_part, "manifest": put_manifest, "wake": wake}
KINDS = [
    Objects("objects", "kind", {"name": "objects"}, actions=OBJECT_STEPS),
    Objects("every version", "kind", {"name": "every version"}, actions=OBJECT_STEPS),
    Messages("messages", "kind", {"name": "messages"}, actions={"send": send, "send again": send}),
    Messages("FIFO messages", "kind", {"name": "FIFO messages"}, actions={"send": send, "send again": send}),
    Messages("stream records", "kind", {"name": "stream records"}, actions={"send": send, "send again": send}),
    Sets("sets", "kind", {"name": "sets"}, actions=SET_STEPS),
]  # fmt: skip


# --- runners and hosts


WAITS = (ReasonCode.NOT_YET, ReasonCode.GROUP_HELD, ReasonCode.MAX_RATE)
"""The reasons of rows that wait, and have no execution."""
_LONGEST_TASK = 2 * HOUR
"""A task may outlive its execution for this time."""


class Executions(Feature):
    """Work that answers later."""

    def watch(self, world: World) -> Iterator[str]:
        """An execution begins when no task of one before it may still run."""
        seen = world.memory.setdefault("executions", set[str]())
        new = [one for one in world.running() if one.name not in seen]
        seen.update(one.name for one in new)
        for one in new:
            for other in executions_of(world):
                same = other is not one and other.given["key"] == one.given["key"]
                same &= world.name != "every version" or other.given["versionId"] == one.given["versionId"]
                ended = other.stopped_at if other.status in ("ABORTED", "STOPPED", "TIMED_OUT") else None
                if (
                    same
                    and ended is not None
                    and world.clock() < ended + _LONGEST_TASK - SKEW
                    and "restored" not in world.notes
                ):
                    seconds = (world.clock() - ended) // 1000
                    yield f"an execution of {one.given['key']} begins {seconds} s after an abort"

    def begin(self, world: World) -> None:
        """A row whose work was never started is not asked about an execution."""
        executions = cast("Any", world.machine)
        name = "describe_execution" if world.runner == "machine" else "get_durable_execution"
        describe = getattr(executions, name)

        def described(**request: Any) -> Any:
            asked = request.get("executionArn", "").rpartition(":")[2]
            # One that starts later in the same turn was not looked at.
            world.described += [str(request) for one in executions_of(world) if one.name in str(request)]
            for key, sk, row in world.rows() if world.is_undisturbed() else ():
                place = RowKey(f"{world.settings.bucket}/{key}", sk)
                waits = row.status is Status.FAILED and row.reason_code in WAITS
                if waits and execution_name(place, row.fence) == asked:
                    raise world.broken_promise(f"{key} waits, and an execution is asked for")
            return describe(**request)

        setattr(executions, name, described)

    def judge(self, world: World) -> Iterator[str]:
        if running := world.running():
            yield f"{len(running)} executions run at rest"


def end_execution(world: World, a: int, b: int) -> None:
    world.end_execution(a, b)


def beat(world: World, a: int, b: int) -> None:
    """The heartbeats of the workers."""
    for one in world._workers.values():
        if one not in world._busy:  # its whole process stands still
            one.beat()


PLACES = [
    Feature("inline", "runner", {"runner": "inline"}),
    Feature("remote", "runner", {"runner": "remote"}),
    Executions("machine", "runner", {"runner": "machine"}, actions={"end": end_execution}),
    Executions("durable", "runner", {"runner": "durable"}, actions={"end": end_execution}),
    Feature("lambda", "host", {"host": "lambda"}),
    Feature("worker", "host", {"host": "worker"}, actions={"beat": beat}),
]


# --- options


def check_locks(
    world: World, place_of: Callable[[str], RowKey | None], name_of: Callable[[str, Row], str]
) -> Iterator[str]:
    """The lock of a live call or execution names its row."""
    if world.notes & {"restored", "expired", "purged"}:
        return
    calls = ((one.key, row) for one, row in world.live_claims())
    for key, row in (*calls, *world.live_executions()):
        place = place_of(key)
        if place is None or f"forgotten {key}" in world.notes:
            continue
        lock = from_dynamodb(world.dynamodb.items.get((place.pk, place.sk), {}))
        if (lock.get("holder"), lock.get("holder_fence")) != (name_of(key, row), row.fence):
            yield f"{key} {row.identity} is in work with the fence {row.fence}, and its lock is {lock.get('holder')!r}"


class Groups(Feature):
    """Keys of a group exclude each other."""

    def watch(self, world: World) -> Iterator[str]:
        def place_of(key: str) -> RowKey | None:
            group = GROUPS.group_of(key)
            return None if group is None else group_key(world.settings.pipeline, group)

        def name_of(key: str, row: Row) -> str:
            return holder_name(
                row_key(world.settings.pipeline, world.ordering, world.settings.bucket, key, row.identity)
            )

        yield from check_locks(world, place_of, name_of)

    def judge(self, world: World) -> Iterator[str]:
        for item in world.dynamodb.items.values():
            if "waiter" not in item or "status" in item or world.notes & {"purged", "restored"}:
                continue
            place = holder_row(item["waiter"]["S"])
            row = row_from_attributes(from_dynamodb(world.dynamodb.items.get((place.pk, place.sk), {})))
            # The next end in the group takes a key off the line whose object was removed.
            if row is not None and row.settled_as is None:
                yield f"{item['waiter']['S']} stands in line at rest"


class Tags(Feature):
    """Committed versions get a tag."""

    def changed(self, world: World, key: str, before: Row | None, after: Row) -> Iterator[str]:
        """The row names a version from its commit on until S3 has its tag, or has the version no longer."""
        old, new = set(before.untagged if before else ()), set(after.untagged)
        shown = {one.version_id for one in world.s3.keys.get(key, ())}
        if lost := [one for one in old - new if one in shown and not is_done(world, key, one)]:
            yield f"the row of {key} forgets {lost}, which have no tag"
        committed = before is not None and before.committed_fence != after.committed_fence
        if added := new - old - ({after.version_id} if committed or before is None else set()):
            yield f"the row of {key} names {added} without a commit"

    def judge(self, world: World) -> Iterator[str]:
        local = cast("LocalPipeline", world.local)
        for key, _, row in world.rows():
            if row.tags_pending:
                yield f"{key}: {row.tags_pending} has no tag at rest"
            version = (row.kept_state or row.committed_state or "").removeprefix("v#")
            known = row.settled and not world.notes & {"restored", "expired"}
            shown = [one for one in world.s3.keys.get(key, ()) if one.version_id == version and one.etag is not None]
            if known and shown and bool(row.tagged_at) != is_done(world, key, version):
                yield f"{key} {version} has the tags {local.tags(key, version)}, and its row has {row.tagged_at}"
        known_commits = {(one.key, one.state) for one in world.commits}
        for (key, state), tags in world.s3.tags.items():
            if "done" in tags and (key, state) not in known_commits:
                yield f"{key} {state} has a tag and no commit"
        for one in world.commits:
            shown = [v for v in world.s3.keys.get(one.key, ()) if v.version_id == one.state]
            if (
                shown
                and shown[0].etag is not None
                and not is_done(world, one.key, one.state)
                and "restored" not in world.notes
            ):
                yield f"{one.key} {one.state} is committed and has no tag"


def is_done(world: World, key: str, version: str) -> bool:
    """True if the version has the tag of its commit."""
    return "done" in world.s3.tags.get((key, version), {})


class Ready(Feature):
    """Versions wait for a tag. A scanner tags each version once, sooner or later or never."""

    def begin(self, world: World) -> None:
        world.memory["scans"] = True

    def processes(self, world: World, given: Any, effect: Effect) -> None:
        if effect.kind == "created" and scan_of(world, effect.key, effect.state) != "clean":
            raise world.broken_promise(f"{effect.key} {effect.state} is processed without its tag")

    def ends(self, world: World) -> None:
        """The scanner comes to most of the others."""
        for key, shown in world.s3.keys.items():
            for number, one in enumerate(shown):
                if one.etag and number % 3:
                    scan_version(world, key, one.version_id, "clean")

    def judge(self, world: World) -> Iterator[str]:
        for key, _, row in world.rows():
            # The row of an object that was removed unprocessed keeps the reason of its version.
            version = (row.unprocessed_state or "").removeprefix("v#") or row.version_id
            value = scan_of(world, key, version or "")
            if row.reason_code == ReasonCode.TAG_REFUSES and value != "infected":
                yield f"{key} {row.version_id} is refused, and its tag is {value}"
            known = world.notes & {*TAG_EVENT_LOST, f"forgotten {key}"}
            late = row.status is Status.REJECTED and row.reason_code == ReasonCode.TAG_MISSING
            if late and value == "clean" and not known:
                yield f"{key} {row.version_id} is clean, and was rejected without its tag"


def scan_of(world: World, key: str, version: str) -> str | None:
    """The result of the scan of a version. None: there is none."""
    return world.s3.tags.get((key, version), {}).get("scan")


def scan_version(world: World, key: str, version: str | None, value: str, *, told: bool = True) -> None:
    """The scanner tags a version, unless it has tagged it before, and S3 may lose the event."""
    tags = world.s3.tags.get((key, version), {})
    if "scan" in tags:
        return
    if told:
        cast("LocalPipeline", world.local).put_tag(key, "scan", value, version)
    else:
        world.notes.add("tag lost")
        world.s3.tags[key, version] = tags | {"scan": value}


def scan(world: World, a: int, b: int) -> None:
    key = key_of(a)
    for one in world.s3.keys.get(key, ()):
        if one.etag:
            scan_version(world, key, one.version_id, "infected" if b % 5 == 4 else "clean", told=b % 7 != 6)


def scan_late(world: World, a: int, b: int) -> None:
    """The scanner comes after the end of `max_wait`."""
    world.come_to_rest()
    scan(world, a, b)


def tag_otherwise(world: World, a: int, b: int) -> None:
    """Somebody sets another tag of any version."""
    key = key_of(a)
    if shown := [one for one in world.s3.keys.get(key, ()) if one.etag]:
        cast("LocalPipeline", world.local).put_tag(key, "team", str(b), shown[b % len(shown)].version_id)


SAME_HOURS = 6
"""The time for which a content counts."""


class SameContent(Feature):
    """Copies in place are not processed again."""

    def begin(self, world: World) -> None:
        put_object = world.s3.put
        world.memory["same content"] = {}

        def upload_with_checksum(key: str, content: bytes, metadata: Any = None, checksum: Any = None) -> Any:
            return put_object(key, content, metadata, checksum or sha256_of(content))

        world.s3.put = upload_with_checksum  # type: ignore[method-assign]

    def changed(self, world: World, key: str, before: Row | None, after: Row) -> Iterator[str]:
        """A version is committed without a call only if the downstream has its content."""
        if after.reason_code != ReasonCode.SAME_CONTENT or (before and before.committed_fence == after.committed_fence):
            return
        effects, state = downstream_of(world, key), (after.version_id or "")
        world.memory["same content"][key, state] = after.committed_fence
        wanted = world.contents[key, state]
        if "unreported" in world.notes:
            return
        if not effects or effects[-1].content != wanted:
            yield f"{key} {state} is committed as {wanted}, and the downstream has {effects[-1:]}"
        elif world.clock() - effects[-1].at > SAME_HOURS * HOUR + 2 * SKEW:
            yield f"{key} {state} is committed as {wanted}, which was processed at {effects[-1].at}"
        for other, _ in world.live_claims():
            if other.key == key:
                yield f"{key} {state} is committed without a call, and {other.state} is in work"


def is_known_commit(world: World, key: str, state: str, fence: int | None) -> bool:
    """True if a version was committed without a call, and `SameContent` has judged it."""
    known: Mapping[Any, int] = world.memory.get("same content", {})
    return (key, state) in known and known[key, state] == fence


def has_content_of(world: World, key: str, effect: Effect, state: str) -> bool:
    """True if an effect is that of a version, or of another one with its content, of which this one is a copy."""
    copied = "same content" in world.memory and world.contents.get((key, state)) == effect.content
    return effect.state == state or copied


def copy_in_place(world: World, a: int, b: int) -> None:
    """Copy an object onto itself, or upload an earlier content again."""
    key = key_of(a)
    known = [one for one in world.s3.keys.get(key, ()) if one.etag]
    if not known or (b % 3 and not world.s3.keys[key][-1].etag):
        return
    use(world, key)
    local, one = cast("Any", world.local), known[-1] if b % 3 else known[b % len(known)]
    notify = type(local)._notify

    def note(*arguments: Any, **others: Any) -> None:
        shown = local._s3.current(key)
        world.contents[key, shown.version_id] = world.contents[key, str(one.version_id)]
        # S3 copies the tag of a commit too (docs/options.md).
        world.s3.tags.get((key, shown.version_id), {}).pop("done", None)
        notify(local, *arguments, **others)

    local._notify = note
    try:
        if b % 3:
            local.copy(key)
        else:
            local.put(key, one.content)
    finally:
        del local._notify


class Rejecting(Feature):
    """Files with rejected rows."""

    def processes(self, world: World, given: Any, effect: Effect) -> None:
        for one in [given] if world.kind == "objects" else given.parts:
            if getattr(one, "kind", "created") == "created":
                list(one.json_lines(on_error=Rejects(max_share=None)))

    def judge(self, world: World) -> Iterator[str]:
        local = cast("Any", world.local)
        for key, _, row in world.rows():
            if (
                not row.settled
                or row.settled_as is not None
                or row.version_id is None
                or row.kind is not StateKind.OBJECT
            ):
                continue
            found = local.rejected_rows(key, row.version_id) if world.kind == "objects" else local.rejected_rows(key)
            effects = [one for one in world.done if one.key == key and one.state == row.version_id]
            if not effects or f"forgotten {key}" in world.notes:
                continue
            content = world.contents.get((key, row.version_id)) or effects[-1].content
            if world.kind == "sets":
                files = [tuple(one.split("@")) for one in content.split(" ")[1:]]
                wanted = sum("dirty" in world.contents[cast("Any", one)] for one in files)
            else:
                wanted = "dirty" in content
            if len(found) != wanted or (row.rejected_rows or 0) != wanted:
                numbers = f"{int(wanted)} bad rows, its row {row.rejected_rows}, its output {len(found)}"
                yield f"{key} {row.version_id} has {numbers}"


class StopOvertaken(Feature):
    """An execution whose state is overtaken is stopped."""

    def begin(self, world: World) -> None:
        executions = cast("Any", world.machine)
        ended = executions.stopped

        def stopped(execution: MemoryExecution) -> None:
            if not self._is_overtaken(world, execution):
                given = execution.given
                raise world.broken_promise(
                    f"the execution of {given['key']} {given['versionId']} is stopped, which is current"
                )
            ended(execution)

        executions.stopped = stopped

    def _is_overtaken(self, world: World, execution: MemoryExecution) -> bool:
        given = execution.given
        shown = world.s3.current(given["key"])
        if shown is None or shown.etag is None:
            return world.deletes and given.get("kind") == "created"
        return bool((shown.version_id, shown.etag) != (given["versionId"], given.get("etag", shown.etag)))

    def recorded(self, world: World, place: tuple[str, str], before: Item | None, after: Item | None) -> Iterator[str]:
        """What is wrong about a change of an item."""
        yield from ()

    def handled(self, world: World, requests: Sequence[str]) -> None:
        """A look at an execution looks at its state too."""
        if {"stop_execution", "stop_durable_execution"} & set(requests):
            return
        for one in world.running():
            row = world.row_of_execution(one)
            if not any(one.name in asked for asked in world.described):
                continue
            young = row is not None and world.clock() - row.updated_at < 4 * HOUR - MINUTE
            if young and row is not None and row.status is Status.PROCESSING and self._is_overtaken(world, one):
                raise world.broken_promise(
                    f"the execution of {one.given['key']} {one.given['versionId']} goes on, and is overtaken"
                )


class Calls(Feature):
    """Several changes in one call."""

    def watch(self, world: World) -> Iterator[str]:
        yield from world.calls_said


class Rate(Feature):
    """Starts per second."""

    def watch(self, world: World) -> Iterator[str]:
        started = sum(one in ("start_execution", "invoke") for one in world.local.requests)
        begun = started if world.later else world.begun_calls
        if world.starts > begun + world.faults and "restored" not in world.notes:
            yield f"{world.starts} starts are taken, and {begun} calls have begun"


class Transact(Feature):
    """The commit has writes of the processor."""

    def commit(self, world: World, effect: Effect) -> Commit | None:
        item = {"id": {"S": f"{effect.idempotency_key} {effect.fence}"}}
        return Commit("done", transact=[{"Put": {"TableName": "other", "Item": item}}])

    def judge(self, world: World) -> Iterator[str]:
        ids = [one["Put"]["Item"]["id"]["S"].partition(" ")[0] for one in world.local.transacted]
        new_again = any(one in {"restored", "expired"} or one.startswith("forgotten") for one in world.notes)
        if len(ids) != len(set(ids)) and not new_again and not sum(world.excused.values()):
            yield f"a transaction is carried out twice: {ids}"


class Deletes(Feature):
    """The processor is told of removals."""


class Outputs(Feature):
    """The processor writes an output."""

    def processes(self, world: World, given: Any, effect: Effect) -> None:
        output = given.output("out", self._name(world, effect.key, effect.state))
        if given.kind == "created":
            output.put(f"{effect.content} {given.fence}".encode())
        else:
            output.remove()

    def _name(self, world: World, key: str, state: str) -> str:
        return f"{key}/{state}" if world.name == "every version" else key

    def judge(self, world: World) -> Iterator[str]:
        """The output is that of the last commit."""
        if "restored" in world.notes:
            return
        for key, _, row in world.rows():
            identity = row.committed_state if row.settled_as is None else row.kept_state
            if not row.settled or identity is None or f"forgotten {key}" in world.notes:
                continue
            state = identity.removeprefix("v#")
            content = world.contents.get((key, state))
            fence = row.committed_fence
            if is_known_commit(world, key, state, fence):
                fence = downstream_of(world, key)[-1].fence
            wanted = None if content is None else f"{content} {fence}".encode()
            found = cast("LocalPipeline", world.local).output("out", self._name(world, key, state))
            if found != wanted:
                yield f"the output of {key} is {found!r}, and its commit {wanted!r}"


# --- what happens beside the consumer


class Pause(Feature):
    """People pause and resume the consumer."""

    def ends(self, world: World) -> None:
        resume(world, 0, 0)

    def judge(self, world: World) -> Iterator[str]:
        place = pause_key(world.settings.pipeline)
        if (place.pk, place.sk) in world.dynamodb.items and "restored" not in world.notes:
            yield "a pause is recorded, and the consumer is not paused"


class _Mappings:
    """The event source mapping of the consumer."""

    def __init__(self, world: World) -> None:
        self._world = world

    def update_event_source_mapping(self, *, UUID: str, Enabled: bool) -> None:  # noqa: N803 - as boto3 has it
        self._world.paused = not Enabled


def _lambda_of(world: World) -> Any:
    connection = LocalConnection(world._passes)
    return SimpleNamespace(dynamodb=connection.client(world.dynamodb), functions=connection.client(_Mappings(world)))


def pause(world: World, a: int, b: int) -> None:
    """As `intake-ledger pause`: the record comes first."""
    aws, content = _lambda_of(world), {"paused_at": world.clock(), "paused_by": "me", "because": "a deploy"}
    LedgerTable(aws.dynamodb, world.settings.table).write(pause_key(world.settings.pipeline), content)
    pausing._switch(aws, ["mapping"], enabled=False)


def resume(world: World, a: int, b: int) -> None:
    aws, place = _lambda_of(world), pause_key(world.settings.pipeline)
    pausing._switch(aws, ["mapping"], enabled=True)
    aws.dynamodb.delete_item(TableName=world.settings.table, Key={"pk": {"S": place.pk}, "sk": {"S": place.sk}})


class LaterRelease(Feature):
    """A later release writes rows, and is rolled back. This one leaves its rows and its columns as they are."""

    def recorded(self, world: World, place: tuple[str, str], before: Item | None, after: Item | None) -> Iterator[str]:
        if before is None or after is None or "later_column" not in before:
            return
        if "later_column" not in after:
            yield f"{place} loses a column of a later release"
        if before["format"] != {"N": "1"} and any(before[one] != after[one] for one in ("status", "format", "fence")):
            yield f"{place} is a row of a later release, and this one has changed it"

    def ends(self, world: World) -> None:
        for place in list(world.memory.get("later", {})):
            self.deploy(world, place)

    def deploy(self, world: World, place: tuple[str, str]) -> None:
        """The later release writes a row, or writes it in the format of this one."""
        later, items = world.memory.setdefault("later", {}), cast("Any", world.dynamodb.items)
        item = items.get(place)
        known = later.pop(place, None)
        if item is None:
            return
        if known is not None:
            dict.__setitem__(items, place, {**item, **known, "later_column": {"S": "kept"}})
            return
        later[place] = {one: item[one] for one in ("status", "format")}
        written = {"status": {"S": "ARCHIVED"}, "format": {"N": "2"}, "later_column": {"S": "kept"}}
        dict.__setitem__(items, place, {**item, **written})


def later_release(world: World, a: int, b: int) -> None:
    for key, sk, row in list(world.rows()):
        if key == key_of(a) and not row.is_live(world.clock()):
            LATER_RELEASE.deploy(world, (f"{world.settings.bucket}/{key}", sk))


class OutcomeEvents(Feature):
    """The stream of the table sends outcomes."""

    def recorded(self, world: World, place: tuple[str, str], before: Item | None, after: Item | None) -> Iterator[str]:
        stream = world.memory.setdefault("stream", [])
        images = {"OldImage": before, "NewImage": after}
        keys = {"pk": {"S": place[0]}, "sk": {"S": place[1]}}
        number = world.memory["records"] = world.memory.get("records", 0) + 1
        images = {name: one for name, one in images.items() if one is not None}
        stream.append({"dynamodb": {"Keys": keys, "SequenceNumber": str(number), **images}})
        yield from ()

    def judge(self, world: World) -> Iterator[str]:
        while world.memory.get("stream"):
            outcome_batch(world, 2, 9)
        sent = world.memory.get("events", [])
        named = {(one["key"], one["fence"]) for one in sent}
        for key, _, row in world.rows():
            fence = row.committed_fence if row.status is Status.PROCESSED else row.rejected_fence or row.fence
            ended = row.status is Status.REJECTED or (row.status is Status.PROCESSED and row.settled_as is None)
            if ended and (key, str(fence)) not in named and not world.notes & {"restored", "expired"}:
                yield f"{key} is {row.status.value} with the fence {fence}, and no event says so"
        ids = {one["id"]: one for one in sent}
        if others := [one for one in sent if ids[one["id"]] != one]:
            yield f"two events have one id: {others[:2]}"


class _Bus:
    """EventBridge. It refuses an event, or loses its answer."""

    def __init__(self, world: World, how: int) -> None:
        self._world, self._how = world, how

    def put_events(self, *, Entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:  # noqa: N803 - as boto3 has it
        taken = Entries[:-1] if self._how == 0 else Entries
        self._world.memory.setdefault("events", []).extend(json.loads(one["Detail"]) for one in taken)
        if self._how == 1:
            raise ClientError({"Error": {"Code": "InternalFailure", "Message": "try again"}}, "PutEvents")
        return {"Entries": [{} for _ in taken] + [{"ErrorCode": "Throttled"}] * (len(Entries) - len(taken))}


def outcome_batch(world: World, a: int, b: int) -> None:
    """Lambda gives some records to the function, and repeats those that it does not take."""
    stream = world.memory.get("stream", [])
    batch = stream[: b + 1]
    kinds = {world.settings.pipeline: world.kind}
    names = {OUTCOME_INTAKES: json.dumps(kinds), OUTCOME_BUS: "bus"}
    with patch.dict(os.environ, names), patch.object(outcome_events, "_client", lambda: _Bus(world, a % 3)):
        failed = outcome_events.handler({"Records": batch}, None)["batchItemFailures"]
    numbers = [one["dynamodb"]["SequenceNumber"] for one in batch]
    del stream[: numbers.index(failed[0]["itemIdentifier"]) if failed else len(batch)]


class Once(Feature):
    """Code beside the consumer uses `once` on the same table."""

    def judge(self, world: World) -> Iterator[str]:
        for key, identity in world.memory.get("once", {}):
            for _ in range(20):
                if (wait := run_once(world, key, identity, mood=0)) is None:
                    break
                world.clock.advance(round(wait * 1000) + 1)
            else:
                yield f"once: {key} {identity} does not end"


def once(world: World, a: int, b: int) -> None:
    run_once(world, "xy"[a % 3 == 2], str(b % 2), mood=b // 2 % 3)


def run_once(world: World, key: str, identity: str, *, mood: int) -> float | None:
    """Run a block. Returns the seconds after which to try again. None: the identity is done."""
    results = world.memory.setdefault("once", {}).setdefault((key, identity), {})
    opened = world.memory.setdefault("once open", [])
    connection = LocalConnection(world._passes)
    client = connection.client(world.dynamodb)
    ledger = OnceLedger("once", table=world.settings.table, client=client, clock=world.clock)
    try:
        with ledger.once(key, identity) as claim:
            if "committed" in results and not world.notes & {"restored", "expired"}:
                raise world.broken_promise(f"once: {key} {identity} runs again after its commit")
            if any(one == key and at + MINUTE > world.clock() for one, at in opened):
                raise world.broken_promise(f"once: two blocks of {key} run")
            opened.append((key, world.clock()))
            try:
                if world._passes("process"):
                    connection.dead = True
                    raise Killed
            finally:
                opened.pop()
            number = results["runs"] = results.get("runs", 0) + 1
            if mood and number == 1:
                raise NotYet("the rates", retry_in=600) if mood == 2 else ValueError("flaky")
            claim.result = f"{identity} {number}"
            results[claim.result] = claim.fence
        results["committed"] = claim.result
    except Duplicate as done:
        if done.result not in results or results.get("committed", done.result) != done.result:
            raise world.broken_promise(f"once: {key} {identity} was {results}, and is {done.result}") from None
    except Busy as busy:
        return busy.retry_after
    except (Fenced, NotYet, ValueError):
        return 0
    return None


# --- people


def redrive(world: World, a: int, b: int) -> None:
    letters = world.sqs.dead_letters
    world.excused.update(one.key for one in letters)
    world.notes.add("opened")
    if world.kind == "messages":
        before = len(world.done)
        found = ((one.key, str(one.attributes.get("version_id")), body_of(one.body), before) for one in letters)
        world.memory.setdefault("redriven", []).extend(one for one in found if one[2] != "not known")
    fences = {(one.key, str(one.attributes.get("rejected_fence"))) for one in letters}
    # A person asks again for what the copies of a stopped request say.
    stops = world.memory.get("stops", set())
    stops -= {request for request in stops if any(request in one.body for one in letters)}
    world.redrive()
    world.memory.setdefault("operations", {})[world.operation] = fences


def reprocess(world: World, a: int, b: int) -> None:
    key = key_of(a)
    if world.s3.keys.get(key) or (world.kind == "sets" and world.s3.current(key)):
        if world.name == "every version" and not world.s3.keys[key][-1].etag:
            return
        world.excused[key] += 1
        world.asked[key] = world.clock()
        use(world, key)
        world.reprocess("99", keys=[key])


def stop(world: World, a: int, b: int) -> None:
    if world.operation:
        world.stop()
        world.notes.add("stopped")
        if not world._busy:
            world.memory.setdefault("stops", set()).add(world.operation)


class Requests(Feature):
    """People redrive, reprocess and stop."""

    def changed(self, world: World, key: str, before: Row | None, after: Row) -> Iterator[str]:
        """No work begins for an operation that was stopped when no worker had its messages."""
        begins = after.status is Status.PROCESSING and (before is None or before.status is not Status.PROCESSING)
        stops = world.memory.get("stops", set())
        if not begins or not stops:
            return
        asked = after.reprocess_id if before is None or before.reprocess_id != after.reprocess_id else None
        if asked in stops:
            yield f"{key} is processed for the request {asked}, which was stopped"
        if asked is None and before is not None and after.redrive_count > before.redrive_count:
            name = key, str(before.rejected_fence)
            by = {one for one, fences in world.memory.get("operations", {}).items() if name in fences}
            if by and by <= stops:
                yield f"{key} is processed for the redrive {by}, which was stopped"

    def judge(self, world: World) -> Iterator[str]:
        table, name = world.settings.table, world.settings.pipeline
        left = [one for one in queried_batches(cast("Any", world.dynamodb), table, name) if one.entries]
        if left and not world.before_audit and "purged" not in world.notes:
            yield f"requests are outstanding at rest: {[(one.command, one.entries) for one in left][:2]}"
        for key, _, found in world.rows():
            if found.reprocess_id and found.reprocess_id > (found.served_reprocess_id or "") and found.settled:
                yield f"{key} is settled, and the request {found.reprocess_id} is not served"
        if world.notes & {"stopped", "restored", "expired", "purged"} or world.kind == "messages":
            return
        for key, at in world.asked.items():
            if world.name == "every version" or f"forgotten {key}" in world.notes:
                continue
            row = world.row_of_state(key, "")
            told = row is not None and row.status is Status.PROCESSED and row.settled_as is None
            told |= world.deletes and any(one.key == key and one.at < at for one in world.commits)
            if told and not any(one.key == key and one.at >= at for one in world.commits):
                yield f"{key} was asked for, and has no commit since"


class Forget(Feature):
    """People forget keys."""

    def begins(self, world: World, effect: Effect) -> Iterator[str]:
        if effect.key in world.memory.get("forgotten", ()):
            yield f"{effect.key} is called, and was forgotten"

    def judge(self, world: World) -> Iterator[str]:
        gone = world.memory.get("forgotten", set())
        if rows := [f"{key} {row.status.value}" for key, _, row in world.rows() if key in gone and row.settled]:
            yield f"forgotten keys have the rows {rows}"


class _Waits:
    """The clock of `forget`. Workers go on while the command waits."""

    def __init__(self, world: World, number: int) -> None:
        self._world, self._number = world, number

    def __call__(self) -> int:
        return self._world.clock()

    def advance(self, milliseconds: int) -> None:
        self._world.clock.advance(milliseconds // 2)
        if self._number % 2:
            self._world.deliver(1, self._number)
        self._world.clock.advance(milliseconds // 2 + 1)


def deployed_of(world: World) -> Any:
    """The intake, as a command finds it."""
    settings = world.settings
    found = deployed_in_memory(settings.pipeline, settings.bucket, world.ordering, messages=world.kind == "messages")
    return with_variables(found, INTAKE_STATE_MACHINE="machine") if world.later else found


def forget_key(world: World, a: int, b: int) -> None:
    key = key_of(a)
    if world.s3.current(key) and world.kind != "messages":
        return
    uses = world.memory.get("uses", 0)
    try:
        gone = forget(world.requests_of_person(), _Waits(world, b), deployed_of(world), key)
    finally:
        if any("forgotten_at" in item for item in world.dynamodb.items.values()):
            # Messages of before are refused, also if the command was refused later.
            world.notes.add(f"forgotten {key}")
    gone &= world.memory.get("uses", 0) == uses
    if gone:
        world.memory.setdefault("forgotten", set()).add(key)
    if gone and (rows := [row.status for name, _, row in world.rows() if name == key]):
        raise world.broken_promise(f"{key} is forgotten, and has the rows {rows}")


def dismiss(world: World, a: int, b: int) -> None:
    key, deployed, aws = key_of(a), deployed_of(world), cast("Any", aws_of(world))
    try:
        rows = dismissing.rejected_entries(aws, deployed, key, None)
        for one in rows:
            dismissing._move(aws, deployed, one, dismissed_partition(deployed.name))
    except CliError:
        return
    fences = {str(one.row.rejected_fence) for one in rows}
    world.notes.add("dismissed")
    letters = world.sqs.dead_letters
    world.sqs.dead_letters = [
        one for one in letters if one.key != key or str(one.attributes.get("rejected_fence")) not in fences
    ]


def aws_of(world: World) -> MemoryAws:
    """The clients of a command."""
    return MemoryAws(world.dynamodb, world.clock)


def retry_now(world: World, a: int, b: int) -> None:
    """Make the next attempt of each failed row due, and wake its key."""
    table = LedgerTable(cast("Any", world.dynamodb), world.settings.table)
    there = Condition("attribute_exists(#pk)", ("pk",), {})
    world.clock.advance(1)
    for key, _, row in world.rows():
        if row.status is Status.FAILED:
            place = row_key(world.settings.pipeline, world.ordering, world.settings.bucket, key, row.identity)
            table.mark(place, {"retry_at": world.clock()}, there)
            _wake(world, key, row)
    table.write(success_key(world.settings.pipeline), {"retry_now_at": world.clock()})


def _wake(world: World, key: str, row: Row) -> None:
    if world.kind != "messages":
        state = row.state if world.ordering is Ordering.EVERY_VERSION else None
        world.sqs.send(own_message(Origin.AUDIT, world.settings.bucket, key, state))


def release_claim(world: World, a: int, b: int) -> None:
    """A person says that the worker of a key is dead. It may be alive."""
    settings, now = world.settings, world.clock()
    table, reason = LedgerTable(cast("Any", world.dynamodb), settings.table), Reason(ReasonCode.LOCK_BROKEN, "released")
    for key, _, row in world.rows():
        if key == key_of(a) and row.is_live(now):
            place = row_key(settings.pipeline, world.ordering, settings.bucket, key, row.identity)
            world.broken += 1
            with suppress(ConditionFailed):
                break_claim(table, settings.pipeline, place, row, reason, now=now)
                _wake(world, key, row)


def end_work_of(world: World, a: int, b: int) -> None:
    """A person ends the work of a key for good. No worker starts its execution any more, says the person."""
    settings, now = world.settings, world.clock()
    table, reason = LedgerTable(cast("Any", world.dynamodb), settings.table), Reason(ReasonCode.ENDED, "ended")
    for key, _, row in world.rows():
        if key != key_of(a) or not row.unfinished:
            continue
        started = any(one.given["fence"] == row.fence for one in world.machine.executions.values())
        may_run = row.status is Status.PROCESSING and (started or row.is_live(now))
        place = row_key(settings.pipeline, world.ordering, settings.bucket, key, row.identity)
        with suppress(ConditionFailed):
            after = end_work(table, settings.pipeline, place, row, reason, now=now, may_run=may_run)
            _wake(world, key, row)
            if world.kind == "messages" and not may_run and row.status is Status.PROCESSING:
                body = body_unknown(key, str(row.version_id))
                names = {"key": key, "version_id": str(row.version_id), "reason_code": str(after.reason_code)}
                world.sqs.dead_letters.append(DeadLetter(body, names))


class Expiring(Feature):
    """Rows of LATEST expire, as without `keep_rows`."""

    def begin(self, world: World) -> None:
        local = cast("Any", world.local)
        local._environment |= environment_of(ConsumerSettings, keeps_rows=False)
        world.settings, world.process = local._settings, world.start()


class Restore(Feature):
    """The table is restored from a backup."""


def back_up(world: World, a: int, b: int) -> None:
    world._backup = dict(world.dynamodb.items)  # type: ignore[attr-defined]


def restore(world: World, a: int, b: int) -> None:
    backup = getattr(world, "_backup", None)
    if backup is None:
        return
    world.notes.add("restored")
    world._quiet = False
    items = cast("dict[Any, Any]", world.dynamodb.items)
    for key in list(items):
        dict.pop(items, key)
    for key, item in backup.items():
        dict.__setitem__(items, key, item)
    world._quiet = True
    world.dynamodb.restored = True


def purge(world: World, a: int, b: int) -> None:
    if world.kind == "messages" and world.later:
        return  # docs/messages.md: the execution holds the key, and no message is left to see its end
    world.notes.add("purged")
    world.lose()


def months(world: World, a: int, b: int) -> None:
    """All comes to rest, 40 days pass, and DynamoDB deletes what has expired."""
    world.come_to_rest()
    world.clock.advance(40 * DAY)
    world.notes.add("expired")
    items = cast("dict[Any, Any]", world.dynamodb.items)
    for place, item in list(items.items()):
        if "expires_at" in item and int(item["expires_at"]["N"]) * 1000 < world.clock():
            dict.pop(items, place)
    world.sqs.dead_letters = []


class Skew(Feature):
    """The clocks of workers differ."""

    def begin(self, world: World) -> None:
        world.skews = 1


LATER_RELEASE = LaterRelease("later release", actions={"later release": later_release})
OF_OBJECTS = frozenset({"objects", "every version"})
ALONE = frozenset({"sets", "FIFO messages", "stream records", "together"})
NOT_LATEST = frozenset({"every version", *MESSAGES, "sets"})
IN_BUCKET = OF_OBJECTS | {"sets"}
NO_VERSIONS = frozenset({"tags", "ready", "same content", "every version"})
OPTIONS = [
    Deletes("deletes", cell={"deletes": True}, beside=OF_OBJECTS),
    Groups("groups", cell={"exclusive_by": "{folder}/"}, beside=IN_BUCKET, without=frozenset({"calls"})),
    Rate("rate", cell={"max_rate": 0.01}),
    Calls("calls", cell={"per_call": 3}, beside=frozenset({"inline"}), without=ALONE),
    Rejecting("rejects", cell={"keep_rejects": True}, beside=frozenset({"inline"}), without=frozenset(MESSAGES)),
    Excluding(
        "exclude",
        kit={"exclude": list(PATTERNS[0])},
        actions={"deploy": deploy_patterns},
        beside=OF_OBJECTS,
        without=frozenset({"months"}),
    ),
    Ready(
        "ready",
        kit={"ready_when": ("scan", ["clean"], ["infected"])},
        actions={"scan": scan, "scan again": scan, "scan late": scan_late, "tag otherwise": tag_otherwise},
        beside=OF_OBJECTS,
        without=frozenset(LATER),
    ),
    SameContent(
        "same content",
        kit={"same_content": (SAME_HOURS * 3_600, None)},
        actions={"copy": copy_in_place, "copy again": copy_in_place},
        beside=frozenset({"objects"}),
        without=frozenset(LATER),
    ),
    Tags("tags", cell={"after_commit": CommitTag("done", "yes")}, beside=OF_OBJECTS),
    StopOvertaken("stop_overtaken", kit={"stop_overtaken": True}, beside=frozenset(LATER), without=NOT_LATEST),
    Feature("fingerprint", kit={"fingerprint": "content"}, beside=frozenset(MESSAGES)),
    Feature("together", kit={"commit_together": True}, beside=OF_OBJECTS),
    Feature("crowded", cell={"crowded": True}),
    Feature("unversioned", kit={"versioned": False}, beside=OF_OBJECTS, without=NO_VERSIONS),
    Transact("transact", beside=frozenset({"inline"}), without=frozenset({"together"})),
    Requests("requests", actions={"redrive": redrive, "reprocess": reprocess, "stop": stop}),
    Forget("forget", actions={"forget": forget_key}, without=frozenset({"sets"})),
    Feature("dismiss", actions={"dismiss": dismiss}),
    Feature("retry", actions={"retry": retry_now}),
    Feature("release", actions={"release": release_claim}, without=frozenset(LATER)),
    Feature("end", actions={"end work": end_work_of}, beside=frozenset(LATER)),
    Expiring("expiring", beside=frozenset({"objects"})),
    Restore("restore", actions={"back up": back_up, "restore": restore}),
    Feature("purge", actions={"purge": purge}),
    Feature("months", actions={"months": months}),
    Skew("skew"),
    Outputs("outputs", beside=frozenset({"inline"}), without=frozenset({*MESSAGES, "sets"})),
    Pause("pause", actions={"pause": pause, "resume": resume}),
    LATER_RELEASE,
    OutcomeEvents("outcome events", actions={"events": outcome_batch}),
    Once("once", actions={"once": once}),
]  # fmt: skip
FEATURES = {one.name: one for one in (ALWAYS, *KINDS, *PLACES, *OPTIONS)}


def fits(names: Sequence[str]) -> bool:
    """True if the features may meet."""
    chosen = [FEATURES[one] for one in names]
    kinds = [one.name for one in chosen if one.role == "kind"]
    if (
        len(kinds) != 1
        or sum(one.role == "runner" for one in chosen) != 1
        or sum(one.role == "host" for one in chosen) != 1
    ):
        return False
    return all((not one.beside or one.beside & set(names)) and not one.without & set(names) for one in chosen)


def make_world(names: Sequence[str]) -> World:
    """Make a world.

    Raises:
        ValueError: The kit refuses these features together.

    """
    chosen = (*(FEATURES[one] for one in names), ALWAYS)
    cell = {name: value for one in chosen for name, value in one.cell.items()}
    kit = {name: value for one in chosen for name, value in one.kit.items()}
    world = World(**cell, kit={"max_attempts": 8, **kit}, features=chosen)
    for one in chosen:
        one.begin(world)
    return world
