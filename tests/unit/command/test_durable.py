"""The commands on a pipeline whose processor is a durable function."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from intake_ledger.executions.decide import execution_name
from intake_ledger.executions.durable_function import DurableFunction
from intake_ledger.protocol.row import Ordering, Row, Status, row_key
from intake_ledger.protocol.settings import settings_from
from intake_ledger.protocol.settings_durable import DurableSettings
from tests.unit.command.support import NAME, Site, make_site
from tests.unit.command.test_commands import Person, sit
from tests.unit.support import HOUR, MINUTE, START

__all__ = ["sit"]
pytestmark = pytest.mark.usefixtures("dynamodb")
FUNCTION = "arn:aws:lambda:eu-central-1:111122223333:function:approve"
VARIABLES = {
    "INTAKE_DURABLE_FUNCTION": f"{FUNCTION}:2",
    "INTAKE_DURABLE_EXECUTION_SECONDS": "259200",
    "INTAKE_DURABLE_INVOCATION_SECONDS": "60",
    "INTAKE_DURABLE_EVENT_AGE_SECONDS": "21600",
}
OPERATION = "GetDurableExecution"


class FakeDurable:
    """Executions by their ARNs: version, input, start and events. It answers for Lambda's client."""

    def __init__(self) -> None:
        self.running: dict[str, tuple[str, int]] = {}
        self.events: list[dict[str, Any]] = []
        self._operation = ""

    def add(self, version: int, name: str, given: str, at: int) -> str:
        arn = f"{FUNCTION}:{version}/durable-execution/{name}/0b1c"
        self.running[arn] = (given, at)
        return arn

    def get_paginator(self, operation: str) -> Any:
        self._operation = operation
        return self

    def paginate(self, **request: Any) -> list[dict[str, Any]]:
        if self._operation == "list_versions_by_function":
            assert request == {"FunctionName": FUNCTION}
            return [{"Versions": [{"Version": one}]} for one in ("$LATEST", "1", "2")]
        assert request["Statuses"] == ["RUNNING"]
        assert request["FunctionName"] == FUNCTION
        own = f"{FUNCTION}:{request['Qualifier']}/"
        entries = [
            {"DurableExecutionArn": arn, "StartTimestamp": datetime.fromtimestamp(at / 1000, UTC)}
            for arn, (_, at) in self.running.items()
            if arn.startswith(own)
        ]
        return [{"DurableExecutions": entries[:1]}, {"DurableExecutions": entries[1:]}]

    def list_durable_executions_by_function(self, **_: Any) -> dict[str, Any]:
        return {"DurableExecutions": []}

    def get_durable_execution(self, *, DurableExecutionArn: str) -> dict[str, Any]:  # noqa: N803 - boto3's
        if DurableExecutionArn not in self.running:
            raise ClientError({"Error": {"Code": "ResourceNotFoundException", "Message": ""}}, OPERATION)
        return {"Status": "RUNNING", "InputPayload": self.running[DurableExecutionArn][0]}

    def get_durable_execution_history(self, **request: Any) -> dict[str, Any]:
        assert request["ReverseOrder"] is True
        assert request["IncludeExecutionData"] is False, "steps may have content of people"
        return {"Events": self.events}


@pytest.fixture
def durable() -> FakeDurable:
    return FakeDurable()


@pytest.fixture
def person(sit: Callable[..., Person], durable: FakeDurable, monkeypatch: pytest.MonkeyPatch) -> Person:
    site = make_site()
    made = sit(site, consumer=site.environment() | VARIABLES)
    for name in (
        "get_paginator",
        "list_durable_executions_by_function",
        "get_durable_execution",
        "get_durable_execution_history",
    ):
        monkeypatch.setattr(made.functions, name, getattr(durable, name), raising=False)
    return made


def name_at_lambda(site: Site, key: str, version: str) -> str:
    place = row_key(NAME, Ordering.LATEST, site.deployed.bucket, key, f"v#{version}")
    settings, table = settings_from(DurableSettings, VARIABLES), site.deployed.table
    function = DurableFunction(lambda: None, settings, table, lambda: START)  # type: ignore[arg-type,return-value] # no request
    return function.name_of(execution_name(place, 7))


def claimed(site: Site, durable: FakeDurable, key: str, *, runs: bool = True, told: bool = True) -> str:
    """Write the row of a claim, and return the ARN or the name of its execution."""
    version, *_ = site.put(key)
    name = name_at_lambda(site, key, version)
    arn = durable.add(1, name, "{}", START)
    if not runs:
        del durable.running[arn]
    row = Row(Status.PROCESSING, 7, version_id=version, attempts=2, lease_until=START, updated_at=START - HOUR)
    kept = f"{START - 90 * HOUR} {arn if told else ''}"
    site.row(key, Row(**{name: getattr(row, name) for name in row.__slots__} | {"execution": kept}))
    return arn if told else name


def test_executions_of_each_version_are_counted(person: Person, durable: FakeDurable) -> None:
    """Those of former versions run on after a deployment."""
    assert "Executions  none" in person.types("status", "--all")
    durable.add(1, "old", "{}", START - HOUR)
    durable.add(2, "new", "{}", START)
    assert "2 running, oldest" in person.types("status")
    assert person.reads("status")["executions"] == {"running": 2, "more": False, "oldestAt": START - HOUR}


def test_a_list_has_the_last_step_of_each(person: Person, durable: FakeDurable) -> None:
    given = json.dumps({"key": "in/7.pdf", "attempt": 2, "intake": {"pk": "b/in/7.pdf", "sk": "p@latest"}})
    arn = durable.add(1, "own", given, START)
    durable.add(2, "by-hand", "{}", START - MINUTE)
    durable.events = [
        {"EventType": "InvocationCompleted"},
        {"EventType": "CallbackStarted", "Name": "approve"},
        {"EventType": "StepSucceeded", "Name": "read"},
    ]
    shown = person.types("list", "--status", "running")
    assert "approve (callback started)" in shown
    first, second = person.reads("list", "--status", "running")["executions"]
    assert first == {
        "key": "in/7.pdf",
        "attempt": 2,
        "execution": arn,
        "startedAt": START,
        "lastStep": "approve (callback started)",
    }
    assert second["key"] is None
    durable.events = []
    assert person.reads("list", "--status", "running")["executions"][0]["lastStep"] is None


def test_inspect_names_the_execution_and_its_last_step(person: Person, durable: FakeDurable) -> None:
    arn = claimed(person.site, durable, "in/7.pdf")
    durable.events = [{"EventType": "WaitStarted", "Name": "cool-down"}]
    shown = person.types("inspect", "in/7.pdf")
    assert arn in shown.replace("\n", "").replace(" ", "")
    assert "cool-down (wait started)" in shown
    [state] = person.reads("inspect", "in/7.pdf")["states"]
    assert (state["execution"], state["lastStep"], state["agree"]) == (arn, "cool-down (wait started)", True)


def test_inspect_has_the_name_until_lambda_has_told_the_arn(person: Person, durable: FakeDurable) -> None:
    name = claimed(person.site, durable, "in/7.pdf", told=False)
    [state] = person.reads("inspect", "in/7.pdf")["states"]
    assert state["execution"] == name


def test_a_claim_whose_execution_runs_is_not_stuck(person: Person, durable: FakeDurable) -> None:
    """Its lease has ended, because a poll is late."""
    claimed(person.site, durable, "in/runs.pdf")
    claimed(person.site, durable, "in/ended.pdf", runs=False)
    assert [row["key"] for row in person.reads("list", "--status", "stuck")["rows"]] == ["in/ended.pdf"]


def test_an_old_boto3_is_named(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(person.functions, "list_durable_executions_by_function")
    person.types("list", "--status", "running", ends=1)
    assert "install 1.42.1" in person.complaint
