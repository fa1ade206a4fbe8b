"""The metric of long waits: each change that waits for long counts once, however often an attempt looks at it."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from cdk_intake_ledger.testing import LocalPipeline
from intake_ledger import NotYet, ObjectChange
from intake_ledger.consumer.ending import Stage, ending
from intake_ledger.ledger.ledger import Claim, Ledger
from intake_ledger.observability.powertools import PowertoolsTelemetry
from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.errors import GroupHeld
from intake_ledger.protocol.reasons import OutcomeKind, Reason
from intake_ledger.protocol.row import Row, RowKey, Status
from intake_ledger.protocol.settings import Reasons
from intake_ledger.sets.waiting import SetTelemetry
from intake_ledger_testing.outcome_counter import OutcomeCounter
from tests.unit.observability.test_telemetry import values
from tests.unit.support import HOUR, MINUTE, START, created, make_reason

MAX_WAIT = 30 * 3_600
ROW = Row(Status.PROCESSING, 1, version_id="v", waiting_since=START, updated_at=START + 2 * HOUR)


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Keys that waited for long, and how long, in milliseconds."""
    found: list[tuple[str, int]] = []

    def waits_long(_: object, claim: Claim) -> None:
        since = claim.row.waiting_since
        found.append((claim.change.key, 0 if since is None else claim.row.updated_at - since))

    monkeypatch.setattr(OutcomeCounter, "waits_long", waits_long)
    return found


def never(error: Callable[[str], Exception]) -> Callable[[ObjectChange], None]:
    def process(_: ObjectChange) -> None:
        raise error("not there")

    return process


@pytest.mark.failure_mode("F723")
@pytest.mark.parametrize(("in_group", "hours"), [(False, 15), (True, 3)])
def test_a_wait_counts_once_after_its_share_of_max_wait(
    long: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, in_group: bool, hours: int
) -> None:
    """Half of it for a prerequisite, a tenth for a group, long before the rejection."""
    claim = Ledger.claim

    def held(*arguments: Any, **options: Any) -> Any:
        answer = claim(*arguments, **options)
        return replace(answer, held=GroupHeld("not there")) if isinstance(answer, Claim) else answer

    if in_group:
        monkeypatch.setattr(Ledger, "claim", held)
    pipeline = LocalPipeline(never(NotYet), max_wait=MAX_WAIT)
    pipeline.put("a.csv", "1")
    pipeline.put("b.csv", "1")
    pipeline.run()
    assert len(pipeline.dead_letters) == 2
    assert sorted(key for key, _ in long) == ["a.csv", "b.csv"]
    for _, waited in long:
        assert hours * HOUR <= waited < hours * HOUR * 1.1


@pytest.mark.failure_mode("F723")
def test_each_change_in_a_long_line_of_a_rate_counts_once(long: list[tuple[str, int]]) -> None:
    """Before it waits, since its place is known. A tenth of `max_wait` is three hours, and one an hour may start."""
    pipeline = LocalPipeline(lambda _: None, max_wait=MAX_WAIT, max_rate=1 / 3_600)
    for number in range(9):
        pipeline.put(f"{number}.csv", "1")
    pipeline.run()
    assert 4 <= len(long) <= 6
    assert len({key for key, _ in long}) == len(long)
    assert {waited for _, waited in long} == {0}


def look(at: int, before: int | None) -> bool:
    """True if a look at a wait counts it, which comes this long after the first one. `before` is the look before."""
    settings = SimpleNamespace(max_wait_seconds=MAX_WAIT, alarm_after_seconds=0, reasons=Reasons.TYPES)
    facts: Any = SimpleNamespace(
        settings=settings, now=START + at, last_try_at=None, renews=True, stage=Stage.PROCESSING, given_up=False
    )
    state = State(StateKind.OBJECT, "v")
    seen = None if before is None else replace(ROW, status=Status.FAILED, updated_at=START + before)
    row = replace(ROW, waiting_since=START if seen else None)
    claim = Claim(RowKey("uploads/m", "latest"), created(state), state, row, seen, "why")
    return ending(claim, NotYet("not there", retry_in=900), facts).becomes_long


@pytest.mark.failure_mode("F723")
@pytest.mark.parametrize("late", [0, 1, 300])
def test_a_late_look_counts_and_an_early_one_does_not_count_again(late: int) -> None:
    """Looks come late after an outage, and early by a wake. A wait that may end soon is not long yet."""
    half = 15 * HOUR
    looks = [0, half - MINUTE, half + late * MINUTE, half + late * MINUTE + 1, half + late * MINUTE + HOUR]
    counted = [look(at, before) for before, at in pairwise([None, *looks]) if at is not None]
    assert counted == [False, False, True, False, False]


def test_a_short_wait_does_not_count(long: list[tuple[str, int]]) -> None:
    there_at: list[int] = []

    def process(_: ObjectChange) -> None:
        if pipeline.now < there_at[0]:
            raise NotYet("not there")

    pipeline = LocalPipeline(process, max_wait=MAX_WAIT)
    there_at.append(pipeline.now + 10 * HOUR)
    pipeline.put("a.csv", "1")
    pipeline.run()
    assert not long
    assert not pipeline.dead_letters


@pytest.mark.parametrize(
    ("make", "row", "told"),
    [
        (PowertoolsTelemetry, ROW, {"OldestWait": [2.0 * HOUR + MINUTE], "LongWaits": [1.0]}),
        (SetTelemetry, ROW, {"OldestWaitingSet": [2.0 * HOUR + MINUTE], "LongWaits": [1.0]}),
        (SetTelemetry, replace(ROW, version_id="moving-0"), {}),
        (PowertoolsTelemetry, replace(ROW, waiting_since=None), {"LongWaits": [1.0]}),
    ],
    ids=["a change", "a set", "uploads", "its first look"],
)
def test_each_look_writes_the_age_of_its_wait(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, make: Any, row: Row, told: dict[str, Any]
) -> None:
    """In the dimension of the pipeline only. The first look, and a folder that still gets uploads, have no age."""
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "IntakeLedger")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "loads")
    telemetry, state = make(), State(StateKind.OBJECT, row.version_id)
    claim = Claim(RowKey("uploads/m", "latest"), created(state), state, row, None, "why")
    reason: Reason = make_reason("not there")
    telemetry.ended(claim, OutcomeKind.WAITING, reason, duration_ms=MINUTE)
    telemetry.waits_long(claim)
    telemetry.flush()
    found = values(capsys)
    assert {name: found[name] for name in found if name in ("OldestWait", "OldestWaitingSet", "LongWaits")} == told
