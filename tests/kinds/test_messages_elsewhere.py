"""Messages with a key whose processor is a state machine: the key is held for hours, by a row and not by a lease."""

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from cdk_intake_ledger.testing import LambdaContext, LocalMessages, LocalRunner
from intake_ledger.messages.settings import MessageSettings
from intake_ledger.protocol.row import Status
from intake_ledger.protocol.settings import HOLD_SHARE, environment_of, variable_of
from intake_ledger_testing.memory_step_functions import MemoryExecution
from tests.kinds.cells import HOSTS, KEY, Cell
from tests.settings import CONSUMER
from tests.unit.support import HOUR, MINUTE, SECOND

on_each_host = pytest.mark.parametrize("host", HOSTS)


@pytest.fixture
def cell(host: str) -> Cell:
    return Cell("messages", "machine", host)


def executions(cell: Cell) -> list[MemoryExecution]:
    return list(cell.machine.executions.values())


def identities(cell: Cell) -> list[str]:
    return [one.given["identity"] for one in executions(cell)]


def once(cell: Cell, action: object) -> None:
    """Run the action before the next StartExecution only."""

    def first() -> None:
        cell.on_start = lambda: None
        action()  # type: ignore[operator]

    cell.on_start = first


@on_each_host
class TestMessages:
    def test_a_message_of_the_key_waits_for_hours(self, cell: Cell) -> None:
        """Longer than each lease, and at each worker."""
        cell.submit("1")
        cell.turn()
        cell.submit("2")
        cell.run(hours=11, minutes=600)
        assert identities(cell) == ["1", "2"]
        cell.run(minutes=600)
        assert cell.most_running == 1
        assert cell.known("1").status is cell.known("2").status is Status.PROCESSED
        assert cell.calls[0].fence < cell.calls[1].fence
        assert not cell.sqs.messages

    def test_a_worker_that_dies_between_its_row_and_its_lock_leaves_both_messages_a_way(self, cell: Cell) -> None:
        """The other message may have the key first. No execution was started without the lock."""
        get = cell.dynamodb.batch_get_item

        def die(**_: Any) -> Any:
            cell.dynamodb.batch_get_item = get  # type: ignore[method-assign]
            cell.die()

        cell.submit("1")
        cell.dynamodb.batch_get_item = die  # type: ignore[method-assign]
        cell.turn()
        assert cell.known("1").status is Status.PROCESSING
        cell.submit("2")
        cell.run()
        assert sorted(identities(cell)) == ["1", "2"]
        assert cell.most_running == 1
        assert not cell.sqs.messages

    def test_a_worker_that_pauses_before_its_start_finds_its_fence_used(self, cell: Cell) -> None:
        """Others have ended its message and another one of the key meanwhile."""

        def pause() -> None:
            cell.submit("2")
            for _ in range(40):
                cell.clock.advance(10 * MINUTE)
                while cell.turn(cell.start()):
                    pass
                for one in cell.running():
                    cell.end(one)

        once(cell, pause)
        cell.submit("1")
        cell.turn()
        cell.run()
        assert identities(cell) == ["1", "2"]
        assert cell.most_running == 1
        assert not cell.sqs.messages

    def test_a_failed_execution_frees_the_key_until_its_next_attempt(self, cell: Cell) -> None:
        cell.answers = [{"fail": "x"}]
        cell.submit("1")
        cell.turn()
        cell.submit("2")
        cell.run(minutes=30)
        assert sorted(identities(cell)) == ["1", "1", "2"]
        assert cell.most_running == 1
        fences = [one.given["fence"] for one in executions(cell)]
        assert fences == sorted(set(fences))
        assert cell.known("1").status is cell.known("2").status is Status.PROCESSED

    def test_an_end_that_is_not_written_keeps_the_key(self, cell: Cell) -> None:
        """The effect is there, and its commit needs the key. The next poll writes it."""
        cell.submit("1")
        cell.turn()
        [first] = executions(cell)
        cell.end(first)
        transact = cell.dynamodb.transact_write_items

        def unanswered(**_: Any) -> Any:
            raise ClientError({"Error": {"Code": "InternalServerError"}}, "TransactWriteItems")

        cell.dynamodb.transact_write_items = unanswered  # type: ignore[method-assign]
        cell.clock.advance(10 * MINUTE)
        cell.turn()
        cell.dynamodb.transact_write_items = transact  # type: ignore[method-assign]
        assert cell.known("1").status is Status.PROCESSING
        cell.submit("2")
        cell.turn()
        assert identities(cell) == ["1"]
        cell.run()
        assert cell.known("1").status is cell.known("2").status is Status.PROCESSED
        assert not cell.sqs.messages

    @pytest.mark.failure_mode("F672")
    def test_a_purged_message_of_an_execution_holds_its_key_until_it_comes_again(self, cell: Cell) -> None:
        """The execution has ended, and nobody asks. The check of rows names the key."""
        cell.submit("1")
        cell.turn()
        [first] = executions(cell)
        cell.lose()
        cell.end(first)
        cell.submit("2")
        cell.run(hours=12)
        assert identities(cell) == ["1"]
        assert cell.check() == [KEY]
        cell.submit("1")
        cell.run()
        assert identities(cell) == ["1", "2"]
        assert cell.known("1").status is cell.known("2").status is Status.PROCESSED

    def test_a_repeated_start_is_the_same_request(self, cell: Cell) -> None:
        """The fence of the lock is in it, and the lock keeps it."""
        cell.submit("1")
        inputs: list[str] = []
        cell.machine.before = [ClientError({"Error": {"Code": "InternalServerError"}}, "StartExecution")]
        start = cell.machine.start_execution

        def noted(**request: str) -> object:
            inputs.append(request["input"])
            return start(**request)

        cell.machine.start_execution = noted
        cell.turn()
        assert not executions(cell)
        cell.clock.advance(HOUR)
        cell.run()
        assert len(inputs) == 2
        assert len(set(inputs)) == 1
        assert len(executions(cell)) == 1

    def test_two_messages_that_find_the_key_free_do_not_both_take_it(self, cell: Cell) -> None:
        """The second one takes it between the read and the write of the first one."""
        cell.submit("0")
        cell.run()
        cell.submit("1")
        cell.submit("2")
        mark, once_only = cell.dynamodb.update_item, [True]

        def raced(**request: Any) -> Any:
            if "#holder" in request["UpdateExpression"] and once_only.pop() if once_only else False:
                cell.turn(cell.start())
            return mark(**request)

        cell.dynamodb.update_item = raced  # type: ignore[method-assign]
        first = cell.sqs.receive(1, lambda visible: visible)
        cell.process.consumer.handle({"Records": first}, LambdaContext(130, clock=lambda: cell.clock() / 1000))
        assert cell.most_running <= 1
        assert len(cell.running()) == 1
        cell.run()
        assert sorted(identities(cell)) == ["0", "1", "2"]
        assert cell.most_running == 1


@on_each_host
def test_a_redriven_execution_without_its_key_has_an_end(host: str) -> None:
    """Another message of the key had its effect meanwhile. The first one runs again, with a higher fence."""
    cell = Cell("messages", "machine", host)
    cell.submit("1")
    cell.turn()
    [one] = cell.running()
    cell.end(one, {"fail": "x"})
    cell.clock.advance(10 * MINUTE)
    cell.turn()
    cell.submit("2")
    cell.turn()
    [two] = cell.running()
    cell.end(two)
    cell.machine.redrive(one.name)
    cell.run(minutes=30)
    assert cell.known("1").status is cell.known("2").status is Status.PROCESSED
    assert not cell.sqs.messages
    assert cell.calls[-1].fence == max(call.fence for call in cell.calls)


@on_each_host
class TestTheQueueDeletesAMessage:
    """No audit finds it again. The longest hold of a message tells the retention. The queue refuses delayed copies."""

    KEPT = round(CONSUMER.max_hold_seconds / HOLD_SHARE) * SECOND

    def send(self, cell: Cell, *events: str) -> None:
        """Send these messages. The queue takes no copies of them."""
        cell.sqs.queue_bytes = 10
        for event in events:
            cell.submit(event)

    def run(self, cell: Cell, *, minutes: int, since: int) -> None:
        """Handle messages until the queue deletes them. An execution takes these minutes."""
        due: dict[str, int] = {}
        while cell.sqs.messages and cell.clock() < since + self.KEPT:
            while cell.turn():
                pass
            times = [due.setdefault(one.name, cell.clock() + minutes * MINUTE) for one in cell.running()]
            times.append(cell.sqs.next_visible_at() or 0)
            cell.clock.now = max(cell.clock.now, min(times))
            for one in cell.running():
                if due[one.name] <= cell.clock():
                    cell.end(one)
        assert not cell.sqs.messages, "deleted without an end"

    def redrive(self, cell: Cell, body: str) -> None:
        cell.sqs.send(body)
        cell.run()

    @pytest.mark.failure_mode("F321")
    def test_a_message_that_waits_for_its_key_is_copied_before(self, cell: Cell) -> None:
        """Executions of other messages of the key take longer than the queue keeps it."""
        events, start = [str(number) for number in range(10)], cell.clock()
        self.send(cell, *events)
        self.run(cell, minutes=700, since=start)
        rows = [cell.row(event) for event in events]
        done = sum(row is not None and row.status is Status.PROCESSED for row in rows)
        assert done < len(events)
        assert done + len(cell.sqs.dead_letters) == len(events)
        assert all(one.reason for one in cell.sqs.dead_letters)
        assert cell.most_running == 1

    @pytest.mark.failure_mode("F321")
    def test_a_message_whose_execution_runs_is_copied_before(self, cell: Cell) -> None:
        """Its copy records the end."""
        start = cell.clock()
        self.send(cell, "1")
        cell.clock.advance(round(self.KEPT * 0.94))
        self.run(cell, minutes=600, since=start)
        assert cell.known("1").status is Status.PROCESSING
        [copy] = cell.sqs.dead_letters
        self.redrive(cell, copy.body)
        assert cell.known("1").status is Status.PROCESSED
        assert len(executions(cell)) == 1

    @pytest.mark.failure_mode("F321")
    def test_a_message_whose_start_is_refused_is_copied_before(self, cell: Cell) -> None:
        def refuse() -> None:
            raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "StartExecution")

        cell.on_start, start = refuse, cell.clock()
        self.send(cell, "1")
        self.run(cell, minutes=1, since=start)
        [copy] = cell.sqs.dead_letters
        cell.on_start = lambda: None
        self.redrive(cell, copy.body)
        assert cell.known("1").status is Status.PROCESSED

    @pytest.mark.failure_mode("F332")
    def test_delayed_copies_outlive_it(self, cell: Cell) -> None:
        """Executions of other messages of the key take longer than the queue keeps a message."""
        events, start = [str(number) for number in range(10)], cell.clock()
        for event in events:
            cell.submit(event)
        cell.run(minutes=700)
        assert {cell.known(event).status for event in events} == {Status.PROCESSED}
        assert cell.clock() - start > self.KEPT
        assert cell.most_running == 1
        assert not cell.sqs.dead_letters
        assert not cell.sqs.expired


@pytest.mark.parametrize("runner", [LocalRunner.STATE_MACHINE, LocalRunner.DURABLE_FUNCTION])
class TestOtherContent:
    """Two messages have one identity, and their fingerprints differ. The first one has made the claim."""

    REJECTED = '{"intakeLedger": {"kind": "body unknown", "key": "a", "identity": "1"}}'

    def intake(self, runner: LocalRunner, answer: dict[str, Any]) -> LocalMessages:
        self.amounts: list[int] = []

        def work(given: dict[str, Any]) -> dict[str, Any]:
            self.amounts.append(given["body"]["amount"])
            return answer

        return LocalMessages(work, key="k", identity="i", fingerprint="amount", runner=runner)

    def body(self, amount: int) -> dict[str, Any]:
        return {"k": "a", "i": 1, "amount": amount}

    def only(self, intake: LocalMessages, name: str) -> None:
        """Deliver this message, and no other one."""
        for one in intake._sqs.messages:
            one.visible_at = intake.now if one.id == name else intake.now + HOUR
        intake.turn()

    def letters(self, intake: LocalMessages) -> list[tuple[Any, Any]]:
        return [(json.loads(one.body), one.attributes["reason_code"]) for one in intake.dead_letters]

    def start(self, runner: LocalRunner, answer: dict[str, Any]) -> LocalMessages:
        """The first message has started its execution, and a second one with other content comes."""
        intake = self.intake(runner, answer)
        intake.send(self.body(10))
        intake.turn()
        intake.send(self.body(99))
        return intake

    @pytest.mark.failure_mode("F621")
    @pytest.mark.parametrize("purged", [False, True])
    def test_another_message_records_a_success_and_is_dead_lettered(self, runner: LocalRunner, purged: bool) -> None:
        intake = self.start(runner, {"commit": "done"})
        if purged:
            del intake._sqs.messages[0]
        self.only(intake, "message-2")
        assert intake.row("a", 1).status is Status.PROCESSING  # type: ignore[union-attr]
        intake.end(intake.running()[0])
        self.only(intake, "message-2")
        assert intake.row("a", 1).status is Status.PROCESSED  # type: ignore[union-attr]
        intake.run()
        assert self.amounts == [10]
        assert self.letters(intake) == [(self.body(99), "identity_collides")]

    @pytest.mark.failure_mode("F621")
    @pytest.mark.parametrize("purged", [False, True])
    def test_another_message_records_a_rejection_without_its_body(self, runner: LocalRunner, purged: bool) -> None:
        """The body follows, if its message is still there."""
        intake = self.start(runner, {"unprocessable": "no invoice"})
        if purged:
            del intake._sqs.messages[0]
        intake.end(intake.running()[0])
        self.only(intake, "message-2")
        intake.run()
        letters = self.letters(intake)
        assert letters[:2] == [(json.loads(self.REJECTED), "unprocessable"), (self.body(99), "identity_collides")]
        assert letters[2:] == ([] if purged else [(self.body(10), "unprocessable")])
        row = intake.row("a", 1)
        assert row is not None
        assert row.status is (Status.FAILED if purged else Status.REJECTED)
        assert "no invoice" in str(row.reason)
        assert self.amounts == [10]

    def test_another_message_records_a_failure(self, runner: LocalRunner) -> None:
        intake = self.start(runner, {"fail": "out"})
        [first] = intake.running()
        intake.executions.end(first.name, "FAILED", error="Out")
        self.only(intake, "message-2")
        assert intake.row("a", 1).status is Status.FAILED  # type: ignore[union-attr]
        assert self.letters(intake) == [(self.body(99), "identity_collides")]
        intake.run()
        assert [one.given["body"]["amount"] for one in intake.executions.executions.values()] == [10, 10]

    @pytest.mark.failure_mode("F621")
    def test_another_message_never_starts_the_execution(self, runner: LocalRunner) -> None:
        """The worker of the first one died before it."""
        intake = self.intake(runner, {"commit": "done"})
        intake.send(self.body(10))
        intake.kill(3)
        intake.turn()
        intake.clock.advance(HOUR)
        intake.send(self.body(99))
        self.only(intake, "message-2")
        assert not intake.running()
        assert self.letters(intake) == [(self.body(99), "identity_collides")]
        intake.run()
        assert self.amounts == [10]
        assert self.letters(intake) == [(self.body(99), "identity_collides")]

    def test_a_row_that_was_not_started_and_whose_message_is_gone_is_found(self, runner: LocalRunner) -> None:
        intake = self.intake(runner, {"commit": "done"})
        intake.send(self.body(10))
        intake.kill(3)
        intake.turn()
        intake._sqs.purge()
        intake.clock.advance(24 * HOUR)
        intake.send(self.body(99))
        intake.turn()
        assert not intake.executions.executions
        assert self.letters(intake) == [(self.body(99), "identity_collides")]
        assert intake.check_rows() == ["a"]

    def test_a_copy_without_its_body_is_never_processed(self, runner: LocalRunner) -> None:
        """Also not by an intake whose expressions fit each message."""
        seen: list[Any] = []
        intake = LocalMessages(seen.append, key="'all'", identity="to_string(@)")
        intake.send(json.loads(self.REJECTED))
        intake.run()
        assert not seen
        [letter] = intake.dead_letters
        assert "message 1 of key a is not known" in letter.reason

    @pytest.mark.parametrize("fingerprint", ["", "[amount]"])
    def test_another_expression_is_no_other_content(self, runner: LocalRunner, fingerprint: str) -> None:
        """A deployment of it between the claim and the start."""
        intake = self.intake(runner, {"commit": "done"})
        intake.send(self.body(10))
        intake.kill(3)
        intake.turn()
        intake.clock.advance(HOUR)
        del intake._environment[variable_of(MessageSettings, "fingerprint")]
        intake._environment |= environment_of(MessageSettings, fingerprint=fingerprint or None)
        intake.run()
        assert self.amounts == [10]
        assert not intake.dead_letters
