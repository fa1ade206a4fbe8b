"""The commands on a pipeline whose processor is a state machine."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from intake_ledger.executions.decide import execution_name
from intake_ledger.protocol.row import Ordering, Row, Status, from_dynamodb, row_from_attributes, row_key
from intake_ledger_cli.aws.clients import Aws
from tests.unit.command.support import NAME, Site, client, make_message_site, make_site
from tests.unit.command.test_commands import Person, sit
from tests.unit.support import HOUR, START

__all__ = ["sit"]
pytestmark = pytest.mark.usefixtures("dynamodb")
MACHINE = "arn:aws:states:eu-central-1:111122223333:stateMachine:transcribe"
EXECUTIONS = "arn:aws:states:eu-central-1:111122223333:execution:transcribe"


class FakeStepFunctions:
    """Running executions by their names, with input and start."""

    def __init__(self) -> None:
        self.running: dict[str, tuple[str, int]] = {}
        self.aborted: dict[str, int] = {}

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

    def list_executions(self, **request: object) -> dict[str, Any]:
        assert request == {"stateMachineArn": MACHINE, "statusFilter": "ABORTED", "maxResults": 100}
        ends = {f"{EXECUTIONS}:{name}": datetime.fromtimestamp(at / 1000, UTC) for name, at in self.aborted.items()}
        return {"executions": [{"executionArn": arn, "stopDate": at} for arn, at in ends.items()]}

    def describe_execution(self, *, executionArn: str) -> dict[str, Any]:  # noqa: N803 - boto3's
        name = executionArn.rsplit(":", 1)[1]
        if name in self.aborted:
            return {"status": "ABORTED", "stopDate": datetime.fromtimestamp(self.aborted[name] / 1000, UTC)}
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


def now() -> int:
    return time.time_ns() // 1_000_000


def row_of(site: Site, key: str) -> Row:
    """The only row of the key."""
    pk = {"S": f"{site.deployed.bucket}/{key}"}
    items = client("dynamodb").scan(TableName=site.deployed.table)["Items"]
    [item] = [one for one in items if one["pk"] == pk]
    row = row_from_attributes(from_dynamodb(item))
    assert row is not None
    return row


def claimed(site: Site, key: str, lease_until: int = START) -> str:
    """Write the row of a claim, and return the ARN of its execution."""
    version, *_ = site.put(key)
    row = Row(Status.PROCESSING, 7, version_id=version, attempts=2, lease_until=lease_until, lease_owner="w")
    site.row(key, replace(row, updated_at=START - HOUR))
    place = row_key(NAME, Ordering.LATEST, site.deployed.bucket, key, f"v#{version}")
    return f"{EXECUTIONS}:{execution_name(place, 7)}"


def test_status_counts_executions_that_run(person: Person, states: FakeStepFunctions) -> None:
    assert "Executions  none" in person.types("status", "--all")
    states.running = {"a": ("{}", START), "b": ("{}", START - HOUR)}
    assert "2 running, oldest" in person.types("status")
    assert person.reads("status")["executions"] == {"running": 2, "more": False, "oldestAt": START - HOUR}


def test_a_list_has_key_attempt_age_and_arn_of_each(person: Person, states: FakeStepFunctions) -> None:
    given = {"key": "in/talk.mp3", "attempt": 2, "intake": {"pk": "b/in/talk.mp3", "sk": "p@latest"}}
    states.running = {"own": (json.dumps(given), START), "by-hand": ("{}", START)}
    shown = person.types("list", "--status", "running")
    assert "in/talk.mp3" in shown
    assert "not started by the pipeline" in shown
    assert f"{EXECUTIONS}:own" in shown
    first, second = person.reads("list", "--status", "running")["executions"]
    assert first == {
        "key": "in/talk.mp3", "attempt": 2, "execution": f"{EXECUTIONS}:own", "startedAt": START, "lastStep": None,
    }  # fmt: skip
    assert second["key"] is None
    assert len(person.reads("list", "--status", "running", "--limit", "1")["executions"]) == 1
    states.running = {}
    assert person.types("list", "--status", "running") == "none\n"


def test_inspect_names_the_execution_of_a_claim(person: Person, states: FakeStepFunctions) -> None:
    """Its lease does not say that a worker died."""
    arn = claimed(person.site, "in/talk.mp3")
    states.running[arn.rsplit(":", 1)[1]] = ("{}", START)
    shown = person.types("inspect", "in/talk.mp3")
    assert "attempt 2 is an execution, claimed" in shown
    assert arn in shown.replace("\n", "").replace(" ", "")
    assert "yes: its execution is RUNNING" in shown
    [state] = person.reads("inspect", "in/talk.mp3")["states"]
    assert (state["execution"], state["agree"]) == (arn, True)


def test_a_pipeline_without_a_machine_has_no_executions(sit: Callable[..., Person]) -> None:
    person = sit(make_site())
    person.types("list", "--status", "running", ends=2)
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
    assert [row["key"] for row in person.reads("list", "--status", "stuck")["rows"]] == ["in/dead.mp3"]


@pytest.mark.failure_mode("F677")
def test_an_aborted_execution_does_not_read_as_live(person: Person, states: FakeStepFunctions) -> None:
    """Its lease lasts. Each command names the one that ends it, and that command records the wish and wakes the key."""
    arn = claimed(person.site, "in/talk.mp3", lease_until=now() + HOUR)
    claimed(person.site, "in/starts.mp3", lease_until=now() + HOUR)
    states.aborted[arn.rsplit(":", 1)[1]] = START
    [state] = person.reads("inspect", "in/talk.mp3")["states"]
    assert "its execution is ABORTED since" in state["why"]
    assert "`release --end` ends it for good" in state["why"]
    assert [row["key"] for row in person.reads("list", "--status", "stuck")["rows"]] == ["in/talk.mp3"]
    assert "`release --end`" in person.reads("retry", "in/talk.mp3")["choices"][0]["why"]
    person.types("release", "in/talk.mp3", "--because", "x", "--yes", ends=2)
    assert "`release --end` ends its work for good" in person.complaint
    before = len(person.site.messages())
    done = person.reads("release", "in/talk.mp3", "--end", "--because", "it waits for nobody", "--yes")
    assert (done["execution"], done["mayRun"], done["woken"]) == (arn, True, True)
    assert len(person.site.messages()) == before + 1
    row = row_of(person.site, "in/talk.mp3")
    assert (row.status, row.fence, row.pending_reason_code) == (Status.PROCESSING, 7, "ended")
    assert "Its rejection waits" in person.reads("inspect", "in/talk.mp3")["states"][0]["why"]


@pytest.mark.failure_mode("F678")
def test_an_execution_that_was_not_started_is_reported_and_ended(person: Person) -> None:
    claimed(person.site, "in/talk.mp3")
    [state] = person.reads("inspect", "in/talk.mp3")["states"]
    assert state["agree"] is False
    assert "its execution was not started" in state["why"]
    assert "rejected now  yes" in person.types("release", "in/talk.mp3", "--end", "--because", "it is gone", "--yes")
    row = row_of(person.site, "in/talk.mp3")
    assert (row.status, row.reason_code, row.pending_reason_code) == (Status.FAILED, "ended", "ended")
    assert row.fence > 7
    person.types("release", "in/no.mp3", "--end", "--because", "x", "--yes", ends=1)
    assert "nothing of in/no.mp3 is unfinished (the ledger has: no row)" in person.complaint


def test_only_executions_are_ended(sit: Callable[..., Person]) -> None:
    person = sit(make_site())
    person.types("release", "in/talk.mp3", "--end", "--because", "x", "--yes", ends=2)
    assert "--end is for executions" in person.complaint


@pytest.mark.failure_mode("F676")
def test_a_purged_message_leaves_a_copy_without_a_body(sit: Callable[..., Person], states: FakeStepFunctions) -> None:
    """Only its key and identity are known."""
    site = make_message_site()
    person = sit(site, consumer=site.environment() | {"INTAKE_STATE_MACHINE": MACHINE}, audit=False)
    row = Row(Status.PROCESSING, 7, version_id="e-1", lease_until=START, lease_owner="w", updated_at=START)
    site.row("ana", row)
    states.running = {}
    person.reads("release", "ana", "--end", "--because", "it is gone", "--yes")
    assert site.visible(site.deployed.dead_letter_url) == 1
    found = client("sqs").receive_message(QueueUrl=site.deployed.dead_letter_url, MessageAttributeNames=["All"])
    [letter] = found["Messages"]
    assert json.loads(letter["Body"]) == {"intakeLedger": {"kind": "body unknown", "key": "ana", "identity": "e-1"}}
    assert letter["MessageAttributes"]["reason_code"]["StringValue"] == "ended"
