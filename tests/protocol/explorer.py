"""Search every order of steps of a small world around the deployed code: S3, one queue, workers, an audit, and faults.

The search is breadth-first, so the first violation has the shortest trace. The state is everything that can matter
later: the objects in S3, the queue, the table's items, and for each worker its message and the answers of AWS so far.
"""

import hashlib
import json
import time
from array import array
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, cast

from botocore.exceptions import ClientError

from cdk_intake_ledger.testing import MemoryDynamoDB
from intake_ledger.events.parser import own_message
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import break_claim
from intake_ledger.protocol.change import Origin, State, StateKind
from intake_ledger.protocol.reasons import Reason, ReasonCode
from intake_ledger.protocol.row import RowKey
from intake_ledger_testing.dynamodb_expressions import inserted_item, parse_update_statement
from intake_ledger_testing.memory_dynamodb import Key
from tests.known import known
from tests.protocol import program
from tests.protocol.program import (
    BUCKET,
    KEY,
    Config,
    Effect,
    Finished,
    Frozen,
    Memory,
    Message,
    Raised,
    Request,
    freeze,
    thaw,
)
from tests.protocol.reduction import Symmetry, mirrored_arguments, mirrored_label, pooled
from tests.protocol.s3_script import Script, Shown, forged_marker
from tests.protocol.strict_store import StrictDynamoDB

MAX_QUEUE = 4
Items = tuple[tuple[Key, tuple[tuple[str, str, str], ...]], ...]
_RECENT = 2**14
"""Number of requests whose written values are cached. The same requests repeat often."""
WRITES = frozenset({"put_item", "update_item", "delete_item", "batch_execute_statement", "transact_write_items"})


class Scenario(NamedTuple):
    """A world and how many faults of each kind may happen in it."""

    script: str
    config: Config = Config()
    deliveries: int = 1
    """Number of times that S3 sends each event."""
    crashes: int = 0
    """Deaths of workers, at any step, before or after its effect. Failures of the processor count too."""
    losses: int = 0
    answers: int = 0
    """Answers of writes that are lost, whereupon the SDK repeats the write."""
    pauses: int = 0
    """Answers of writes that are lost, so that the SDK repeats the write."""
    breaks: int = 0
    """Claims that a person takes from a worker, which goes on."""
    audits: int = 0
    """Audits while other steps happen. An audit always runs at the end, unless `no_audit`."""
    no_audit: bool = False
    ticks: int = 0
    """Steps of the clock that let rows expire."""
    rejects: int = 0
    """Number of times that the processor may raise Unprocessable."""
    waits: int = 0
    """Number of times that the processor may raise NotYet."""
    redrives: int = 0
    refusals: int = 0
    """Number of times that the dead-letter queue refuses a copy."""
    tag_refusals: int = 0
    """Number of times that S3 refuses a tag."""
    asks: tuple[int, ...] = ()
    """Reprocess requests, in the order in which they are made."""
    ask_deliveries: int = 1
    slow: int = 0
    """Claims that took too long, so that they are released before the processor starts."""
    misleading: bool = False
    """S3's sequencers run backwards."""
    workers: int = 2
    forgetful: bool = False
    """Allow a permanent deletion of the current state after its row has expired. No code can detect
    this deletion. The search then only requires that no work is left half-done.
    """
    exact: bool = False
    """The downstream must also be right if a late worker died before its report. The ledger does not promise that. An
    effect does that is conditional on the fence or part of the commit, so it is always checked there.
    """
    strict: bool = False
    """Without deaths, the processor must not run again for a state that the downstream still has."""
    late: bool = False
    """Each event is a day late, so that the ledger looks before it claims."""
    forged: tuple[int, ...] = ()
    """Versions that forged events call delete markers, at any time."""
    legacy: int = 0
    """Number of operations that were processed long ago, so that their rows have expired."""
    after: Config | None = None
    """The pipeline after a deployment, which may happen at any time."""
    restores: int = 0
    """Number of times that the table may be restored from a backup. Later commits may run again."""


class Worker(NamedTuple):
    message: Message
    start: int
    history: tuple[tuple[int, Frozen], ...] = ()
    zombie: bool = False
    broken: bool = False
    """A person has taken its claim."""
    working: bool = False
    """Between the start of its processor and the end of its claim."""
    state: str = ""
    """Identity of the state that its processor received."""
    late: bool = False
    """Its effect came after a later claim, and the row does not say so yet."""
    unwoken: bool = False
    """The row says so, and the message that wakes the key is not sent yet."""
    overwritten: bool = False
    """Its commit was refused because of a late write: the failure that follows spends no attempt."""
    deployed: bool = False
    """It started after the deployment."""


class Output(NamedTuple):
    """An object in the bucket of outputs."""

    etag: str
    metadata: tuple[tuple[str, str], ...]
    state: str
    """The state that it was made of: `absent` for a tombstone."""

    @property
    def fence(self) -> int:
        """The fence of the claim that wrote it."""
        return int(dict(self.metadata)["intake-fence"].partition(".")[0])


class Backup(NamedTuple):
    """A copy of the table, and the facts that were true at that time."""

    items: Items
    started: int
    committed: int
    versions: tuple[str, ...]


class World(NamedTuple):
    done: int
    times: tuple[int, ...]
    """The tick of each operation so far."""
    undelivered: tuple[int, ...]
    queue: tuple[Message, ...]
    items: Items
    workers: tuple[Worker | None, ...]
    audit: tuple[int, tuple[tuple[int, Frozen], ...]] | None = None
    tick: int = 0
    started: int = 0
    """The epoch that the downstream was last given."""
    committed: int = 0
    healing: bool = False
    """The last claim read a late write. The committed epoch may be processed a second time."""
    excused: bool = False
    """A late worker died between its effect and its report. Nothing repairs that."""
    applied: tuple[tuple[str, str, bool], ...] = ()
    """The effects of a keyed downstream: idempotency key, state, and whether a late worker sent it."""
    outputs: tuple[tuple[str, Output], ...] = ()
    """The objects in the bucket of outputs, by key."""
    downstream: str = "absent"
    clean: bool = True
    """The last write to the downstream is committed."""
    present: bool = False
    """The downstream may have an object: an attempt on one has begun since the last removal that was told."""
    kept: str = ""
    """The version of an object that was committed, if no attempt on the key has begun since."""
    fence: int = 0
    """The highest fence that a processor received."""
    versions: tuple[str, ...] = ()
    """EVERY_VERSION, or a tag after the commit: the committed states."""
    tags: tuple[tuple[int, tuple[tuple[str, str], ...]], ...] = ()
    """The tags that a worker has written, by version."""
    tries: tuple[tuple[str, int], ...] = ()
    """Starts of each state in the current allowance."""
    dlq: tuple[Message, ...] = ()
    booked: tuple[str, ...] = ()
    """The effects that were written with their commits, in order."""
    transactions: tuple[int, ...] = ()
    """The epochs whose effects were written with their commits."""
    owed: bool = False
    """A redrive whose attempt is still to come."""
    asked: int = 0
    asks: tuple[int, ...] = ()
    reruns: int = 0
    served: bool = False
    """Something was committed after a reprocess was asked for."""
    crashes: int = 0
    losses: int = 0
    answers: int = 0
    pauses: int = 0
    breaks: int = 0
    audits: int = 0
    waits: int = 0
    rejects: int = 0
    redrives: int = 0
    refusals: int = 0
    tag_refusals: int = 0
    slow: int = 0
    restores: int = 0
    forged: tuple[int, ...] = ()
    deployed: bool = False
    backup: Backup | None = None
    bad: str = ""


class Result(NamedTuple):
    """Result of a search: the first violation with the steps that lead to it, or the number of states."""

    violation: str
    trace: list[str]
    states: int
    complete: bool
    raised: str = ""
    """The traceback, where the violation is an exception."""


class Explorer:
    """The search for one scenario."""

    def __init__(self, scenario: Scenario, *, reduced: bool = True) -> None:
        """Prepare it; without `reduced` the search takes every step alone, to compare."""
        self.scenario = scenario
        self.reduced = reduced
        self.worlds: list[World] = []
        """All visited worlds, in the order of the visits."""
        self._symmetry = Symmetry() if reduced and scenario.workers == 2 else None
        # See `pooled` for why not in the others.
        once = scenario.deliveries == scenario.ask_deliveries == 1
        no_zombies = not (scenario.pauses or scenario.breaks)
        self._pools = reduced and not scenario.ticks and not scenario.restores and (no_zombies or once)
        self.config = scenario.config
        self._exact = scenario.exact or self.config.effect in _EXACT
        self.script = Script(scenario.script)
        self._outcomes: dict[Any, Request | Finished | Raised] = {}
        self._applied: dict[Any, tuple[Items, Frozen]] = {}
        self._unnamed: dict[Any, Items] = {}
        self._events: dict[tuple[int, int], Message] = {}
        self._reprocess = [
            Message(
                own_message(Origin.REPROCESS, BUCKET, KEY, reprocess_id=f"{one:026}"), f"reprocess {one}", reprocess=one
            )
            for one in (0, 1, 2, 3)
        ]

    def explore(self, *, states: int = 10**9, seconds: float = 10**9) -> Result:
        """Search all worlds, or stop after `states` worlds or `seconds` seconds."""
        s, n = self.scenario, len(self.script.operations)
        past = self.script.shown[s.legacy].identity
        start = World(
            done=s.legacy,
            times=(_LONG_AGO,) * s.legacy,
            undelivered=(0,) * s.legacy + (s.deliveries,) * (n - s.legacy),
            started=self.script.epoch[s.legacy],
            committed=self.script.epoch[s.legacy],
            downstream=past,
            present=self.script.shown[s.legacy].kind is StateKind.OBJECT,
            forged=s.forged,
            queue=(),
            items=(),
            workers=(None,) * s.workers,
            **{name: getattr(s, name) for name in _BUDGETS},
        )
        number: dict[World, int] = {start: 0}
        self.worlds = [start]
        # For each world, the world before it and the step between them. Then all steps as pairs of worlds.
        came_from, labels, mirrors = array("l", [-1]), [""], bytearray(1)
        sources, targets = array("l"), array("l")
        resting: list[int] = []
        until = time.monotonic() + seconds
        for here, world in enumerate(self.worlds):
            violation = world.bad
            if not violation:
                for label, reached in self._steps(world):
                    following, mirror = self.standing_for(reached)
                    there = number.setdefault(following, len(self.worlds))
                    if there == len(self.worlds):
                        self.worlds.append(following)
                        came_from.append(here)
                        labels.append(label)
                        mirrors.append(mirror)
                    sources.append(here)
                    targets.append(there)
                if self._quiet(world):
                    resting.append(here)
                    violation = self._at_rest(world)
            if violation:
                violation, _, raised = violation.partition("\n")
                trace = _trace(came_from, labels, mirrors, here)
                return Result(violation, trace, len(self.worlds), complete=True, raised=raised)
            if len(self.worlds) > states or time.monotonic() > until:
                return Result("", [], len(self.worlds), complete=False)
        stuck = _cannot_reach(resting, sources, targets, len(self.worlds))
        if stuck is not None:
            trace = _trace(came_from, labels, mirrors, stuck)
            return Result("stuck: no way leads to rest any more", trace, len(self.worlds), complete=True)
        return Result("", [], len(self.worlds), complete=True)

    def standing_for(self, w: World) -> tuple[World, bool]:
        """Return the world to search instead of this one, and whether it is the mirror image: see `reduction.py`."""
        if w.bad:
            return w, False
        w = self._without_names_of_the_dead(w)
        pool = [message for message in w.queue if self._in_pool(w, message)]
        if pool:
            undelivered, asks = pooled(w.undelivered, w.asks, pool)
            queue = tuple(message for message in w.queue if message not in pool)
            w = w._replace(undelivered=undelivered, queue=queue, asks=asks)
        symmetry = self._symmetry
        if symmetry is None or not symmetry.is_mirror((w.workers[0], w.workers[1]), w.items, w.audit):
            return w, False
        workers = tuple(symmetry.mirrored(one) for one in w.workers[::-1])
        return w._replace(workers=workers, items=symmetry.mirrored(w.items), audit=symmetry.mirrored(w.audit)), True

    def _without_names_of_the_dead(self, w: World) -> World:
        """The world in which the next worker in a place cannot take the claim of the last one for its own.

        Workers claim under unique names. Here each place reuses its names, so the names on the rows of a stopped worker
        are replaced.
        """
        idle = tuple(slot for slot, worker in enumerate(w.workers) if worker is None)
        known = w.items, idle
        items = self._unnamed.get(known)
        if items is None:
            names = tuple(f"w{slot}." for slot in idle)
            items = self._unnamed[known] = tuple(
                (key, tuple((n, t, "gone" if n == "lease_owner" and v.startswith(names) else v) for n, t, v in item))
                for key, item in w.items
            )
        return w if items == w.items else w._replace(items=items)

    # Steps of the world

    def _steps(self, w: World) -> Iterator[tuple[str, World]]:
        n = len(self.script.operations)
        if w.done < n:
            label = f"S3: {self.script.operations[w.done]}"
            following = w._replace(done=w.done + 1, times=(*w.times, w.tick))
            for slot in range(len(w.workers)):
                label, following = self._past_settled_reads(label, following, slot)
            yield self._audit_past(label, following)
        yield from self._losses(w)
        yield from self._people(w)
        yield from self._time(w)
        for slot, worker in enumerate(w.workers):
            if worker is None:
                for label, received in self._receives(w, slot):
                    yield from self._first_step(label, received, slot)
                if slot + 1 < len(w.workers) and w.workers[slot + 1] is None:
                    break  # idle workers are all alike
            else:
                for label, following in self._worker_steps(w, slot, worker):
                    yield from self._finished(label, following, slot)
        if w.audit is not None:
            yield from self._audit_steps(w, w.audit)
        elif w.audits and w.done:
            yield self._audit_past("an audit starts", w._replace(audit=(w.tick, ()), audits=w.audits - 1))
        if self._quiet(w) and not self.scenario.no_audit and w.audit is None:
            after = self._audit_at_rest(w)
            yield "the audit runs at rest" + (f"; {_headline(after.bad)}" if after.bad else ""), after

    def _first_step(self, label: str, received: World, slot: int) -> Iterator[tuple[str, World]]:
        """Receive a message and make the first call in one step: no other worker can see a difference."""
        worker = known(received.workers[slot])
        if not isinstance(self._outcome(slot, worker), Request):
            yield from self._finished(label, received, slot)
            return
        for said, following in self._worker_steps(received, slot, worker, begun=False):
            yield from self._finished(f"{label}; {said}", following, slot)

    def _finished(self, label: str, w: World, slot: int) -> Iterator[tuple[str, World]]:
        """A worker that has nothing left to call answers at once: waiting would only keep its message from others."""
        label, w = self._past_settled_reads(label, w, slot)
        worker = w.workers[slot]
        outcome = None if w.bad or worker is None else self._outcome(slot, worker)
        if isinstance(outcome, Raised):
            bad = _exception(f"w{slot}", outcome)
            yield f"{label}; {_headline(bad)}", w._replace(bad=bad)
            return
        if worker is None or not isinstance(outcome, Finished):
            yield label, w
            return
        for said, following in self._finish(w, slot, worker, outcome):
            yield f"{label}; {said}", following

    def _past_settled_reads(self, label: str, w: World, slot: int) -> tuple[str, World]:
        """The world in which the worker has made the reads before which it need not wait: see `_settled`."""
        worker = w.workers[slot]
        while self.reduced and not w.bad and worker is not None:
            request = self._outcome(slot, worker)
            if not isinstance(request, Request) or not self._settled(w, request):
                break
            _, answer = self._answer(w, request)
            after = self._answered(w, slot, worker, answer)
            worker = after.workers[slot]
            if worker is None or not isinstance(self._outcome(slot, worker), Request):
                break
            label, w = f"{label}; w{slot}: {_said(request)} -> {_told(answer)}", after
        return label, w

    def _settled(self, w: World, request: Request) -> bool:
        """Return whether this is a read of S3 whose answer no later step changes.

        Such a read needs no separate step. It changes only the history of its worker. No other worker and no guarantee
        reads this history, so the read commutes with every step of the others. Its worker can also die or lose its
        lease, and reaches the same worlds before the read as before the next request. There is one exception: if no
        request follows, the read stays a step, so that the worker can still die before it.
        """
        if request.service != "s3":
            return False
        here = self._read(w.done, request)
        return all(self._read(later, request) == here for later in range(w.done + 1, len(self.script.shown)))

    def _read(self, done: int, request: Request) -> object:
        """Return the value that decides the answer to a read of S3 after `done` operations."""
        if request.operation == "get_object":
            return self.script.readable(program.wanted(request.arguments), done)
        if request.operation in ("list_object_versions", "list_objects_v2"):
            return self.script.alive[done]
        return "a marker" if "VersionId" in request.arguments else self.script.shown[done]

    def _losses(self, w: World) -> Iterator[tuple[str, World]]:
        for number in range(1, w.done + 1):
            if w.losses and w.undelivered[number - 1]:
                gone = _with(w.undelivered, number - 1, 0)
                message = self._event(number, w.times[number - 1])
                yield f"{message.label} is lost", w._replace(undelivered=gone, losses=w.losses - 1)

    def _receives(self, w: World, slot: int) -> Iterator[tuple[str, World]]:
        """Receive a message that is in the queue, or on its way to it. The time of its arrival makes no difference."""
        for message in dict.fromkeys(w.queue):
            rest = list(w.queue)
            rest.remove(message)
            yield f"w{slot} receives {message.label}", self._started(w, slot, message, queue=tuple(rest))
        for number in range(1, w.done + 1):
            if count := w.undelivered[number - 1]:
                left = _with(w.undelivered, number - 1, count - 1)
                message = self._event(number, w.times[number - 1])
                yield f"w{slot} receives {message.label}", self._started(w, slot, message, undelivered=left)
        for place, version in enumerate(w.forged):
            message = self._forged(version, w.tick)
            left = w.forged[:place] + w.forged[place + 1 :]
            yield f"w{slot} receives {message.label}", self._started(w, slot, message, forged=left)
        for place, one in enumerate(w.asks):
            rest_of = w.asks[:place] + w.asks[place + 1 :]
            message = self._reprocess[one]
            yield f"w{slot} receives {message.label}", self._started(w, slot, message, asks=rest_of)

    def _started(self, w: World, slot: int, message: Message, **changes: Any) -> World:
        return _put(w, slot, Worker(message, w.tick, deployed=w.deployed), **changes)

    def _people(self, w: World) -> Iterator[tuple[str, World]]:
        if w.dlq and w.redrives and len(w.queue) < MAX_QUEUE:
            first, *rest = w.dlq
            yield (
                f"a person moves {first.label} back",
                w._replace(dlq=tuple(rest), redrives=w.redrives - 1, queue=_sent(w.queue, first), tries=(), owed=True),
            )
        if self.scenario.after is not None and not w.deployed:
            yield "a deployment", w._replace(deployed=True)
        if w.restores and w.backup is None and not any(w.workers) and w.audit is None:
            backup = Backup(w.items, w.started, w.committed, w.versions)
            yield "a backup is made", w._replace(backup=backup)
        if w.restores and w.backup is not None and self._timely(w):
            yield "the table is put back from the backup", self._restored(w, w.backup)
        could_ask = w.committed or self.config.outside
        if w.asked < len(self.scenario.asks) and w.done == len(self.script.operations) and could_ask:
            one = self.scenario.asks[w.asked]
            asks = tuple(sorted(w.asks + (one,) * self.scenario.ask_deliveries))
            yield f"a person asks to reprocess ({one})", w._replace(asked=w.asked + 1, asks=asks)

    def _restored(self, w: World, backup: Backup) -> World:
        """Restore the backup. Time has passed, and the commits since the backup are unknown now."""
        return w._replace(
            items=backup.items,
            tick=w.tick + 1,
            started=backup.started,
            committed=backup.committed,
            present=True,
            kept="",
            versions=backup.versions,
            tries=(),
            restores=w.restores - 1,
            backup=None,
        )

    def _time(self, w: World) -> Iterator[tuple[str, World]]:
        if w.tick < self.scenario.ticks and self._timely(w):
            yield "time passes", w._replace(tick=w.tick + 1)
        for place, (key, item) in enumerate(w.items):
            content = {name: value for name, _, value in item}
            holder = content.get("lease_owner", "").partition(".")[0]
            if content.get("lease_until", "0") != "0" and not any(
                worker and f"w{slot}" == holder for slot, worker in enumerate(w.workers)
            ):
                yield "a lease that nobody holds runs out", w._replace(items=self._lapse(w.items, key))
            now = program.EPOCH_MS + w.tick * program.TICK_MS
            if int(content.get("retry_at", "0")) > now:
                yield "a wait is over", w._replace(items=self._lapse(w.items, key, "retry_at"))
            if "expires_at" in content and int(content["expires_at"]) * 1000 < now:
                yield f"TTL removes {key[1]}", w._replace(items=w.items[:place] + w.items[place + 1 :], kept="")

    def _timely(self, w: World) -> bool:
        """Assume of operations that each change is first handled, and that the audit runs, within the retention."""
        handled = all(left < self.scenario.deliveries for left in w.undelivered[: w.done])
        return handled and not w.queue and not any(w.workers) and w.audit is None and not self._audit_would_send(w)

    # Steps of a worker

    def _worker_steps(self, w: World, slot: int, k: Worker, *, begun: bool = True) -> Iterator[tuple[str, World]]:
        name = f"w{slot}"
        outcome = self._outcome(slot, k)
        assert isinstance(outcome, Request)
        if w.crashes and begun:
            yield f"{name} dies before {_said(outcome)}", self._die(w, slot, k)
        if not k.zombie and w.pauses and (held := self._held(w, slot)) is not None:
            lapsed, redelivered = self._lapse(w.items, held), _sent(w.queue, k.message)
            yield (
                f"the lease of {name} runs out",
                _put(w, slot, k._replace(zombie=True), items=lapsed, queue=redelivered, pauses=w.pauses - 1),
            )
        if not k.zombie and w.breaks and (held := self._held(w, slot)) is not None:
            broken, redelivered = self._broken(w, held), _sent(w.queue, k.message)
            taken = k._replace(zombie=True, broken=True)
            yield (
                f"a person takes the claim of {name}",
                _put(w, slot, taken, items=broken, queue=redelivered, breaks=w.breaks - 1),
            )
        if outcome.service == "processor":
            yield from self._process(w, slot, k, outcome)
            return
        if outcome.service == "sqs":
            yield from (self._wake if outcome.arguments["QueueUrl"] == "queue" else self._copy)(w, slot, k, outcome)
            return
        if outcome.service == "output":
            yield from self._output(w, slot, k, outcome)
            return
        if outcome.service == "tags":
            yield from self._tagging(w, slot, k, outcome)
            return
        items, answer = self._answer(w, outcome)
        after = self._check_write(w, slot, k, outcome, answer, items)
        label = f"{name}: {_said(outcome)} -> {_told(answer)}"
        yield label, self._answered(after, slot, after.workers[slot] or k, answer, items=items)
        if outcome.operation in WRITES:
            if w.crashes and items != w.items:
                yield f"{label}, and dies", self._die(after._replace(items=items), slot, k)
            if w.answers and items != w.items:
                again, second = self._apply(items, outcome)
                following = after._replace(answers=w.answers - 1)
                yield (
                    f"{label}, whose answer is lost; repeated -> {_told(second)}",
                    self._answered(following, slot, after.workers[slot] or k, second, items=again),
                )
            if w.slow and items != w.items and answer.kind == "ok" and not k.working and _claims(outcome):
                yield (
                    f"{label}, slowly",
                    self._answered(after, slot, k, Frozen("slow"), items=items, slow=w.slow - 1),
                )

    def _answered(self, w: World, slot: int, k: Worker, answer: Frozen, **changes: Any) -> World:
        return _put(w, slot, k._replace(history=(*k.history, (w.tick, answer))), **changes)

    def _finish(self, w: World, slot: int, k: Worker, outcome: Finished) -> Iterator[tuple[str, World]]:
        name = f"w{slot}"
        if not outcome.acknowledged:
            back = w.queue if k.zombie else _sent(w.queue, k.message)
            yield f"{name} gives {k.message.label} back", _put(w, slot, None, queue=back)
            return
        if self._held(w, slot) is not None:
            bad = "a message was acknowledged while its work is open"
            yield f"{name} acknowledges {k.message.label}", _put(w, slot, None, bad=bad)
            return
        yield f"{name} acknowledges {k.message.label}", _put(w, slot, None)
        if k.zombie and (rest := self._without(w, k.message)) is not None:
            # SQS may or may not honour the receipt of an earlier delivery.
            yield f"{name} acknowledges {k.message.label} for good", _put(rest, slot, None)

    def _without(self, w: World, message: Message) -> World | None:
        """The world in which a message that has come back is deleted, if it is in the queue."""
        if message in w.queue:
            rest = list(w.queue)
            rest.remove(message)
            return w._replace(queue=tuple(rest))
        place = message.operation - 1
        if self._in_pool(w, message) and place >= 0 and w.undelivered[place]:
            return w._replace(undelivered=_with(w.undelivered, place, w.undelivered[place] - 1))
        if self._in_pool(w, message) and message.reprocess in w.asks:
            place = w.asks.index(message.reprocess)
            return w._replace(asks=w.asks[:place] + w.asks[place + 1 :])
        return None

    def _in_pool(self, w: World, message: Message) -> bool:
        """Return whether this message in the queue counts as one on its way: see `pooled`."""
        if not self._pools or w.losses:
            return False
        if message.operation:
            return message == self._event(message.operation, w.times[message.operation - 1])
        return message in self._reprocess

    def _die(self, w: World, slot: int, k: Worker) -> World:
        """The worker is gone; its message comes back after the visibility, which is longer than its lease."""
        held = self._held(w, slot)
        items = w.items if held is None else self._lapse(w.items, held)
        queue = w.queue if k.zombie else _sent(w.queue, k.message)
        excused = w.excused or k.late or (k.unwoken and self.scenario.no_audit)
        return _put(w, slot, None, items=items, queue=queue, crashes=w.crashes - 1, excused=excused)

    def _held(self, w: World, slot: int) -> Key | None:
        """The row on which this worker's lease is running."""
        for key, item in w.items:
            content = {name: value for name, _, value in item}
            mine = content.get("lease_owner", "").startswith(f"w{slot}.")
            if mine and content.get("status") == "PROCESSING" and int(content.get("lease_until", 0)) > 0:
                return key
        return None

    def _held_at_all(self, w: World, slot: int) -> bool:
        """Return whether a row shows a claim of this worker, with a lease that is live or ended."""
        rows = [_content(item) for _, item in w.items]
        return any(
            row.get("lease_owner", "").startswith(f"w{slot}.") and row.get("status") == "PROCESSING" for row in rows
        )

    def _lapse(self, items: Items, key: Key, name: str = "lease_until") -> Items:
        """The row as it reads once this time lies in the past."""
        return tuple(
            (one, tuple((n, t, "0" if n == name else v) for n, t, v in item) if one == key else item)
            for one, item in items
        )

    def _broken(self, w: World, key: Key) -> Items:
        """The rows after a person has taken a claim from its worker."""
        store = StrictDynamoDB({one: thaw(item) for one, item in w.items})
        table, place = LedgerTable(cast("Any", store), "table"), RowKey(*key)
        row = known(table.get(place))
        reason = Reason(ReasonCode.LOCK_BROKEN, "broken")
        break_claim(table, program.PIPELINE, place, row, reason, now=program.EPOCH_MS + w.tick * program.TICK_MS)
        return _frozen(store)

    def _process(self, w: World, slot: int, k: Worker, request: Request) -> Iterator[tuple[str, World]]:
        identity, fence = _identity(request), request.arguments["fence"]
        label = f"w{slot} processes {identity} (fence {fence})"
        overtaken = k.zombie and not self._owns(w, slot, fence, identity)
        given = w if overtaken else self._given(w, slot, identity, request)
        k = k._replace(working=True, state=identity)
        if self.config.effect in (Effect.TRANSACT, Effect.SOMETIMES):
            prepared = f"w{slot} prepares a transaction for {identity} (fence {fence})"
            yield prepared, self._answered(given, slot, k, Frozen("transact"))
            if self.config.effect is Effect.TRANSACT and w.crashes:
                yield f"{prepared} and fails", self._answered(given, slot, k, Frozen("fails"), crashes=w.crashes - 1)
        if self.config.effect is Effect.TRANSACT:
            return
        # An output is written by requests that are steps.
        if self.config.effect not in _OUTPUTS:
            given = self._written(given, identity, request, overtaken=overtaken)
            k = k._replace(late=overtaken and not self.config.every_version)
        yield label, self._answered(given, slot, k, Frozen(_WRITES))
        if w.crashes:
            yield f"{label} and fails", self._answered(given, slot, k, Frozen("fails"), crashes=w.crashes - 1)
        if w.waits:
            # It spends nothing of the allowance.
            tries = tuple((one, count - (one == identity)) for one, count in given.tries)
            free = given._replace(tries=tries, waits=w.waits - 1)
            yield f"{label}: NotYet", self._answered(free, slot, k, Frozen("not yet"))
        if w.rejects:
            yield (
                f"{label}: Unprocessable",
                self._answered(given, slot, k, Frozen("unprocessable"), rejects=w.rejects - 1),
            )

    def _written(self, w: World, identity: str, request: Request, *, overtaken: bool) -> World:
        """The world after a processor has written downstream by itself: the last writer wins."""
        if self.config.every_version:
            return w
        if self.config.effect is Effect.KEYED:
            key = request.arguments["idempotency_key"]
            known = {one: state for one, state, _ in w.applied}
            if key in known:
                bad = f"the idempotency key of {known[key]} comes with {identity}" if known[key] != identity else ""
                return w._replace(bad=w.bad or bad)
            times = sum(state == identity and not late for _, state, late in w.applied)
            twice = times >= len(self._epochs(identity, 0, w.done)) and not (w.asked or w.healing or overtaken)
            bad = f"the effect of {identity} is applied twice, under two idempotency keys" if twice else ""
            w = w._replace(applied=tuple(sorted((*w.applied, (key, identity, overtaken)))), bad=w.bad or bad)
        return w._replace(downstream=identity, clean=False)

    def _output(self, w: World, slot: int, k: Worker, request: Request) -> Iterator[tuple[str, World]]:
        """A request of `intake_ledger.outputs`, which the bucket answers as S3 does."""
        after, answer = self._output_answer(w, request)
        label = f"w{slot}: {request.operation} of the output -> {answer.value if answer.kind == 'status' else 'ok'}"
        yield label, self._answered(after, slot, k, answer)
        if after.outputs == w.outputs:
            return
        if w.crashes:
            yield f"{label}, and dies", self._die(after, slot, k)
        if w.answers:
            again, second = self._output_answer(after, request)
            yield (
                f"{label}, whose answer is lost; repeated -> {second.value}",
                self._answered(again, slot, k, second, answers=w.answers - 1),
            )

    def _output_answer(self, w: World, request: Request) -> tuple[World, Frozen]:
        asked, outputs = request.arguments, dict(w.outputs)
        present = outputs.get(asked["Key"])
        if request.operation == "head_object":
            if present is None:
                return w, Frozen("status", 404)
            return w, Frozen("ok", (present.etag, present.metadata))
        if "IfMatch" in asked and present is None:
            return w, Frozen("status", 404)
        refused = "IfNoneMatch" in asked and present is not None
        if refused or (present is not None and asked.get("IfMatch", present.etag) != present.etag):
            return w, Frozen("status", 412)
        if request.operation == "delete_object":
            outputs.pop(asked["Key"], None)
            return w._replace(outputs=tuple(sorted(outputs.items())), downstream="absent"), Frozen("ok")
        written = outputs[asked["Key"]] = _stored(request)
        before = 0 if present is None else present.fence
        bad = w.bad or (f"fence {written.fence} overwrites the output of {before}" if written.fence < before else "")
        shown = written.state if asked["Key"] in (program.OUTPUT, program.REJECTS) else w.downstream
        following = w._replace(outputs=tuple(sorted(outputs.items())), downstream=shown, clean=False, bad=bad)
        return following, Frozen("ok", written.etag)

    def _tagging(self, w: World, slot: int, k: Worker, request: Request) -> Iterator[tuple[str, World]]:
        """A request about the tags of a version, or of the current one if the request names none."""
        named = request.arguments.get("VersionId")
        number = self.script.shown[w.done].operation if named is None else int(named)
        label = f"w{slot}: {request.operation} of v#{number}"
        if w.tag_refusals:
            refused = Frozen("refused", ("AccessDenied", 403))
            yield f"{label} is refused", self._answered(w, slot, k, refused, tag_refusals=w.tag_refusals - 1)
        version = next((one for one in self.script.alive[w.done] if one.operation == number), None)
        if version is None or version.kind is not StateKind.OBJECT:
            gone = ("NoSuchVersion", 404) if version is None else ("MethodNotAllowed", 405)
            yield f"{label} -> gone", self._answered(w, slot, k, Frozen("gone", gone))
        elif request.operation == "get_object_tagging":
            present = dict(w.tags).get(number, program.UPLOADED_TAGS)
            yield label, self._answered(w, slot, k, Frozen("ok", present))
        else:
            written = tuple(sorted((one["Key"], one["Value"]) for one in request.arguments["Tagging"]["TagSet"]))
            after = w._replace(tags=tuple(sorted((dict(w.tags) | {number: written}).items())))
            if version.identity not in w.versions:
                after = after._replace(bad=f"{version.identity} has a tag and was not committed")
            elif written != _TAGS:
                after = after._replace(bad=f"the tags of {version.identity} are {written}")
            yield label, self._answered(after, slot, k, Frozen("ok"))

    def _wake(self, w: World, slot: int, k: Worker, request: Request) -> Iterator[tuple[str, World]]:
        woken = w._replace(queue=_sent(w.queue, Message(request.arguments["MessageBody"], "a late worker's message")))
        label = f"w{slot} wakes the key after its late write"
        yield label, self._answered(woken, slot, k._replace(unwoken=False), Frozen("ok"))
        if w.crashes:
            yield f"{label}, and dies", self._die(woken, slot, k._replace(unwoken=False))

    def _copy(self, w: World, slot: int, k: Worker, request: Request) -> Iterator[tuple[str, World]]:
        if w.refusals:
            refused = w._replace(refusals=w.refusals - 1)
            label = f"w{slot}: the dead-letter queue refuses its copy"
            yield label, self._answered(refused, slot, k, Frozen("refused"))
        marks = request.arguments.get("MessageAttributes", {})
        fence = int(marks["rejected_fence"]["StringValue"]) if marks else None
        copies = k.message.copies + (0 if marks else 1)
        label = f"copy of {k.message.label.removeprefix('copy of ')}"
        copy = k.message._replace(rejected_fence=fence, copies=copies, label=label)
        # Two are enough to see whether one is ever missing.
        dlq = tuple(sorted({*w.dlq, copy}))[-2:]
        # The copy of a rejection whose object was removed goes back unchanged, and the row says why.
        sent = w._replace(dlq=dlq, owed=w.owed and fence != k.message.rejected_fence)
        yield f"w{slot} sends {copy.label} to the dead-letter queue", self._answered(sent, slot, k, Frozen("ok"))
        if w.crashes:
            yield f"w{slot} sends {copy.label} to the dead-letter queue, and dies", self._die(sent, slot, k)

    # The guarantees

    def _given(self, w: World, slot: int, identity: str, request: Request) -> World:
        """The world after a processor that was not overtaken was given a state; `bad` where a guarantee forbids it."""
        fence = int(request.arguments["fence"])
        bad = "the pipeline's filters leave the key out" if self.config.outside else ""
        others = [one for n, one in enumerate(w.workers) if one and n != slot and one.working and not one.zombie]
        if any(one.state == identity or not self.config.every_version for one in others):
            bad = "G1: two attempts process the key at the same time"
        if fence <= w.fence and not self.config.every_version:
            bad = bad or f"the fence went back: {fence} after {w.fence}"
        if self.config.max_attempts < 10:
            counts = dict(w.tries)
            counts[identity] = counts.get(identity, 0) + 1
            w = w._replace(tries=tuple(sorted(counts.items())))
            # One death in a call with others is not counted. Afterwards the state runs alone.
            allowed = self.config.max_attempts + self.config.calls
            if counts[identity] > allowed:
                bad = bad or f"{counts[identity]} attempts at {identity}, {allowed} are allowed"
        if self.config.every_version:
            if identity in w.versions and not w.asked:
                bad = bad or f"G3: {identity} processed after its commit"
            if not self.script.has_been(identity, request.arguments["kind"], w.done):
                bad = bad or f"the processor is told that {identity} was {request.arguments['kind']}, which is not so"
            return w._replace(bad=bad, owed=False, fence=max(w.fence, fence))
        complete = self.config.memory in (Memory.COMPLETE, Memory.RECORDED) and self.scenario.after is None
        excused = w.present or w.asked or w.owed or w.healing
        if complete and request.arguments["kind"] == "removed" and not excused:
            bad = bad or "a removal is told although the downstream has no object"
        again = w.asked or (w.healing and w.committed not in w.transactions)
        first = max(w.committed + (0 if again else 1), w.started)
        fits = self._epochs(identity, first, w.done)
        if not fits:
            bad = bad or f"G2/G3: {identity} processed, committed epoch {w.committed}, started {w.started}"
        if self.scenario.strict and w.clean and w.downstream == identity:
            bad = bad or f"{identity} processed again although the downstream has it and nothing came between"
        return w._replace(
            bad=bad,
            # A state that came back is a new epoch, not the committed one again.
            started=next((one for one in fits if one > w.committed or w.asked), fits[0]) if fits else w.started,
            fence=max(w.fence, fence),
            owed=False,
        )

    def _check_write(self, w: World, slot: int, k: Worker, request: Request, answer: Frozen, items: Items) -> World:
        """The world after a write of the ledger: claims end here, and commits are judged."""
        if request.operation not in WRITES:
            return w
        if _reports(request):
            w = w._replace(kept="" if answer.kind == "ok" else w.kept)
            w = _put(w, slot, k._replace(late=False, working=False, unwoken=answer.kind == "ok"))
        if answer.kind == "refused" and k.working and self._held_at_all(w, slot):
            w = _put(w, slot, k._replace(overwritten=True))
        if answer.kind != "ok" or items == w.items or _reports(request):
            return w._replace(bad=self._expiring(items))
        if k.broken and ":own_owner" in _values(request):
            return w._replace(bad="a worker writes an end of the claim that a person has taken")
        if bad := self._unnamed_end(w, request, items):
            return w._replace(bad=bad)
        w = self._check_claim(w, request, items)
        if _claims(request) and (bad := self._too_early(w, k, request, items)):
            return w._replace(bad=bad)
        if _claims(request) and w.tries:
            # A claim on another state begins a new allowance of attempts.
            claimed = _row_identity(_row_of(items, request))
            before = [_row_identity({name: value for name, _, value in item}) for _, item in w.items]
            if claimed not in before:
                w = w._replace(tries=tuple(one for one in w.tries if one[0] != claimed))
        values = _values(request)
        status = (values.get(":status") or values.get("status") or {}).get("S")
        if status == "FAILED" and self.config.effect in _OUTPUTS and not k.overwritten:
            outcomes = [answer.kind for _, answer in k.history]
            if _WRITES in outcomes:
                w = w._replace(bad=f"the write of {k.state} failed, and no later claim has written")
        if status == "FAILED" and k.overwritten:
            counts = {one: count - (one == k.state) for one, count in w.tries}
            w = w._replace(tries=tuple(sorted(counts.items())))
            k = k._replace(overwritten=False)
        if not k.working and ":own_owner" in _values(request):
            return w  # a claim under which nothing was begun is given back
        if k.working:
            w = _put(w, slot, k._replace(working=False))
        if status == "REJECTED" and not k.working:
            return self._check_exhausted(w, request)
        # A write names only the attributes that it changes. A removal settled on a settled row keeps the status.
        if status != "PROCESSED" and ":committed_state" not in values:
            return w
        row = _row_of(items, request)
        identity = row["committed_state"]
        if self.config.tags and not self.config.every_version:
            w = w._replace(versions=tuple(sorted({*w.versions, identity})))
        if _late_writes(row) - {identity} and k.working:
            w = w._replace(bad=f"{identity} committed although another state may have been written over it")
        if _in_transaction(request):
            epoch = max(w.committed, w.started)
            if epoch in w.transactions and not w.asked:
                w = w._replace(bad=f"G3: the transaction of epoch {epoch} ({identity}) is carried out twice")
            epochs = tuple(sorted({*w.transactions, epoch}))
            w = w._replace(booked=(*w.booked, identity), transactions=epochs, downstream=identity)
        if self.config.every_version:
            bad = f"G3: {identity} committed again" if identity in w.versions and k.working and not w.asked else ""
            return w._replace(versions=tuple(sorted({*w.versions, identity})), bad=bad)
        if not k.working:
            return self._check_settled(w, identity)
        present = row.get("kind", "object") == "object"
        w = w._replace(present=present, kept=identity if present and "version_id" in row else "")
        fits = self._epochs(identity, w.committed + (0 if w.asked or w.healing else 1), w.done)
        bad = w.bad or ("" if fits else f"G3: {identity} committed again, committed epoch {w.committed}")
        reruns = w.reruns + (w.started == w.committed and w.asked > 0 and not w.healing)
        if reruns > w.asked:
            bad = bad or f"{reruns} more commits of one epoch for {w.asked} reprocess requests"
        # A commit ends the allowance: a reprocess has all attempts again.
        tries = tuple(one for one in w.tries if one[0] != identity)
        committed = max(w.committed, w.started)
        served = w.served or w.asked > 0
        return w._replace(
            committed=committed, clean=True, bad=bad, reruns=reruns, tries=tries, served=served, healing=False
        )

    def _expiring(self, items: Items) -> str:
        """Report a row that may expire although its state has to be processed, or processed again."""
        for row in map(_content, (item for _, item in items)):
            if "expires_at" in row and row.get("status", "PROCESSED") != "PROCESSED":
                return f"a row may expire that is {row['status']}"
            told = self.config.deletes or row.get("kind") == "object"
            if told and "expires_at" in row and _late_writes(row) - {row.get("committed_state", "")}:
                return "a row may expire whose state has to be processed again"
        return ""

    def _check_claim(self, w: World, request: Request, items: Items) -> World:
        """Return the world after a write, with the effect of a claim on late writes."""
        w = w._replace(bad=self._expiring(items))
        if not _claims(request) or self.config.every_version:
            return w
        after = _row_of(items, request)
        if w.kept == _row_identity(after) and not (w.asked or w.owed):
            return w._replace(bad=f"{w.kept} is processed again, and nothing but an untold removal came between")
        w = w._replace(present=w.present or after.get("kind", "object") == "object", kept="")
        before = next((row for row in map(_content, (item for _, item in w.items)) if "status" in row), {})
        read = _late_writes(before) - {_row_identity(after)} - _late_writes(after)
        if not read:
            return w
        if after["first_claimed_at"] <= before["first_claimed_at"]:
            w = w._replace(bad="a write is repaired under an idempotency key that was used before")
        return w._replace(healing=True)

    def _unnamed_end(self, w: World, request: Request, items: Items) -> str:
        """Why this write settles a row without a commit and does not say so, if it does not."""
        before = {key: {name: value for name, _, value in item} for key, item in w.items}
        for key, item in items:
            row, was = _content(item), before.get(key, {})
            if row.get("status") != "PROCESSED" or row == was:
                continue
            deletes = self.config.deletes or self._config(w.deployed).deletes
            name, told = row.get("settled_as"), deletes or row.get("kind") == "object"
            if row.get("committed_state") != _row_identity(row) and name != "removed_unprocessed":
                return f"{_row_identity(row)} was never committed, and its row is settled as {name}"
            if told or ":own_owner" in _values(request):
                continue  # a claim that is given back, since no attempt is on an untold removal
            if name is None:
                return "a removal is settled, and its row does not say so"
            open_ = was.get("kind") == "object" and was.get("status") != "PROCESSED"
            lost = [one for one in ("attempts", "reason", "rejected_fence") if was.get(one) != row.get(one)]
            if open_ and (name != "removed_unprocessed" or (lost and "reason" in was)):
                return f"{_row_identity(was)} is {was['status']}, its removal is settled as {name}, and {lost} is lost"
        return ""

    def _too_early(self, w: World, k: Worker, request: Request, items: Items) -> str:
        """Why this claim comes before its time, if it does. A person need not wait."""
        if k.message.reprocess or k.message.copies or k.message.rejected_fence is not None:
            return ""
        claimed = _row_of(items, request)
        now = program.EPOCH_MS + w.tick * program.TICK_MS
        for key, item in w.items:
            before = {name: value for name, _, value in item}
            same = key == (claimed["pk"], claimed["sk"]) and _row_identity(before) == _row_identity(claimed)
            if same and before.get("status") == "FAILED" and int(before.get("retry_at", "0")) > now:
                return f"{_row_identity(claimed)} is tried before its time"
        return ""

    def _check_settled(self, w: World, identity: str) -> World:
        """A removal that the processor does not hear of."""
        fits = self._epochs(identity, max(w.committed + 1, w.started), w.done)
        again = self.script.states[w.committed].identity == identity
        bad = "" if fits or again else f"G2/G3: removal {identity} settled, committed epoch {w.committed}"
        epoch = fits[0] if fits else w.committed
        return w._replace(committed=epoch, started=max(epoch, w.started), clean=True, bad=bad)

    def _check_exhausted(self, w: World, request: Request) -> World:
        row = _row_of(w.items, request)
        if "pending_reason_code" in row:
            return w  # its processor was called, and its copy was refused
        identity = _row_identity(row)
        tried = dict(w.tries).get(identity, 0)
        # A death between claim and start wastes an attempt. It looks the same as a death in the processor.
        wasted = self.scenario.crashes - w.crashes + self.scenario.pauses - w.pauses
        wasted += self.scenario.breaks - w.breaks
        if tried or wasted >= self.config.max_attempts:
            return w
        return w._replace(bad=f"{identity} was rejected and never given to the processor")

    def _quiet(self, w: World) -> bool:
        done = w.done == len(self.script.operations) and not any(w.undelivered)
        return done and not w.queue and not any(w.workers) and w.audit is None and not w.asks

    def _at_rest(self, w: World) -> str:
        if self._audit_would_send(w):
            return ""
        if self.config.outside:
            return "a row of a key that the filters leave out" if w.items else ""
        items = [{name: value for name, _, value in item} for _, item in w.items]
        rows = [item for item in items if "status" in item]
        rejected = {_row_identity(row) for row in rows if row.get("status") == "REJECTED"}
        if rejected and not w.dlq and w.redrives == self.scenario.redrives:
            return f"{sorted(rejected)} REJECTED, and no copy in the dead-letter queue"
        if any("unprocessed_state" in row and "rejected_fence" in row for row in rows) and not w.dlq:
            return "a rejected object was removed, and its copy has vanished from the dead-letter queue"
        if bad := self._untagged(w):
            return bad
        if wrong := [row for row in rows if self._miscounts(row)]:
            return f"the row of {wrong[0]['committed_state']} says {wrong[0].get('rejected_rows')} rejected rows"
        if self.config.every_version:
            wanted = [one for one in self.script.alive[w.done] if self.config.deletes or one.kind is StateKind.OBJECT]
            expected = [one.identity for one in wanted]
            if not self.scenario.losses:
                # No listing shows a version that was deleted for good: a lost report of that stays lost.
                expected += [f"d#{one[1:]}" for one in self.script.operations if one[0] == "d"]
            if self.config.effect is Effect.TRANSACT and sorted(w.booked) != sorted(w.versions):
                return f"{w.versions} are committed, and the effects are {w.booked}"
            if self.config.effect in _OUTPUTS and (bad := self._wrong_outputs(w)):
                return bad
            missing = [one for one in expected if one not in w.versions and one not in rejected]
            return f"G4: {missing} were never processed" if missing and not w.tick else ""
        current = self.script.shown[w.done]
        if (
            w.owed
            and current.identity != self._committed_identity(rows)
            and not (current.identity in rejected and w.dlq)
        ):
            return "a redrive led to no attempt"
        if current.identity in rejected:
            return ""
        if w.asked and not w.served and len(w.asks) == 0 and not w.tick:
            return "a reprocess request was swallowed"
        booked = w.booked[-1] if w.booked else "absent"
        if self.config.effect is Effect.TRANSACT and self._effect(booked) != self._effect(current.identity):
            return f"G4: at rest S3 shows {current.identity}, the effects are {w.booked}"
        deletes = self.config.deletes and self._config(w.deployed).deletes
        ignored = not deletes and current.kind is not StateKind.OBJECT
        # A late worker's plain write over a transaction is not healed: the transaction cannot be repeated.
        sometimes = self.config.effect is Effect.SOMETIMES
        beyond = (w.excused and not self._exact) or (sometimes and any("transactional" in row for row in rows))
        shown = self._effect(current.identity)
        if self.config.effect is Effect.REJECTS:
            shown = shown if shown in self.config.bad else "absent"
        if (
            self._effect(w.downstream) != shown
            and not ignored
            and not beyond
            and not (self.scenario.forgetful and w.clean)
        ):
            return f"G4: at rest S3 shows {current.identity}, the downstream has {w.downstream}"
        if (
            not w.tick
            and not self.scenario.legacy
            and self._committed_identity(rows) != current.identity
            and not (ignored and not rows)
        ):
            return f"G4: at rest S3 shows {current.identity}, the ledger {self._committed_identity(rows)}"
        return ""

    def _effect(self, identity: str) -> str:
        """The state that the downstream has after the effect of this one. Each removal leaves nothing."""
        marker = identity[:2] == "v#" and self.script.operations[int(identity[2:]) - 1] == "m"
        return "absent" if marker else identity

    def _miscounts(self, row: Mapping[str, str]) -> bool:
        """True if the row of a committed state does not say whether it has rejected rows."""
        if self.config.effect is not Effect.REJECTS or row.get("status") != "PROCESSED" or "settled_as" in row:
            return False
        return ("rejected_rows" in row) is not (row["committed_state"] in self.config.bad)

    def _untagged(self, w: World) -> str:
        """Say which committed version has no tag, or which row keeps the name of a version for ever."""
        if not self.config.tags:
            return ""
        alive = [one for one in self.script.alive[w.done] if one.kind is StateKind.OBJECT]
        tagged = dict(w.tags)
        if missing := [one.identity for one in alive if one.identity in w.versions and one.operation not in tagged]:
            return f"{missing} are committed and have no tag"
        settled = [row for row in map(_content, (item for _, item in w.items)) if row.get("status") == "PROCESSED"]
        if left := [row["tags_pending"] for row in settled if "tags_pending" in row]:
            return f"versions {left} are tagged, and their row still names them"
        expiring = self.config.memory is program.Memory.EXPIRING
        kept = [row for row in settled if expiring and "expires_at" not in row and not _late_writes(row)]
        return f"the row of {kept[0]['committed_state']} never expires" if kept else ""

    def _wrong_outputs(self, w: World) -> str:
        """EVERY_VERSION: each committed version has its output, or has one exactly if it has rejected rows."""
        found = {key: output.state for key, output in w.outputs}
        if self.config.effect is Effect.REJECTS:
            made = {f"{KEY}/{version}.rejects.jsonl": version for version in w.versions}
            wrong = [
                version
                for key, version in made.items()
                if found.get(key, "absent") != (version if version in self.config.bad else "absent")
            ]
        else:
            made = {f"output {one.removeprefix('v#')}": one for one in w.versions if one.startswith("v#")}
            wrong = [version for key, version in made.items() if found.get(key) != version]
        return f"G4: {wrong} are committed, the outputs are {found}" if wrong else ""

    def _committed_identity(self, rows: list[dict[str, str]]) -> str:
        settled = [
            row["committed_state"]
            for row in rows
            if row.get("status") == "PROCESSED" and not _late_writes(row) - {row["committed_state"]}
        ]
        return settled[0] if settled else "absent" if not rows else "unsettled"

    def _epochs(self, identity: str, first: int, done: int) -> list[int]:
        now = self.script.epoch[done]
        return [one for one in range(max(first, 0), now + 1) if self.script.states[one].identity == identity]

    def _owns(self, w: World, slot: int, fence: int, identity: str) -> bool:
        """Return whether the row shows this worker's claim on this state, with a lease that is live or ended."""
        for _, item in w.items:
            row = {name: value for name, _, value in item}
            mine = row.get("lease_owner", "").startswith(f"w{slot}.") and row.get("fence") == str(fence)
            if mine and row.get("status") == "PROCESSING" and _row_identity(row) == identity:
                return True
        return False

    # The audit

    def _audit_steps(self, w: World, audit: tuple[int, tuple[tuple[int, Frozen], ...]]) -> Iterator[tuple[str, World]]:
        start, history = audit
        outcome = self._audit_outcome(w, start, history)
        if isinstance(outcome, Raised):
            bad = _exception("the audit", outcome)
            yield _headline(bad), w._replace(bad=bad)
            return
        if isinstance(outcome, Finished):
            yield "the audit ends", w._replace(audit=None)
            return
        if w.crashes:
            yield f"the audit dies before {_said(outcome)}", w._replace(audit=None, crashes=w.crashes - 1)
        after, answer = self._audit_answer(w, outcome)
        yield self._audit_past(f"audit: {_said(outcome)}", after._replace(audit=(start, (*history, (w.tick, answer)))))

    def _audit_past(self, label: str, w: World) -> tuple[str, World]:
        """The world in which the audit has made the reads before which it need not wait, and has ended if it can."""
        while self.reduced and not w.bad and w.audit is not None:
            start, history = w.audit
            request = self._audit_outcome(w, start, history)
            if isinstance(request, Finished):
                return f"{label}; the audit ends", w._replace(audit=None)
            if not isinstance(request, Request) or not self._settled(w, request):
                break
            _, answer = self._audit_answer(w, request)
            history = (*history, (w.tick, answer))
            if not isinstance(self._audit_outcome(w, start, history), Request):
                break
            label, w = f"{label}; audit: {_said(request)}", w._replace(audit=(start, history))
        return label, w

    def _audit_answer(self, w: World, request: Request) -> tuple[World, Frozen]:
        if request.operation == "send_message_batch":
            sent = [Message(entry["MessageBody"], "audit's message") for entry in request.arguments["Entries"]]
            queue = w.queue
            for message in sent:
                queue = _sent(queue, message)
            return w._replace(queue=queue), Frozen("ok")
        if request.operation in ("list_object_versions", "list_objects_v2"):
            return w, Frozen("ok", self._listing(w))
        items, answer = self._answer(w, request)
        return w._replace(items=items), answer

    def _audit_at_rest(self, w: World) -> World:
        """One undisturbed run: nothing else is moving."""
        history: tuple[tuple[int, Frozen], ...] = ()
        while True:
            outcome = self._audit_outcome(w, w.tick, history)
            if isinstance(outcome, Raised):
                return w._replace(bad=_exception("the audit", outcome))
            if isinstance(outcome, Finished):
                return w
            w, answer = self._audit_answer(w, outcome)
            history = (*history, (w.tick, answer))

    def _audit_would_send(self, w: World) -> bool:
        if self.scenario.no_audit:
            return False
        after = self._audit_at_rest(w)
        return bool(after.bad) or not set(after.queue) <= set(w.queue)

    def _listing(self, w: World) -> tuple[tuple[str, int, bool], ...]:
        newest_first = self.script.alive[w.done][::-1]
        return tuple(
            (
                f"m#{one.operation}" if one.kind is StateKind.MARKER else one.identity,
                self._created(w, one),
                place == 0,
            )
            for place, one in enumerate(newest_first)
        )

    # What AWS answers

    def _event(self, number: int, tick: int) -> Message:
        if (number, tick) not in self._events:
            place = len(self.script.operations) - number if self.scenario.misleading else number
            self._events[number, tick] = self.script.event(number, tick, place, late=self.scenario.late)
        return self._events[number, tick]

    def _forged(self, version: int, tick: int) -> Message:
        if (-version, tick) not in self._events:
            self._events[-version, tick] = forged_marker(version, tick)
        return self._events[-version, tick]

    def _created(self, w: World, shown: Shown) -> int:
        if not shown.operation:
            return 0
        old = self.script.operations[shown.operation - 1] == "o"
        return _LONG_AGO if old else w.times[shown.operation - 1]

    def _outcome(self, slot: int, k: Worker) -> Request | Finished | Raised:
        known = slot, k.message, k.start, k.history, k.deployed
        outcome = self._outcomes.get(known)
        if outcome is None:
            outcome = self._outcomes[known] = self._run(slot, k)
        return outcome

    def _run(self, slot: int, k: Worker) -> Request | Finished | Raised:
        if self._symmetry is None or slot == 0:
            return program.run(k.message, f"w{slot}", self._config(k.deployed), k.start, k.history)
        outcome = self._outcome(0, self._symmetry.mirrored(k))
        if not isinstance(outcome, Request):
            return outcome
        return Request(outcome.service, outcome.operation, mirrored_arguments(outcome.arguments))

    def _config(self, deployed: bool) -> Config:
        return self.scenario.after if deployed and self.scenario.after is not None else self.config

    def _audit_outcome(
        self, w: World, start: int, history: tuple[tuple[int, Frozen], ...]
    ) -> Request | Finished | Raised:
        known = "audit", start, history, w.deployed
        if known not in self._outcomes:
            self._outcomes[known] = program.run_audit(self._config(w.deployed), start, history)
        return self._outcomes[known]

    def _answer(self, w: World, request: Request) -> tuple[Items, Frozen]:
        if request.operation == "get_object":
            return w.items, Frozen("ok" if self.script.readable(program.wanted(request.arguments), w.done) else "gone")
        if request.service == "s3":
            return w.items, self._head(w, request)
        if request.operation == "describe_table":
            return w.items, Frozen("ok", w.restores < self.scenario.restores)
        return self._apply(w.items, request)

    def _head(self, w: World, request: Request) -> Frozen:
        if "VersionId" in request.arguments:
            number = int(request.arguments["VersionId"])
            version = next((one for one in self.script.alive[w.done] if one.operation == number), None)
            if version is None:
                return Frozen("absent")
            if version.kind is StateKind.MARKER:
                return Frozen("is marker", w.times[number - 1])
            return Frozen("ok", (version.identity, self._created(w, version)))
        shown = self.script.shown[w.done]
        if shown.kind is StateKind.ABSENT:
            return Frozen("absent")
        if shown.kind is StateKind.MARKER:
            return Frozen("marker", str(shown.operation))
        return Frozen("ok", (shown.identity, self._created(w, shown)))

    def _apply(self, items: Items, request: Request) -> tuple[Items, Frozen]:
        known = items, id(request)
        if known not in self._applied:
            self._applied[known] = _apply(items, request)
        return self._applied[known]


_WRITES = "writes"
"""The outcome of a processor that writes its effect and does not fail by itself."""
_OUTPUTS = frozenset({Effect.FENCED, Effect.REJECTS})
"""Effects that are an output, so that each request to it is a step."""
_EXACT = _OUTPUTS | {Effect.TRANSACT}
"""Effects that nothing can leave wrong."""
_TAGS = tuple(sorted((program.TAG, *program.UPLOADED_TAGS)))
"""The tags of a version after its commit."""
_LONG_AGO = -9
"""The tick of what happened before the search begins."""
_BUDGETS = (
    *("restores", "crashes", "losses", "answers", "pauses", "breaks", "audits"),
    *("rejects", "waits", "redrives", "refusals", "tag_refusals", "slow"),
)


def _apply(items: Items, request: Request) -> tuple[Items, Frozen]:
    store = StrictDynamoDB({key: thaw(item) for key, item in items})
    operation = request.operation
    try:
        if operation == "scan":
            [page] = store.get_paginator("scan").paginate(**request.arguments)
            return items, Frozen("ok", tuple(freeze(item) for item in page["Items"]))
        answer = getattr(store, operation)(**request.arguments)
    except ClientError as error:
        refusal: Any = error.response
        item = refusal["CancellationReasons"][0].get("Item") if _in_transaction(request) else refusal.get("Item")
        return items, Frozen("refused", None if item is None else freeze(item))
    except AssertionError as error:
        # A request that the ledger must not make. Its caller hears of it, so that the trace shows who asked.
        return items, Frozen("forbidden", str(error) or "the request is not allowed")
    if operation == "get_item":
        return items, Frozen("ok", freeze(answer["Item"]) if answer else None)
    if operation == "batch_execute_statement":
        written = tuple("Error" not in response for response in answer["Responses"])
        return _frozen(store), Frozen("ok", written)
    if operation == "batch_get_item":
        [found] = answer["Responses"].values()
        return items, Frozen("ok", tuple(freeze(item) for item in found))
    return _frozen(store), Frozen("ok")


def _frozen(store: MemoryDynamoDB) -> Items:
    return tuple(sorted((key, freeze(item)) for key, item in store.items.items()))


def _exception(name: str, raised: Raised) -> str:
    """Describe an exception of the code under search: one line, then the traceback."""
    return f"{name} raises {raised.error}\n{raised.traceback}"


def _headline(bad: str) -> str:
    return bad.partition("\n")[0]


def _put(w: World, slot: int, worker: Worker | None, **changes: Any) -> World:
    """`_replace`, which every step of the search goes through, in a third of its time."""
    values = list(w)
    values[_WORKERS] = _with(w.workers, slot, worker)
    for name, value in changes.items():
        values[_PLACES[name]] = value
    return tuple.__new__(World, values)


_PLACES = {name: place for place, name in enumerate(World._fields)}
_WORKERS = _PLACES["workers"]


def _with(values: tuple[Any, ...], place: int, value: object) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _sent(queue: tuple[Message, ...], message: Message) -> tuple[Message, ...]:
    return tuple(sorted((*queue, message), key=lambda one: (one.label, one.rejected_fence or 0, one.copies, one.body)))


@lru_cache(_RECENT)
def _stored(request: Request) -> Output:
    """The object that a put makes. An ETag covers the bytes only, as on S3."""
    body, metadata = request.arguments["Body"], request.arguments["Metadata"]
    _, _, state = body.partition(program.CONTENT)
    if b'"source"' in body:
        row = json.loads(body)
        state = (f"v#{row['version_id']}" if row["version_id"] else f"e#{row['etag']}").encode()
    etag = hashlib.md5(body, usedforsecurity=False).hexdigest()[:12]
    return Output(etag, tuple(sorted(metadata.items())), state.decode() or "absent")


@lru_cache(_RECENT)
def _values(request: Request) -> dict[str, Any]:
    """Return the values of a write, by attribute name or placeholder."""
    if request.operation == "batch_execute_statement":
        # Only the audit's marks are several.
        statement = request.arguments["Statements"][0]
        if statement["Statement"].startswith("INSERT"):
            return inserted_item(statement)
        assign, _, where = parse_update_statement(statement)
        own = {
            f":own_{name}": where[one] for name, one in (("fence", "fence"), ("owner", "lease_owner")) if one in where
        }
        return {f":{name}": value for name, value in assign.items()} | own | {"pk": where["pk"], "sk": where["sk"]}
    written = _write(request)
    values: dict[str, Any] = written.get("ExpressionAttributeValues") or written.get("Item") or {}
    return values


def _write(request: Request) -> Mapping[str, Any]:
    """The arguments of the write to the ledger's own table."""
    if _in_transaction(request):
        own: Mapping[str, Any] = request.arguments["TransactItems"][0]["Update"]
        return own
    return request.arguments


def _in_transaction(request: Request) -> bool:
    return request.operation == "transact_write_items"


def _content(item: tuple[tuple[str, str, str], ...]) -> dict[str, str]:
    """A frozen item's values by name."""
    return {name: value for name, _, value in item}


def _late_writes(row: Mapping[str, str]) -> set[str]:
    return set(row["late_writes"].split(program.SEPARATOR)) if "late_writes" in row else set()


@lru_cache(_RECENT)
def _reports(request: Request) -> bool:
    """Return whether the request reports a late write."""
    return request.operation == "update_item" and ":own_state" in _values(request)


@lru_cache(_RECENT)
def _claims(request: Request) -> bool:
    values = _values(request)
    return (values.get(":status") or values.get("status") or {}).get("S") == "PROCESSING" or ":lease_until" in values


def _identity(request: Request) -> str:
    told = request.arguments
    if told["kind"] == "deleted":
        return f"d#{told['version']}"
    if told["version"] is not None:
        return f"v#{told['version']}"
    return f"e#{told['etag']}" if told["kind"] == "created" else "absent"


def _row_of(items: Items, request: Request) -> dict[str, str]:
    wanted = _write(request).get("Key") or _values(request)
    key = wanted["pk"]["S"], wanted["sk"]["S"]
    return next({name: value for name, _, value in item} for one, item in items if one == key)


def _row_identity(row: dict[str, str]) -> str:
    state = State(StateKind(row.get("kind", "object")), row.get("version_id"), row.get("etag"))
    return state.identity


@lru_cache(_RECENT)
def _said(request: Request) -> str:
    if _reports(request):
        return f"update_item late write of {_values(request)[':own_state']['S']}"
    values = _values(request)
    status = (values.get(":status") or values.get("status") or {}).get("S")
    fence = (values.get(":fence") or values.get("fence") or values.get(":own_fence") or {}).get("N")
    return f"{request.operation}" + (f" {status}" if status else "") + (f" fence {fence}" if fence else "")


def _told(answer: Frozen) -> str:
    if answer.kind == "refused" and answer.value is not None:
        row = {name: value for name, _, value in answer.value}  # type: ignore[attr-defined]
        return f"refused by {row.get('status')} {row.get('version_id') or row.get('etag')} fence {row.get('fence')}"
    if answer.kind == "ok" and isinstance(answer.value, tuple) and len(answer.value) == 2:
        return str(answer.value[0])
    return answer.kind if answer.kind != "marker" else f"marker {answer.value}"


def _cannot_reach(goals: list[int], sources: "array[int]", targets: "array[int]", count: int) -> int | None:
    """Return the first of `count` worlds that cannot reach any of `goals`."""
    before: list[list[int]] = [[] for _ in range(count)]
    for source, target in zip(sources, targets, strict=True):
        before[target].append(source)
    reached, todo = bytearray(count), list(goals)
    for goal in goals:
        reached[goal] = True
    while todo:
        for world in before[todo.pop()]:
            if not reached[world]:
                reached[world] = True
                todo.append(world)
    stuck = reached.find(False)
    return None if stuck < 0 else stuck


def _trace(came_from: "array[int]", labels: list[str], mirrors: bytearray, world: int) -> list[str]:
    """The steps to a world, in which each worker keeps its name from beginning to end."""
    path = []
    while came_from[world] >= 0:
        path.append(world)
        world = came_from[world]
    steps, mirror = [], False
    for reached in reversed(path):
        steps.append(mirrored_label(labels[reached]) if mirror else labels[reached])
        mirror ^= bool(mirrors[reached])
    return steps
