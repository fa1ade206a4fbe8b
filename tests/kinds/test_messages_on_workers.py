"""Messages with a key on workers outside of Lambda: two guards on one ledger, the lock of the key and the heartbeat."""

import json
from typing import Any

import pytest

from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.row import RowKey, Status
from tests.kinds.cells import HOLD_SECONDS, KEY, Cell, Process
from tests.known import known
from tests.unit.support import SECOND

LEASE_SECONDS = HOLD_SECONDS + 120
LOCK = RowKey(f"messages:local/{KEY}", "local@lock")


def cell_of(name: str = "messages", **options: Any) -> Cell:
    return Cell(name, "inline", "worker", **options)


def holds(cell: Cell, identity: str) -> bool:
    """True if the row of this message holds the key."""
    item = LedgerTable(cell.dynamodb, "ledger").get_items([LOCK]).get(LOCK, {})  # type: ignore[arg-type]
    return (item.get("holder"), item.get("holder_fence")) == (f"local@v#{identity}", cell.known(identity).fence)


def beats(cell: Cell, process: Process, number: int) -> None:
    """Let time pass while the heartbeat of the worker beats."""
    assert process.host is not None
    for _ in range(number):
        cell.clock.advance(HOLD_SECONDS * SECOND // 3)
        process.host.heartbeat.beat()


def test_a_message_that_runs_for_longer_than_a_lease_keeps_its_row_and_its_key() -> None:
    """A message of the same key waits at another worker, and so does a message that comes again."""
    cell = cell_of()
    first, other = cell.process, cell.start()

    def work(_: Any) -> None:
        cell.inside = lambda _: None
        cell.submit("2")
        for _turn in range(20):
            beats(cell, first, 1)
            cell.turn(other)
        assert cell.begun == 1
        assert cell.known().lease_until == cell.clock() + LEASE_SECONDS * SECOND
        assert holds(cell, "1")

    cell.inside = work
    cell.submit("1")
    cell.turn(first)
    assert not holds(cell, "1")
    cell.run()
    assert [given.identity for given in cell.given] == ["1", "2"]
    assert cell.calls[0].fence < cell.calls[1].fence


@pytest.mark.parametrize("dies_on", ["1", "2"])
def test_the_key_of_a_worker_that_dies_is_free_after_one_lease(dies_on: str) -> None:
    """And not before. The row of the dead worker does not free it earlier."""
    cell = cell_of()
    begun: list[int] = []

    def work(message: Any) -> None:
        begun.append(cell.clock())
        if message.identity == dies_on and len(begun) == int(dies_on):
            cell.die()

    cell.inside = work
    cell.submit("1")
    cell.submit("2")
    cell.run()
    assert {cell.known("1").status, cell.known("2").status} == {Status.PROCESSED}
    assert len(cell.calls) == 3
    died = int(dies_on) - 1
    assert begun[died + 1] - begun[died] >= LEASE_SECONDS * SECOND
    fences = [call.fence for call in cell.calls]
    assert fences == sorted(set(fences))


def test_a_heartbeat_forgets_a_claim_when_its_attempt_is_over() -> None:
    """However it ended. It must not extend the lease of a message that waits."""
    cell = cell_of(answers=[{"commit": "id"}, {"fail": "x"}, {"notYet": "x"}, {"unprocessable": "x"}])
    host = known(cell.process.host)
    held: list[int] = []
    cell.inside = lambda _: held.append(len(host.heartbeat._claims))
    for event in "1234":
        cell.submit(event)
    cell.turn()
    assert held == [1, 1, 1, 1]
    assert not host.heartbeat._claims
    assert not holds(cell, "1")


def test_the_messages_of_a_group_keep_their_order() -> None:
    """Messages behind a failed one return with it, and another group goes on."""
    cell = cell_of("FIFO messages")

    def record(group: str, event: str) -> dict[str, Any]:
        return {
            "messageId": event,
            "receiptHandle": event,
            "body": json.dumps({"order": group, "event": event}),
            "attributes": {"MessageGroupId": group, "ApproximateReceiveCount": "1"},
        }

    cell.answers = [{"fail": "x"}]
    worker = known(cell.process.poller)
    response = cell.process.consumer.handle({"Records": [record("g", "1"), record("g", "2"), record("h", "3")]}, worker)
    assert [one["itemIdentifier"] for one in response["batchItemFailures"]] == ["1", "2"]
    assert [given.identity for given in cell.given] == ["1", "3"]
