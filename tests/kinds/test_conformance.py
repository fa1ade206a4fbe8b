"""The same promises in each cell of kinds, runners and hosts. Two pages are made from these tests."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict
from io import StringIO
from typing import Any

import pytest
from botocore.exceptions import ClientError

from cdk_intake_ledger.testing import LocalMessages, LocalPipeline, LocalSets
from intake_ledger import Rejects
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import break_claim
from intake_ledger.observability.powertools import PowertoolsTelemetry
from intake_ledger.protocol.commit_tag import CommitTag
from intake_ledger.protocol.handover import MAX_RESULT_BYTES
from intake_ledger.protocol.rate import Rate
from intake_ledger.protocol.reasons import Reason, ReasonCode
from intake_ledger.protocol.row import Ordering, Status, rate_key, row_key
from intake_ledger.protocol.settings import ConsumerSettings, environment_of
from intake_ledger.sets.waiting import SetTelemetry
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.read import waiting
from intake_ledger_testing.memory_sqs import MAX_MESSAGE_BYTES
from tests.kinds.cells import KEY, Call, Cell, DoesNotApply
from tests.kinds.conformance import ABSENT, CELLS, TESTS, Make, absence, every_cell
from tests.unit.command.forget_support import MemoryAws, deployed_in_memory, forget, named_in
from tests.unit.support import DAY, HOUR, MINUTE, SECOND

FAIL, WAIT = {"fail": "timed out"}, {"notYet": "no rates"}
NEVER = {"unprocessable": "no invoice"}
MOST_REQUESTS = 300
LONGER_THAN_A_LEASE = 2 * HOUR
SAME_GROUP, OTHER_GROUP = "a/b/manifest.json", "b/manifest.json"
"""Keys of the group of `KEY`, and of another one."""


def is_latest(cell: Cell) -> bool:
    """True if only the newest state of a key counts."""
    return cell.name in ("objects", "sets")


def check_done(cell: Cell, *events: str) -> None:
    """Each of these events is committed, nothing is left, and no two ran at the same time."""
    assert cell.source_messages == cell.expired == 0
    for event in events or ("1",):
        assert cell.known(event).status is Status.PROCESSED
    assert not cell.sqs.dead_letters
    assert cell.most_running <= 1 or cell.name == "every version"
    check_effect(cell)


def check_effect(cell: Cell) -> None:
    """Fences grow with the attempts, and the downstream has the effect of the last attempt."""
    for place, effect in cell.effects.items():
        calls = calls_of(cell, place)
        fences = [call.fence for call in calls]
        assert fences == sorted(set(fences))
        assert effect == calls[-1]


def calls_of(cell: Cell, place: str) -> list[Call]:
    """The attempts on a place of the downstream."""
    return [call for call in cell.calls if place in (call.key, f"{call.key}@{call.state}")]


@contextmanager
def metrics(cell: Cell) -> Iterator[dict[str, int]]:
    """The metrics that the block writes, with their sums."""
    written, found = StringIO(), dict[str, int]()
    cell.telemetry = SetTelemetry() if cell.kind == "sets" else PowertoolsTelemetry()
    cell.process = cell.start()
    with redirect_stdout(written):
        yield found
    for line in map(json.loads, written.getvalue().splitlines()):
        for name, values in line.items() if "_aws" in line else ():
            if isinstance(values, list):
                found[name] = found.get(name, 0) + int(sum(values))


@pytest.fixture(autouse=True)
def powertools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "IntakeLedger")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "cell")


# --- one delivery, and other numbers of deliveries


@every_cell
def test_a_thing_is_processed_and_committed_once(make: Make) -> None:
    cell = make()
    result = "é" * (MAX_RESULT_BYTES // 2)
    cell.answers = [{"commit": result}]
    cell.submit()
    cell.run()
    cell.duplicate()
    cell.run()
    [call] = cell.calls
    assert (call.key, call.attempt) == (KEY, 1)
    assert cell.known().commit_id == result, "the whole result is there for copies"
    assert cell.outcomes["Committed"] == 1
    check_done(cell)


@every_cell
def test_a_duplicate_runs_nothing(make: Make) -> None:
    """Before the commit, at the same time, and after it."""
    cell = make()
    cell.submit()
    cell.duplicate()
    cell.turn()
    cell.clock.advance(MINUTE)
    cell.duplicate()
    cell.run()
    cell.duplicate()
    cell.run()
    assert len(cell.calls) == 1
    assert cell.late_writes == 0
    check_done(cell)


@pytest.mark.failure_mode("F480")
@every_cell
def test_a_poison_of_a_call_spends_no_attempt_of_its_neighbours(make: Make) -> None:
    """The worker dies with it in a call of three. Then each runs alone, and the poison spends its own attempts."""
    if make().kind == "sets" or make().runner != "inline" or make().name in ("FIFO messages", "stream records"):
        raise DoesNotApply
    cell = make(per_call=3)
    cell.inside = lambda given: cell.die() if given.key == KEY else None
    cell.submit()
    others = ("b", "c")
    for key in others:
        cell.submit_key(key)
    cell.run()
    local: Any = cell.local
    for key in others:
        row = local.row(key, "1") if cell.kind == "messages" else local.row(key)
        assert (row.status, row.attempts, row.call_mark) == (Status.PROCESSED, 1, None)
    assert (cell.known().status, cell.known().attempts) == (Status.REJECTED, 3)
    assert len(calls_of(cell, KEY)) <= 4
    assert len(cell.sqs.dead_letters) == 1


@every_cell
def test_rejected_rows_are_those_of_the_committed_state(make: Make) -> None:
    """A newer state without bad rows removes those of the older one."""
    cell = make(keep_rejects=True)
    if cell.kind == "messages" or cell.runner != "inline":
        raise DoesNotApply

    def read(given: Any) -> None:
        for file in getattr(given, "parts", (given,)):
            list(file.csv_rows(columns={"n": int}, on_error=Rejects(max_share=None)))

    cell.inside = read
    local: Any = cell.local
    with metrics(cell) as written:
        cell.submit("n\nx\n")
        cell.run()
    found = local.rejected_rows(KEY)
    assert written["RejectedRows"] == len(found)
    assert {(one["line"], one["column"], one["fence"]) for one in found} == {(2, "n", cell.known().committed_fence)}
    assert cell.known().rejected_rows == len(found) > 0
    before = None if is_latest(cell) else cell.known().version_id
    cell.submit("n\n1\n")
    cell.run()
    assert local.rejected_rows(KEY) == []
    assert local.row(KEY).rejected_rows is None
    if before is not None:
        assert local.rejected_rows(KEY, before) == found


@every_cell
def test_an_older_event_after_a_newer_one_undoes_nothing(make: Make) -> None:
    cell = make()
    cell.submit_reversed()
    if is_latest(cell):
        assert len(cell.calls) == 1
        check_done(cell)
    else:
        assert len({call.state for call in cell.calls}) == len(cell.calls) == 2
        check_done(cell, "1", "2")


@pytest.mark.failure_mode("F145")
@every_cell
def test_a_newer_one_of_the_key_runs_after_the_first(make: Make) -> None:
    """Never at the same time, and its effect is the last one."""
    cell = make()

    def overwrite(_: Any) -> None:
        cell.inside = lambda _: None
        cell.submit("2")
        cell.turn(cell.start())
        if cell.name != "every version":
            assert cell.begun == 1

    cell.inside = overwrite
    cell.submit()
    cell.turn()
    if cell.later:
        overwrite(None)
    cell.run()
    assert len(cell.calls) == 2
    if cell.name != "every version":
        check_done(cell, "1" if is_latest(cell) else "2")
    assert not cell.source_messages
    assert cell.outcomes["Committed"] == 2


# --- losses


@every_cell
def test_a_lost_event_is_found(make: Make) -> None:
    cell = make()
    cell.submit(sends=False)
    cell.clock.advance(2 * HOUR)
    assert cell.check() == [KEY]
    cell.run()
    assert len(cell.calls) == 1
    check_done(cell)
    cell.clock.advance(2 * HOUR)
    assert cell.check() == []


@every_cell
def test_a_lost_message_of_unfinished_work_is_found(make: Make) -> None:
    cell = make(answers=[FAIL])
    cell.submit()
    cell.run(hours=0.001, minutes=1)
    cell.lose()
    cell.clock.advance(DAY)
    for one in cell.running():
        cell.lost_events = True
        cell.end(one)
    assert cell.check() == [KEY]


# --- deaths


def kill_everywhere(
    make: Make,
    scenario: Callable[[Cell], None],
    check: Callable[[Cell], None],
    *,
    after: bool = False,
    **options: Any,
) -> None:
    """Run the scenario again and again. A process dies before its first request, then before its second one...

    With `after`, it dies after the request. That differs only if the processor runs before the next request.
    """
    for number in range(1, MOST_REQUESTS):
        cell = make(**options)
        cell.answers = list(cell.answers)
        cell.local.kill(number, after=after)
        scenario(cell)
        if cell.local.will_die:
            assert number > 2
            return
        try:
            check(cell)
        except AssertionError as error:
            error.add_note(f"killed at request {number}: {cell.local.requests[number - 1]}")
            raise
    raise AssertionError(f"more than {MOST_REQUESTS} requests")


def submit_and_run(cell: Cell) -> None:
    cell.submit()
    cell.run()


@every_cell
def test_a_worker_may_die_at_each_request_of_an_attempt(make: Make) -> None:
    """The effect has one idempotency key. An execution runs once."""

    def check(cell: Cell) -> None:
        check_done(cell)
        assert len({call.idempotency_key for call in cell.calls}) == 1
        assert len(cell.calls) == 1 if cell.later else len(cell.calls) <= 2

    kill_everywhere(make, submit_and_run, check, parts_die=True)
    kill_everywhere(make, submit_and_run, check, after=True)


@every_cell
def test_a_worker_may_die_at_each_request_of_a_failed_attempt(make: Make) -> None:
    def check(cell: Cell) -> None:
        check_done(cell)
        assert len({call.idempotency_key for call in cell.calls}) == 1
        assert len(cell.calls) <= 3

    kill_everywhere(make, submit_and_run, check, answers=[FAIL])


@every_cell
def test_a_worker_may_die_at_each_request_of_a_rejection(make: Make) -> None:
    """There is a row, and a copy in the dead-letter queue."""

    def check(cell: Cell) -> None:
        assert cell.known().status is Status.REJECTED
        assert 1 <= len(cell.sqs.dead_letters) <= 2
        assert {one.reason for one in cell.sqs.dead_letters} == {"no invoice"}
        assert cell.source_messages == cell.expired == 0

    kill_everywhere(make, submit_and_run, check, answers=[NEVER] * 3)


@every_cell
def test_a_worker_may_die_at_each_request_of_a_wait(make: Make) -> None:
    def check(cell: Cell) -> None:
        check_done(cell)
        assert len({call.idempotency_key for call in cell.calls}) == 1

    kill_everywhere(make, submit_and_run, check, answers=[WAIT])


def after_an_end(step: Callable[[Cell], None]) -> Callable[[Cell], None]:
    """A scenario in which this step follows the end of the thing. Its requests alone are counted."""

    def scenario(cell: Cell) -> None:
        death, cell.local._death = cell.local._death, None
        submit_and_run(cell)
        cell.local.requests.clear()
        cell.local._death = death
        step(cell)
        cell.run()

    return scenario


@every_cell
def test_a_worker_may_die_at_each_request_of_a_redrive(make: Make) -> None:
    def check(cell: Cell) -> None:
        check_done(cell)
        assert 2 <= len(cell.calls) <= 3

    kill_everywhere(make, after_an_end(Cell.redrive), check, answers=[NEVER])


@every_cell
def test_a_worker_may_die_at_each_request_while_a_newer_one_waits(make: Make) -> None:
    """Queues and streams with an order keep it."""

    def both(cell: Cell) -> None:
        cell.submit()
        cell.submit("2")
        cell.run()

    def later(cell: Cell) -> None:
        cell.submit()
        cell.turn()
        cell.submit("2")
        cell.run()

    def check(cell: Cell) -> None:
        events = ("1",) if is_latest(cell) else ("1", "2")
        check_done(cell, *events)
        assert len({(call.state, call.idempotency_key) for call in cell.calls}) == len(
            {call.state for call in cell.calls}
        )
        assert len(cell.calls) <= 3
        if cell.name in ("FIFO messages", "stream records"):
            states = [call.state for call in cell.calls]
            assert states == sorted(states)
        if is_latest(cell):
            assert f"v#{cell.calls[-1].state}" == cell.known().committed_state
        cell.clock.advance(DAY)
        assert cell.check() == []

    kill_everywhere(make, both, check)
    kill_everywhere(make, later, check)


@every_cell
def test_a_worker_may_die_at_each_request_of_a_reprocess(make: Make) -> None:
    def check(cell: Cell) -> None:
        check_done(cell)
        assert 2 <= len(cell.calls) <= 3
        assert len({call.idempotency_key for call in cell.calls}) == 2

    kill_everywhere(make, after_an_end(Cell.reprocess), check)


@pytest.mark.failure_mode("F600")
@every_cell
def test_a_removal_is_told_once_whoever_dies(make: Make) -> None:
    """The key is deleted again, one of the two markers goes, and S3 clears the other one."""
    if make().name != "objects":
        raise DoesNotApply

    def check(cell: Cell) -> None:
        check_effect(cell)
        assert len({call.idempotency_key for call in cell.calls}) == 2, "the upload and its removal"
        assert not cell.check()

    def scenario(cell: Cell) -> None:
        assert isinstance(cell.local, LocalPipeline)
        submit_and_run(cell)
        for _ in range(2):
            marker = cell.local.delete(KEY)
            cell.run()
        cell.local.delete_version(KEY, str(marker))
        cell.run()
        for one in reversed(cell.s3.keys[KEY]):
            cell.local.delete_version(KEY, str(one.version_id))
        cell.run()

    kill_everywhere(make, scenario, check, deletes=True)
    kill_everywhere(make, scenario, check, deletes=True, after=True)


@pytest.mark.failure_mode("F603")
@every_cell
def test_an_undelete_calls_nobody_whoever_dies(make: Make) -> None:
    """The downstream was not told of the removal. A request of a person still calls it."""
    if make().name != "objects":
        raise DoesNotApply

    def check(cell: Cell) -> None:
        check_effect(cell)
        assert len({call.idempotency_key for call in cell.calls}) == 1
        assert cell.known().has_committed(cell.known().identity)
        assert not cell.check()
        cell.reprocess()
        cell.run()
        assert len({call.idempotency_key for call in cell.calls}) == 1 + (not cell.local.will_die)

    def scenario(cell: Cell) -> None:
        assert isinstance(cell.local, LocalPipeline)
        submit_and_run(cell)
        marker = cell.local.delete(KEY)
        cell.run()
        cell.local.delete_version(KEY, str(marker))
        cell.run()

    kill_everywhere(make, scenario, check)
    kill_everywhere(make, scenario, check, after=True)


@pytest.mark.failure_mode("F545")
@every_cell
def test_a_committed_version_gets_its_tag_whoever_dies(make: Make) -> None:
    """A worker dies at each request up to the acknowledgement. The version is tagged once the row is committed."""
    if make().kind != "objects":
        raise DoesNotApply
    tag, tags = CommitTag("intake", "done"), {"intake": "done"}

    def check(cell: Cell) -> None:
        check_done(cell)
        assert isinstance(cell.local, LocalPipeline)
        assert cell.local.tags(KEY) == tags
        row = cell.known()
        assert (row.tags_pending, row.tagged_at is not None) == (None, True)

    def scenario(cell: Cell) -> None:
        put = cell.s3.put_object_tagging

        def watched(**request: Any) -> dict[str, Any]:
            assert cell.known().status is Status.PROCESSED
            return put(**request)

        cell.s3.put_object_tagging = watched  # type: ignore[method-assign]
        submit_and_run(cell)

    kill_everywhere(make, scenario, check, after_commit=tag)


@pytest.mark.failure_mode("F759")
@every_cell
def test_a_file_that_is_left_out_stays_so_whoever_dies(make: Make) -> None:
    """A file comes under a temporary name, and is renamed. The temporary name has no row and no work."""
    if make().kind == "messages":
        raise DoesNotApply
    key, left_out = "a/x.tmp", {"exclude": ["*.tmp"]}

    def check(cell: Cell) -> None:
        check_done(cell)
        assert not [place for place in cell.dynamodb.items if place[0].endswith(key)]
        assert all(one.key != key for one in cell.calls)
        assert not cell.check()

    def scenario(cell: Cell) -> None:
        local: Any = cell.local.parts if isinstance(cell.local, LocalSets) else cell.local
        local.put(key, "1")
        local.delete(key)
        local.run()
        submit_and_run(cell)

    kill_everywhere(make, scenario, check, kit=left_out)


@pytest.mark.failure_mode("F775", "F779")
@every_cell
def test_a_version_waits_for_its_tag_whoever_dies(make: Make) -> None:
    """A worker dies at each request while the version waits, and after the event of its tag."""
    if make().kind != "objects" or make().later:
        raise DoesNotApply

    def scenario(cell: Cell) -> None:
        assert isinstance(cell.local, LocalPipeline)
        cell.submit()
        cell.turn()
        assert cell.calls == []
        cell.local.put_tag(KEY, "scan", "clean")
        cell.run()

    for after in (False, True):
        kill_everywhere(make, scenario, check_done, after=after, kit={"ready_when": ("scan", ["clean"])})


@pytest.mark.failure_mode("F788", "F789")
@every_cell
def test_copies_in_place_are_known_whoever_dies(make: Make) -> None:
    """A worker dies at each request of a content, of its copy, of a removal, and of the same content again."""
    if make().name != "objects" or make().later:
        raise DoesNotApply

    def scenario(cell: Cell) -> None:
        assert isinstance(cell.local, LocalPipeline)
        for content in ("A", "B", "A"):
            cell.local.put(KEY, content, sha256=True)
            cell.run()
            cell.local.copy(KEY)
            cell.local.duplicate()
            cell.run()

    def check(cell: Cell) -> None:
        assert isinstance(cell.local, LocalPipeline)
        row, [effect] = cell.known(), cell.effects.values()
        shown = cell.local.s3.current(KEY)
        assert shown is not None
        assert (row.status, row.version_id) == (Status.PROCESSED, shown.version_id)
        contents = [one.content for one in cell.local.s3.keys[KEY] if one.version_id == effect.state]
        assert contents == [b"A"]
        # The attempt of a dead worker may have begun, so what follows it is processed.
        assert 3 <= len(cell.calls) <= 4

    for after in (False, True):
        kill_everywhere(make, scenario, check, after=after, kit={"same_content": (86_400, None)})


@every_cell
def test_an_execution_whose_event_is_lost_is_seen_by_its_message(make: Make) -> None:
    if not make().later:
        raise DoesNotApply

    def check(cell: Cell) -> None:
        check_done(cell)
        assert len(cell.calls) == 1

    kill_everywhere(make, submit_and_run, check, lost_events=True)


@every_cell
def test_a_late_worker_overwrites_nothing(make: Make) -> None:
    """It pauses in its attempt until another worker has committed, and goes on then."""
    cell = make()

    def pause(_: Any = None) -> None:
        cell.inside, cell.on_start, paused = lambda _: None, lambda: None, cell.process
        cell.clock.advance(LONGER_THAN_A_LEASE)
        cell.process = cell.start()
        cell.run()
        assert cell.known().status is Status.PROCESSED
        cell.process = paused

    cell.inside = cell.on_start = pause
    cell.submit()
    cell.turn()
    fence = cell.known().committed_fence
    cell.process = cell.start()
    cell.run()
    assert cell.known().committed_fence == fence
    if cell.later:
        assert len(cell.calls) == 1
    else:
        assert [call.idempotency_key for call in cell.calls] == [cell.calls[0].idempotency_key] * 2
        assert cell.outcomes["Fenced"] == 1
        [effect] = cell.effects.values()
        assert effect.fence == fence
    assert cell.outcomes["Committed"] == 1
    assert cell.known().status is Status.PROCESSED
    assert not cell.source_messages


@every_cell
def test_a_late_worker_of_an_older_state_overwrites_nothing(make: Make) -> None:
    """It goes on after a newer one of the key was committed."""
    cell = make()

    def pause(_: Any = None) -> None:
        cell.inside, cell.on_start, paused = lambda _: None, lambda: None, cell.process
        cell.clock.advance(LONGER_THAN_A_LEASE)
        cell.process = cell.start()
        cell.submit("2")
        cell.run()
        cell.process = paused

    cell.inside = cell.on_start = pause
    cell.submit()
    cell.turn()
    cell.process = cell.start()
    cell.run()
    assert not cell.source_messages
    if is_latest(cell):
        effect, row = cell.effects[KEY], cell.known()
        assert (effect.fence, f"v#{effect.state}") == (row.committed_fence, row.committed_state)
    else:
        assert {cell.known(event).status for event in "12"} == {Status.PROCESSED}
    for place, effect in cell.effects.items():
        assert effect.fence == max(call.fence for call in calls_of(cell, place))


@every_cell
def test_a_worker_may_die_at_each_request_while_another_is_late(make: Make) -> None:
    """The successor of a paused worker dies, and the paused one goes on then."""

    def scenario(cell: Cell) -> None:
        death, cell.local._death = cell.local._death, None

        def pause(_: Any = None) -> None:
            cell.inside, cell.on_start, paused = lambda _: None, lambda: None, cell.process
            cell.clock.advance(LONGER_THAN_A_LEASE)
            cell.process = cell.start()
            cell.submit("2")
            cell.local.requests.clear()
            cell.local._death = death
            cell.run()
            cell.process = paused

        cell.inside = cell.on_start = pause
        cell.submit()
        cell.turn()
        cell.process = cell.start()
        cell.run()

    def check(cell: Cell) -> None:
        assert cell.source_messages == 0
        if is_latest(cell):
            effect, row = cell.effects[KEY], cell.known()
            assert (effect.fence, f"v#{effect.state}") == (row.committed_fence, row.committed_state)
        else:
            assert {cell.known(event).status for event in "12"} == {Status.PROCESSED}
        for place, effect in cell.effects.items():
            assert effect.fence == max(call.fence for call in calls_of(cell, place))

    kill_everywhere(make, scenario, check)


@every_cell
def test_long_work_is_not_repeated(make: Make) -> None:
    """It takes five hours. Another worker looks at its messages all the time."""
    cell = make()
    worker, other = cell.process, cell.start()
    if worker.host is None and not cell.later:
        raise DoesNotApply

    def work(_: Any) -> None:
        assert worker.host is not None
        cell.inside = lambda _: None
        cell.duplicate()
        for _beat in range(5 * 180):
            cell.clock.advance(20 * SECOND)
            worker.beat()
            cell.turn(other)

    cell.inside = work
    cell.submit()
    cell.turn(worker)
    cell.run(minutes=300)
    assert len(cell.calls) == 1
    check_done(cell)


# --- ends


@every_cell
def test_a_failure_is_tried_again_and_the_last_one_is_rejected(make: Make) -> None:
    cell = make(answers=[FAIL] * 3)
    cell.submit()
    cell.run()
    assert [call.attempt for call in cell.calls] == [1, 2, 3]
    assert len({call.idempotency_key for call in cell.calls}) == 1
    assert cell.known().status is Status.REJECTED
    [copy] = cell.sqs.dead_letters
    assert copy.attributes["attempts"] == 3
    assert not cell.source_messages


@every_cell
def test_a_thing_that_can_never_be_processed_is_rejected_at_once(make: Make) -> None:
    """Its copy in the dead-letter queue has the reason."""
    cell = make(answers=[NEVER])
    cell.submit()
    cell.run()
    assert len(cell.calls) == 1
    assert cell.known().reason == "no invoice"
    [copy] = cell.sqs.dead_letters
    assert (copy.reason, copy.attributes["reason_code"]) == ("no invoice", "unprocessable")


@every_cell
def test_a_malformed_answer_after_the_effect_takes_one_attempt(make: Make) -> None:
    """The effect is there, and each further attempt would repeat it."""
    cell = make(answers=[{"commit": ["no text"]}] * 3)
    cell.submit()
    cell.run()
    assert len(cell.calls) == 1
    if cell.later:
        # Most state machines return the result of their last step.
        check_done(cell)
    else:
        assert cell.known().status is Status.REJECTED
        assert len(cell.sqs.dead_letters) == 1


@every_cell
def test_a_wait_counts_no_attempt(make: Make) -> None:
    cell = make(answers=[WAIT] * 5)
    cell.submit()
    cell.run()
    assert len(cell.calls) == 6
    assert {call.attempt for call in cell.calls} == {1}
    check_done(cell)


@every_cell
def test_a_wait_ends_before_its_message_is_lost(make: Make) -> None:
    """After `max_wait`, or before the retention of the source, it is rejected with the reason."""
    cell = make(answers=[WAIT] * 999)
    cell.submit()
    cell.run()
    row = cell.known()
    assert row.status is Status.REJECTED
    assert "no rates" in str(row.reason)
    [copy] = cell.sqs.dead_letters
    assert copy.attributes["reason_code"] == "max_wait"
    assert cell.expired == 0
    assert len(cell.calls) < 200


@pytest.mark.failure_mode("F510")
@every_cell
def test_a_rate_delays_and_counts_no_attempt(make: Make) -> None:
    """Other workers have taken the starts of an hour. A duplicate costs no start."""
    cell = make(max_rate=1 / 60)
    begin = cell.clock()
    cell.use_up(3_600)
    cell.submit()
    cell.turn()
    assert cell.known().reason_code == "max_rate"
    cell.run()
    [call] = cell.calls
    assert call.attempt == 1
    assert cell.clock() - begin >= 3_600 * SECOND - Rate(1 / 60).tolerance_us // 1_000
    check_done(cell)
    cell.duplicate()
    cell.run()
    one_start = (begin + 3_600 * SECOND) * 1_000 + Rate(1 / 60).interval_us
    assert starts_until(cell) == one_start, "no end of an execution and no duplicate takes a start"


def starts_until(cell: Cell) -> int:
    key = rate_key(cell.settings.pipeline)
    return int(cell.dynamodb.items[key.pk, key.sk]["starts_until"]["N"])


@pytest.mark.failure_mode("F513")
@every_cell
def test_a_wait_for_the_rate_ends_before_its_message_is_lost(make: Make) -> None:
    """After `max_wait`, or before the retention of the source, it is rejected with the reason."""
    cell = make(max_rate=1 / 60, max_wait=6 * 3_600)
    cell.use_up(1_000 * 86_400)
    cell.submit()
    cell.run()
    assert cell.known().status is Status.REJECTED
    [copy] = cell.sqs.dead_letters
    assert copy.attributes["reason_code"] == "max_rate"
    assert (cell.expired, cell.calls) == (0, [])


@pytest.mark.thorough
@pytest.mark.failure_mode("F514")
@every_cell
def test_a_worker_may_die_at_each_request_of_a_wait_for_the_rate(make: Make) -> None:
    """A start that it has taken is lost. The work is not."""

    def wait(cell: Cell) -> None:
        cell.use_up(600)
        submit_and_run(cell)

    def check(cell: Cell) -> None:
        check_done(cell)
        assert len({call.idempotency_key for call in cell.calls}) == 1
        assert len(cell.calls) == 1 if cell.later else len(cell.calls) <= 2

    kill_everywhere(make, wait, check, max_rate=1 / 60)


@pytest.mark.failure_mode("F365")
@every_cell
def test_a_message_that_expires_without_an_end_is_found(make: Make) -> None:
    """Neither queue has taken a copy for weeks, so the queue deletes the message."""
    cell = make(answers=[NEVER] * 9_999)
    cell.submit()
    cell.sqs.dead_letter_bytes = cell.sqs.queue_bytes = 10
    cell.run(hours=24 * 29)
    assert (cell.expired, cell.source_messages) == (1, 0)
    cell.sqs.queue_bytes = MAX_MESSAGE_BYTES
    cell.clock.advance(DAY)
    assert cell.check() == [KEY]


# --- operations


@every_cell
def test_a_redrive_runs_a_rejected_thing_once(make: Make) -> None:
    cell = make(answers=[NEVER])
    cell.submit()
    cell.run()
    cell.redrive()
    cell.run()
    assert len(cell.calls) == 2
    check_done(cell)
    cell.duplicate()
    cell.run()
    assert len(cell.calls) == 2


@pytest.mark.failure_mode("F680")
@every_cell
def test_a_rejection_is_closed_leaves_a_trace_and_can_be_opened(make: Make) -> None:
    """The same content is a late copy. Other content is processed, or becomes a dead letter. A person opens each."""
    cell = make(answers=[NEVER])
    cell.submit()
    cell.run()
    letters, row = cell.sqs.dead_letters, cell.known()
    cell.duplicate()
    cell.run()
    assert (len(cell.calls), cell.sqs.dead_letters, cell.known()) == (1, letters, row)
    cell.correct()
    cell.run()
    if isinstance(cell.local, LocalMessages):
        assert (len(cell.calls), cell.known()) == (1, row), "it is not tried by itself"
        [first, other] = cell.sqs.dead_letters
        assert (first, other.attributes["reason_code"], other.key) == (letters[0], "identity_rejected", KEY)
        cell.local.open(other)
        cell.run()
        # The first content is not acknowledged behind it.
        cell.redrive()
        cell.run()
        assert [one.attributes["reason_code"] for one in cell.sqs.dead_letters] == ["identity_collides"]
    elif cell.name == "every version":
        assert (len(cell.calls), cell.known(), cell.sqs.dead_letters) == (2, row, letters)
        cell.redrive()
        cell.run()
        assert cell.calls[2][:2] == cell.calls[0][:2]
    else:
        cell.redrive()
        cell.run()
    first_call, *_, last = cell.calls
    assert len(cell.calls) == (3 if cell.name == "every version" else 2)
    assert last.fence > first_call.fence
    assert (last.idempotency_key != first_call.idempotency_key) == (cell.name != "every version")
    assert (cell.known().status, cell.source_messages) == (Status.PROCESSED, 0)
    check_effect(cell)


@every_cell
def test_a_reprocess_runs_finished_work_again(make: Make) -> None:
    """With another idempotency key."""
    cell = make()
    cell.submit()
    cell.run()
    cell.reprocess()
    cell.run()
    cell.duplicate()
    cell.run()
    assert len({call.idempotency_key for call in cell.calls}) == len(cell.calls) == 2
    check_done(cell)


@pytest.mark.failure_mode("F430")
@every_cell
def test_a_lost_request_to_process_again_is_sent_again(make: Make) -> None:
    """The audit sends it once more, and then finds it served."""
    cell = make()
    cell.submit()
    cell.run()
    cell.reprocess()
    cell.lose()
    assert cell.check_requests().resent == 0
    cell.clock.advance(3 * HOUR)
    assert cell.check_requests().resent == 1
    cell.run()
    cell.clock.advance(3 * HOUR)
    assert cell.check_requests().served == 1
    cell.run()
    assert len(cell.calls) == 2
    check_done(cell)


@pytest.mark.failure_mode("F430")
@pytest.mark.failure_mode("F431")
@every_cell
def test_a_lost_redrive_is_sent_again_or_says_so(make: Make) -> None:
    """The content of a message is gone. Its row says so, and takes the message from its source again."""
    cell = make(answers=[NEVER])
    cell.submit()
    cell.run()
    cell.redrive()
    cell.clock.advance(3 * HOUR)
    if cell.kind == "messages":
        assert cell.check_requests().lost == 0
    cell.lose()
    found = cell.check_requests()
    if cell.kind == "messages":
        assert (found.lost, cell.known().reason_code) == (1, "copy_lost")
        cell.submit()
    else:
        assert found.resent == 1
    cell.run()
    assert len(cell.calls) == 2
    check_done(cell)
    cell.duplicate()
    cell.run()
    assert len(cell.calls) == 2


@pytest.mark.failure_mode("F434")
@every_cell
def test_a_stopped_redrive_goes_back_with_its_reasons(make: Make) -> None:
    """Unclaimed: the row is as before. A later redrive takes it."""
    cell = make(answers=[NEVER])
    cell.submit()
    cell.run()
    letters, row = cell.sqs.dead_letters, cell.known()
    cell.redrive()
    cell.stop()
    cell.run()
    assert (cell.sqs.dead_letters, cell.known(), cell.source_messages) == (letters, row, 0)
    cell.clock.advance(3 * HOUR)
    assert cell.check_requests().resent == 0
    cell.redrive()
    cell.run()
    assert len(cell.calls) == 2
    check_done(cell)


@pytest.mark.failure_mode("F434")
@every_cell
def test_a_stopped_reprocess_is_withdrawn(make: Make) -> None:
    cell = make()
    cell.submit()
    cell.run()
    row = cell.known()
    cell.reprocess()
    cell.stop()
    cell.run()
    assert (cell.known(), cell.source_messages) == (row, 0)
    cell.clock.advance(3 * HOUR)
    assert cell.check_requests().resent == 0
    cell.reprocess()
    cell.run()
    assert len(cell.calls) == 2
    check_done(cell)


@pytest.mark.failure_mode("F435")
@every_cell
def test_a_stop_leaves_work_that_has_begun(make: Make) -> None:
    """It has failed once, and goes on. Withdrawn, its row would stay FAILED."""
    cell = make(answers=[NEVER, FAIL])
    cell.submit()
    cell.run()
    cell.redrive()
    while len(cell.calls) < 2:
        cell.turn()
        for one in cell.running():
            cell.end(one)
    cell.stop()
    cell.run()
    assert len(cell.calls) == 3
    check_done(cell)


@every_cell
def test_a_pause_delays_and_loses_nothing(make: Make) -> None:
    """No worker takes messages for three days. Executions run on."""
    cell = make(answers=[FAIL])
    cell.submit()
    cell.turn()
    cell.clock.advance(3 * DAY)
    for one in cell.running():
        cell.end(one)
    cell.process = cell.start()
    cell.run()
    assert len(cell.calls) == 2
    check_done(cell)


@every_cell
def test_the_audit_agrees_with_finished_work(make: Make) -> None:
    cell = make()
    cell.submit()
    cell.run()
    cell.clock.advance(DAY)
    assert cell.check() == []
    assert not cell.source_messages


# --- groups


@pytest.mark.failure_mode("F500")
@every_cell
def test_a_group_has_one_live_attempt(make: Make) -> None:
    """The other key of the group waits without an attempt, and a key without a group does not wait."""
    cell = make(exclusive_by="{folder}/")
    if cell.kind == "messages":
        raise DoesNotApply

    def others(_: Any) -> None:
        cell.inside = lambda _: None
        cell.submit_key(SAME_GROUP)
        cell.submit_key(OTHER_GROUP)
        begun = cell.begun
        while cell.turn(cell.start()):
            pass
        assert cell.begun == begun + 1
        waits = cell.row_of(SAME_GROUP)
        assert (waits.status, waits.reason_code, waits.attempts) == (Status.FAILED, ReasonCode.GROUP_HELD, 0)

    cell.inside = others
    cell.submit()
    cell.turn()
    if cell.later:
        others(None)
    cell.run()
    assert {call.attempt for call in cell.calls} == {1}
    assert {call.key for call in cell.calls} == {KEY, SAME_GROUP, OTHER_GROUP}
    assert cell.row_of(SAME_GROUP).status is cell.row_of(OTHER_GROUP).status is Status.PROCESSED
    assert not cell.source_messages
    assert not cell.sqs.dead_letters


@every_cell
def test_a_worker_may_die_at_each_request_while_its_group_waits(make: Make) -> None:
    """One of both has the group at each time, and both are committed."""
    if make().kind == "messages":
        raise DoesNotApply

    at_once: list[str] = []

    def play(cell: Cell) -> None:
        running, sent = list[str](), set[str]()

        def meet(given: Any) -> None:
            at_once.extend(running)
            running.append(given["key"] if isinstance(given, dict) else given.key)
            if len(running) == 1:
                if SAME_GROUP not in sent:
                    sent.add(SAME_GROUP)
                    cell.submit_key(SAME_GROUP)
                cell.turn(cell.start())
            running.pop()

        if not cell.later:
            cell.inside = meet
        cell.submit()
        if cell.later:
            cell.submit_key(SAME_GROUP)
        cell.run()

    def check(cell: Cell) -> None:
        assert not at_once
        assert cell.most_running <= 1
        assert cell.known().status is cell.row_of(SAME_GROUP).status is Status.PROCESSED
        assert not cell.source_messages
        assert not cell.sqs.dead_letters

    kill_everywhere(make, play, check, exclusive_by="{folder}/")


# --- commands


@every_cell
def test_a_claim_of_a_dead_worker_is_released(make: Make) -> None:
    """With hours of its lease left. The attempt counts, and the next one begins when its message comes."""
    cell = make()
    if cell.later:
        raise DoesNotApply
    cell.inside = lambda _: cell.die() if len(cell.calls) == 1 else None
    cell.submit()
    cell.turn()
    row = cell.known()
    assert row.is_live(cell.clock())
    place = row_key(cell.settings.pipeline, cell.ordering, cell.settings.bucket, KEY, row.identity)
    store: Any = cell.dynamodb
    reason, table = Reason(ReasonCode.LOCK_BROKEN, "released"), LedgerTable(store, "table")
    break_claim(table, cell.settings.pipeline, place, row, reason, now=cell.clock())
    if cell.name not in ("FIFO messages", "stream records"):
        cell.duplicate()
        cell.turn()
        assert len(cell.calls) == 2
    cell.run()
    assert [call.attempt for call in cell.calls] == [1, 2]
    assert cell.calls[0].fence < row.fence + 1 < cell.calls[1].fence + 1
    assert len({call.idempotency_key for call in cell.calls}) == 1
    check_done(cell)


@every_cell
def test_a_wait_ends_when_it_is_committed(make: Make) -> None:
    """As `intake-ledger wait` of schedulers. A rejection ends it too."""
    cell = make(answers=[NEVER])
    if cell.kind == "messages":
        raise DoesNotApply
    cell.submit()
    assert wait_outcome(cell) == waiting.MISSING
    cell.run()
    assert wait_outcome(cell) == waiting.REJECTED
    cell.redrive()
    cell.run()
    assert wait_outcome(cell) == waiting.COMMITTED


@every_cell
def test_a_forgotten_key_is_refused_until_it_is_used_again(make: Make) -> None:
    """Messages of before come after `intake-ledger forget`."""
    cell = make()
    cell.submit()
    cell.run()
    cell.clock.advance(HOUR)
    cell.duplicate()
    for key in [one for one in cell.s3.keys if one == KEY]:
        del cell.s3.keys[key]
    if cell.kind == "sets":
        # The pipeline of the parts has a row of each object of the bucket.
        parts = deployed_in_memory("local", cell.settings.bucket, Ordering.LATEST)
        assert forget(cell.dynamodb, cell.clock, parts, KEY)
    assert forget(cell.dynamodb, cell.clock, deployed_of(cell), KEY)
    assert not named_in(cell.dynamodb, KEY)
    cell.run()
    assert cell.begun == 1
    assert cell.verdicts["FORGOTTEN"] >= 1
    assert cell.source_messages == 0
    assert not cell.sqs.dead_letters
    assert not named_in(cell.dynamodb, KEY)
    cell.submit("2")
    cell.run()
    assert cell.begun == 2


def deployed_of(cell: Cell) -> DeployedPipeline:
    """The pipeline of the cell, as the command finds it."""
    settings, variables = cell.settings, None
    if isinstance(cell.local, LocalSets):
        form = json.dumps({"form": "manifest", "pattern": "**/manifest.json"})
        variables = environment_of(ConsumerSettings, **asdict(cell.settings) | {"filters": None})
        variables |= {"INTAKE_SET_FORM": form, "INTAKE_SET_PARTS_PIPELINE": "local", "INTAKE_PART_LISTS": "lists/of/"}
    is_messages = cell.kind == "messages"
    return deployed_in_memory(settings.pipeline, settings.bucket, cell.ordering, messages=is_messages, sets=variables)


def wait_outcome(cell: Cell) -> str:
    aws: Any = MemoryAws(cell.dynamodb, cell.clock, cell.s3)
    look = waiting.Wait(aws, deployed_of(cell), KEY, 1, None, None, cell.clock)
    return look.look().outcome


# --- metrics


@every_cell
def test_a_rejection_is_counted(make: Make) -> None:
    cell = make(answers=[NEVER])
    with metrics(cell) as found:
        cell.submit()
        cell.run()
    assert found["Rejected"] == found["Accepted"] == 1
    assert "Committed" not in found


@every_cell
def test_retries_and_lapsed_leases_are_counted(make: Make) -> None:
    cell = make(answers=[FAIL])

    def die(_: Any = None) -> None:
        cell.inside, cell.on_start = lambda _: None, lambda: None
        cell.die()

    with metrics(cell) as found:
        cell.inside = cell.on_start = die
        cell.submit()
        cell.run()
    assert found["Retries"] == (1 if cell.later else 2)
    assert found["LapsedLeases"] == 1
    assert found["Committed"] == 1


@every_cell
def test_a_wait_that_is_too_long_is_counted(make: Make) -> None:
    cell = make(answers=[WAIT] * 999, max_wait=6 * 3600)
    with metrics(cell) as found:
        cell.submit()
        cell.run()
    assert found["WaitedTooLong"] == found["Rejected"] == 1


@every_cell
def test_a_refused_copy_is_counted(make: Make) -> None:
    """And the message stays until the dead-letter queue takes it."""
    cell = make(answers=[NEVER])
    cell.sqs.dead_letter_bytes = 10
    with metrics(cell) as found:
        cell.submit()
        cell.run(hours=1)
    assert found["CopiesRefused"] >= 1
    assert cell.source_messages >= 1
    cell.sqs.dead_letter_bytes = 10**6
    cell.answers = [NEVER] * 9
    cell.run()
    assert len(cell.sqs.dead_letters) == 1
    assert cell.known().status is Status.REJECTED
    assert not cell.source_messages


@every_cell
def test_a_late_worker_is_counted(make: Make) -> None:
    cell = make()
    if cell.later:
        raise DoesNotApply

    def pause(_: Any) -> None:
        cell.inside, paused = lambda _: None, cell.process
        cell.clock.advance(LONGER_THAN_A_LEASE)
        cell.process = cell.start()
        cell.run()
        cell.process = paused

    with metrics(cell) as found:
        cell.inside = pause
        cell.submit()
        cell.turn()
    assert found["Fenced"] == found["Committed"] == found["LapsedLeases"] == 1


@every_cell
def test_a_refused_start_is_counted(make: Make) -> None:
    cell = make()
    if not cell.later:
        raise DoesNotApply
    denied = ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "StartExecution")
    cell.machine.refuse_starts = lambda: denied
    with metrics(cell) as found:
        cell.submit()
        cell.run(hours=1)
    assert found["StartRefused"] >= 1
    cell.machine.refuse_starts = lambda: None
    cell.run()
    assert len(cell.calls) == 1
    check_done(cell)


def test_the_pages_are_generated() -> None:
    """`python -m scripts.kinds_page --write` writes it."""
    from scripts.kinds_page import PAGE, PROMISES_PAGE, page, promises_page  # noqa: PLC0415 - it reads the tests above

    assert PAGE.read_text(encoding="utf-8") == page()
    assert PROMISES_PAGE.read_text(encoding="utf-8") == promises_page()


def test_each_reason_is_about_a_test_and_a_cell() -> None:
    for one in ABSENT:
        assert one.test in TESTS, one
        assert any(one.covers(place) for place in CELLS), one
    for test in TESTS:
        for place in CELLS:
            absence(test, place)
