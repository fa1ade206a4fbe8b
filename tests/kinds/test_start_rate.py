"""A rate of starts: which attempts take a start, and executions of which no worker knows whether they have begun."""

import json

import pytest

from cdk_intake_ledger.testing import LocalPipeline
from intake_ledger.ledger.starts import Starts
from tests.kinds.cells import HOSTS, KEY, LEASE_SECONDS, RUNNERS, Cell
from tests.unit.support import SECOND


@pytest.mark.failure_mode("F515")
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("kind", ["objects", "every version", "messages", "sets"])
def test_a_repeated_start_that_waits_keeps_its_fence(kind: str, host: str) -> None:
    """A worker pauses before it starts its execution, and goes on while another one waits to start the same one."""
    cell = Cell(kind, "machine", host, max_rate=1 / 60)

    seen: list[tuple[int, str | None, int]] = []

    def look() -> None:
        row = cell.known()
        seen.append((row.fence, row.reason_code, len(cell.machine.executions)))

    def pause() -> None:
        cell.on_start, paused = lambda: None, cell.process
        look()
        cell.clock.advance(2 * LEASE_SECONDS * SECOND)
        cell.process = cell.start()
        cell.use_up(3_600)
        cell.turn()
        look()
        cell.process = paused

    cell.on_start = pause
    cell.submit()
    cell.run()
    fence = seen[0][0]
    assert seen == [(fence, None, 0), (fence, "start_refused", 0)]
    assert len(cell.machine.executions) == len(cell.calls) == 1
    assert cell.calls[0].attempt == 1
    assert cell.outcomes["Committed"] == 1


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each request for a start got one."""
    answers: list[bool] = []
    take = Starts.take

    def counted(starts: Starts, *, in_line: bool) -> int | None:
        at = take(starts, in_line=in_line)
        answers.append(at is None)
        return at

    monkeypatch.setattr(Starts, "take", counted)
    return answers


@pytest.mark.failure_mode("F516")
@pytest.mark.parametrize("runner", RUNNERS)
def test_a_set_that_is_not_complete_takes_no_start(runner: str, taken: list[bool]) -> None:
    """Each part wakes it. The starts are for the sets that can be processed."""
    cell = Cell("sets", runner, max_rate=1)
    cell.put_part(KEY, json.dumps([f"/a/{number}" for number in range(4)]))
    for number in range(3):
        cell.put_part(f"a/{number}")
        cell.run(hours=0.1)
    assert taken == []
    cell.put_part("a/3")
    cell.run()
    assert (len(cell.calls), taken) == (1, [True])


@pytest.mark.failure_mode("F516")
def test_a_key_whose_group_is_held_takes_no_start(taken: list[bool]) -> None:
    """Its retries would use up the starts of all groups."""

    def process(_: object) -> None:
        if len(pipeline.calls) == 1:
            pipeline.turn()

    pipeline = LocalPipeline(process, exclusive_by="{folder}/", max_rate=1)
    for number in range(12):
        pipeline.put(f"a/{number}", "1")
    pipeline.run()
    assert len(pipeline.calls) == 12
    assert taken.count(True) == 12
