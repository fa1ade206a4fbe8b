"""A person ends the work of an execution for good. The next message rejects the row, with its content."""

from typing import Any

import pytest

from cdk_intake_ledger.testing import LocalMessages, LocalPipeline, LocalRunner
from intake_ledger.ledger.conditions import ConditionFailed
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import end_work
from intake_ledger.protocol.reasons import Reason, ReasonCode
from intake_ledger.protocol.row import Ordering, Row, Status, row_key
from tests.unit.support import DAY, HOUR

KEY = "a"
REASON = Reason(ReasonCode.ENDED, "ended by ana: it waits for nobody")
RUNNERS = pytest.mark.parametrize("runner", [LocalRunner.STATE_MACHINE, LocalRunner.DURABLE_FUNCTION])
KINDS = pytest.mark.parametrize("kind", [Ordering.LATEST, Ordering.EVERY_VERSION, "messages"])


class Work:
    """A key whose execution was started, or whose worker has died before the start."""

    def __init__(self, kind: str, runner: LocalRunner, *, kill: int = 0, fingerprint: str = "") -> None:
        self.kind, self.answer = kind, dict[str, Any](commit="done")
        self.local: Any
        if kind == "messages":
            self.local = LocalMessages(
                lambda _: self.answer, key="k", identity="i", fingerprint=fingerprint, runner=runner
            )
            self.send("1")
        else:
            self.local = LocalPipeline(lambda _: self.answer, ordering=Ordering(kind), runner=runner)
            self.local.put(KEY, "1")
        if kill:
            self.local.kill(kill, after=True)
        self.local.turn()

    def send(self, identity: str) -> None:
        self.local.send({"k": KEY, "i": identity, "amount": 10})

    def row(self, identity: str = "1") -> Row:
        names = (KEY, identity) if self.kind == "messages" else (KEY, "version-1")
        row: Row | None = self.local.row(*names) if self.kind != Ordering.LATEST else self.local.row(KEY)
        assert row is not None
        return row

    def executions(self) -> list[Any]:
        return list(self.local.executions.executions.values())

    def end(self, *, row: Row | None = None, may_run: bool = True) -> None:
        """A person ends the work of the row."""
        settings, row = self.local._settings, row or self.row()
        ordering = Ordering.LATEST if self.kind == Ordering.LATEST else Ordering.EVERY_VERSION
        key = row_key(settings.pipeline, ordering, settings.bucket, KEY, row.identity)
        table = LedgerTable(self.local._dynamodb, settings.table)
        end_work(table, settings.pipeline, key, row, REASON, now=self.local.now, may_run=may_run)

    def abort(self, runner: LocalRunner) -> None:
        [one] = self.executions()
        self.local.executions.end(one.name, "ABORTED" if runner is LocalRunner.STATE_MACHINE else "STOPPED")


def assert_rejected(work: Work) -> None:
    """The row and its copy say why. The copy has the content."""
    row = work.row()
    assert (row.status, row.reason_code, row.reason) == (Status.REJECTED, "ended", REASON.text)
    assert row.pending_reason is None
    [letter] = work.local.dead_letters
    assert letter.attributes["reason_code"] == "ended"
    assert "body unknown" not in letter.body


@pytest.mark.failure_mode("F674")
@RUNNERS
@KINDS
@pytest.mark.parametrize("recorded", [False, True])
def test_an_aborted_execution_is_ended_for_good(kind: str, runner: LocalRunner, recorded: bool) -> None:
    """Before or after its abort was recorded as a failure. Without the wish, another execution follows."""
    work = Work(kind, runner)
    work.abort(runner)
    if recorded:
        for _ in range(3):
            work.local.clock.advance(DAY)
            if work.row().status is Status.PROCESSING:
                work.local.turn()
        assert work.row().status is Status.FAILED
    work.end()
    work.local.run()
    assert_rejected(work)
    assert len(work.executions()) == 1
    assert work.local.outcomes["Failed"] == recorded, "the message that sees the end rejects it"


@pytest.mark.failure_mode("F674")
@RUNNERS
@KINDS
def test_a_success_is_committed_although_a_person_has_ended_it(kind: str, runner: LocalRunner) -> None:
    """Its effect has happened."""
    work = Work(kind, runner)
    work.end()
    work.local.run()
    assert work.row().status is Status.PROCESSED
    assert not work.local.dead_letters


@pytest.mark.failure_mode("F675")
@RUNNERS
@KINDS
def test_a_wish_is_about_one_attempt(kind: str, runner: LocalRunner) -> None:
    """Another one has begun since the person looked."""
    work = Work(kind, runner)
    seen = work.row()
    [one] = work.executions()
    work.local.executions.end(one.name, "FAILED")
    for _ in range(4):
        work.local.clock.advance(HOUR)
        work.local.turn()
    assert work.row().fence > seen.fence
    with pytest.raises(ConditionFailed):
        work.end(row=seen)
    work.local.run()
    assert work.row().status is Status.PROCESSED


@pytest.mark.quiet_tables
@pytest.mark.failure_mode("F676")
@RUNNERS
@KINDS
@pytest.mark.parametrize("by", ["poll", "command"])
def test_a_row_that_was_not_started_is_ended_for_good(kind: str, runner: LocalRunner, by: str) -> None:
    """Its worker has died after the claim. The wish may come while its lease lasts, or after it."""
    work = Work(kind, runner, kill=1)
    assert work.row().status is Status.PROCESSING
    if by == "command":
        work.local.clock.advance(HOUR)
    work.end(may_run=by == "poll")
    work.local.run()
    assert_rejected(work)
    assert not work.executions()


@pytest.mark.quiet_tables
@pytest.mark.failure_mode("F676")
@RUNNERS
def test_the_key_of_a_purged_message_that_was_not_started_is_freed(runner: LocalRunner) -> None:
    """Nothing else has its content. The row stays FAILED, and waits for the message. Others of the key go on."""
    work = Work("messages", runner, kill=2)
    work.local._sqs.messages.clear()
    work.local.clock.advance(HOUR)
    work.send("2")
    work.local.turn()
    assert not work.executions()
    work.end(may_run=False)
    work.local.run()
    assert work.row("2").status is Status.PROCESSED
    assert (work.row().status, work.row().reason_code) == (Status.FAILED, "ended")
    work.send("1")
    work.local.run()
    assert_rejected(work)
    assert len(work.executions()) == 1


@pytest.mark.quiet_tables
@pytest.mark.failure_mode("F679")
@RUNNERS
def test_another_content_ends_a_row_that_was_not_started(runner: LocalRunner) -> None:
    """The copy has no body. Each content has its own dead letter, and the row waits for its message."""
    work = Work("messages", runner, kill=2, fingerprint="amount")
    work.local._sqs.messages.clear()
    work.end()
    work.local.send({"k": KEY, "i": "1", "amount": 99})
    work.local.run()
    codes = [(one.attributes["reason_code"], "body unknown" in one.body) for one in work.local.dead_letters]
    assert codes == [("ended", True), ("identity_collides", False)]
    assert (work.row().status, work.row().pending_reason_code) == (Status.FAILED, "ended")
    assert not work.executions()
