"""Stops of operations that run, and of redrives whose messages name no rejection: SQS moved them."""

from typing import Any

import pytest

from intake_ledger_testing.memory_sqs import DeadLetter
from tests.kinds.cells import FORMS, Cell
from tests.unit.support import DAY, HOUR

NEVER = {"unprocessable": "no invoice"}
KEYS = [f"in/{number:02d}/manifest.json" for number in range(13)]
"""More than two batches of a queue take."""


@pytest.mark.failure_mode("F434")
def test_messages_without_a_rejection_go_back_although_they_are_claimed_in_groups() -> None:
    """New keys are claimed together, before any message is handled."""
    cell = Cell("objects")
    for key in ("in/0", "in/1", "in/2"):
        cell.submit_key(key)
    cell.run()
    assert len(cell.calls) == 3
    for key in ("in/3", "in/4", "in/5"):
        cell.submit_key(key)
    letters = [DeadLetter(one.body) for one in cell.sqs.messages]
    cell.sqs.purge()
    cell.sqs.dead_letters = list(letters)
    cell.redrive()
    cell.stop()
    cell.run()
    assert (len(cell.calls), cell.sqs.dead_letters) == (3, letters)
    cell.redrive()
    cell.run()
    assert len(cell.calls) == 6


def running(name: str, runner: str, command: str, *, host: str = "lambda", per_call: int = 1) -> Cell:
    """An operation about `KEYS` whose messages are sent, and none is handled."""
    cell = Cell(name, runner, host, per_call=per_call)
    cell.answers = [NEVER for _ in KEYS] if command == "redrive" else []
    for key in KEYS:
        cell.submit_key(key)
    cell.run()
    assert cell.begun == len(KEYS)
    cell.redrive() if command == "redrive" else cell.reprocess(keys=KEYS)
    return cell


CELLS = [
    *((name, "inline", "redrive", {}) for name in FORMS),
    *((name, "inline", "reprocess", {}) for name in FORMS if FORMS[name].kind != "messages"),
    *((name, "machine", "redrive", {}) for name in ("objects", "sets", "messages")),
    ("objects", "durable", "reprocess", {}),
    ("objects", "remote", "reprocess", {}),
    ("objects", "inline", "reprocess", {"host": "worker"}),
    ("objects", "inline", "reprocess", {"per_call": 4}),
    ("messages", "inline", "redrive", {"per_call": 4}),
]


@pytest.mark.failure_mode("F640")
@pytest.mark.parametrize(("name", "runner", "command", "options"), CELLS)
def test_a_running_operation_is_stopped_at_each_point(
    name: str, runner: str, command: str, options: dict[str, Any]
) -> None:
    """No message is claimed after the batch in which the stop is written, whatever the consumer has read before."""
    for point in range(len(KEYS)):
        cell = running(name, runner, command, **options)
        begun, stopped = cell.begun, list[int]()

        def write(
            _: object = None, *, cell: Cell = cell, point: int = begun + point, stopped: list[int] = stopped
        ) -> None:
            if cell.begun >= point and not stopped:
                stopped.append(1)
                cell.stop()

        cell.inside = cell.on_start = write
        if point == 0:
            write()
        while not stopped:
            assert cell.turn()
        at_stop = cell.begun
        cell.run()
        served, withdrawn = cell.begun - begun, len(KEYS) - (cell.begun - begun)
        assert cell.begun == at_stop, point
        assert max(point, 1) <= max(served, 1) <= point + 10
        assert cell.source_messages == 0
        assert len(cell.sqs.dead_letters) == (withdrawn if command == "redrive" else 0)
        cell.clock.advance(DAY)
        assert cell.check_requests().resent == 0
        cell.run()
        assert cell.begun == at_stop


@pytest.mark.failure_mode("F640")
def test_a_stop_is_read_once_per_batch_and_only_for_operations() -> None:
    cell = Cell("objects")
    reads, get = list[str](), cell.dynamodb.get_item

    def noted(**request: Any) -> Any:
        if request["Key"]["sk"]["S"].startswith("stop#"):
            reads.append(request["Key"]["sk"]["S"])
        return get(**request)

    cell.dynamodb.get_item = noted  # type: ignore[method-assign]
    for key in KEYS:
        cell.submit_key(key)
    cell.run()
    assert reads == []
    cell.reprocess(keys=KEYS)
    turns = 0
    while cell.turn():
        turns += 1
    assert reads == [f"stop#{cell.operation}"] * turns
    cell.clock.advance(HOUR)
