"""The features of worlds. Each one has its options, its steps and its invariants at rest in one place.

`make_world` refuses what the kit refuses. So a new feature meets all others by being in `FEATURES`.
"""

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from intake_ledger import Commit, Rejects
from intake_ledger.events.parser import body_unknown, own_message
from intake_ledger.ledger.conditions import Condition, ConditionFailed
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import break_claim, end_work
from intake_ledger.protocol.change import Origin, StateKind, identity_of
from intake_ledger.protocol.commit_tag import CommitTag
from intake_ledger.protocol.reasons import Reason, ReasonCode
from intake_ledger.protocol.row import (
    Ordering,
    Row,
    Status,
    dismissed_partition,
    rejected_rows_partition,
    removed_partition,
    review_partition,
    row_key,
    success_key,
    waiting_partition,
)
from intake_ledger.requests.record import queried_batches
from intake_ledger_cli.act import dismissing
from intake_ledger_cli.errors import CliError
from intake_ledger_testing.memory_sqs import DeadLetter
from tests.pairs.world import JUMPS, KEYS, MOODS, Effect, Violation, World, content_of, key_of
from tests.unit.command.forget_support import MemoryAws, deployed_in_memory, forget
from tests.unit.support import DAY

if TYPE_CHECKING:
    from cdk_intake_ledger.testing import LocalMessages, LocalPipeline, LocalSets

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

    def begin(self, world: World) -> None:
        """Before the first step."""

    def processes(self, world: World, given: Any, effect: Effect) -> None:
        """Inside a call, before its effect."""

    def commit(self, world: World, effect: Effect) -> Commit | None:
        """The return value of a call."""
        return None

    def judge(self, world: World) -> Iterator[str]:
        """What is wrong at rest."""
        yield from ()


def put(world: World, key: str, mood: str) -> None:
    """Upload an object. Each content is another one, and those of each third upload have a bad row."""
    local = cast("Any", world.local)
    world.puts += 1
    dirty = world.puts % 3 == 0
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
                if str(row.rejected_fence) not in fences and not world.notes & {"restored", "expired", "purged"}:
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
    return "purged" in world.notes and world.kind == "messages"


def turn(world: World, a: int, b: int) -> None:
    world.deliver(a % 2, b)


def pass_time(world: World, a: int, b: int) -> None:
    world.clock.advance(JUMPS[a % len(JUMPS)])


def double(world: World, a: int, b: int) -> None:
    """SQS delivers a message twice."""
    if waiting := world.sqs.messages:
        one = waiting[a % len(waiting)]
        world.sqs.send(one.body, one.attributes, group=one.group)


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
    },
)


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
            if "expired" not in world.notes:
                yield f"lost: {key} {state} has no row"
            return
        identity = identity_of(StateKind.OBJECT, shown.version_id, shown.etag)
        if mood == "bad" or (row.status is Status.REJECTED and row.reason_code == ReasonCode.ENDED):
            if row.status is not Status.REJECTED or row.identity != identity:
                yield f"{key} {state} is bad, and its row is {row.status.value} {row.identity}"
            return
        if row.status is not Status.PROCESSED or row.committed_state != identity:
            yield f"lost: {key} {state} is current, its row {row.status.value} {row.committed_state} ({row.reason})"
        apart = world.name == "every version"
        effects = [one for one in world.done if one.key == key and (not apart or one.state == state)]
        if "restored" not in world.notes and "late" not in world.notes and (not effects or effects[-1].state != state):
            yield f"the downstream of {key} has {effects[-1].state if effects else None}, and {state} is current"

    def _judge_gone(self, world: World, key: str) -> Iterator[str]:
        row = cast("LocalPipeline", world.local).row(key)
        if row is not None and row.status in (Status.FAILED, Status.REJECTED) and row.kind is StateKind.OBJECT:
            yield f"{key} is removed, and its row is {row.status.value}"
        effects = [one for one in world.done if one.key == key]
        if not world.deletes or world.name == "every version" or not effects or "restored" in world.notes:
            return
        if effects[-1].content != "ok removed":
            yield f"{key} is removed, and the downstream has {effects[-1].state}"


def judge_commits(world: World) -> Iterator[str]:
    """Each state is committed once."""
    if "restored" in world.notes or "expired" in world.notes:
        return
    seen: dict[tuple[str, str], int] = {}
    for one in world.commits:
        seen[one.key, one.state] = seen.get((one.key, one.state), 0) + 1
    for (key, state), number in seen.items():
        most = 1 + world.excused[key] + world.local.late_writes
        if number > most:
            yield f"{key} {state} is committed {number} times, and there are reasons for {most}"


def upload(world: World, a: int, b: int) -> None:
    put(world, key_of(a), MOODS[b % len(MOODS)])


def remove(world: World, a: int, b: int) -> None:
    key = key_of(a)
    cast("LocalPipeline", world.local).delete(key)


def rollback(world: World, a: int, b: int) -> None:
    """Delete the newest version or marker permanently."""
    key = key_of(a)
    if shown := world.s3.keys.get(key):
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
    if waiting := [one for one in world.sqs.messages if not one.receives]:
        world.sqs.delete([waiting[a % len(waiting)].id])


OBJECT_STEPS: dict[str, Action] = {
    "upload": upload, "overwrite": upload, "remove": remove, "rollback": rollback, "report again": report_again,
    "lose event": lose_event,
}  # fmt: skip


class Messages(Feature):
    """Messages of one source."""

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

    def _judge_contents(
        self, world: World, key: str, event: str, bodies: Sequence[Mapping[str, Any]], row: Row
    ) -> Iterator[str]:
        effects = [one for one in world.done if (one.key, one.state) == (key, event)]
        copied = [body_of(one.body) for one in world.letters(key) if one.attributes.get("version_id") == event]
        wanted = {content_of(one) for one in bodies}
        told = f"message {event} of {key}, {row.status.value}, with {sorted(wanted)}"
        weak = world.notes & {"opened", "restored", "expired", "dismissed"}
        if row.status is Status.PROCESSED:
            if not effects:
                yield f"{told} has no effect"
            elif effects[-1].content.startswith("bad") and not weak:
                yield f"{told} is committed with {effects[-1].content}"
            if "fingerprint" in names_of(world) and not weak and effects:
                if others := {one.content for one in effects} - {effects[-1].content}:
                    yield f"{told} reached its processor as {effects[-1].content} and as {others}"
                if lost := wanted - {effects[-1].content} - set(copied):
                    yield f"{told} has committed {effects[-1].content}, and {sorted(lost)} is nowhere"
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


def send(world: World, a: int, b: int) -> None:
    mood = MOODS[b % len(MOODS)]
    content = f"{mood} {b // len(MOODS) % 2}"
    body = {"order": key_of(a), "event": str(1 + b // (2 * len(MOODS)) % 2), "content": content}
    local = cast("LocalMessages", world.local)
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
            else:
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
    put(world, f"{folder}/{1 + b // len(MOODS) % 2}", MOODS[b % len(MOODS)])


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


class Executions(Feature):
    """Work that answers later."""

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


class Groups(Feature):
    """Keys of a group exclude each other."""

    def judge(self, world: World) -> Iterator[str]:
        for item in world.dynamodb.items.values():
            if "waiter" in item and "status" not in item and not world.notes & {"purged", "restored"}:
                yield f"{item['waiter']['S']} stands in line at rest"


class Tags(Feature):
    """Committed versions get a tag."""

    def judge(self, world: World) -> Iterator[str]:
        local = cast("LocalPipeline", world.local)
        for key, _, row in world.rows():
            if row.tags_pending:
                yield f"{key}: {row.tags_pending} has no tag at rest"
        for one in world.commits:
            shown = [v for v in world.s3.keys.get(one.key, ()) if v.version_id == one.state]
            if (
                shown
                and shown[0].etag is not None
                and not local.tags(one.key, one.state)
                and "restored" not in world.notes
            ):
                yield f"{one.key} {one.state} is committed and has no tag"


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


class Transact(Feature):
    """The commit has writes of the processor."""

    def commit(self, world: World, effect: Effect) -> Commit | None:
        item = {"id": {"S": effect.idempotency_key}}
        return Commit("done", transact=[{"Put": {"TableName": "other", "Item": item}}])

    def judge(self, world: World) -> Iterator[str]:
        ids = [one["Put"]["Item"]["id"]["S"] for one in world.local.transacted]
        if len(ids) != len(set(ids)) and "restored" not in world.notes and not sum(world.excused.values()):
            yield f"a transaction is carried out twice: {ids}"


class Deletes(Feature):
    """The processor is told of removals."""


# --- people


def redrive(world: World, a: int, b: int) -> None:
    world.excused.update(one.key for one in world.sqs.dead_letters)
    world.notes.add("opened")
    world.redrive()


def reprocess(world: World, a: int, b: int) -> None:
    key = key_of(a)
    if world.s3.keys.get(key) or (world.kind == "sets" and world.s3.current(key)):
        if world.name == "every version" and not world.s3.keys[key][-1].etag:
            return
        world.excused[key] += 1
        world.asked[key] = world.clock()
        world.reprocess("99", keys=[key])


def stop(world: World, a: int, b: int) -> None:
    if world.operation:
        world.stop()
        world.notes.add("stopped")


class Requests(Feature):
    """People redrive, reprocess and stop."""

    def judge(self, world: World) -> Iterator[str]:
        table, name = world.settings.table, world.settings.pipeline
        left = [one for one in queried_batches(cast("Any", world.dynamodb), table, name) if one.entries]
        if left and "purged" not in world.notes:
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
            if told and not any(one.key == key and one.at >= at for one in world.commits):
                yield f"{key} was asked for, and has no commit since"


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
    return replace(found, state_machine="machine" if world.later else None)


def forget_key(world: World, a: int, b: int) -> None:
    key = key_of(a)
    if world.s3.current(key) and world.kind != "messages":
        return
    try:
        gone = forget(world.requests_of_person(), _Waits(world, b), deployed_of(world), key)
    finally:
        if any("forgotten_at" in item for item in world.dynamodb.items.values()):
            # Messages of before are refused, also if the command was refused later.
            world.notes.add(f"forgotten {key}")
    if gone and (rows := [row.status for name, _, row in world.rows() if name == key]):
        raise Violation(f"{key} is forgotten, and has the rows {rows}")


def dismiss(world: World, a: int, b: int) -> None:
    key, deployed, aws = key_of(a), deployed_of(world), cast("Any", aws_of(world))
    try:
        rows = dismissing.rejected_rows(aws, deployed, key, None)
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


OF_OBJECTS = frozenset({"objects", "every version"})
ALONE = frozenset({"sets", "FIFO messages", "stream records", "together"})
NOT_LATEST = frozenset({"every version", *MESSAGES, "sets"})
IN_BUCKET = OF_OBJECTS | {"sets"}
OPTIONS = [
    Deletes("deletes", cell={"deletes": True}, beside=OF_OBJECTS),
    Groups("groups", cell={"exclusive_by": "{folder}/"}, beside=IN_BUCKET, without=frozenset({"calls"})),
    Feature("rate", cell={"max_rate": 0.01}),
    Feature("calls", cell={"per_call": 3}, beside=frozenset({"inline"}), without=ALONE),
    Rejecting("rejects", cell={"keep_rejects": True}, beside=frozenset({"inline"}), without=frozenset(MESSAGES)),
    Tags("tags", cell={"after_commit": CommitTag("done", "yes")}, beside=OF_OBJECTS),
    Feature("stop_overtaken", kit={"stop_overtaken": True}, beside=frozenset(LATER), without=NOT_LATEST),
    Feature("fingerprint", kit={"fingerprint": "content"}, beside=frozenset(MESSAGES)),
    Feature("together", kit={"commit_together": True}, beside=OF_OBJECTS),
    Feature("crowded", cell={"crowded": True}),
    Feature("unversioned", kit={"versioned": False}, beside=OF_OBJECTS, without=frozenset({"tags", "every version"})),
    Transact("transact", beside=frozenset({"inline"}), without=frozenset({"together"})),
    Requests("requests", actions={"redrive": redrive, "reprocess": reprocess, "stop": stop}),
    Feature("forget", actions={"forget": forget_key}, without=frozenset({"sets"})),
    Feature("dismiss", actions={"dismiss": dismiss}),
    Feature("retry", actions={"retry": retry_now}),
    Feature("release", actions={"release": release_claim}, without=frozenset(LATER)),
    Feature("end", actions={"end work": end_work_of}, beside=frozenset(LATER)),
    Restore("restore", actions={"back up": back_up, "restore": restore}),
    Feature("purge", actions={"purge": purge}),
    Feature("months", actions={"months": months}),
    Skew("skew"),
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
