"""The audit of a pipeline whose processor is a state machine."""

from typing import Any

import pytest

from intake_ledger.audit.diff import Line
from intake_ledger.audit.executing import executing
from intake_ledger.executions.decide import OVERTAKEN, execution_name
from intake_ledger.protocol.row import Status
from intake_ledger_testing.memory_step_functions import MACHINE, MemoryStepFunctions
from tests.unit.audit.support import AuditWorld

VARIABLES = {"INTAKE_STATE_MACHINE": MACHINE, "INTAKE_EXECUTION_SECONDS": "21600"}


def claimed(status: Status = Status.PROCESSING) -> tuple[AuditWorld, MemoryStepFunctions, str]:
    """A claim of hours ago whose lease has ended, and its execution, which runs."""
    world = AuditWorld()
    machine = MemoryStepFunctions(clock=world.clock)
    state = world.s3.put("talk.mp3")
    more: dict[str, Any] = {"lease_until": world.clock() - 60_000} if status is Status.PROCESSING else {}
    world.insert("talk.mp3", state, status, **more)
    name = execution_name(world.row_key("talk.mp3", state), 7)
    machine.start_execution(stateMachineArn=MACHINE, name=name, input="{}")
    world.is_executing = executing(VARIABLES, lambda _: machine, world.settings.table, world.clock)
    return world, machine, name


@pytest.mark.failure_mode("F166")
@pytest.mark.parametrize("status", [Status.PROCESSING, Status.FAILED])
@pytest.mark.parametrize("asked", ["RUNNING", "PENDING_REDRIVE"])
def test_a_row_whose_execution_runs_is_left_to_it(status: Status, asked: str) -> None:
    """Its lease has ended, because its poll is late or the consumer is paused. A person has redriven a failed row."""
    world, machine, name = claimed(status)
    machine.executions[name].status = asked
    report = world.run()
    assert (report.lines[Line.LEASED], report.counts, world.sent) == (1, {}, [])


@pytest.mark.failure_mode("F166")
@pytest.mark.parametrize("ended", ["SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"])
def test_a_row_whose_execution_has_ended_without_a_sign_is_found(ended: str) -> None:
    world, machine, name = claimed()
    machine.executions[name].status = ended
    assert (world.run().counts, world.sent) == ({"unsettled": 1}, ["talk.mp3"])


@pytest.mark.failure_mode("F542")
@pytest.mark.parametrize("status", [Status.PROCESSING, Status.FAILED])
def test_a_newer_version_that_waits_for_tasks_of_a_stopped_execution_is_not_found(status: Status) -> None:
    """Its event is not lost: no attempt may begin before."""
    world, machine, name = claimed(status)
    world.s3.put("talk.mp3")
    machine.end(name, "ABORTED", error=OVERTAKEN)
    report = world.run()
    assert (report.lines[Line.LEASED], report.counts, world.sent) == (1, {}, [])
    world.clock.advance(int(VARIABLES["INTAKE_EXECUTION_SECONDS"]) * 1000)
    assert (world.run().counts, world.sent) == ({"overtaken": 1}, ["talk.mp3"])


@pytest.mark.failure_mode("F166")
def test_a_row_whose_execution_was_never_started_is_found() -> None:
    world, machine, _ = claimed()
    machine.executions.clear()
    assert (world.run().counts, world.sent) == ({"unsettled": 1}, ["talk.mp3"])


def test_other_pipelines_ask_no_state_machine() -> None:
    assert executing({}, lambda _: pytest.fail("a client was made"), "table", lambda: 0) is None
