"""`stop_overtaken`: a newer version of an object stops the execution of the older one."""

import pytest
from botocore.exceptions import ClientError

from cdk_intake_ledger.testing import LocalPipeline, LocalRunner
from intake_ledger.executions.decide import OVERTAKEN
from intake_ledger.protocol.reasons import ReasonCode
from intake_ledger.protocol.row import Ordering, Row, Status
from intake_ledger_testing.memory_step_functions import MemoryExecution, MemoryStepFunctions
from tests.known import known
from tests.unit.support import HOUR, MINUTE

KEY = "talk.mp3"
LONGEST_TASK = 2 * HOUR
BOTH = pytest.mark.parametrize("runner", [LocalRunner.STATE_MACHINE, LocalRunner.DURABLE_FUNCTION])
DENIED = ClientError({"Error": {"Code": "AccessDeniedException"}}, "StopExecution")
LOST_ANSWER = ClientError({"Error": {"Code": "InternalServerException"}}, "StopExecution")


class Stops:
    """A pipeline with the first version of a key in work."""

    def __init__(
        self, runner: LocalRunner, *, deletes: bool = False, max_attempts: int = 2, stop_overtaken: bool = True
    ) -> None:
        self.pipeline = LocalPipeline(
            lambda given: {"commit": given["versionId"]},
            runner=runner,
            deletes=deletes,
            max_attempts=max_attempts,
            stop_overtaken=stop_overtaken,
        )
        self.first = self.pipeline.put(KEY, "1")
        self.poll()
        [self.execution] = self.pipeline.running()

    def poll(self, wait: int = MINUTE) -> None:
        """Let time pass, and handle the messages that are visible then."""
        self.pipeline.clock.advance(wait)
        while self.pipeline.turn(self.pipeline.new_worker()):
            pass

    def die_after_the_record(self) -> Row:
        """Wait for the longest task, and let a worker die after it has recorded the stop. Returns the row."""
        self.pipeline.clock.advance(LONGEST_TASK)
        for request in range(1, 20):
            self.pipeline.kill(request, after=True)
            self.poll()
            row = known(self.pipeline.row(KEY))
            if row.status is Status.FAILED:
                return row
        pytest.fail("no death came after the stop was recorded")

    def executions(self) -> list[MemoryExecution]:
        """All executions, in the order of their starts."""
        return list(self.pipeline.executions.executions.values())

    def versions(self) -> list[str]:
        """The version of each execution."""
        return [one.given["versionId"] for one in self.executions()]


@pytest.mark.failure_mode("F528")
@BOTH
def test_a_newer_version_stops_the_execution_of_the_older_one(runner: LocalRunner) -> None:
    """It begins when a task of the older one must have ended. The older one spends no attempt."""
    stops = Stops(runner)
    stopped_at = stops.pipeline.now + MINUTE
    second = stops.pipeline.put(KEY, "2")
    stops.poll()
    assert stops.execution.status in ("ABORTED", "STOPPED")
    assert stops.execution.error == OVERTAKEN
    stops.pipeline.run()
    assert stops.versions() == [stops.first, second]
    row = known(stops.pipeline.row(KEY))
    assert (row.status, row.commit_id) == (Status.PROCESSED, second)
    assert row.updated_at >= stopped_at + LONGEST_TASK
    assert stops.pipeline.dead_letters == []
    assert stops.pipeline.outcomes["Overtaken"] == 1


@BOTH
def test_without_the_option_the_older_one_runs_to_its_end(runner: LocalRunner) -> None:
    stops = Stops(runner, stop_overtaken=False)
    second = stops.pipeline.put(KEY, "2")
    stops.poll()
    assert stops.execution.status == "RUNNING"
    stops.pipeline.run()
    assert [one.status for one in stops.executions()] == ["SUCCEEDED"] * 2
    assert stops.versions() == [stops.first, second]


@BOTH
def test_the_execution_of_the_current_version_runs_on(runner: LocalRunner) -> None:
    """Polls and copies of its message do not stop it, and neither does a request to process it again."""
    stops = Stops(runner)
    stops.pipeline.duplicate()
    stops.pipeline.reprocess(KEY)
    for _ in range(10):
        stops.poll()
    assert stops.execution.status == "RUNNING"


@pytest.mark.failure_mode("F529")
@BOTH
def test_a_stopped_version_is_processed_again_if_the_newer_one_is_deleted(runner: LocalRunner) -> None:
    """The stop has spent no attempt."""
    stops = Stops(runner)
    second = stops.pipeline.put(KEY, "2")
    stops.poll()
    row = known(stops.pipeline.row(KEY))
    assert row.attempts == 1
    stops.pipeline.delete_version(KEY, str(second))
    stops.pipeline.run()
    assert stops.versions() == [stops.first] * 2
    row = known(stops.pipeline.row(KEY))
    assert (row.status, row.commit_id, row.attempts) == (Status.PROCESSED, stops.first, 1)
    assert stops.pipeline.dead_letters == []


@BOTH
def test_the_row_says_why_no_attempt_was_spent(runner: LocalRunner) -> None:
    """A worker dies after it has recorded the stop, so the newer version has no claim yet."""
    stops = Stops(runner)
    stops.pipeline.put(KEY, "2")
    stops.poll()
    row = stops.die_after_the_record()
    assert (row.reason_code, row.attempts, row.version_id) == (ReasonCode.OVERTAKEN, 0, stops.first)


def test_an_execution_that_is_redriven_and_stopped_again_gives_its_attempt_back_once() -> None:
    """The next attempt would otherwise have the number 0."""
    stops = Stops(LocalRunner.STATE_MACHINE)
    second = stops.pipeline.put(KEY, "2")
    stops.poll()
    stops.die_after_the_record()
    assert isinstance(stops.pipeline.executions, MemoryStepFunctions)
    stops.pipeline.executions.redrive(stops.execution.name)
    while stops.execution.status == "RUNNING":
        stops.poll()
    assert stops.die_after_the_record().attempts == 0
    stops.pipeline.delete_version(KEY, str(second))
    stops.pipeline.run()
    assert [one.given["attempt"] for one in stops.executions()] == [1, 1]


@pytest.mark.parametrize("deletes", [False, True])
@BOTH
def test_a_removal_stops_work_only_if_it_is_processed(runner: LocalRunner, *, deletes: bool) -> None:
    stops = Stops(runner, deletes=deletes)
    stops.pipeline.delete(KEY)
    stops.poll()
    assert (stops.execution.status != "RUNNING") is deletes
    stops.pipeline.run()
    row = known(stops.pipeline.row(KEY))
    assert row.settled
    assert stops.pipeline.dead_letters == []
    assert len(stops.executions()) == 1 + deletes


@BOTH
def test_the_poll_of_the_older_one_finds_a_newer_version_whose_event_is_lost(runner: LocalRunner) -> None:
    stops = Stops(runner)
    stops.pipeline._s3.put(KEY, b"2")  # no event is sent
    stops.poll()
    assert stops.execution.error == OVERTAKEN
    stops.pipeline.run()
    assert len(stops.executions()) == 2


@BOTH
def test_an_execution_that_must_end_soon_is_not_stopped(runner: LocalRunner) -> None:
    """The newer version would begin later: a task may run on for as long as the execution may."""
    stops = Stops(runner)
    stops.pipeline.clock.advance(4 * HOUR)  # of 6
    stops.pipeline.put(KEY, "2")
    stops.poll()
    assert stops.execution.status == "RUNNING"


@pytest.mark.failure_mode("F530")
@pytest.mark.parametrize("error", [DENIED, LOST_ANSWER], ids=["refused", "answer lost"])
@BOTH
def test_nothing_depends_on_the_answer_to_a_stop(runner: LocalRunner, error: Exception) -> None:
    """A refused stop lets the older one run to its end. One whose answer is lost is found by the next poll."""
    stops = Stops(runner)
    name = "stop_execution" if runner is LocalRunner.STATE_MACHINE else "stop_durable_execution"
    stop = getattr(stops.pipeline.executions, name)

    def fails(**request: object) -> None:
        if error is not DENIED:
            stop(**request)
        raise error

    setattr(stops.pipeline.executions, name, fails)
    second = stops.pipeline.put(KEY, "2")
    stops.poll()
    assert (stops.execution.status == "RUNNING") is (error is DENIED)
    stops.pipeline.run()
    assert stops.versions() == [stops.first, second]
    row = known(stops.pipeline.row(KEY))
    assert (row.status, row.commit_id) == (Status.PROCESSED, second)


@BOTH
def test_a_stop_of_a_person_spends_an_attempt(runner: LocalRunner) -> None:
    """Also with the option: the same version would otherwise be stopped and started for ever."""
    stops = Stops(runner)
    status = "ABORTED" if runner is LocalRunner.STATE_MACHINE else "STOPPED"
    for _ in range(12):
        for execution in stops.pipeline.running():
            stops.pipeline.executions.end(execution.name, status)
        stops.poll(HOUR)
    [letter] = stops.pipeline.dead_letters
    assert (letter.key, len(stops.executions())) == (KEY, 2)


def test_the_kit_refuses_what_the_construct_refuses() -> None:
    with pytest.raises(ValueError, match=r"the runner is inline: only executions"):
        LocalPipeline(lambda _: None, stop_overtaken=True)
    with pytest.raises(ValueError, match=r"EVERY_VERSION: there, no version is overtaken"):
        LocalPipeline(
            lambda _: None,
            ordering=Ordering.EVERY_VERSION,
            runner=LocalRunner.STATE_MACHINE,
            stop_overtaken=True,
        )
