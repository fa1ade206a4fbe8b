"""A small world of a few features: one intake over the real consumer, ledger, audit and commands, with AWS in memory.

A world is its features and its steps. Each step is a name and two numbers, which stand for a key, a content, a worker
or a time, so that a world without some of its steps is a world too. A step may have a fault: at one of its requests,
the worker dies, AWS refuses the request or loses its answer, the table is busy, or the worker stands still. It stands
still while some steps happen, or in a thread of its own until a step wakes it. One thread runs at a time.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, cast, override

from botocore.exceptions import ClientError

from cdk_intake_ledger.testing import Killed, LocalMessages, LocalPipeline, LocalSets
from intake_ledger import Commit, NotYet, Unprocessable, outcome_events
from intake_ledger.executions.decide import execution_name
from intake_ledger.protocol.errors import LibraryError
from intake_ledger.protocol.group_pattern import GroupPattern
from intake_ledger.protocol.reasons import ReasonCode
from intake_ledger.protocol.row import FORMAT, Row, RowKey, Status, from_dynamodb, rate_key, row_from_attributes
from intake_ledger_testing.dynamodb_expressions import Item
from intake_ledger_testing.local_worker import LocalConnection, LocalWorker
from intake_ledger_testing.memory_step_functions import MemoryExecution
from intake_ledger_testing.outcome_counter import OutcomeCounter
from tests.kinds.cells import Cell
from tests.unit.support import DAY, HOUR, MINUTE, SECOND

KEYS = ("a/manifest.json", "a/b/manifest.json", "b/manifest.json")
"""The first two are of one group."""
_OFTEN = (0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2)
JUMPS = (SECOND, 30 * SECOND, 2 * MINUTE, 10 * MINUTE, HOUR, 6 * HOUR)
MOODS = ("ok", "ok", "ok", "bad", "flaky", "later")
"""How processors answer. Messages have `fixed` too: the first answer is a rejection, and later ones are not."""
GROUPS = GroupPattern("{folder}/")
SKEW = 100 * SECOND
"""Less than `clock_skew_seconds`."""
LOSSES = frozenset({"lost", "purged", "restored", "expired", "dismissed"})
"""Notes of what loses messages, or what they are about."""
TURNS = ("turn", "turn again", "turn once more")
WITH_REQUESTS = frozenset({*TURNS, "audit", "forget", "once"})
"""Steps that may have a fault. Each one is done by one worker or person."""
_MOST_TURNS = 1_500
_FORMAT = {"N": str(FORMAT)}
_IN_WORK = (Status.PROCESSING, Status.FAILED)
_WRITES = frozenset({"put_item", "update_item", "batch_execute_statement", "transact_write_items"})
_CALLS = frozenset({"process", "start_execution", "invoke"})
_NO_CALL = 1


class Fault(NamedTuple):
    """A fault of a worker at its request with this number, counted from 1."""

    kind: str
    """`die` or `die after`: its process ends before or after the request. `refuse`: AWS refuses it. `lose`: AWS carries
    it out, and its answer is lost. `busy`: this transaction meets another one, or from here on, the table carries out a
    half of the next batch, and the next writes meet a transaction. `pause`: other steps happen before it. `sleep`: the
    worker stands still before it, until a step wakes it or all else has come to rest."""
    number: int
    """0: the call of the processor, or the start of its execution. -1: the first request after it, and so on."""
    steps: "tuple[Step, ...]" = ()

    def __repr__(self) -> str:
        more = f", {self.steps!r}" if self.steps else ""
        return f"Fault({self.kind!r}, {self.number}{more})"


class Step(NamedTuple):
    """One step of a world."""

    name: str
    a: int = 0
    b: int = 0
    fault: Fault | None = None

    def __repr__(self) -> str:
        numbers = [repr(self.name), *([str(self.a), str(self.b)] if self.a or self.b or self.fault else [])]
        return f"Step({', '.join(numbers)}{f', {self.fault!r}' if self.fault else ''})"


class Violation(Exception):  # noqa: N818 - a finding
    """A promise is broken."""


@dataclass(eq=False)
class Doing:
    """A step that is carried out."""

    fault: Fault | None = None
    count: int = 0
    """The number of its requests."""
    after_call: int = _NO_CALL
    """The number of its requests since the last call of a processor. Not positive: there was one."""
    faults_before: int = 0
    """The number of faults of the world before the turn of its worker."""
    worker: LocalWorker | None = None
    sleeper: "Sleeper | None" = None
    stood_still: bool = False
    """Its worker has stood still since its last write. So its claim may be over, and it does not know."""
    receives: dict[str, int] = field(default_factory=dict)
    """How often the messages had been delivered when its worker received some."""


class Sleeper(threading.Thread):
    """A step in a thread of its own, which stands still at its fault until it is woken. One thread runs at a time."""

    def __init__(self, work: Callable[["Sleeper"], None]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._error: BaseException | None = None
        self._asleep = False

    def begin(self) -> None:
        """Run until the step ends or stands still."""
        self.start()
        self._wait()

    def wake(self) -> None:
        """Go on until the step ends or stands still again."""
        self._asleep = False
        self._go.release()
        self._wait()

    def stand_still(self) -> None:
        """Let the thread go on that has begun or woken this one. Called in this thread."""
        self._asleep = True
        self._stopped.release()
        self._go.acquire()

    @override
    def run(self) -> None:
        try:
            self._work(self)
        except BaseException as error:  # noqa: BLE001 - it is raised where the thread was woken
            self._error = error
        self._stopped.release()

    def _wait(self) -> None:
        self._stopped.acquire()
        if not self._asleep:
            self.join()
        if self._error is not None:
            raise self._error


class Change(NamedTuple):
    """A commit or a rejection of a row."""

    key: str
    state: str
    fence: int
    at: int


class Effect(NamedTuple):
    """A call of the processor."""

    key: str
    state: str
    """The identity of the object's state, the version of a set, or the identity of a message."""
    content: str
    idempotency_key: str
    fence: int
    attempt: int
    at: int
    kind: str = ""
    """As the processor got it, of an object."""
    begun: int = 0
    """The number of the call. A late effect has a low one."""


class _Items(dict[tuple[str, str], Item]):
    """The table, which tells of each change of an item, as its stream does."""

    def __init__(self, changed: Callable[[tuple[str, str], Item | None, Item | None], None]) -> None:
        super().__init__()
        self._changed = changed

    @override
    def __setitem__(self, key: tuple[str, str], item: Item) -> None:
        before = self.get(key)
        super().__setitem__(key, item)
        self._changed(key, before, item)

    @override
    def update(self, *others: Any, **_: Any) -> None:
        for key, item in dict(*others).items():
            self[key] = item

    @override
    def pop(self, key: tuple[str, str], *default: Any) -> Any:
        before = super().pop(key, None)
        if before is not None:
            self._changed(key, before, None)
        return before


class _Skewed:
    """The clock of a worker."""

    def __init__(self, clock: Any, ahead: int) -> None:
        self._clock, self._ahead = clock, ahead

    @property
    def now(self) -> int:
        return int(self._clock.now) + self._ahead

    def __call__(self) -> int:
        return self.now

    def advance(self, milliseconds: int) -> None:
        self._clock.advance(milliseconds)


class _Reached:
    """The table through a connection."""

    def __init__(self, table: Any, connection: LocalConnection) -> None:
        self.items, self._client = table.items, connection.client(table)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class _Counter(OutcomeCounter):
    """Any request may be refused."""

    @override
    def log_error(self, text: str, message_id: str, error: Exception) -> None:
        if not (isinstance(error, LibraryError) and "ClientError" in str(error)):
            super().log_error(text, message_id, error)


@dataclass
class World(Cell):
    """The intake, its downstream and what has happened."""

    features: tuple[Any, ...] = ()
    contents: dict[tuple[str, str], str] = field(default_factory=dict)
    """The content of each state, by key and identity."""
    done: list[Effect] = field(default_factory=list)
    commits: list[Change] = field(default_factory=list)
    rejections: list[Change] = field(default_factory=list)
    committed_keys: dict[str, int] = field(default_factory=dict)
    """Idempotency keys of commits, and the fences of these."""
    excused: Counter[str] = field(default_factory=Counter)
    """How often a person, a rollback or a late write gives a reason to process a key again."""
    notes: set[str] = field(default_factory=set)
    """What has happened that weakens a promise: `restored`, `expired`, `forgotten KEY`, `stopped`."""
    asked: dict[str, int] = field(default_factory=dict)
    """The times at which a person asked to process keys again."""
    sent: list[dict[str, Any]] = field(default_factory=list)
    """The messages that were sent."""
    faults: int = 0
    """The number of faults that came to effect."""
    puts: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    """The attempts that have failed, by idempotency key."""
    broken: int = 0
    """The number of claims that a person has taken from their workers."""
    memory: dict[str, Any] = field(default_factory=dict)
    """What features remember, by their names."""
    described: list[str] = field(default_factory=list)
    """The requests about executions of the last turn."""
    paused: bool = False
    """The consumer gets no messages."""
    said: str = ""
    """The first promise that was broken."""
    starts: int = 0
    """The starts that `max_rate` has given."""
    begun_calls: int = 0
    """The number of calls that have begun."""
    calls_said: list[str] = field(default_factory=list)
    """What was wrong about calls with several changes."""
    died_together: Counter[str] = field(default_factory=Counter)
    """How often a call with others has died, by idempotency key."""
    before_audit: bool = False
    """All has come to rest, and no audit has run yet."""

    def __post_init__(self) -> None:
        super().__post_init__()
        local: Any = self.local
        self.telemetry = _Counter(local)
        if self.kind == "sets":
            local.parts._make_telemetry = lambda: _Counter(local.parts)
            self._void_receipts()
        local._dies = self._passes
        local._order = self._ordered
        local._dynamodb.items = _Items(self._changed)
        local._sleep = lambda seconds: self.clock.advance(round(seconds * 1000))
        self._doing = Doing()
        self.sleepers: list[tuple[Sleeper, Doing]] = []
        """The steps that stand still."""
        self._is_over = False
        self._turned = 0
        self._open: list[tuple[Effect, Row | None]] = []
        self._dead: list[tuple[Effect, Row | None]] = []
        self._late = set[int]()
        """The calls of workers that had stood still since their claims."""
        self._workers: dict[int, LocalWorker] = {}
        self._busy: list[LocalWorker] = []
        self._quiet = True
        self._rows_read = dict[int, tuple[Item, Row | None]]()
        """By the identity of the item, which stays here. So no other item has it."""
        self.skews = 0
        self._judges_changes = any(one.judges_changes for one in self.features)
        rate = rate_key(self.settings.pipeline)
        self._rate = rate.pk, rate.sk

    def _void_receipts(self) -> None:
        """Let a delivery delete no message that was delivered again, as on AWS. Work on sets relies on that."""
        queue: Any = self.sqs
        receive, delete = queue.receive, queue.delete

        def received(*arguments: Any) -> Any:
            batch = receive(*arguments)
            self._doing.receives = {one.id: one.receives for one in queue.messages}
            return batch

        def deleted(names: Any) -> None:
            known = {one.id: one.receives for one in queue.messages}
            mine = self._doing.receives
            delete([one for one in names if mine.get(one, known.get(one)) == known.get(one)])

        queue.receive, queue.delete = received, deleted

    # --- faults

    def _passes(self, operation: str) -> bool:
        """A request is sent, or, without its name, was carried out. True: the worker dies."""
        if self._is_over:
            return True
        doing = self._doing
        if operation:
            doing.count += 1
            doing.stood_still &= operation not in _WRITES
            doing.after_call = 0 if operation in _CALLS else doing.after_call - (doing.after_call < _NO_CALL)
            self.local.requests.append(operation)
        fault = doing.fault
        place = doing.count if fault is not None and fault.number > 0 else doing.after_call
        if fault is None or fault.number != place or (fault.kind in ("die after", "lose")) == bool(operation):
            return False
        doing.fault = None
        self.faults += 1
        if fault.kind.startswith("die"):
            return True
        if fault.kind in ("refuse", "lose"):
            status: Any = {"Code": "InternalServerError", "Message": "try again"}
            raise ClientError({"Error": status, "ResponseMetadata": cast("Any", {"HTTPStatusCode": 500})}, "Request")
        if fault.kind == "busy" and operation == "transact_write_items":
            status = {"Code": "TransactionCanceledException", "Message": "Transaction cancelled"}
            refused: Any = {"Error": status, "CancellationReasons": [{"Code": "TransactionConflict"}]}
            raise ClientError(refused, "TransactWriteItems")
        if fault.kind == "busy":
            self.dynamodb.partial_batches, self.dynamodb.conflicts = 1, 2
        if fault.kind == "sleep":
            self._stand_still(doing)
        for step in fault.steps:
            self.step(step)
        doing.stood_still |= fault.kind in ("sleep", "pause")
        return self._is_over

    def _stand_still(self, doing: Doing) -> None:
        assert doing.sleeper is not None
        self.sleepers.append((doing.sleeper, doing))
        doing.sleeper.stand_still()

    def wake(self, number: int) -> None:
        """Wake a worker that stands still. It takes the fault of this step."""
        if self.sleepers:
            sleeper, doing = self.sleepers.pop(number % len(self.sleepers))
            outer, self._doing = self._doing, doing
            doing.fault, doing.count, outer.fault = outer.fault, 0, None
            try:
                sleeper.wake()
            finally:
                self._doing = outer

    def end_sleepers(self) -> None:
        """End the threads of the workers that stand still: their processes die."""
        self._is_over = True
        while self.sleepers:
            with suppress(BaseException):
                self.wake(0)

    def _ordered(self, visible: Any) -> Any:
        turn = self._turned % max(len(visible), 1)
        return [*visible[turn:], *visible[:turn]]

    def requests_of_person(self) -> Any:
        """The table, as a command reaches it. Its requests have faults too."""
        return _Reached(self.dynamodb, LocalConnection(self._passes))

    # --- steps

    def step(self, step: Step) -> None:
        """Carry out a step of any feature. One that no feature has does nothing."""
        for feature in self.features:
            action = feature.actions.get(step.name)
            if action is not None:
                outer, doing = self._doing, Doing(step.fault)
                self._doing = doing
                try:
                    if step.fault is not None and step.fault.kind == "sleep" and step.name in WITH_REQUESTS:
                        Sleeper(partial(self._carry_out, action, step, doing)).begin()
                    else:
                        self._carry_out(action, step, doing)
                finally:
                    self._doing = outer
                self.look()
                return

    def _carry_out(
        self, action: Callable[..., object], step: Step, doing: Doing, sleeper: Sleeper | None = None
    ) -> None:
        doing.sleeper = sleeper
        with suppress(ClientError, Killed):  # of an audit or a command
            action(self, step.a, step.b)

    def broken_promise(self, said: str) -> Violation:
        """The violation of a promise. The first one counts, also if the consumer takes it for an error of its own."""
        self.said = self.said or said
        return Violation(said)

    def look(self) -> None:
        """Look at what must hold at any moment."""
        self.check_running()
        for feature in self.features:
            for said in feature.watch(self):
                raise self.broken_promise(said)

    def deliver(self, number: int, order: int) -> None:
        """Let a worker handle the next messages: those that are visible, or will be within six hours."""
        at = self.next_at()
        if at is None or at > self.clock() + 6 * HOUR or self.paused:
            return
        self.clock.now = max(self.clock.now, at)
        self._turned, local = order, cast("Any", self.local)
        local._batch_size = 1 if order % 3 else 10
        worker = self._workers.get(number)
        if worker is None or worker.connection.dead or worker in self._busy:
            worker = self._workers[number] = self.new_worker(number)
        self._busy.append(worker)
        doing = self._doing
        first, faults = len(self.local.requests), self.faults
        self.described.clear()
        fenced, ended = self.outcomes["Fenced"], self._ended()
        outer = doing.faults_before, doing.worker
        doing.faults_before, doing.worker = faults, worker
        try:
            local.turn(worker)
        except ClientError:
            return  # the invocation failed, and its messages come again
        finally:
            self._busy.remove(worker)
            doing.faults_before, doing.worker = outer
            self.look()
        if self.faults == faults:
            if self.outcomes["Fenced"] > fenced and "restored" not in self.notes:
                raise self.broken_promise("an attempt is overtaken, and no other worker acts")
            if not self.notes & {"restored", "expired"} and (found := self._ended() - ended):
                raise self.broken_promise(f"one worker reports {dict(found)} more than its rows show")
            for feature in self.features:
                feature.handled(self, self.local.requests[first:])

    def _ended(self) -> Counter[str]:
        """How often more an end was reported than a row shows it."""
        shown = {"Committed": len(self.commits), "Rejected": len(self.rejections)}
        return Counter({name: self.outcomes[name] - number for name, number in shown.items()})

    def is_undisturbed(self) -> bool:
        """True if the turn that runs has had no fault."""
        return self.faults == self._doing.faults_before

    def new_worker(self, number: int) -> LocalWorker:
        """A worker. With skewed clocks, that of each second one is behind, and those between are ahead."""
        local = cast("Any", self.local)
        clock = local.clock
        if self.skews:
            local.clock = _Skewed(clock, SKEW // 2 * (-1) ** number)
        try:
            return local.new_worker()  # type: ignore[no-any-return]
        finally:
            local.clock = clock

    def next_at(self) -> int | None:
        """The time of the next delivery."""
        if isinstance(self.local, LocalSets):
            return self.local._sqs.next_visible_at()
        return self.local._next_at()

    def end_execution(self, number: int, how: int) -> None:
        """An execution ends."""
        running = self.running()
        if not running:
            return
        one = running[number % len(running)]
        if how % 7 == 6:
            self.lost_events = True
        if how % 7 == 5:
            body = self.machine.end(one.name, "ABORTED" if self.runner == "machine" else "STOPPED")
            self.excused[one.given["key"]] += 1
            self.failed[one.given["idempotencyKey"]] += 1
            if body is not None and not self.lost_events:
                self.local._ended(body)
        else:
            self.local.end(one)
        self.lost_events = False

    def check_running(self) -> None:
        """No two executions of a key or of a group run."""
        names = Counter(
            self._exclusive(one.given["key"], f"{one.given['versionId']} {one.given.get('kind')}")
            for one in self.running()
        )
        if "restored" in self.notes:
            return  # docs/protocol.md, "Not promised"
        if double := [name for name, number in names.items() if number > 1]:
            raise self.broken_promise(f"two executions of {double} run")

    def _exclusive(self, key: str, state: str) -> str:
        if self.exclusive_by and (group := GROUPS.group_of(key)) is not None:
            return f"group {group}"
        return f"{key} {state}" if self.name == "every version" else key

    def _unit_of(self, effect: Effect) -> str:
        """The calls with this name exclude each other. The permanent deletion of a version is a state of its own."""
        return self._exclusive(effect.key, f"{effect.state} {effect.kind}")

    # --- the downstream

    @override
    def _process_together(self, things: Any) -> Any:
        names = [one.idempotency_key for one in things]
        if len(names) > 1 and (again := [one for one in names if self.died_together[one]]):
            self.calls_said.append(f"{again} are in a call with others again, which has died")
        try:
            return super()._process_together(things)
        except Killed:
            if len(names) > 1:
                self.died_together.update(names)
            raise

    @override
    def _process(self, given: Any) -> Any:
        self.begun_calls += 1
        effect = self._effect_of(given)
        self._check_call(effect)
        for feature in self.features:
            for said in feature.begins(self, effect):
                raise self.broken_promise(said)
        row = self.row_at(effect)
        call, worker = (effect, row), self._doing.worker
        self._open.append(call)
        try:
            if not self.later and self._passes("process"):
                if worker is not None:
                    worker.connection.dead = True
                self._dead.append(call)
                raise Killed
        finally:
            self._open.remove(call)
        for feature in self.features:
            feature.processes(self, given, effect)
        self.done.append(effect)
        mood = effect.content.partition(" ")[0]
        first = sum(one[:4] == effect[:4] for one in self.done) == 1
        answer: dict[str, Any] = {"commit": effect.content[:40]}
        if mood == "bad" or (mood == "fixed" and first):
            answer = {"unprocessable": "it is bad"}
        elif mood == "later" and first:
            answer = {"notYet": "the rates", "retryInSeconds": 600}
        elif mood == "flaky" and first:
            self.failed[effect.idempotency_key] += 1
            raise ValueError("flaky")
        if self.runner != "inline":
            return answer
        if "unprocessable" in answer:
            raise Unprocessable(answer["unprocessable"])
        if "notYet" in answer:
            raise NotYet(answer["notYet"], retry_in=600)
        return next((c for feature in self.features if (c := feature.commit(self, effect))), Commit(answer["commit"]))

    def _effect_of(self, given: Any) -> Effect:
        if isinstance(given, Mapping):
            key, version, etag = given["key"], given["versionId"], given.get("etag")
            kind, found = given.get("kind"), (given["idempotencyKey"], given["fence"], given["attempt"])
            body = given.get("body")
        else:
            version = next(getattr(given, n) for n in ("identity", "version", "version_id") if hasattr(given, n))
            key, etag, kind = given.key, getattr(given, "etag", None), getattr(given, "kind", None)
            found, body = (given.idempotency_key, given.fence, given.attempt), getattr(given, "body", None)
        state = str(version) if version is not None else f"e#{etag}" if etag else "absent"
        if self.kind == "messages":
            content = content_of(body)
        elif self.kind == "sets":
            content = self._set_content(given, state)
        else:
            content = "ok removed" if kind != "created" else self.contents.get((key, state), "ok ?")
        return Effect(key, state, content, *found, self.clock(), str(kind), self.begun_calls)

    def _set_content(self, given: Any, state: str) -> str:
        if isinstance(given, Mapping):
            parts = [(one["key"], one["versionId"]) for one in json.loads(self.lists[state])]
        else:
            parts = [(one.key, one.version_id) for one in given.parts]
        found = [self.contents[key, version] for key, version in parts]
        moods = [one.partition(" ")[0] for one in found]
        mood = next((one for one in ("bad", "flaky", "later") if one in moods), "ok")
        return f"{mood} {' '.join(f'{key}@{version}' for key, version in parts)}"

    def row_at(self, effect: Effect) -> Row | None:
        """The row of a call."""
        try:
            return self.row_of_state(effect.key, effect.state)
        except KeyError:
            return None

    def row_of_state(self, key: str, state: str) -> Row | None:
        """The row of a key. In EVERY_VERSION, of this version, and of a message, of this identity."""
        if isinstance(self.local, LocalMessages):
            return self.local.row(key, state)
        if self.name == "every version" and isinstance(self.local, LocalPipeline):
            return self.local.row(key, state)
        return self.local.row(key)

    def _check_call(self, effect: Effect) -> None:
        committed = self.committed_keys.get(effect.idempotency_key)
        new_again = self.notes & {"restored", "expired", f"forgotten {effect.key}"}
        if committed is not None and effect.fence > committed and not new_again:
            raise self.broken_promise(
                f"{effect.key} {effect.state} is called again after its commit, with the same key"
            )
        most = 1 + self.failed[effect.idempotency_key] + self.faults + self.broken
        most -= self.died_together[effect.idempotency_key]
        if effect.attempt > most:
            raise self.broken_promise(
                f"{effect.key} {effect.state} is attempt {effect.attempt}, and {most - 1} may have failed"
            )
        mine = self._unit_of(effect)
        if self._doing.stood_still:
            self._late.add(effect.begun)
            return
        for other, _ in self.live_calls():
            if self._unit_of(other) == mine:
                raise self.broken_promise(f"two live calls of {mine}: {other.state} and {effect.state}")

    def live_calls(self) -> Iterator[tuple[Effect, Row]]:
        """The calls that have not ended, whose leases are live, with their rows."""
        yield from self._live(self._open)

    def live_claims(self) -> Iterator[tuple[Effect, Row]]:
        """`live_calls`, and those whose workers have died in them."""
        yield from self._live([*self._open, *self._dead])

    def _live(self, calls: list[tuple[Effect, Row | None]]) -> Iterator[tuple[Effect, Row]]:
        for one, row in calls:
            now = self.row_at(one)
            if row is None or now is None or now.status is not Status.PROCESSING or "restored" in self.notes:
                continue
            if now.lease_owner == row.lease_owner and (now.lease_until or 0) > self.clock() + SKEW:
                yield one, now

    def live_executions(self) -> Iterator[tuple[str, Row]]:
        """The keys of executions whose end is not recorded, with the rows whose claims have started them."""
        for one in executions_of(self):
            key, row = one.given["key"], self.row_of_execution(one)
            if row is not None and row.status is Status.PROCESSING and "restored" not in self.notes:
                yield key, row

    def row_of_execution(self, execution: MemoryExecution) -> Row | None:
        """The row whose claim has started an execution. None: another claim has it."""
        given = execution.given
        place = RowKey(given["intake"]["pk"], given["intake"]["sk"])
        item = self.dynamodb.items.get((place.pk, place.sk))
        row = self.row_in(item) if item else None
        return row if row is not None and execution_name(place, row.fence) == execution.name else None

    # --- the table

    def _changed(self, key: tuple[str, str], before: Item | None, after: Item | None) -> None:
        """A record of the stream."""
        if not self._quiet:
            return
        for feature in self.features:
            for said in feature.recorded(self, key, before, after):
                raise self.broken_promise(said)
        if key == self._rate:
            was, now = (from_dynamodb(one or {}).get("starts_until", 0) for one in (before, after))
            self.starts += now > was
        if after is None or after.get("format") != _FORMAT or "status" not in after:
            return
        name, status = key[0].partition("/")[2], after["status"]["S"]
        if before is not None and "status" in before and int(after["fence"]["N"]) < int(before["fence"]["N"]):
            changes = (f"{one['status']['S']} {one['fence']['N']}" for one in (before, after))
            raise self.broken_promise(f"the fence of {name} goes back: {' to '.join(changes)}")
        # To read rows takes long.
        if not self.is_row(key) or (status in _IN_WORK and not self._judges_changes):
            return
        old, new = (self.row_in(one) if one and "status" in one else None for one in (before, after))
        assert new is not None
        for feature in self.features:
            for said in feature.changed(self, name, old, new):
                raise self.broken_promise(said)
        kinds = {self.settings.pipeline: self.kind}
        event = outcome_events.outcome_of(*key, old, new, kinds)
        if event is None:
            return
        detail = json.loads(event["Detail"])
        identity = new.identity.removeprefix("v#")
        if event["DetailType"] == "Intake Committed":
            self.committed_keys[detail["idempotencyKey"]] = int(detail["fence"])
            self.commits.append(Change(name, identity, new.fence, self.clock()))
            self._check_commit(name, detail["idempotencyKey"])
            late = (old.late_writes if old else frozenset()) - {new.identity}
            if late and not new.transactional:
                raise self.broken_promise(f"{name} {identity} is committed, and {set(late)} may have been written late")
            known = {one.idempotency_key for one in self.done} | {one.idempotency_key for one, _ in self._open}
            unknown = detail["idempotencyKey"] not in known and new.reason_code != ReasonCode.SAME_CONTENT
            if unknown and not self.excused[name]:
                raise self.broken_promise(f"{name} {identity} is committed, and its idempotency key was never called")
        else:
            self.rejections.append(Change(name, identity, new.fence, self.clock()))
            # A redrive may come between the copy and the row, and so may the end of its retention.
            if not self.notes & {"opened", "expired"} and not any(one.key == name for one in self.sqs.dead_letters):
                raise self.broken_promise(f"{name} is rejected, and no copy is in the dead-letter queue")

    def _check_commit(self, name: str, idempotency_key: str) -> None:
        """No commit comes after a later call that excludes it. Its attempt has lost its key or group then.

        A call that began earlier may end later. What it has written to the key is found, or repaired until rest.
        """
        calls = [place for place, one in enumerate(self.done) if one.idempotency_key == idempotency_key]
        if not calls or self.notes & {"restored", "expired", "purged"}:
            return
        mine = self.done[calls[-1]]
        unit = self._unit_of(mine)
        for one in self.done[calls[-1] + 1 :]:
            if (
                one.begun > mine.begun
                and one.begun not in self._late
                and self._unit_of(one) == unit
                and f"forgotten {name}" not in self.notes
            ):
                raise self.broken_promise(f"{name} {mine.state} is committed after a call of {one.key} {one.state}")

    def rows(self) -> Iterator[tuple[str, str, Row]]:
        """Keys, sort keys and rows of the intake."""
        for (pk, sk), item in list(self.dynamodb.items.items()):
            if "status" in item and self.is_row((pk, sk)):
                row = self.row_in(item)
                assert row is not None
                yield pk.partition("/")[2], sk, row

    def is_row(self, place: tuple[str, str]) -> bool:
        """True if the place may have a row of the intake."""
        return place[1].startswith(f"{self.settings.pipeline}@")

    def row_in(self, item: Item) -> Row | None:
        """The row of an item. The table replaces items, and changes none."""
        known = self._rows_read.get(id(item))
        if known is None:
            known = self._rows_read[id(item)] = item, row_from_attributes(from_dynamodb(item))
        return known[1]

    # --- rest

    def come_to_rest(self) -> None:
        """Deliver and end all, with two audits, until nothing moves any more."""
        for feature in self.features:
            feature.ends(self)
        self._settle()
        while self.sleepers:
            self.wake(0)
            self._settle()
        for number in range(4):
            self._settle()
            if not number and not self._busy and not self.notes & LOSSES:
                # Each message is delivered until its work is done. So the audit has nothing to do.
                self.before_audit = True
                for said in (said for one in self.features for said in one.judge(self)):
                    raise self.broken_promise(f"before the audit: {said}")
                self.before_audit = False
            self.clock.advance(3 * HOUR)
            before = len(self.local.requests), len(self.sqs.messages)
            self.check_requests()
            self.check()
            if number and (len(self.local.requests), len(self.sqs.messages)) == before:
                break
        self._settle()

    def _settle(self) -> None:
        due, audit_at = dict[str, int](), self.clock() + DAY
        for _ in range(_MOST_TURNS):
            for one in self.running():
                due.setdefault(one.name, self.clock() + MINUTE)
            times = [due[one.name] for one in self.running()]
            if (at := self.next_at()) is not None:
                times.append(at)
            if not times:
                return
            self.clock.now = max(self.clock.now, min(times))
            if self.notes & LOSSES and self.clock() >= audit_at:
                self.check()  # what waits for a lost message waits for the audit of the day
                audit_at = self.clock() + DAY
            for one in self.running():
                if due[one.name] <= self.clock():
                    self.local.end(one)
            if (at := self.next_at()) is not None and at <= self.clock():
                self.deliver(0, 0)
            self.check_running()
        raise self.broken_promise(f"no rest: {[(one.body, one.receives) for one in self.sqs.messages][:3]}")

    def letters(self, key: str) -> list[Any]:
        """The dead letters of a key."""
        return [one for one in self.sqs.dead_letters if one.key == key]


def key_of(number: int) -> str:
    """A key. Most steps are about the first one, so that they meet."""
    return KEYS[_OFTEN[number % len(_OFTEN)]]


def content_of(body: Any) -> str:
    """The content of a message."""
    return str(body["content"])


def executions_of(world: World) -> list[MemoryExecution]:
    """All executions."""
    return list(world.machine.executions.values())
