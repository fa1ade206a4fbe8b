"""Durable functions. On a local AWS, the rules of their executions are those of the test kit."""

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from intake_ledger_suite.deployed import Deployed

_ENDED = frozenset({"SUCCEEDED", "FAILED", "STOPPED", "TIMED_OUT"})
_ANOTHER_INPUT = frozenset({"DurableExecutionAlreadyStartedException", "DurableExecutionAlreadyExists"})
_STOPPED_WITH = "Suite.Stopped"
_STEP_SECONDS, _TIMEOUT_SECONDS = 15, 30
"""The time of a step, and the timeout of the function in the stack."""
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.only_on_aws("the rules of durable executions are the test kit's own there"),
]
Evidence = Callable[[str], None]


@pytest.mark.assumptions("LDF-05")
def test_durable_function_processes_an_object(checks: Deployed) -> None:
    """The consumer may describe an execution of the version behind an alias."""
    checks.object_once("Durable", "work/a.json", checks.put("Durable", "work/a.json"), seconds=600)
    checks.drained("DurableQueue", seconds=600)


@pytest.mark.assumptions("LDF-01", "LDF-02")
def test_durable_starts_with_one_name_are_one_execution(checks: Deployed) -> None:
    """So is a start after its end. Another payload and a name of 65 characters are refused."""
    name = uuid.uuid4().hex * 2
    arn = start(checks, name)
    same_start(checks, name, arn)
    ended(checks, arn)
    same_start(checks, name, arn)
    with pytest.raises(ClientError):
        start(checks, f"{name}x")


def same_start(checks: Deployed, name: str, arn: str) -> None:
    """Start again, with the same payload and with another one."""
    assert start(checks, name) == arn
    with pytest.raises(ClientError) as refused:
        start(checks, name, another=True)
    assert refused.value.response["Error"]["Code"] in _ANOTHER_INPUT


@pytest.mark.assumptions("LDF-03")
def test_durable_names_find_their_execution(checks: Deployed, evidence: Evidence) -> None:
    """A list finds it with the function's ARN or with that of its version, before and after another version."""
    name, version = uuid.uuid4().hex, checks.out["DurableVersion"]
    arn = start(checks, name)
    ended(checks, arn)
    unqualified, _, _ = version.rpartition(":")
    before = {one: listed(checks, one, name) for one in (unqualified, version)}
    functions = checks.aws.client("lambda")
    functions.update_function_configuration(FunctionName=unqualified, Description=f"the version after {name}")
    functions.get_waiter("function_updated_v2").wait(FunctionName=unqualified)
    functions.publish_version(FunctionName=unqualified)
    after = {one: listed(checks, one, name) for one in (unqualified, version)}
    assert arn in before.values(), before
    assert arn in after.values(), after
    evidence(f"before another version {json.dumps(before)}, after it {json.dumps(after)}")


def listed(checks: Deployed, function: str, name: str) -> str:
    """Return the ARN in the list of a function, or why there is none."""
    functions = checks.aws.client("lambda")
    try:
        answer = functions.list_durable_executions_by_function(FunctionName=function, DurableExecutionName=name)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    found = [one for one in answer["DurableExecutions"] if one["DurableExecutionName"] == name]
    return str(found[0]["DurableExecutionArn"]) if found else "none"


@pytest.mark.assumptions("LDF-09")
def test_durable_queue_has_starts_that_are_not_found(checks: Deployed) -> None:
    """A start that waits in Lambda's queue has an ARN, is not found until it begins, and succeeds afterwards."""
    functions, function = checks.aws.client("lambda"), checks.out["DurableVersion"].rpartition(":")[0]
    functions.put_function_concurrency(FunctionName=function, ReservedConcurrentExecutions=0)
    try:
        arn = start(checks, uuid.uuid4().hex)
        checks.pause(20)
        found = described(checks, arn)
    finally:
        functions.delete_function_concurrency(FunctionName=function)
    assert found is None, f"GetDurableExecution knows a start that waits: {found}"
    assert ended(checks, arn, seconds=900)["Status"] == "SUCCEEDED"


@pytest.mark.assumptions("LDF-07", "LDF-10")
def test_durable_stop_is_final(checks: Deployed, evidence: Evidence) -> None:
    """A stopped execution has the error of its stop, and is not invoked again."""
    order = uuid.uuid4().hex
    arn = start(checks, order, seconds=_STEP_SECONDS)
    checks.until(lambda: checks.calls("durable").get(order), "the function is invoked")
    checks.aws.client("lambda").stop_durable_execution(DurableExecutionArn=arn, Error={"ErrorType": _STOPPED_WITH})
    found = ended(checks, arn)
    assert (found["Status"], found.get("Error", {}).get("ErrorType")) == ("STOPPED", _STOPPED_WITH)
    checks.pause(2 * _TIMEOUT_SECONDS)
    calls = checks.calls("durable")
    assert calls[order] == 1
    evidence(f"its step {'ran on' if calls.get(f'{order}#after') else 'did not reach its end'}")


@pytest.mark.assumptions("LDF-08")
@pytest.mark.changes(2)
def test_durable_retries_follow_a_death_and_no_failure(checks: Deployed, evidence: Evidence) -> None:
    """Lambda invokes an execution again whose process died, and starts no failed one again."""
    died, failed = uuid.uuid4().hex, uuid.uuid4().hex
    again = ended(checks, start(checks, died, kill=True), seconds=600)["Status"]
    over = ended(checks, start(checks, failed, fail=True), seconds=600)["Status"]
    checks.pause(60)
    calls = checks.calls("durable")
    assert (again, over) == ("SUCCEEDED", "FAILED")
    assert calls[died] >= 2
    assert calls[failed] == 1
    evidence(f"{calls[died]} invocations of an execution whose process died, and one of an execution that failed")


@pytest.mark.assumptions("LDF-06")
def test_durable_event_of_an_end_has_no_input(checks: Deployed, evidence: Evidence) -> None:
    """So it names no row."""
    arn, sqs = start(checks, uuid.uuid4().hex), checks.aws.client("sqs")

    def told() -> dict[str, Any]:
        answer = sqs.receive_message(QueueUrl=checks.out["DurableTap"], MaxNumberOfMessages=10)
        for message in answer.get("Messages", []):
            detail: dict[str, Any] = json.loads(message["Body"])["detail"]
            if detail["durableExecutionArn"] == arn and detail["status"] in _ENDED:
                return detail
        return {}

    detail = checks.until(told, "EventBridge has sent the end of an execution")
    assert [name for name in detail if "input" in name.lower() or "payload" in name.lower()] == []
    evidence(f"the event has {', '.join(sorted(detail))}")


def start(checks: Deployed, name: str, **order: object) -> str:
    """Start an execution, and return its ARN."""
    answer = checks.aws.client("lambda").invoke(
        FunctionName=checks.out["DurableVersion"],
        InvocationType="Event",
        DurableExecutionName=name,
        Payload=json.dumps({"order": name, **order}).encode(),
    )
    assert answer.get("DurableExecutionArn"), "Invoke answered an asynchronous start without an ARN"
    return str(answer["DurableExecutionArn"])


def described(checks: Deployed, arn: str) -> dict[str, Any] | None:
    """Return an execution, or None if it is not found."""
    functions = checks.aws.client("lambda")
    try:
        answer: dict[str, Any] = functions.get_durable_execution(DurableExecutionArn=arn)
    except functions.exceptions.ResourceNotFoundException:
        return None
    return answer


def ended(checks: Deployed, arn: str, *, seconds: float = 300) -> dict[str, Any]:
    """Wait for the end of an execution."""

    def over() -> dict[str, Any]:
        found = described(checks, arn)
        return found if found is not None and found["Status"] in _ENDED else {}

    return checks.until(over, f"the execution {arn} has ended", seconds=seconds)
