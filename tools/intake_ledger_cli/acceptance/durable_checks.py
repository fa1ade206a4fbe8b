"""Checks of durable functions. On a local AWS, the rules of their executions are those of the test kit."""

import json
import uuid
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from intake_ledger_cli.acceptance.checking import Check, CheckFailed
from intake_ledger_cli.acceptance.world import World

_ENDED = frozenset({"SUCCEEDED", "FAILED", "STOPPED", "TIMED_OUT"})
_ANOTHER_INPUT = frozenset({"DurableExecutionAlreadyStartedException", "DurableExecutionAlreadyExists"})
_STOPPED_WITH = "Acceptance.Stopped"
_STEP_SECONDS, _TIMEOUT_SECONDS = 15, 30
"""The time of a step, and the timeout of the function in the stack."""


def pipeline(world: World) -> str:
    """An object, whose execution is of the version behind an alias."""
    world.object_once("Durable", "work.json", world.put("Durable", "work.json"), seconds=600)
    world.drained(world.pipeline("Durable").queue_url, seconds=600)
    return "an object had one effect, and the consumer's role described an execution of the version behind an alias"


def starts(world: World) -> str:
    """The same start while the execution runs and after its end, another payload, and a name that is too long."""
    name = uuid.uuid4().hex * 2
    arn = _start(world, name)
    _same_start(world, name, arn)
    _ended(world, arn)
    _same_start(world, name, arn)
    try:
        _start(world, f"{name}x")
    except ClientError:
        return "a repeated start was the same execution, another payload and a name of 65 characters were refused"
    raise CheckFailed("a name of 65 characters was accepted")


def _same_start(world: World, name: str, arn: str) -> None:
    if (again := _start(world, name)) != arn:
        raise CheckFailed(f"the same start was answered with {again}, and before with {arn}")
    try:
        _start(world, name, another=True)
    except ClientError as error:
        if (code := error.response["Error"]["Code"]) not in _ANOTHER_INPUT:
            raise CheckFailed(f"another payload was refused with {code}") from None
        return
    raise CheckFailed("a start with another payload was accepted")


def names(world: World) -> str:
    """Lists by name, with and without a qualifier, before and after another version."""
    name = uuid.uuid4().hex
    version = world.outputs["DurableVersion"]
    arn = _start(world, name, function=version)
    _ended(world, arn)
    unqualified, _, _ = version.rpartition(":")
    answers = {f"before, {what}": _listed(world, one, name) for what, one in _places(unqualified, version)}
    functions: Any = world.aws.functions
    functions.update_function_configuration(FunctionName=unqualified, Description="the next version")
    functions.get_waiter("function_updated_v2").wait(FunctionName=unqualified)
    functions.publish_version(FunctionName=unqualified)
    answers |= {f"after, {what}": _listed(world, one, name) for what, one in _places(unqualified, version)}
    told = json.dumps(answers)
    for when in ("before", "after"):
        if not any(found == arn for place, found in answers.items() if place.startswith(when)):
            raise CheckFailed(f"{when} another version, no list has the execution {arn}: {told}")
    return f"the lists with the name have {told}"


def _places(unqualified: str, version: str) -> tuple[tuple[str, str], ...]:
    return ("without a qualifier", unqualified), ("of the version", version)


def _listed(world: World, function: str, name: str) -> str:
    """The ARN in the list of a function, or why there is none."""
    functions: Any = world.aws.functions
    try:
        answer = functions.list_durable_executions_by_function(FunctionName=function, DurableExecutionName=name)
    except ClientError as error:
        return error.response["Error"]["Code"]
    found = [one for one in answer["DurableExecutions"] if one["DurableExecutionName"] == name]
    return str(found[0]["DurableExecutionArn"]) if found else "none"


def queue(world: World) -> str:
    """A start while the function has no concurrency."""
    functions, function = world.aws.functions, world.outputs["DurableVersion"].rpartition(":")[0]
    functions.put_function_concurrency(FunctionName=function, ReservedConcurrentExecutions=0)
    try:
        arn = _start(world, uuid.uuid4().hex)
        world.pause(20)
        if (found := _described(world, arn)) is not None:
            raise CheckFailed(f"GetDurableExecution knows a start that waits: it is {found['Status']}")
    finally:
        functions.delete_function_concurrency(FunctionName=function)
    status = _ended(world, arn, seconds=900)["Status"]
    if status != "SUCCEEDED":
        raise CheckFailed(f"the execution that waited is {status}")
    return "a start that waited had its ARN from the answer, was not found for 20 seconds, and succeeded afterwards"


def stop(world: World) -> str:
    """An execution that is stopped during a step."""
    order = uuid.uuid4().hex
    arn = _start(world, order, seconds=_STEP_SECONDS)
    world.until(lambda: world.calls("durable").get(order), "the function is invoked")
    functions: Any = world.aws.functions
    functions.stop_durable_execution(DurableExecutionArn=arn, Error={"ErrorType": _STOPPED_WITH})
    found = _ended(world, arn)
    if found["Status"] != "STOPPED":
        raise CheckFailed(f"the stopped execution is {found['Status']}")
    if (error := found.get("Error", {}).get("ErrorType")) != _STOPPED_WITH:
        raise CheckFailed(f"the error of the stopped execution is {error!r}")
    world.pause(2 * _TIMEOUT_SECONDS)
    calls = world.calls("durable")
    if calls[order] != 1:
        raise CheckFailed(f"the function of the stopped execution was invoked {calls[order]} times")
    ran_on = "ran on" if calls.get(f"{order}#after") else "did not reach its end"
    return f"a stopped execution has the error of its stop and was not invoked again, and its step {ran_on}"


def retries(world: World) -> str:
    """A process that dies, and an error of the function."""
    died, failed = uuid.uuid4().hex, uuid.uuid4().hex
    again = _ended(world, _start(world, died, kill=True), seconds=600)["Status"]
    over = _ended(world, _start(world, failed, fail=True), seconds=600)["Status"]
    world.pause(60)
    calls = world.calls("durable")
    if (again, over) != ("SUCCEEDED", "FAILED") or calls[died] < 2 or calls[failed] != 1:
        raise CheckFailed(
            f"the process that died: {again}, {calls[died]} invocations. The error: {over}, {calls[failed]} invocations"
        )
    return f"{calls[died]} invocations of an execution whose process died, and one of an execution that failed"


def event(world: World) -> str:
    """The event of an execution that ends."""
    arn, url = _start(world, uuid.uuid4().hex), world.outputs["DurableTapUrl"]

    def told() -> dict[str, Any]:
        for message in world.aws.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
            detail: dict[str, Any] = json.loads(message["Body"])["detail"]
            if detail["durableExecutionArn"] == arn and detail["status"] in _ENDED:
                return detail
        return {}

    detail = world.until(told, "EventBridge has sent the end of an execution")
    if given := [name for name in detail if "input" in name.lower() or "payload" in name.lower()]:
        raise CheckFailed(f"the event has {given}")
    return f"the event of an end has {', '.join(sorted(detail))}"


def _start(world: World, name: str, *, another: bool = False, function: str = "", **order: object) -> str:
    """Start an execution, and return its ARN."""
    given = {"order": name, **order} | ({"another": True} if another else {})
    functions: Any = world.aws.functions
    answer = functions.invoke(
        FunctionName=function or world.outputs["DurableVersion"],
        InvocationType="Event",
        DurableExecutionName=name,
        Payload=json.dumps(given).encode(),
    )
    if not (arn := answer.get("DurableExecutionArn")):
        raise CheckFailed("Invoke answered an asynchronous start without an ARN")
    return str(arn)


def _described(world: World, arn: str) -> dict[str, Any] | None:
    functions: Any = world.aws.functions
    try:
        answer: dict[str, Any] = functions.get_durable_execution(DurableExecutionArn=arn)
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
        return None
    return answer


def _ended(world: World, arn: str, *, seconds: float = 300) -> dict[str, Any]:
    """Wait for the end of an execution."""

    def over() -> dict[str, Any] | None:
        found = _described(world, arn)
        return found if found is not None and found["Status"] in _ENDED else None

    found = world.until(over, f"the execution {arn} has ended", seconds=seconds)
    assert found is not None
    return found


_check = partial(Check, not_local="the rules of durable executions are the test kit's own there", only_aws=True)
CHECKS = (
    _check(
        name="durable",
        shows="A durable function processes an object, and the consumer may describe an execution of its version.",
        run=pipeline,
        assumptions=("LDF-05",),
    ),
    _check(
        name="durable-starts",
        shows="A start with one name and payload is one execution, and another payload is refused.",
        run=starts,
        assumptions=("LDF-01", "LDF-02"),
    ),
    _check(
        name="durable-names",
        shows="An execution is found by its name, before and after another version.",
        run=names,
        assumptions=("LDF-03",),
    ),
    _check(
        name="durable-queue",
        shows="A start that waits in Lambda's queue has an ARN, and is not found until it begins.",
        run=queue,
        assumptions=("LDF-09",),
    ),
    _check(
        name="durable-stop",
        shows="A stopped execution has the error of its stop, and is not invoked again.",
        run=stop,
        assumptions=("LDF-07", "LDF-10"),
    ),
    _check(
        name="durable-retries",
        shows="Lambda invokes an execution again whose process died, and starts no failed one again.",
        run=retries,
        assumptions=("LDF-08",),
        changes=2,
    ),
    _check(
        name="durable-event",
        shows="The event of an execution has no input.",
        run=event,
        assumptions=("LDF-06",),
    ),
)
