"""A state machine as the processor: one execution for each fence, and its outcome in the ledger."""

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from intake_ledger.events.parser import Ignored, own_message, parse_message
from intake_ledger.executions.decide import Action, Execution, decide, execution_name, poll_ms
from intake_ledger.ledger.ledger import Claim
from intake_ledger.observability.powertools import PowertoolsTelemetry
from intake_ledger.protocol.change import Change, Origin, State, StateKind
from intake_ledger.protocol.errors import Fenced, SettingsError
from intake_ledger.protocol.reasons import OutcomeKind, Reason, ReasonCode
from intake_ledger.protocol.row import Row, RowKey, Status
from intake_ledger.protocol.settings_executions import execution_settings
from intake_ledger.protocol.ulids import ulid
from intake_ledger_testing.local_settings import BUCKET
from intake_ledger_testing.memory_step_functions import MACHINE, MemoryExecution
from tests.unit.executions.support import LONGEST_TASK_SECONDS, ExecutionPipeline, given_event
from tests.unit.support import HOUR, MINUTE, SECOND

NOW = 10**12
TASK = 2 * HOUR
DENIED = ClientError({"Error": {"Code": "AccessDeniedException"}}, "StartExecution")
THROTTLED = ClientError({"Error": {"Code": "ThrottlingException"}}, "StartExecution")


def with_execution(**options: Any) -> tuple[ExecutionPipeline, MemoryExecution]:
    """A pipeline with the running execution of its object."""
    pipeline = ExecutionPipeline(**options)
    pipeline.put()
    pipeline.turn()
    [execution] = pipeline.running()
    return pipeline, execution


def succeed(pipeline: ExecutionPipeline) -> None:
    pipeline.drain(lambda execution: pipeline.finish(execution, output={"commit": execution.given["versionId"]}))


class TestTable:
    @pytest.mark.parametrize(
        ("status", "stopped_ago", "live", "processing", "failed"),
        [
            ("RUNNING", None, True, Action.EXTEND, Action.RESUME),
            ("RUNNING", None, False, Action.EXTEND, Action.RESUME),
            ("PENDING_REDRIVE", None, False, Action.EXTEND, Action.RESUME),
            ("A_LATER_STATUS", None, False, Action.EXTEND, Action.RESUME),
            ("SUCCEEDED", 0, True, Action.FINISH, Action.CLAIM),
            ("SUCCEEDED", 0, False, Action.FINISH, Action.CLAIM),
            ("FAILED", 0, False, Action.FINISH, Action.CLAIM),
            ("ABORTED", TASK - 1, False, Action.WAIT, Action.WAIT),
            ("ABORTED", TASK, False, Action.FINISH, Action.CLAIM),
            ("TIMED_OUT", TASK - 1, False, Action.WAIT, Action.WAIT),
            ("TIMED_OUT", TASK, False, Action.FINISH, Action.CLAIM),
            (None, None, True, Action.WAIT, Action.CLAIM),
            (None, None, False, Action.START, Action.CLAIM),
        ],
    )
    def test_describe_decides(
        self, status: str | None, stopped_ago: int | None, live: bool, processing: Action, failed: Action
    ) -> None:
        """The lease decides only where no execution exists."""
        stopped = None if stopped_ago is None else NOW - stopped_ago
        execution = None if status is None else Execution("name", status, stopped)
        row = Row(Status.PROCESSING, 5, lease_until=NOW + 1 if live else NOW)
        assert decide(row, execution, now=NOW, longest_task_ms=TASK).action is processing
        assert decide(replace(row, status=Status.FAILED), execution, now=NOW, longest_task_ms=TASK).action is failed

    def test_polls_grow_so_that_receives_do_not_run_out(self) -> None:
        """Eleven hours take less than 120 polls, and one comes at the limit."""
        age, polls = 0, 0
        while age < 11 * HOUR:
            age += poll_ms(age, 11 * HOUR)
            polls += 1
        assert polls < 120
        assert age < 11 * HOUR + MINUTE


class TestNames:
    @pytest.mark.failure_mode("F144")
    def test_names_and_inputs_are_valid_and_of_the_row_only(self) -> None:
        """Two messages about one state make the same request."""
        name = execution_name(RowKey("bucket/" + "ä" * 500, "p"), 10**15)
        assert len(name) <= 80
        assert name != execution_name(RowKey("bucket/b", "p"), 10**15)
        with pytest.raises(ValueError, match="fence"):
            execution_name(RowKey("bucket/b", "p"), -1)
        pipeline, execution = with_execution()
        assert execution.given["fenceText"] == str(execution.given["fence"]) == str(pipeline.row().fence)
        assert set(execution.given["intake"]) == {"pk", "sk"}
        assert "eventTime" not in execution.given

    def test_settings_are_checked(self) -> None:
        """The longest task is as long as an execution when it is omitted."""
        given = {"INTAKE_STATE_MACHINE": MACHINE, "INTAKE_EXECUTION_SECONDS": "60"}
        assert execution_settings(given).longest_task_seconds == 60
        for wrong in ({"INTAKE_STATE_MACHINE": "x"}, {"INTAKE_EXECUTION_SECONDS": "0"}):
            with pytest.raises(SettingsError):
                execution_settings(given | wrong)


class TestOutcomes:
    @pytest.mark.failure_mode("F140")
    @pytest.mark.parametrize("lost", [False, True])
    def test_twenty_objects_with_overwrites_failures_and_poison(self, lost: bool) -> None:
        """Exactly the expected executions start, whether events are lost or not."""
        pipeline = ExecutionPipeline(lost_events=lost)
        first = {f"{n}.csv": pipeline.put(f"{n}.csv") for n in range(20)}
        pipeline.turn()
        pipeline.turn()
        second = {f"{n}.csv": pipeline.put(f"{n}.csv", "2") for n in range(4)}
        failed: set[str] = set()

        def process(execution: MemoryExecution) -> None:
            given = execution.given
            if given["key"] == "19.csv":
                pipeline.finish(execution, output={"unprocessable": "poison"})
            elif given["key"] in ("17.csv", "18.csv") and given["key"] not in failed:
                failed.add(given["key"])
                pipeline.finish(execution, "FAILED", error="States.TaskFailed")
            else:
                pipeline.finish(execution, output={"commit": given["versionId"]})

        pipeline.drain(process)
        assert len(pipeline.machine.executions) == 20 + 4 + 2
        for key, version in (first | second).items():
            row = pipeline.row(key)
            wanted = Status.REJECTED if key == "19.csv" else Status.PROCESSED
            assert (row.status, row.version_id) == (wanted, version)
        assert [letter.reason for letter in pipeline.sqs.dead_letters] == ["poison"]

    @pytest.mark.parametrize(
        ("end", "status", "text"),
        [
            ({"output": {"result": 1}}, Status.PROCESSED, ""),
            ({"output": {"unprocessable": "page 2"}}, Status.REJECTED, "page 2"),
            ({"output": {"unprocessable": 2}}, Status.REJECTED, "another object"),
            ({"output": {"notYet": "file b"}}, Status.FAILED, "file b"),
            ({"status": "FAILED", "error": "Unprocessable", "cause": "bad"}, Status.REJECTED, "bad"),
            ({"status": "FAILED", "error": "States.Timeout"}, Status.FAILED, "States.Timeout"),
            ({"status": "FAILED", "error": "States.DataLimitExceeded"}, Status.REJECTED, "the output of a step"),
            ({"status": "FAILED", "error": "secret text"}, Status.FAILED, "the execution failed"),
        ],
    )
    def test_each_end_has_its_outcome(self, end: dict[str, object], status: Status, text: str) -> None:
        """As for a processor that is a Lambda function. Another output commits with the name of the execution."""
        pipeline, execution = with_execution()
        pipeline.finish(execution, cast("str", end.pop("status", "SUCCEEDED")), **end)
        pipeline.turn()
        row = pipeline.row()
        assert row.status is status
        assert text in (row.reason or "")
        assert "secret" not in (row.reason or "")
        if status is Status.PROCESSED:
            assert row.commit_id == execution.name

    @pytest.mark.failure_mode("F143")
    @pytest.mark.parametrize("place", ["before", "after"])
    def test_a_start_without_an_answer_keeps_the_claim(self, place: str) -> None:
        """It may have been started, so the same execution is started again when the lease has ended."""
        pipeline = ExecutionPipeline()
        getattr(pipeline.machine, place).append(THROTTLED if place == "before" else ReadTimeoutError(endpoint_url="x"))
        pipeline.put()
        pipeline.turn()
        assert pipeline.row().status is Status.PROCESSING
        succeed(pipeline)
        assert len(pipeline.machine.executions) == 1
        assert pipeline.row().attempts == 1

    @pytest.mark.failure_mode("F255")
    @pytest.mark.parametrize("times", [1, 3])
    def test_a_throttled_start_is_repeated_in_the_invocation(self, times: int) -> None:
        """The next delivery would come minutes later."""
        pipeline = ExecutionPipeline()
        pipeline.machine.before += [THROTTLED] * times
        pipeline.put()
        pipeline.turn()
        assert pipeline.machine.requests == ["StartExecution"] * (times + 1)
        assert len(pipeline.running()) == 1
        assert pipeline.telemetry.outcomes == [OutcomeKind.STARTED]

    @pytest.mark.thorough
    @pytest.mark.failure_mode("F254", "F255")
    @pytest.mark.parametrize(("error", "out"), [(DENIED, True), (THROTTLED, False)])
    @pytest.mark.parametrize("keys", [1, 8])
    def test_a_day_of_refused_starts_is_no_end_of_an_object(self, error: ClientError, keys: int, *, out: bool) -> None:
        """Row and metric have the reason. The breaker opens if the role is refused, and no attempt is spent."""
        pipeline = ExecutionPipeline()
        for number in range(keys):
            pipeline.put(f"{number}.csv")
        until = pipeline.clock() + 24 * HOUR
        pipeline.machine.refuse_starts = lambda: error if pipeline.clock() < until else None
        while pipeline.clock() < until:
            while pipeline.turn():
                pass
            pipeline.clock.now = max(pipeline.clock() + 1, pipeline.sqs.next_visible_at() or 0)
        row = pipeline.row("0.csv")
        assert (row.status, row.attempts, row.reason_code) == (Status.PROCESSING, 1, "start_refused")
        assert error.response["Error"]["Code"] in (row.reason or "")
        assert set(pipeline.telemetry.outcomes) == {OutcomeKind.START_REFUSED}
        assert ("out" in pipeline.telemetry.said) is (out and keys > 1)
        assert max(message.receives for message in pipeline.sqs.messages) < 1_000
        assert pipeline.sqs.dead_letters == []

        succeed(pipeline)
        for number in range(keys):
            row = pipeline.row(f"{number}.csv")
            assert (row.status, row.attempts, row.reason_code) == (Status.PROCESSED, 1, None)
        assert len(pipeline.machine.executions) == keys

    @pytest.mark.failure_mode("F254")
    def test_a_start_that_was_refused_after_a_lost_answer_is_not_repeated_beside_it(self) -> None:
        """It runs. The row forgets the refusal, and no second execution starts for a newer version."""
        pipeline = ExecutionPipeline()
        pipeline.machine.after.append(DENIED)
        pipeline.put()
        pipeline.turn()
        assert pipeline.row().reason_code == "start_refused"
        second = pipeline.put(content="2")
        pipeline.clock.advance(HOUR)
        pipeline.turn()
        assert (len(pipeline.running()), pipeline.row().reason_code) == (1, None)
        succeed(pipeline)
        assert pipeline.row().version_id == second
        assert len(pipeline.machine.executions) == 2

    @pytest.mark.failure_mode("F143")
    def test_a_describe_that_is_refused_decides_nothing(self) -> None:
        """The message returns, and the row stays."""
        pipeline, execution = with_execution()
        pipeline.finish(execution, output={"commit": "x"})
        pipeline.machine.before.append(THROTTLED)
        pipeline.turn()
        assert pipeline.row().status is Status.PROCESSING
        succeed(pipeline)
        assert pipeline.row().commit_id == "x"

    @pytest.mark.failure_mode("F141")
    @pytest.mark.parametrize("status", ["ABORTED", "TIMED_OUT"])
    def test_no_claim_begins_before_the_longest_task_could_have_ended(self, status: str) -> None:
        """A task of an execution that was aborted or timed out runs on."""
        pipeline, execution = with_execution()
        stopped = pipeline.clock()
        pipeline.finish(execution, status)
        second = pipeline.put(content="2")
        started: list[int] = []

        def process(execution: MemoryExecution) -> None:
            started.append(pipeline.row().updated_at)
            pipeline.finish(execution, output={"commit": "x"})

        pipeline.drain(process)
        assert pipeline.versions()[1:] == [second]
        assert started[0] >= stopped + LONGEST_TASK_SECONDS * SECOND


class TestTwoMessages:
    """The poll of a claim and the event of its execution's end may be handled at the same time."""

    @pytest.mark.failure_mode("F186")
    @pytest.mark.parametrize("version", ["", "2"])
    @pytest.mark.parametrize(
        ("end", "outcome"),
        [
            ({"output": {"commit": "x"}}, OutcomeKind.COMMITTED),
            ({"output": {"notYet": "file b"}}, OutcomeKind.WAITING),
            ({"status": "FAILED", "error": "States.Timeout"}, OutcomeKind.FAILED),
            ({"output": {"unprocessable": "page 2"}}, OutcomeKind.REJECTED),
        ],
    )
    def test_the_end_is_counted_once_and_nothing_is_late(
        self, end: dict[str, object], outcome: OutcomeKind, version: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The loser reports no late write, which would process the object again. A newer version may be claimed."""
        pipeline, execution = with_execution()
        pipeline.finish(execution, **cast("Any", end))
        if version:
            pipeline.put(content=version)
        pipeline.clock.advance(MINUTE)
        asked = pipeline.machine.describe_execution

        def describe(**request: object) -> dict[str, object]:
            """The poll reads the answer, and the other messages are handled before it writes."""
            answer = asked(**request)
            monkeypatch.setattr(pipeline.machine, "describe_execution", asked)
            pipeline.clock.advance(SECOND)
            pipeline.turn(pipeline.another_worker())
            pipeline.clock.advance(SECOND)
            return answer

        monkeypatch.setattr(pipeline.machine, "describe_execution", describe)
        pipeline.turn(most=1)
        assert pipeline.telemetry.outcomes.count(outcome) == 1
        assert pipeline.telemetry.late_writes == []
        succeed(pipeline)
        assert pipeline.telemetry.late_writes == []
        again = outcome in (OutcomeKind.WAITING, OutcomeKind.FAILED)
        assert len(pipeline.machine.executions) == 1 + bool(version or again)

    @pytest.mark.failure_mode("F252")
    def test_two_polls_in_one_invocation_may_end_at_the_same_lease(self) -> None:
        """The first poll has written the time of the next poll and the end of the lease."""
        pipeline = ExecutionPipeline()
        version = pipeline.put()
        pipeline.turn()
        pipeline.sqs.send(pipeline.event("a.csv", version))
        pipeline.clock.advance(MINUTE)
        assert pipeline.turn() == 2
        assert pipeline.telemetry.troubles == []
        succeed(pipeline)
        assert pipeline.row().status is Status.PROCESSED

    @pytest.mark.failure_mode("F138")
    @pytest.mark.parametrize("end", ["release", "fail", "extend", "commit"])
    def test_a_worker_whose_claim_was_taken_over_cannot_end_it(self, end: str) -> None:
        """Both have the same fence, since they start the same execution. Only the owner tells them apart."""
        pipeline = ExecutionPipeline()
        [change] = parse_message(pipeline.event("a.csv", pipeline.put()))
        assert isinstance(change, Change)
        first, second = (pipeline.another_worker().services.ledger for _ in range(2))
        claim = first.claim(change, lease_ms=MINUTE)
        assert isinstance(claim, Claim)
        pipeline.clock.advance(HOUR)
        row = pipeline.row()
        taken = second.take_over(Claim.of_row(claim.key, change, row, row, "start"), lease_ms=MINUTE)
        ends: dict[str, Any] = {
            "release": lambda: first.release(claim),
            "fail": lambda: first.fail(claim, Reason(ReasonCode.PROCESSOR_ERROR, "late")),
            "extend": lambda: first.extend(claim, lease_ms=HOUR),
            "commit": lambda: first.commit(claim),
        }
        with pytest.raises(Fenced):
            ends[end]()
        assert isinstance(taken, Claim)
        assert pipeline.row() == taken.row
        second.commit(taken)

    @pytest.mark.failure_mode("F293")
    @pytest.mark.parametrize("lost", [False, True])
    def test_a_request_that_sees_the_end_of_an_execution_is_served_after_it(self, *, lost: bool) -> None:
        """The end commits the state that the request asks to process again. It is not the answer to the request."""
        pipeline = ExecutionPipeline(lost_events=lost)
        version = pipeline.put()
        pipeline.turn()
        pipeline.sqs.messages.clear()
        [execution] = pipeline.running()
        state = State(StateKind.OBJECT, version_id=version)
        request = own_message(Origin.REPROCESS, BUCKET, "a.csv", state, reprocess_id=ulid(pipeline.clock(), 0))
        pipeline.sqs.send(request)
        pipeline.turn()
        pipeline.finish(execution)
        succeed(pipeline)
        assert pipeline.versions() == [version] * 2
        assert pipeline.telemetry.outcomes.count(OutcomeKind.COMMITTED) == 2

    @pytest.mark.failure_mode("F294")
    @pytest.mark.parametrize("redriven", [False, True])
    def test_the_lease_of_a_running_execution_lasts_until_after_the_next_poll(self, *, redriven: bool) -> None:
        """Otherwise a row that is polled as it should be would look as if its worker had died."""
        pipeline, execution = with_execution(lost_events=True)
        if redriven:
            pipeline.finish(execution, "FAILED")
            pipeline.clock.advance(HOUR)
            pipeline.turn()
            assert pipeline.row().status is Status.FAILED
            pipeline.machine.redrive(execution.name)
            pipeline.clock.advance(2 * HOUR)
        end = pipeline.clock() + 5 * HOUR
        while pipeline.clock() < end:
            next_poll = pipeline.sqs.next_visible_at()
            assert next_poll is not None
            pipeline.clock.now = max(pipeline.clock.now, next_poll)
            assert pipeline.turn() == 1
            lease, next_poll = pipeline.row().lease_until, pipeline.sqs.next_visible_at()
            assert lease is not None
            assert next_poll is not None
            # The next poll comes from another invocation, whose whole time fits into the lease.
            assert lease >= next_poll + 90 * SECOND


class TestDeadLetters:
    @pytest.mark.failure_mode("F251")
    @pytest.mark.parametrize("lost", [False, True])
    @pytest.mark.parametrize("second", ["SUCCEEDED", "FAILED"])
    def test_the_copy_of_a_rejection_that_an_event_recorded_is_about_the_object(
        self, second: str, *, lost: bool
    ) -> None:
        """Redriven, it starts an execution, stays until its end, and tries a failed one again."""
        pipeline = ExecutionPipeline()
        version = pipeline.put()
        pipeline.turn()
        pipeline.finish(pipeline.running()[0], "FAILED", error="Unprocessable", cause="no voice")
        while pipeline.turn():
            pass
        [letter] = pipeline.sqs.dead_letters
        [change] = cast("list[Change]", parse_message(letter.body))
        assert (change.key, change.identity, change.execution) == ("a.csv", f"v#{version}", None)
        pipeline.drain(lambda _: None)
        assert pipeline.sqs.messages == []

        pipeline.lost_events = lost
        pipeline.sqs.send(letter.body, letter.attributes)
        ends = iter([second])
        pipeline.drain(lambda execution: pipeline.finish(execution, next(ends, "SUCCEEDED"), output={"commit": "x"}))
        assert pipeline.row().status is Status.PROCESSED
        assert len(pipeline.machine.executions) == (2 if second == "SUCCEEDED" else 3)
        assert pipeline.sqs.messages == []


class TestEvents:
    @pytest.mark.parametrize(
        "changes",
        [
            {"input": None},
            {"input": "[]"},
            {"input": '{"bucket": "bucket"}'},
            {"status": "RUNNING"},
            {"name": "by-hand"},
        ],
    )
    def test_an_event_without_its_input_or_of_another_starter_is_ignored(self, changes: dict[str, object]) -> None:
        """The message that started the execution asks for its end."""
        _, execution = with_execution()
        [parsed] = parse_message(given_event(execution, **changes))
        assert isinstance(parsed, Ignored)

    def test_an_event_of_another_row_is_ignored(self) -> None:
        """Two pipelines may use one state machine."""
        pipeline, execution = with_execution()
        body = given_event(execution, input=json.dumps(execution.given | {"key": "other.csv"}))
        [parsed] = parse_message(body)
        assert isinstance(parsed, Change)
        pipeline.sqs.send(body)
        pipeline.turn()
        assert len(pipeline.telemetry.ignored_) == 1


class TestRedrives:
    @pytest.mark.failure_mode("F142")
    def test_a_failed_execution_that_runs_again_takes_its_row_back(self) -> None:
        """Another execution must not start while it runs."""
        pipeline, execution = with_execution()
        pipeline.finish(execution, "FAILED")
        pipeline.turn()
        assert pipeline.row().status is Status.FAILED
        pipeline.machine.redrive(execution.name)
        pipeline.clock.advance(HOUR)
        pipeline.turn()
        assert pipeline.row().status is Status.PROCESSING
        succeed(pipeline)
        assert pipeline.row().status is Status.PROCESSED
        assert len(pipeline.machine.executions) == 1

    @pytest.mark.failure_mode("F142")
    def test_a_redriven_execution_that_ends_after_a_later_commit_is_healed(self) -> None:
        """Its event records the late write, and the newest version is processed once more."""
        pipeline, first = with_execution()
        pipeline.finish(first, "FAILED")
        second = pipeline.put(content="2")
        succeed(pipeline)
        assert pipeline.versions()[1:] == [second]
        pipeline.machine.redrive(first.name)
        pipeline.finish(first, output={"commit": "late"})
        succeed(pipeline)
        assert pipeline.versions()[1:] == [second, second]
        assert pipeline.telemetry.late_writes == ["v#version-1"]

    def test_a_restart_is_the_same_request_whatever_message_asks_for_it(self) -> None:
        """Step Functions answers a start with another input with an error."""
        pipeline = ExecutionPipeline()
        pipeline.machine.before.append(DENIED)
        pipeline.put()
        pipeline.turn()
        pipeline.sqs.messages.clear()
        pipeline.clock.advance(HOUR)
        pipeline.sqs.send(own_message(Origin.AUDIT, BUCKET, "a.csv"))
        pipeline.turn()
        [execution] = pipeline.running()
        assert execution.given["eventName"] == "ObjectCreated:Put"


def test_an_execution_of_six_hours_has_about_eighty_polls() -> None:
    limit, age, polls = 6 * HOUR, 0, 0
    while age < limit:
        age += poll_ms(age, limit)
        polls += 1
    assert 75 <= polls <= 85


def test_no_poll_waits_for_longer_than_sqs_hides_a_message() -> None:
    """F332: an execution of months too."""
    assert poll_ms(300 * 24 * HOUR, 365 * 24 * HOUR) == 11 * HOUR


@pytest.mark.failure_mode("F470")
def test_each_poll_of_an_execution_tells_the_age_of_its_claim(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An execution without a timeout runs for days. No other request is sent for the metric."""
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "IntakeLedger")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "talks")
    pipeline = ExecutionPipeline(telemetry=PowertoolsTelemetry())
    pipeline.put()
    began = pipeline.clock()
    while pipeline.turn():
        pipeline.clock.now = pipeline.sqs.next_visible_at() or 0
        if pipeline.clock() - began > 48 * HOUR:
            break
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    ages = [age for line in lines for age in line.get("OldestClaimAge", ()) if "_aws" in line]
    assert ages == sorted(ages)
    assert ages[-1] > 40 * HOUR
    assert max(later - earlier for earlier, later in pairwise(ages)) < 4 * HOUR
