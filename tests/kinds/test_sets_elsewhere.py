"""Sets of files whose processor is a state machine: what no kind and no runner has alone."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from intake_ledger.events.parser import own_message
from intake_ledger.protocol.change import Origin
from intake_ledger.protocol.row import Status
from intake_ledger_testing.memory_step_functions import MemoryExecution
from intake_ledger_testing.outcome_counter import OutcomeCounter
from tests.kinds.cells import HOSTS, KEY, LEASE_SECONDS, Cell
from tests.unit.support import HOUR, MINUTE, SECOND

on_each_host = pytest.mark.parametrize("host", HOSTS)


@pytest.fixture
def cell(host: str) -> Cell:
    return Cell("sets", "machine", host)


def executions(cell: Cell) -> list[MemoryExecution]:
    return list(cell.machine.executions.values())


def parts_of(cell: Cell, execution: MemoryExecution) -> dict[str, str]:
    """The versions of the parts, as a distributed map would read them. A list that is not there raises KeyError."""
    version = execution.given["parts"]["key"].removesuffix(".json")
    return {one["key"]: one["versionId"] for one in json.loads(cell.lists[version])}


def present(cell: Cell, *keys: str) -> dict[str, str]:
    return {key: str(cell.s3.current(key).version_id) for key in keys}  # type: ignore[union-attr]


def once(cell: Cell, action: Callable[[], object], name: str = "on_start") -> None:
    """Run the action before the next request of this name only."""

    def first() -> None:
        setattr(cell, name, lambda: None)
        action()

    setattr(cell, name, first)


@on_each_host
class TestSets:
    def test_an_execution_gets_the_place_of_the_parts_in_their_committed_versions(self, cell: Cell) -> None:
        """Not the parts themselves: ten thousand of them do not fit into an input."""
        cell.submit()
        cell.turn()
        [one] = executions(cell)
        assert parts_of(cell, one) == present(cell, "a/1", "a/2")
        assert one.given["versionId"] == cell.known().version_id
        assert one.given["fenceText"] == str(cell.known().fence)

    def test_a_set_that_changes_while_its_execution_runs_is_processed_again(self, cell: Cell) -> None:
        """After it, in the new version. The wake of the part does not wait, and asks Step Functions nothing."""
        cell.submit()
        cell.turn()
        before = present(cell, "a/1", "a/2")
        cell.clock.advance(10 * SECOND)
        asked = len(cell.machine.requests)
        cell.put_part("a/1", "2")
        assert cell.turn() == 1
        assert len(cell.machine.requests) == asked
        assert len(cell.sqs.messages) == 1, "the message of the claim"
        cell.run()
        assert [parts_of(cell, one) for one in executions(cell)] == [before, present(cell, "a/1", "a/2")]
        assert cell.most_running == 1
        assert cell.outcomes["Committed"] == 2
        assert not cell.sqs.messages

    @pytest.mark.parametrize("lost", [True, False])
    def test_the_end_is_seen_by_the_poll_if_the_event_is_lost(self, cell: Cell, lost: bool) -> None:
        """Also if the set has changed, and the event's message saw the end first."""
        cell.lost_events = lost
        cell.submit()
        cell.turn()
        cell.clock.advance(MINUTE)
        cell.put_part("a/2", "2")
        cell.run(minutes=300)
        assert len(executions(cell)) == 2
        assert cell.known().committed_state == f"v#{executions(cell)[-1].given['versionId']}"
        assert not cell.sqs.messages

    def test_a_claim_of_an_incomplete_set_starts_nothing_after_its_worker_died(self, cell: Cell) -> None:
        """No worker can have started it."""
        reader = cell.process.consumer._kind.reader  # type: ignore[attr-defined]
        contents = reader.contents
        reader.contents = lambda *listing, whole, **row: cell.die() if whole else contents(*listing, whole=whole, **row)
        cell.put_part(KEY, '["/a/1"]')
        cell.turn()
        assert cell.known().status is Status.PROCESSING
        cell.run(hours=2)
        assert not executions(cell)
        assert cell.known().reason_code == "not_yet"
        cell.put_part("a/1")
        cell.run()
        assert cell.known().status is Status.PROCESSED

    @pytest.mark.failure_mode("F620")
    @pytest.mark.parametrize("refused", ["fail", "wait"])
    def test_a_claim_that_was_never_requested_is_closed_when_its_set_changes(self, cell: Cell, refused: str) -> None:
        """Its worker has died, or the row has not taken the end of its attempt."""
        reader, ledger = cell.process.consumer._kind.reader, cell.process.services.ledger  # type: ignore[attr-defined]
        contents = reader.contents
        if refused == "wait":
            ledger.wait = lambda *_, **__: cell.die()  # type: ignore[method-assign]
        else:
            reader.contents = lambda *a, whole, **row: cell.die() if whole else contents(*a, whole=whole, **row)
        cell.put_part(KEY, '["/a/1"]')
        cell.turn()
        assert cell.known().status is Status.PROCESSING
        cell.clock.advance(HOUR)
        cell.put_part("a/1")
        cell.run(hours=1)
        assert not cell.sqs.messages
        assert [parts_of(cell, one) for one in executions(cell)] == [present(cell, "a/1")]

    @pytest.mark.failure_mode("F620")
    def test_a_manifest_that_s3_refuses_is_rejected_although_its_worker_died(self, cell: Cell) -> None:
        """No execution of it was ever requested, so each further refusal ends an attempt."""
        opened = cell.s3.get_object
        ledger = cell.process.services.ledger
        ledger.fail = lambda *_, **__: cell.die()  # type: ignore[method-assign]

        def refuse(**request: Any) -> Any:
            if request["Key"] != KEY:
                return opened(**request)
            status: Any = {"HTTPStatusCode": 403}
            raise ClientError({"Error": {"Code": "AccessDenied"}, "ResponseMetadata": status}, "GetObject")

        cell.s3.get_object = refuse  # type: ignore[method-assign]
        cell.put_part(KEY, '["/a/1"]')
        cell.turn()
        assert cell.known().status is Status.PROCESSING
        cell.run()
        assert cell.known().status is Status.REJECTED
        assert cell.known().reason_code == "s3_refused"
        assert len(cell.sqs.dead_letters) == 1

    def test_a_set_that_changes_before_its_list_is_stored_costs_one_execution(self, cell: Cell) -> None:
        """Its fence is used up by an execution that finds no list. No other way closes the fence to a paused worker."""
        once(cell, cell.die, "on_list")
        cell.submit()
        cell.turn()
        cell.put_part("a/1", "2")
        cell.clock.advance((LEASE_SECONDS + 60) * SECOND)
        while cell.turn():
            pass
        [lost] = cell.running()
        with pytest.raises(KeyError):
            parts_of(cell, lost)
        cell.end(lost, {"fail": "no list"})
        cell.run()
        assert parts_of(cell, executions(cell)[-1]) == present(cell, "a/1", "a/2")
        assert cell.known().status is Status.PROCESSED

    def test_a_set_without_its_manifest_is_settled_after_its_execution(self, cell: Cell) -> None:
        cell.submit()
        cell.turn()
        cell.s3.delete(KEY)
        cell.duplicate()
        cell.run()
        assert len(executions(cell)) == 1
        assert cell.verdicts["SETTLED"] == 1

    def test_a_set_whose_message_was_lost_is_continued_by_its_audit(self, cell: Cell) -> None:
        """Its wake is kept, because the lease has ended and no message polls."""
        cell.submit()
        cell.turn()
        cell.lost_events = True
        cell.sqs.messages.clear()
        cell.clock.advance(HOUR)
        cell.sqs.send(own_message(Origin.PART, cell.settings.bucket, KEY))
        cell.turn()
        assert len(cell.sqs.messages) == 1
        cell.run()
        assert cell.known().status is Status.PROCESSED
        assert len(executions(cell)) == 1

    def test_the_parts_of_a_waiting_set_ask_step_functions_nothing(self, cell: Cell) -> None:
        """Its claims never started an execution."""
        keys = [f"a/{number}" for number in range(20)]
        cell.put_part(KEY, json.dumps([f"/{key}" for key in keys]))
        cell.turn()
        for key in keys:
            cell.clock.advance(5 * SECOND)
            cell.put_part(key)
            while cell.turn():
                pass
        cell.run(hours=1)
        assert len(executions(cell)) == 1
        assert cell.machine.requests[0] == "StartExecution"
        assert len(cell.machine.requests) <= 8, "the polls of the three messages that wait"

    @pytest.mark.parametrize("code", ["AccessDenied", "SlowDown"])
    def test_a_list_that_cannot_be_stored_again_keeps_the_fence(
        self, cell: Cell, code: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A worker pauses before its start, and another one may not store the list. Only one of both starts work."""
        monkeypatch.setattr(OutcomeCounter, "log_error", lambda *_: None)

        def refuse() -> None:
            status: Any = {"HTTPStatusCode": 403 if code == "AccessDenied" else 503}
            raise ClientError({"Error": {"Code": code}, "ResponseMetadata": status}, "PutObject")

        def pause() -> None:
            other = cell.start()
            cell.clock.advance(2 * HOUR)
            once(cell, refuse, "on_list")
            for _ in range(30):
                while cell.turn(other):
                    pass
                cell.clock.advance(5 * MINUTE)

        once(cell, pause)
        cell.submit()
        cell.turn()
        assert cell.most_running == 1
        cell.run()
        assert cell.known().status is Status.PROCESSED
        assert cell.outcomes["Rejected"] == 0
