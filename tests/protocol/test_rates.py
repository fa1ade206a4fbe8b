"""Starts at a limited rate, in virtual time: with clocks that differ, pauses, late messages and deaths."""

import bisect
from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import pytest

from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.starts import Starts
from intake_ledger.protocol.rate import LONGEST_LINE_SECONDS, Rate, StartTimes
from intake_ledger.protocol.row import rate_key
from tests.protocol.rate_world import BEGIN_MS, RateWorld
from tests.settings import THOROUGH

WORLDS = (
    (Rate(0.2), 60, 3_000),
    (Rate(2), 300, 1_000),
    (Rate(3, burst=20), 300, 500),
    (Rate(20), 1_500, 200),
)
SEEDS = range(5 if THOROUGH else 1)


def run(rate: Rate, messages: int, work_ms: int, seed: int) -> RateWorld:
    return RateWorld(rate, messages, seed, work_ms=work_ms).run()


@pytest.mark.failure_mode("F510")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("rate", "messages", "work_ms"), WORLDS)
def test_twenty_environments_start_at_the_rate(rate: Rate, messages: int, work_ms: int, seed: int) -> None:
    """Grants are exact on the timeline of the item. Starts follow within the clocks' difference and a pause."""
    world = run(rate, messages, work_ms, seed)
    slots = [grant.slot_us for grant in world.grants]
    assert all(b - a >= rate.interval_us for a, b in pairwise(slots)), "no two starts have a slot"
    for grant in world.grants:
        assert grant.slot_us <= grant.clock_us + rate.tolerance_us, "no start is early"
    check_windows(world, seconds=(1, 10, 60))
    assert world.utilisation >= 0.9
    assert world.looks <= 2.5 * len(world.starts), "a message is judged when it comes, and at its place"


def check_windows(world: RateWorld, seconds: tuple[int, ...]) -> None:
    """In each window, at most the rate of a window that is longer by pause and differences, and the burst."""
    times = sorted(world.starts)
    for window in seconds:
        longer_ms = window * 1_000 + world.pause_ms + 2 * world.skew_ms
        most = longer_ms * 1_000 // world.rate.interval_us + world.rate.most_at_once + 1
        assert all(bisect.bisect(times, at + window * 1_000) - place <= most for place, at in enumerate(times))


@pytest.mark.failure_mode("F511")
def test_messages_that_wait_do_not_all_ask_at_once() -> None:
    """However many wait, about as many ask in a second as start."""
    world = run(Rate(20), 1_500, 200, 7)
    assert world.writes <= 2.5 * len(world.starts)


def test_new_messages_do_not_overtake_those_in_line() -> None:
    world = RateWorld(Rate(1, burst=2), 0, 1, skew_ms=0)
    first, second = world.environment(), world.environment()
    taken = [first.take(in_line=False) for _ in range(5)]
    assert taken == [None, None, BEGIN_MS + 1_000, BEGIN_MS + 2_000, BEGIN_MS + 3_000]
    world.now += 2_500
    assert second.take(in_line=False) == BEGIN_MS + 4_000, "starts are free, and another message is in line for one"
    assert second.take(in_line=True) is None


def test_a_line_that_is_too_long_has_no_more_places() -> None:
    """Those behind its end come again before it is empty, so no start is lost."""
    world = RateWorld(Rate(1 / 3_600, burst=2), 0, 1, skew_ms=0)
    starts = world.environment()
    waits = [(at - BEGIN_MS) / 1_000 for _ in range(20) if (at := starts.take(in_line=False)) is not None]
    longest = LONGEST_LINE_SECONDS
    assert waits[:10] == [3_600 * hour for hour in range(1, 11)]
    assert all(longest / 2 <= wait <= longest + 3_600 for wait in waits[10:])


@pytest.mark.failure_mode("F512")
def test_a_throttled_item_gives_no_start_and_loses_nothing() -> None:
    world = RateWorld(Rate(20), 600, 3, writes_a_second=25).run()
    check_windows(world, seconds=(1, 10))
    assert len(world.started) == 600


def test_a_lost_answer_loses_a_start_and_gives_none() -> None:
    """The SDK repeats the write. The rate is lower then, never higher."""
    world = RateWorld(Rate(1, burst=3), 0, 1, skew_ms=0)
    update, key = world.store.update_item, rate_key("sim")

    class Repeating:
        def update_item(self, **request: Any) -> Any:
            update(**request)
            return update(**request)

    table = LedgerTable(cast("Any", Repeating()), "ledger")
    starts = Starts(table, "sim", world.rate, clock=lambda: BEGIN_MS, jitter=lambda: 0.5)
    world.environment().take(in_line=False)
    starts.take(in_line=False)
    item = world.store.items[key.pk, key.sk]
    assert int(item["starts_until"]["N"]) == BEGIN_MS * 1_000 + 3 * world.rate.interval_us
    assert starts.take(in_line=False) is not None


@pytest.mark.failure_mode("F531")
@pytest.mark.parametrize("ahead_hours", [0, 2, 48])
def test_a_worker_that_remembers_a_deleted_item_asks_again(ahead_hours: int) -> None:
    """A person deletes the item, because a clock was ahead. Those that remember its times start at once."""
    world, now = RateWorld(Rate(1, burst=2), 0, 1, skew_ms=0), BEGIN_MS
    table, key = LedgerTable(cast("Any", world.store), "ledger"), rate_key("sim")
    warm = Starts(table, "sim", world.rate, clock=lambda: now, jitter=lambda: 0.5)
    ahead = Starts(table, "sim", world.rate, clock=lambda: now + ahead_hours * 3_600_000, jitter=lambda: 0.5)
    for _ in range(5):
        ahead.take(in_line=False)
    assert warm.take(in_line=False) is not None
    del world.store.items[key.pk, key.sk]
    now += 60_000
    taken = [warm.take(in_line=bool(number)) for number in range(3)]
    assert taken == [None, None, now + 1_000]
    before = world.writes
    ahead.take(in_line=False)
    assert [warm.take(in_line=False) is None for _ in range(20)] == [False] * 20
    if ahead_hours * 3_600 > LONGEST_LINE_SECONDS:
        assert world.writes - before < 5, "the worker asks once a minute, and not for each message"


@pytest.mark.failure_mode("F531")
def test_a_long_line_is_forgotten_with_its_item() -> None:
    """Also if all clocks are right. The times that a worker remembers are those of the last answer."""
    world, now = RateWorld(Rate(1, burst=2), 0, 1, skew_ms=0), BEGIN_MS
    table, key = LedgerTable(cast("Any", world.store), "ledger"), rate_key("sim")
    warm = Starts(table, "sim", world.rate, clock=lambda: now, jitter=lambda: 0.5)
    for _ in range(600):
        warm.take(in_line=False)
    del world.store.items[key.pk, key.sk]
    waits = [warm.take(in_line=False) for _ in range(6)]
    assert max(at or now for at in waits) <= now + 10_000


def two_settings(former: Rate, later: Rate) -> tuple[RateWorld, Starts, Callable[[], Starts]]:
    """A worker of the former setting, and what makes those of the later one."""
    world = RateWorld(former, 0, 1, skew_ms=0)
    old = world.environment()

    def new() -> Starts:
        world.rate = later
        return world.environment()

    return world, old, new


@pytest.mark.failure_mode("F634")
def test_a_rate_that_is_raised_holds_nothing_back() -> None:
    """The line of the former rate is 300 starts long, and its starts lead by two hours."""
    world, old, new = two_settings(Rate(1 / 3_600, burst=2), Rate(100))
    for _ in range(300):
        old.take(in_line=False)
    assert [new().take(in_line=False) for _ in range(400)] == [None] * 400
    assert old.rate.waiting(seen(world), BEGIN_MS * 1_000) == 0


@pytest.mark.failure_mode("F634")
@pytest.mark.parametrize(("starts", "lead"), [(1, 1), (3, 3), (300, 5)])
def test_the_lead_of_a_rate_stays_the_same_number_of_starts(starts: int, lead: int) -> None:
    """At most the burst of the later rate."""
    world, old, new = two_settings(Rate(100), Rate(0.1, burst=5))
    for _ in range(starts):
        old.take(in_line=False)
    worker = new()
    assert sum(worker.take(in_line=False) is None for _ in range(9)) == 5 - lead
    assert seen(world).starts_until == BEGIN_MS * 1_000 + 5 * 10_000_000


@pytest.mark.failure_mode("F634")
def test_two_versions_of_the_code_do_not_drop_each_others_places() -> None:
    """The later one drops the line once. The former one follows it, and a rollback is a setting of its own."""
    world, old, new = two_settings(Rate(0.1), Rate(0.5, burst=2))
    for _ in range(9):
        old.take(in_line=False)
    worker = new()
    waits = [next_.take(in_line=False) for _ in range(10) for next_ in (worker, old)]
    assert seen(world).generation == 1
    assert len({at for at in waits if at is not None}) == len([at for at in waits if at is not None])
    world.rate = Rate(0.1)
    world.environment().take(in_line=False)
    assert (seen(world).generation, seen(world).interval_us) == (2, 10_000_000)


@pytest.mark.failure_mode("F634")
@pytest.mark.parametrize(("former", "later"), [(Rate(0.2), Rate(20)), (Rate(20), Rate(1, burst=3))])
def test_environments_that_are_replaced_one_after_the_other_keep_the_rate(former: Rate, later: Rate) -> None:
    """With clocks that differ, pauses and deaths. At most the faster rate, and after the change the later one."""
    world = RateWorld(former, 300, 5, work_ms=200, later=later, changed_ms=10_000, arrival_ms=60_000).run()
    assert len(world.started) == 300
    world.rate = max(former, later, key=lambda rate: rate.per_second)
    check_windows(world, seconds=(1, 10, 60))
    replaced = BEGIN_MS + world.changed_ms + world.environments * 1_000 + 10_000
    world.rate, world.starts = later, [at for at in world.starts if at > replaced]
    check_windows(world, seconds=(1, 10, 60))


def seen(world: RateWorld) -> StartTimes:
    item = world.store.items[world.key.pk, world.key.sk]
    return StartTimes(*(int(item.get(name, {"N": "0"})["N"]) for name in StartTimes._fields))
