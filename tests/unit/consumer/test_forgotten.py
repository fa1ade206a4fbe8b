"""F440: a person has a key forgotten, and messages of it are still in a queue, in flight or in a worker."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from cdk_intake_ledger.testing import Fault, LocalMessages, LocalPipeline, LocalRunner
from intake_ledger.events.parser import Message, own_message
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.forgotten import UNCHECKED_MS, ForgottenKeys
from intake_ledger.messages.keyed_message import KeyedMessage
from intake_ledger.protocol.change import Change, Origin, State, StateKind
from intake_ledger.protocol.row import Ordering, RowKey, forgotten_key
from intake_ledger.protocol.ulids import ulid
from intake_ledger.protocol.verdict import is_forgotten
from intake_ledger_cli.act import forgetting
from tests.unit.command.forget_support import MemoryAws, deployed_in_memory, forget, named_in, with_variables
from tests.unit.messages.support import SOURCE_NAME, Intake, Killed, copy_record, sqs
from tests.unit.support import DAY, HOUR, MINUTE, SECOND, START

KEY = "ana@example.com"


def forget_key(intake: Intake) -> bool:
    deployed = deployed_in_memory("orders", SOURCE_NAME, Ordering.EVERY_VERSION, messages=True)
    return forget(intake.table, intake.clock, deployed, KEY)


class Interrupted:
    """The table, with a step of another person before one of the worker's requests, and a death before a later one."""

    def __init__(self, table: Any, place: int, step: Callable[[], object], death: int | None = None) -> None:
        self._table, self._left, self._step, self._death = table, place, step, death

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._table, name)
        if name not in ("put_item", "update_item", "get_item", "batch_get_item", "transact_write_items", "delete_item"):
            return found

        def sent(**request: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self._step()
            if self._death is not None and self._left == -self._death:
                raise Killed
            return found(**request)

        return sent


@pytest.mark.failure_mode("F440")
@pytest.mark.parametrize("age", [0, 50 * SECOND, 2 * MINUTE, HOUR], ids=["new", "unchecked", "old", "older"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_worker_may_pause_before_each_request_while_its_key_is_forgotten(age: int, fails: bool) -> None:
    """If the key was forgotten, the processor does not begin afterwards, and the table does not name the key."""
    ends, place = list[bool](), 0
    while True:
        place += 1
        intake, done = Intake(), list[tuple[bool, int]]()

        def process(message: KeyedMessage, begun: list[int]) -> str:
            begun.append(1)
            if fails:
                raise ValueError
            return message.identity

        begun: list[int] = []
        intake.process = lambda message, begun=begun: process(message, begun)  # type: ignore[misc]
        memory = intake.table

        def step(intake: Intake = intake, memory: Any = memory, done: Any = done, begun: list[int] = begun) -> None:
            intake.table, paused = memory, intake.table
            done.append((forget_key(intake), len(begun)))
            intake.table = paused

        intake.clock.advance(age)
        intake.table = Interrupted(memory, place, step)
        intake.handle([sqs(KEY, "e-1")], intake.worker())
        intake.table = memory
        if not done:
            break
        [(forgotten, before)] = done
        ends.append(forgotten)
        if not forgotten:
            intake.clock.advance(HOUR)
            forgotten, before = forget_key(intake), len(begun)
            assert forgotten, f"before request {place}"
        assert len(begun) == before, f"before request {place}"
        for later in (MINUTE, HOUR, 3 * DAY):
            intake.clock.advance(later)
            assert intake.handle([sqs(KEY, "e-1", receives=2)], intake.worker()) == []
        assert len(begun) == before, f"before request {place}"
        assert not named_in(memory, KEY)
        assert intake.verdicts["FORGOTTEN"] >= 3
    assert place > 3
    assert set(ends) == {True, False}


@pytest.mark.failure_mode("F756")
@pytest.mark.parametrize("death", [1, 2, 3])
@pytest.mark.parametrize("age", [0, HOUR], ids=["new", "older"])
def test_a_worker_that_paused_over_the_command_may_die(age: int, death: int) -> None:
    """Its message comes again while its lease holds, and later. The table does not name the key then."""
    claimed = 0
    for place in range(1, 9):
        intake, done = Intake(), list[bool]()
        memory = intake.table

        def step(intake: Intake = intake, memory: Any = memory, done: Any = done) -> None:
            intake.table, paused = memory, intake.table
            done.append(forget_key(intake))
            intake.table = paused

        intake.clock.advance(age)
        intake.table = Interrupted(memory, place, step, death)
        with suppress(Killed):
            intake.handle([sqs(KEY, "e-1")], intake.worker())
        intake.table = memory
        if done != [True]:
            continue
        calls = [*intake.called]
        claimed += len(named_in(memory, KEY))
        waits = []
        for later in (SECOND, HOUR):
            intake.clock.advance(later)
            waits.append(intake.handle([sqs(KEY, "e-1", receives=2)], intake.worker()))
            if not waits[-1]:
                break
        assert waits[-1] == []
        assert (intake.called, named_in(memory, KEY)) == (calls, []), f"before request {place}"
    assert claimed


@pytest.mark.failure_mode("F756")
@pytest.mark.parametrize("ordering", Ordering)
@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize("wait", [0, 10 * MINUTE, HOUR])
def test_a_claim_of_an_object_is_removed_after_the_rows(ordering: Ordering, deletes: bool, wait: int) -> None:
    """The worker had paused before it wrote the claim. A claim of a newer use of the key stays."""
    local = LocalPipeline(lambda _: None, ordering=ordering, deletes=deletes)
    table: Any = local._dynamodb

    def claim() -> dict[Any, Any]:
        local.next(Fault.KILLED_BEFORE_EFFECT)
        local.turn()
        claims = {name: item for name, item in table.items.items() if KEY in str(item)}
        for name in claims:
            del table.items[name]
        return claims

    def remove() -> None:
        if ordering is Ordering.LATEST:
            local.delete(KEY)
        else:
            local.delete_version(KEY, "version-1")

    local.put(KEY, "1")
    old = local._sqs.messages[-1].body
    left = claim()
    remove()
    local.clock.advance(HOUR)
    settings = local._settings
    assert forget(table, local.clock, deployed_in_memory(settings.pipeline, settings.bucket, ordering), KEY)
    table.items.update(left)
    local.clock.advance(wait)
    local.run()
    assert (named_in(table, KEY), [one for one in local.outcomes if one != "Forgotten"]) == ([], [])
    local.put(KEY, "2")
    newer = claim()
    if ordering is Ordering.LATEST:
        remove()
    local.lose()
    table.items.update(newer)
    local.clock.advance(HOUR)
    local._sqs.send(old)
    local.turn()
    assert newer
    assert named_in(table, KEY)


def committed(intake: Intake) -> None:
    intake.handle([sqs(KEY, "e-1")])
    intake.clock.advance(HOUR)


@pytest.mark.failure_mode("F440")
def test_a_message_that_is_sent_later_is_a_new_use_of_the_key() -> None:
    """A customer who comes back is processed, and once."""
    intake = Intake()
    committed(intake)
    assert forget_key(intake)
    late = sqs(KEY, "e-1")
    late["attributes"]["SentTimestamp"] = str(intake.clock())
    for _ in range(2):
        assert intake.handle([late], intake.worker()) == []
        intake.clock.advance(10 * MINUTE)
    assert intake.called == ["e-1", "e-1"]
    assert intake.verdicts["DUPLICATE"] == 1


@pytest.mark.failure_mode("F440")
@pytest.mark.parametrize("way", ["a delayed copy", "a redrive"])
def test_what_comes_back_as_a_new_message_is_refused(way: str) -> None:
    """SQS says that it was sent now. The copy and the fence tell its age."""
    intake = Intake(process=lambda _: 1 / 0)
    intake.settings = replace(intake.settings, max_attempts=2)
    for receives in (1, 2):
        intake.handle([sqs(KEY, "e-1", receives=receives)], intake.worker())
        intake.clock.advance(HOUR)
    sent = intake.clock() + DAY
    if way == "a redrive":
        row = intake.row(KEY, "e-1")
        assert row is not None
        record = sqs(KEY, "e-1")
        record["messageAttributes"] = {"rejected_fence": {"stringValue": str(row.rejected_fence)}}
        record["attributes"]["SentTimestamp"] = str(sent)
    else:
        record = copy_record(Message(sqs(KEY, "e-1")).copy(sent), name="copy", sent_at=sent)
    intake.clock.advance(HOUR)
    calls = len(intake.calls)
    assert forget_key(intake)
    intake.clock.advance(DAY)
    assert intake.handle([record], intake.worker()) == []
    assert len(intake.calls) == calls
    assert not named_in(intake.table, KEY)


@pytest.mark.failure_mode("F440")
def test_a_key_in_work_is_not_forgotten() -> None:
    intake = Intake()
    ends = list[bool]()

    def process(_: KeyedMessage) -> str:
        ends.append(forget_key(intake))
        raise Killed

    intake.process = process
    with pytest.raises(Killed):
        intake.handle([sqs(KEY, "e-1")])
    assert ends == [False]
    assert named_in(intake.table, KEY)


@pytest.mark.failure_mode("F440")
def test_a_marker_ends_and_costs_nothing_before() -> None:
    """An ordinary message reads no marker. Older ones read one item a minute, and their own after a newer marker."""
    intake = Intake()
    committed(intake)
    assert forget_key(intake)
    [marker] = [item for item in intake.table.items.values() if item["sk"]["S"] != "newest"]
    assert RowKey(marker["pk"]["S"], marker["sk"]["S"]) == forgotten_key("orders", f"{SOURCE_NAME}/{KEY}")
    table = LedgerTable(intake.table, "table")
    keys, pk = ForgottenKeys("orders", table, intake.clock), f"{SOURCE_NAME}/{KEY}"

    def reads(sent: int | None) -> tuple[int | None, int]:
        before = len(intake.table.requests)
        found = keys.forgotten_at(pk, sent)
        return found, len(intake.table.requests) - before

    now, forgotten_at = intake.clock(), int(marker["forgotten_at"]["N"])
    assert reads(now - UNCHECKED_MS + 1) == (None, 0)
    assert reads(now - UNCHECKED_MS) == (None, 1)
    assert reads(now - UNCHECKED_MS) == (None, 0)
    assert reads(START) == (forgotten_at, 1)
    intake.clock.advance(UNCHECKED_MS)
    assert reads(START) == (forgotten_at, 2)
    intake.clock.advance(9 * DAY + HOUR)
    assert reads(START) == (forgotten_at, 2)
    intake.clock.advance(DAY)
    assert reads(START) == (None, 1)


@pytest.mark.failure_mode("F440")
@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize("ordering", list(Ordering))
@pytest.mark.parametrize("hours", [0, 1])
def test_events_of_a_forgotten_object_leave_no_row(ordering: Ordering, hours: int, deletes: bool) -> None:
    """Events, audits and requests of before come again after it. The next upload is processed."""
    told = list[str]()
    local = LocalPipeline(lambda change: told.append(change.kind), ordering=ordering, deletes=deletes)
    sent = list[str]()

    def events(step: Callable[[], object]) -> None:
        before = len(local._sqs.messages)
        step()
        sent.extend(one.body for one in local._sqs.messages[before:])
        local.run()

    versions = list[str | None]()
    events(lambda: versions.append(local.put(KEY, "1")))
    [version] = versions
    events(lambda: local.delete_version(KEY, str(version)))
    state = State(StateKind.OBJECT, version, "e", 1) if ordering is Ordering.EVERY_VERSION else None
    sent += [own_message(Origin.AUDIT, "uploads", KEY, state)]
    local.clock.advance(hours * HOUR + 10 * MINUTE)
    settings = local._settings
    deployed = deployed_in_memory(settings.pipeline, settings.bucket, ordering)
    done = forget(local._dynamodb, local.clock, deployed, KEY)
    assert done
    assert not named_in(local._dynamodb, KEY)
    before = len(told)
    for body in sent:
        local.send(body.replace('"uploads"', f'"{settings.bucket}"'))
        local.run()
    assert not named_in(local._dynamodb, KEY)
    assert len(told) == before
    assert not local.dead_letters
    assert local.removed_unprocessed == 0
    local.put(KEY, "2")
    local.run()
    assert len(told) == before + 1


def change(**given: Any) -> Change:
    return Change("b", KEY, Origin.S3, "name", "body", **given)


@pytest.mark.parametrize(
    ("given", "without_an_object", "otherwise"),
    [
        ({"event_time": START - 1}, True, True),
        ({"event_time": START}, False, False),
        ({"event_time": START, "rejected_fence": START - 1}, True, True),
        ({"event_time": START + 1, "rejected_fence": START}, False, False),
        ({"reprocess_id": ulid(START - 1, 0)}, True, True),
        ({"reprocess_id": ulid(START, 0)}, False, False),
        ({}, True, False),
    ],
)
def test_the_rule(given: dict[str, Any], without_an_object: bool, otherwise: bool) -> None:
    assert is_forgotten(change(**given), START, unknown=True) is without_an_object
    assert is_forgotten(change(**given), START, unknown=False) is otherwise
    assert not is_forgotten(change(**given), None, unknown=True)


@pytest.mark.failure_mode("F673")
@pytest.mark.parametrize("runner", [LocalRunner.STATE_MACHINE, LocalRunner.DURABLE_FUNCTION])
@pytest.mark.parametrize("kind", ["objects", "messages"])
def test_the_message_of_an_execution_asks_for_its_end(runner: LocalRunner, kind: str) -> None:
    """The command refuses the key while the execution runs. Its marker stays. The next command removes the key."""
    local: Any
    if kind == "objects":
        local = LocalPipeline(lambda _: {"commit": "done"}, ordering=Ordering.EVERY_VERSION, runner=runner)
        local.put(KEY, "1")
        local.turn()
        local.delete_version(KEY, "version-1")
    else:
        local = LocalMessages(lambda _: {"commit": "done"}, key="k", identity="i", runner=runner)
        local.send({"k": KEY, "i": "1"})
        local.turn()
    settings = local._settings
    deployed = deployed_in_memory(
        settings.pipeline, settings.bucket, Ordering.EVERY_VERSION, messages=kind == "messages"
    )
    deployed = with_variables(deployed, INTAKE_STATE_MACHINE="machine")
    local.clock.advance(10 * MINUTE)
    task = forgetting.Forgetting(MemoryAws(local._dynamodb, local.clock), deployed, KEY)  # type: ignore[arg-type]
    task.mark()
    assert not forget(local._dynamodb, local.clock, deployed, KEY)
    local.run()
    assert [one.status for one in local.executions.executions.values()] == ["SUCCEEDED"]
    assert local.outcomes["Committed"] == 1
    local.clock.advance(10 * MINUTE)
    assert forget(local._dynamodb, local.clock, deployed, KEY)
    assert not named_in(local._dynamodb, KEY)
