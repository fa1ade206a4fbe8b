"""Every order of steps of a small world around the real code: S3, one queue, a few workers, an audit, and their faults.

A breadth-first search, so that the first violation found has the shortest trace. The state is everything that can
matter later: what S3 shows, the queue, the table's items, and for each worker its message and the answers it was given.
"""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from cdk_intake_ledger.testing.memory_dynamodb import Key, MemoryDynamoDB, inserted, updated
from intake_ledger.changes import Origin, own_message
from intake_ledger.states import State, StateKind
from tests.protocol import program
from tests.protocol.program import BUCKET, KEY, Config, Finished, Frozen, Message, Request, freeze, thaw
from tests.protocol.s3_script import Script, Shown

MAX_QUEUE = 4
Items = tuple[tuple[Key, tuple[tuple[str, str, str], ...]], ...]
WRITES = frozenset({"put_item", "update_item", "delete_item", "batch_execute_statement", "transact_write_items"})


class Scenario(NamedTuple):
    """A world and how many faults of each kind may happen in it."""

    script: str
    config: Config = Config()
    deliveries: int = 1
    """How often S3 sends each event."""
    crashes: int = 0
    """Deaths of workers, at any step, before or after its effect; failures of the processor count too."""
    losses: int = 0
    answers: int = 0
    """Answers of writes that are lost, whereupon the SDK repeats the write."""
    pauses: int = 0
    """Leases that run out while their worker lives on."""
    audits: int = 0
    """Audits in the midst of things; at rest there is always one, unless `no_audit`."""
    no_audit: bool = False
    ticks: int = 0
    """Steps of the clock that let rows expire."""
    rejects: int = 0
    """How often the processor may raise Unprocessable."""
    redrives: int = 0
    asks: tuple[int, ...] = ()
    """Reprocess requests, in the order in which they are made."""
    ask_deliveries: int = 1
    slow: int = 0
    """Claims that took so long that they are given back unstarted."""
    misleading: bool = False
    """S3's sequencers run backwards."""
    workers: int = 2
    forgetful: bool = False
    """The current state may be deleted for good after its row has expired, which nobody can decide: then only half-done
    work must not be left."""
    strict: bool = False
    """Without deaths, nothing may run again while the downstream still has it."""


class Worker(NamedTuple):
    message: Message
    start: int
    history: tuple[tuple[int, Frozen], ...] = ()
    zombie: bool = False
    working: bool = False
    """Between the start of its processor and the end of its claim."""
    state: str = ""
    """What its processor was given."""


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
    downstream: str = "absent"
    clean: bool = True
    """What the downstream was last given is committed."""
    fence: int = 0
    """The highest that a processor was given."""
    versions: tuple[str, ...] = ()
    """EVERY_VERSION: what has been committed."""
    tries: tuple[tuple[str, int], ...] = ()
    """Starts of each state in the current allowance."""
    dlq: tuple[Message, ...] = ()
    booked: tuple[str, ...] = ()
    """The effects that were written with their commits, in order."""
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
    audits: int = 0
    rejects: int = 0
    redrives: int = 0
    slow: int = 0
    bad: str = ""


class Result(NamedTuple):
    """How a search ended: the first violation with the steps that lead to it, or the number of states."""

    violation: str
    trace: list[str]
    states: int
    complete: bool


class Explorer:
    """The search for one scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.config = scenario.config
        self.script = Script(scenario.script)
        self._outcomes: dict[Any, Request | Finished] = {}
        self._applied: dict[Any, tuple[Items, Frozen]] = {}
        self._events: dict[tuple[int, int], Message] = {}
        self._reprocess = [
            Message(
                own_message(Origin.REPROCESS, BUCKET, KEY, reprocess_id=f"{one:02}"), f"reprocess {one}", reprocess=one
            )
            for one in (0, 1, 2, 3)
        ]

    def explore(self, *, states: int = 10**9, seconds: float = 10**9) -> Result:
        """Search everything, or until so many states or seconds."""
        s, n = self.scenario, len(self.script.operations)
        start = World(
            done=0,
            times=(),
            undelivered=(s.deliveries,) * n,
            queue=(),
            items=(),
            workers=(None,) * s.workers,
            **{name: getattr(s, name) for name in _BUDGETS},
        )
        came_from: dict[World, tuple[World, str] | None] = {start: None}
        before: dict[World, list[World]] = {start: []}
        resting: list[World] = []
        todo, until = deque([start]), time.monotonic() + seconds
        while todo:
            world = todo.popleft()
            violation = world.bad
            if not violation:
                for label, following in self._steps(world):
                    if following not in came_from:
                        came_from[following] = world, label
                        before[following] = []
                        todo.append(following)
                    before[following].append(world)
                if self._quiet(world):
                    resting.append(world)
                    violation = self._at_rest(world)
            if violation:
                return Result(violation, _trace(came_from, world), len(came_from), complete=True)
            if len(came_from) > states or time.monotonic() > until:
                return Result("", [], len(came_from), complete=False)
        stuck = _cannot_reach(resting, before)
        if stuck is not None:
            return Result(
                "stuck: no way leads to rest any more", _trace(came_from, stuck), len(came_from), complete=True
            )
        return Result("", [], len(came_from), complete=True)

    # What the world may do

    def _steps(self, w: World) -> Iterator[tuple[str, World]]:
        n = len(self.script.operations)
        if w.done < n:
            yield f"S3: {self.script.operations[w.done]}", w._replace(done=w.done + 1, times=(*w.times, w.tick))
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
            yield "an audit starts", w._replace(audit=(w.tick, ()), audits=w.audits - 1)
        if self._quiet(w) and not self.scenario.no_audit and w.audit is None:
            yield "the audit runs at rest", self._audit_at_rest(w)

    def _first_step(self, label: str, received: World, slot: int) -> Iterator[tuple[str, World]]:
        """Receiving a message and the first call are one step: nobody else can tell what lies between."""
        worker = received.workers[slot]
        assert worker is not None
        for said, following in self._worker_steps(received, slot, worker, begun=False):
            yield from self._finished(f"{label}; {said}", following, slot)

    def _finished(self, label: str, w: World, slot: int) -> Iterator[tuple[str, World]]:
        """A worker that has nothing left to call answers at once: waiting would only keep its message from others."""
        worker = w.workers[slot]
        if w.bad or worker is None or not isinstance(outcome := self._outcome(slot, worker), Finished):
            yield label, w
            return
        for said, following in self._finish(w, slot, worker, outcome):
            yield f"{label}; {said}", following

    def _losses(self, w: World) -> Iterator[tuple[str, World]]:
        for number in range(1, w.done + 1):
            if w.losses and w.undelivered[number - 1]:
                gone = _with(w.undelivered, number - 1, 0)
                message = self._event(number, w.times[number - 1])
                yield f"{message.label} is lost", w._replace(undelivered=gone, losses=w.losses - 1)

    def _receives(self, w: World, slot: int) -> Iterator[tuple[str, World]]:
        """Whatever waits in the queue, or is on its way to it: when exactly it arrived there makes no difference."""
        for message in dict.fromkeys(w.queue):
            rest = list(w.queue)
            rest.remove(message)
            yield f"w{slot} receives {message.label}", _put(w, slot, Worker(message, w.tick), queue=tuple(rest))
        for number in range(1, w.done + 1):
            if count := w.undelivered[number - 1]:
                left = _with(w.undelivered, number - 1, count - 1)
                message = self._event(number, w.times[number - 1])
                yield f"w{slot} receives {message.label}", _put(w, slot, Worker(message, w.tick), undelivered=left)
        for place, one in enumerate(w.asks):
            rest_of = w.asks[:place] + w.asks[place + 1 :]
            message = self._reprocess[one]
            yield f"w{slot} receives {message.label}", _put(w, slot, Worker(message, w.tick), asks=rest_of)

    def _people(self, w: World) -> Iterator[tuple[str, World]]:
        if w.dlq and w.redrives and len(w.queue) < MAX_QUEUE:
            first, *rest = w.dlq
            yield (
                f"a person moves {first.label} back",
                w._replace(dlq=tuple(rest), redrives=w.redrives - 1, queue=_sent(w.queue, first), tries=(), owed=True),
            )
        if w.asked < len(self.scenario.asks) and w.done == len(self.script.operations) and w.committed:
            one = self.scenario.asks[w.asked]
            asks = tuple(sorted(w.asks + (one,) * self.scenario.ask_deliveries))
            yield f"a person asks to reprocess ({one})", w._replace(asked=w.asked + 1, asks=asks)

    def _time(self, w: World) -> Iterator[tuple[str, World]]:
        if w.tick < self.scenario.ticks and self._timely(w):
            yield "time passes", w._replace(tick=w.tick + 1)
        for place, (key, item) in enumerate(w.items):
            content = {name: value for name, _, value in item}
            holder = content.get("owner", "").partition(".")[0]
            if content.get("lease_until", "0") != "0" and not any(
                worker and f"w{slot}" == holder for slot, worker in enumerate(w.workers)
            ):
                yield "a lease that nobody holds runs out", w._replace(items=self._lapse(w.items, key))
            now = program.EPOCH_MS + w.tick * program.TICK_MS
            if "expires_at" in content and int(content["expires_at"]) * 1000 < now:
                yield f"TTL removes {key[1]}", w._replace(items=w.items[:place] + w.items[place + 1 :])

    def _timely(self, w: World) -> bool:
        """What the design assumes of operations: each change is first handled, and the audit runs, within retention."""
        handled = all(left < self.scenario.deliveries for left in w.undelivered[: w.done])
        return handled and not w.queue and not any(w.workers) and w.audit is None and not self._audit_would_send(w)

    # What a worker may do

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
        if outcome.service == "processor":
            yield from self._process(w, slot, k, outcome)
            return
        if outcome.service == "sqs":
            yield from self._copy(w, slot, k, outcome)
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
        if k.zombie and k.message in w.queue:
            # SQS may or may not honour the receipt of an earlier delivery.
            rest = list(w.queue)
            rest.remove(k.message)
            yield f"{name} acknowledges {k.message.label} for good", _put(w, slot, None, queue=tuple(rest))

    def _die(self, w: World, slot: int, k: Worker) -> World:
        """The worker is gone; its message comes back after the visibility, which is longer than its lease."""
        held = self._held(w, slot)
        items = w.items if held is None else self._lapse(w.items, held)
        queue = w.queue if k.zombie else _sent(w.queue, k.message)
        return _put(w, slot, None, items=items, queue=queue, crashes=w.crashes - 1)

    def _held(self, w: World, slot: int) -> Key | None:
        """The row on which this worker's lease is running."""
        for key, item in w.items:
            content = {name: value for name, _, value in item}
            mine = content.get("owner", "").startswith(f"w{slot}.")
            if mine and content.get("status") == "PROCESSING" and int(content.get("lease_until", 0)) > 0:
                return key
        return None

    def _lapse(self, items: Items, key: Key) -> Items:
        """The row as it reads once its lease lies in the past."""
        return tuple(
            (one, tuple((n, t, "0" if n == "lease_until" else v) for n, t, v in item) if one == key else item)
            for one, item in items
        )

    def _process(self, w: World, slot: int, k: Worker, request: Request) -> Iterator[tuple[str, World]]:
        identity, fence = _identity(request), request.arguments["fence"]
        label = f"w{slot} processes {identity} (fence {fence})"
        given = self._given(w, slot, k, identity, request)
        k = k._replace(working=True, state=identity)
        yield label, self._answered(given, slot, k, Frozen("ok"))
        if w.crashes:
            yield f"{label} and fails", self._answered(given, slot, k, Frozen("fails"), crashes=w.crashes - 1)
        if w.rejects:
            yield (
                f"{label}: Unprocessable",
                self._answered(given, slot, k, Frozen("unprocessable"), rejects=w.rejects - 1),
            )

    def _copy(self, w: World, slot: int, k: Worker, request: Request) -> Iterator[tuple[str, World]]:
        marks = request.arguments["MessageAttributes"]
        fence = int(marks["rejected_fence"]["StringValue"])
        copy = k.message._replace(rejected_fence=fence, label=f"copy of {k.message.label.removeprefix('copy of ')}")
        # Two are enough to see whether one is ever missing.
        dlq = tuple(sorted({*w.dlq, copy}))[-2:]
        sent = w._replace(dlq=dlq)
        yield f"w{slot} sends {copy.label} to the dead-letter queue", self._answered(sent, slot, k, Frozen("ok"))
        if w.crashes:
            yield f"w{slot} sends {copy.label} to the dead-letter queue, and dies", self._die(sent, slot, k)

    # The guarantees

    def _given(self, w: World, slot: int, k: Worker, identity: str, request: Request) -> World:
        """The world after a processor was given a state; `bad` where a guarantee forbids it."""
        fence = int(request.arguments["fence"])
        overtaken = k.zombie and not self._owns(w, slot, fence, identity)
        if overtaken:
            return w  # only the fence, downstream, can stop its effect: that is documented
        bad = ""
        others = [one for n, one in enumerate(w.workers) if one and n != slot and one.working and not one.zombie]
        if any(one.state == identity or not self.config.every_version for one in others):
            bad = "G1: two attempts process the key at the same time"
        if fence <= w.fence and not self.config.every_version:
            bad = bad or f"the fence went back: {fence} after {w.fence}"
        if self.config.max_attempts < 10:
            counts = dict(w.tries)
            counts[identity] = counts.get(identity, 0) + 1
            w = w._replace(tries=tuple(sorted(counts.items())))
            if counts[identity] > self.config.max_attempts:
                bad = bad or f"{counts[identity]} attempts at {identity}, {self.config.max_attempts} are allowed"
        if self.config.every_version:
            if identity in w.versions and not w.asked:
                bad = bad or f"G3: {identity} processed after its commit"
            return w._replace(bad=bad, owed=False, fence=max(w.fence, fence))
        first = max(w.committed + (0 if w.asked else 1), w.started)
        fits = self._epochs(identity, first, w.done)
        if not fits:
            bad = bad or f"G2/G3: {identity} processed, committed epoch {w.committed}, started {w.started}"
        if self.scenario.strict and w.clean and w.downstream == identity:
            bad = bad or f"{identity} processed again although the downstream has it and nothing came between"
        return w._replace(
            bad=bad,
            started=fits[0] if fits else w.started,
            downstream=identity,
            clean=False,
            fence=max(w.fence, fence),
            owed=False,
        )

    def _check_write(self, w: World, slot: int, k: Worker, request: Request, answer: Frozen, items: Items) -> World:
        """The world after a write of the ledger: claims end here, and commits are judged."""
        if request.operation not in WRITES or answer.kind != "ok" or items == w.items:
            return w
        if _claims(request) and w.tries:
            # Another state than the last one begins an allowance of its own.
            claimed = _row_identity(_row_of(items, request))
            before = [_row_identity({name: value for name, _, value in item}) for _, item in w.items]
            if claimed not in before:
                w = w._replace(tries=tuple(one for one in w.tries if one[0] != claimed))
        values = _values(request)
        status = (values.get(":status") or values.get("status") or {}).get("S")
        if not k.working and ":own_owner" in _values(request):
            return w  # a claim under which nothing was begun is given back
        if k.working:
            w = _put(w, slot, k._replace(working=False))
        if status == "REJECTED" and not k.working:
            return self._check_exhausted(w, request)
        # A write names only what it changes: a removal settled over a settled row leaves the status alone.
        if status != "PROCESSED" and ":committed_version" not in values:
            return w
        row = _row_of(items, request)
        identity = row["committed_version"]
        if _in_transaction(request):
            w = w._replace(booked=(*w.booked, identity))
        if self.config.every_version:
            bad = f"G3: {identity} committed again" if identity in w.versions and k.working and not w.asked else ""
            return w._replace(versions=tuple(sorted({*w.versions, identity})), bad=bad)
        if not k.working:
            return self._check_settled(w, identity)
        fits = self._epochs(identity, w.committed + (0 if w.asked else 1), w.done)
        bad = "" if fits else f"G3: {identity} committed again, committed epoch {w.committed}"
        reruns = w.reruns + (w.started == w.committed and w.asked > 0)
        if reruns > w.asked:
            bad = bad or f"{reruns} more commits of one epoch for {w.asked} reprocess requests"
        # What is done is done: a reprocess has the whole allowance.
        tries = tuple(one for one in w.tries if one[0] != identity)
        committed = max(w.committed, w.started)
        served = w.served or w.asked > 0
        return w._replace(committed=committed, clean=True, bad=bad, reruns=reruns, tries=tries, served=served)

    def _check_settled(self, w: World, identity: str) -> World:
        """A removal that the processor does not hear of."""
        fits = self._epochs(identity, max(w.committed + 1, w.started), w.done)
        again = self.script.states[w.committed].identity == identity
        bad = "" if fits or again else f"G2/G3: removal {identity} settled, committed epoch {w.committed}"
        epoch = fits[0] if fits else w.committed
        return w._replace(committed=epoch, started=max(epoch, w.started), clean=True, bad=bad)

    def _check_exhausted(self, w: World, request: Request) -> World:
        identity = _row_identity(_row_of(w.items, request))
        tried = dict(w.tries).get(identity, 0)
        # A death between claim and start wastes an attempt, and nobody can tell it from a death by the processor.
        wasted = self.scenario.crashes - w.crashes + self.scenario.pauses - w.pauses
        if tried or wasted >= self.config.max_attempts:
            return w
        return w._replace(bad=f"{identity} was rejected and never given to the processor")

    def _quiet(self, w: World) -> bool:
        done = w.done == len(self.script.operations) and not any(w.undelivered)
        return done and not w.queue and not any(w.workers) and w.audit is None and not w.asks

    def _at_rest(self, w: World) -> str:
        if self._audit_would_send(w):
            return ""
        rows = [{name: value for name, _, value in item} for _, item in w.items]
        rejected = {_row_identity(row) for row in rows if row.get("status") == "REJECTED"}
        if rejected and not w.dlq and w.redrives == self.scenario.redrives:
            return f"{sorted(rejected)} REJECTED, and no copy in the dead-letter queue"
        if self.config.every_version:
            wanted = [one for one in self.script.alive[w.done] if self.config.deletes or one.kind is StateKind.OBJECT]
            expected = [one.identity for one in wanted]
            if not self.scenario.losses:
                # No listing shows a version that was deleted for good: a lost report of that stays lost.
                expected += [f"d#{one[1:]}" for one in self.script.operations if one[0] == "d"]
            if self.config.transact and sorted(w.booked) != sorted(w.versions):
                return f"{w.versions} are committed, and the effects are {w.booked}"
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
        if self.config.transact and w.booked[-1:] != (current.identity,):
            return f"G4: at rest S3 shows {current.identity}, the effects are {w.booked}"
        untold = not self.config.deletes and current.kind is not StateKind.OBJECT
        if w.downstream != current.identity and not untold and not (self.scenario.forgetful and w.clean):
            return f"G4: at rest S3 shows {current.identity}, the downstream has {w.downstream}"
        if not w.tick and self._committed_identity(rows) != current.identity and not (untold and not rows):
            return f"G4: at rest S3 shows {current.identity}, the ledger {self._committed_identity(rows)}"
        return ""

    def _committed_identity(self, rows: list[dict[str, str]]) -> str:
        settled = [row["committed_version"] for row in rows if row.get("status") == "PROCESSED"]
        return settled[0] if settled else "absent" if not rows else "unsettled"

    def _epochs(self, identity: str, first: int, done: int) -> list[int]:
        now = self.script.epoch[done]
        return [one for one in range(max(first, 0), now + 1) if self.script.states[one].identity == identity]

    def _owns(self, w: World, slot: int, fence: int, identity: str) -> bool:
        """Whether the row shows this worker's claim on this state, its lease running or not."""
        for _, item in w.items:
            row = {name: value for name, _, value in item}
            mine = row.get("owner", "").startswith(f"w{slot}.") and row.get("fence") == str(fence)
            if mine and row.get("status") == "PROCESSING" and _row_identity(row) == identity:
                return True
        return False

    # The audit

    def _audit_steps(self, w: World, audit: tuple[int, tuple[tuple[int, Frozen], ...]]) -> Iterator[tuple[str, World]]:
        start, history = audit
        outcome = self._audit_outcome(start, history)
        if isinstance(outcome, Finished):
            yield "the audit ends", w._replace(audit=None)
            return
        if w.crashes:
            yield f"the audit dies before {_said(outcome)}", w._replace(audit=None, crashes=w.crashes - 1)
        after, answer = self._audit_answer(w, outcome)
        yield f"audit: {_said(outcome)}", after._replace(audit=(start, (*history, (w.tick, answer))))

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
            outcome = self._audit_outcome(w.tick, history)
            if isinstance(outcome, Finished):
                return w
            w, answer = self._audit_answer(w, outcome)
            history = (*history, (w.tick, answer))

    def _audit_would_send(self, w: World) -> bool:
        return not self.scenario.no_audit and bool(set(self._audit_at_rest(w).queue) - set(w.queue))

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
            self._events[number, tick] = self.script.event(number, tick, place)
        return self._events[number, tick]

    def _created(self, w: World, shown: Shown) -> int:
        return w.times[shown.operation - 1] if shown.operation else 0

    def _outcome(self, slot: int, k: Worker) -> Request | Finished:
        known = slot, k.message, k.start, k.history
        if known not in self._outcomes:
            self._outcomes[known] = program.run(k.message, f"w{slot}", self.config, k.start, k.history)
        return self._outcomes[known]

    def _audit_outcome(self, start: int, history: tuple[tuple[int, Frozen], ...]) -> Request | Finished:
        known = "audit", start, history
        if known not in self._outcomes:
            self._outcomes[known] = program.run_audit(self.config, start, history)
        return self._outcomes[known]

    def _answer(self, w: World, request: Request) -> tuple[Items, Frozen]:
        if request.operation == "get_object":
            version = request.arguments.get("VersionId")
            identity = f"v#{version}" if version else f"e#{request.arguments['IfMatch'].strip('"')}"
            return w.items, Frozen("ok" if self.script.readable(identity, w.done) else "gone")
        if request.service == "s3":
            return w.items, self._head(w, request)
        return self._apply(w.items, request)

    def _head(self, w: World, request: Request) -> Frozen:
        if "VersionId" in request.arguments:
            marker = int(request.arguments["VersionId"])
            return Frozen("is marker", w.times[marker - 1])
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


_BUDGETS = ("crashes", "losses", "answers", "pauses", "audits", "rejects", "redrives", "slow")


def _apply(items: Items, request: Request) -> tuple[Items, Frozen]:
    store = MemoryDynamoDB({key: thaw(item) for key, item in items})
    operation = request.operation
    if operation == "scan":
        [page] = store.get_paginator("scan").paginate(**request.arguments)
        return items, Frozen("ok", tuple(freeze(item) for item in page["Items"]))
    try:
        answer = getattr(store, operation)(**request.arguments)
    except ClientError as error:
        refusal: Any = error.response
        item = refusal["CancellationReasons"][0].get("Item") if _in_transaction(request) else refusal.get("Item")
        return items, Frozen("refused", None if item is None else freeze(item))
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


def _put(w: World, slot: int, worker: Worker | None, **changes: Any) -> World:
    return w._replace(workers=_with(w.workers, slot, worker), **changes)


def _with(values: tuple[Any, ...], place: int, value: object) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _sent(queue: tuple[Message, ...], message: Message) -> tuple[Message, ...]:
    return tuple(sorted((*queue, message), key=lambda one: (one.label, one.rejected_fence or 0, one.body)))


def _values(request: Request) -> dict[str, Any]:
    """What a write writes, by name or placeholder."""
    if request.operation == "batch_execute_statement":
        [statement] = request.arguments["Statements"]
        if statement["Statement"].startswith("INSERT"):
            return inserted(statement)
        assign, _, where = updated(statement)
        own = {":own_fence": where["fence"], ":own_owner": where["owner"]}
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


def _said(request: Request) -> str:
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


def _cannot_reach(goals: list[World], before: dict[World, list[World]]) -> World | None:
    """The first world found from which no way leads to any of these."""
    reached, todo = set(goals), list(goals)
    while todo:
        for world in before[todo.pop()]:
            if world not in reached:
                reached.add(world)
                todo.append(world)
    return next((world for world in before if world not in reached), None)


def _trace(came_from: dict[World, tuple[World, str] | None], world: World) -> list[str]:
    steps = []
    while (step := came_from[world]) is not None:
        world, label = step
        steps.append(label)
    return steps[::-1]
