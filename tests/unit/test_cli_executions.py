"""The commands on a pipeline whose processor is a state machine."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from intake_ledger.executions import execution_name
from intake_ledger.protocol import Ordering, Row, Status, row_key
from tests.inside.command import Aws
from tests.unit.cli_support import NAME, Site, make_site
from tests.unit.support import HOUR, START
from tests.unit.test_cli_commands import Person, sit

__all__ = ["sit"]
pytestmark = pytest.mark.usefixtures("dynamodb")
MACHINE = "arn:aws:states:eu-central-1:111122223333:stateMachine:transcribe"
EXECUTIONS = "arn:aws:states:eu-central-1:111122223333:execution:transcribe"


class FakeStepFunctions:
    """Running executions by their names, with input and start."""

    def __init__(self) -> None:
        self.running: dict[str, tuple[str, int]] = {}

    def get_paginator(self, operation: str) -> Any:
        assert operation == "list_executions"
        return self

    def paginate(self, **request: str) -> list[dict[str, Any]]:
        assert request == {"stateMachineArn": MACHINE, "statusFilter": "RUNNING"}
        entries = [
            {"executionArn": f"{EXECUTIONS}:{name}", "startDate": datetime.fromtimestamp(at / 1000, UTC)}
            for name, (_, at) in self.running.items()
        ]
        return [{"executions": entries[:1]}, {"executions": entries[1:]}]

    def describe_execution(self, *, executionArn: str) -> dict[str, Any]:  # noqa: N803 - boto3's
        name = executionArn.rsplit(":", 1)[1]
        if name not in self.running:
            raise ClientError({"Error": {"Code": "ExecutionDoesNotExist", "Message": ""}}, "DescribeExecution")
        return {"status": "RUNNING", "input": self.running[name][0]}


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> FakeStepFunctions:
    made = FakeStepFunctions()
    monkeypatch.setattr(Aws, "machines", made)
    return made


@pytest.fixture
def person(sit: Callable[..., Person], states: FakeStepFunctions) -> Person:
    site = make_site()
    return sit(site, consumer=site.environment() | {"INTAKE_STATE_MACHINE": MACHINE})


def claimed(site: Site, key: str) -> str:
    """Write the row of a claim, and return the ARN of its execution."""
    version, *_ = site.put(key)
    site.row(key, Row(Status.PROCESSING, 7, version_id=version, attempts=2, lease_until=START, updated_at=START - HOUR))
    place = row_key(NAME, Ordering.LATEST, site.deployed.bucket, key, f"v#{version}")
    return f"{EXECUTIONS}:{execution_name(place, 7)}"


def test_status_counts_executions_that_run(person: Person, states: FakeStepFunctions) -> None:
    assert "Executions    none running" in person.types("status")
    states.running = {"a": ("{}", START), "b": ("{}", START - HOUR)}
    assert "2 running, the oldest since" in person.types("status")
    assert person.reads("status")["executions"] == {"running": 2, "more": False, "oldestAt": START - HOUR}


def test_a_list_has_key_attempt_age_and_arn_of_each(person: Person, states: FakeStepFunctions) -> None:
    given = {"key": "in/talk.mp3", "attempt": 2, "intake": {"pk": "b/in/talk.mp3", "sk": "p@latest"}}
    states.running = {"own": (json.dumps(given), START), "by-hand": ("{}", START)}
    shown = person.types("list", "--running")
    assert "in/talk.mp3" in shown
    assert "not started by the pipeline" in shown
    assert f"{EXECUTIONS}:own" in shown
    first, second = person.reads("list", "--running")["executions"]
    assert first == {
        "key": "in/talk.mp3", "attempt": 2, "execution": f"{EXECUTIONS}:own", "startedAt": START, "lastStep": None,
    }  # fmt: skip
    assert second["key"] is None
    assert len(person.reads("list", "--running", "--limit", "1")["executions"]) == 1
    states.running = {}
    assert person.types("list", "--running") == "none\n"


def test_inspect_names_the_execution_of_a_claim(person: Person) -> None:
    """Its lease does not say that a worker died."""
    arn = claimed(person.site, "in/talk.mp3")
    shown = person.types("inspect", "in/talk.mp3")
    assert "attempt 2 is an execution, claimed" in shown
    assert arn in shown.replace("\n", "").replace(" ", "")
    assert "yes: an execution decides about it" in shown
    [state] = person.reads("inspect", "in/talk.mp3")["states"]
    assert (state["execution"], state["agree"]) == (arn, True)


def test_a_pipeline_without_a_machine_has_no_executions(sit: Callable[..., Person]) -> None:
    person = sit(make_site())
    person.types("list", "--running", ends=2)
    assert "which is a pipeline of objects: it has no executions" in person.complaint
    assert "Executions" not in person.types("status")
    assert person.reads("status")["executions"] is None
    claimed(person.site, "in/talk.mp3")
    assert "died or timed out" in person.types("inspect", "in/talk.mp3")


@pytest.mark.failure_mode("F166")
def test_a_claim_whose_execution_runs_is_not_stuck(person: Person, states: FakeStepFunctions) -> None:
    """Its lease has ended, because a poll is late."""
    for key in ("in/runs.mp3", "in/dead.mp3"):
        arn = claimed(person.site, key)
        if key == "in/runs.mp3":
            states.running[arn.rsplit(":", 1)[1]] = ("{}", START)
    assert [row["key"] for row in person.reads("list", "--stuck")["rows"]] == ["in/dead.mp3"]
