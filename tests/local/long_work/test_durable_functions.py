"""Durable functions on the local AWS: the rules of AWS that the kit adds to MiniStack."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cdk_intake_ledger.testing import LocalAws

STACK = "Durable"
CODE = """
import os, pathlib, tempfile
from aws_durable_execution_sdk_python import durable_execution

crashed = pathlib.Path(tempfile.gettempdir(), "crashed")

@durable_execution
def handler(event, context):
    context.step(lambda _: 1, "first")
    if event["do"] == "crash" and not crashed.exists():
        crashed.touch()
        os._exit(1)
    if event["do"] == "ask":
        return context.create_callback("person").result()
    return "done"
"""


@pytest.fixture(scope="module")
def durable(aws: LocalAws) -> Iterator["Durable"]:
    template = {
        "Resources": {
            "Function": {
                "Type": "AWS::Lambda::Function",
                "Properties": {
                    "Runtime": "python3.13",
                    "Handler": "index.handler",
                    "Role": f"arn:aws:iam::{aws.account}:role/any",
                    "Timeout": 60,
                    "Code": {"ZipFile": CODE},
                    "DurableConfig": {"ExecutionTimeout": 600, "RetentionPeriodInDays": 1},
                },
            },
            "Version": {"Type": "AWS::Lambda::Version", "Properties": {"FunctionName": {"Ref": "Function"}}},
        },
        "Outputs": {"Version": {"Value": {"Ref": "Version"}}},
    }
    cloudformation = aws.client("cloudformation")
    cloudformation.create_stack(StackName=STACK, TemplateBody=json.dumps(template))
    cloudformation.get_waiter("stack_create_complete").wait(StackName=STACK, WaiterConfig={"Delay": 1})
    [stack] = cloudformation.describe_stacks(StackName=STACK)["Stacks"]
    yield Durable(aws, stack["Outputs"][0]["OutputValue"])
    cloudformation.delete_stack(StackName=STACK)


class Durable:
    def __init__(self, aws: LocalAws, function: str) -> None:
        self.aws, self.function, self.client = aws, function, aws.client("lambda")

    def start(self, name: str, do: str) -> str:
        """Start an execution as the consumer does, and return its ARN."""
        answer = self.client.invoke(
            FunctionName=self.function,
            InvocationType="Event",
            DurableExecutionName=name,
            Payload=json.dumps({"do": do}).encode(),
        )
        assert answer["StatusCode"] == 202
        return str(answer["DurableExecutionArn"])

    def end(self, arn: str) -> tuple[str, Any]:
        """Status and result of an execution, after its end."""

        def ended() -> Any:
            found = self.client.get_durable_execution(DurableExecutionArn=arn)
            return found["Status"] != "RUNNING" and found

        found = self.aws.wait_until(ended, f"{arn} has ended")
        return found["Status"], json.loads(found.get("Result", "null"))

    def events(self, arn: str) -> list[dict[str, Any]]:
        return list(self.client.get_durable_execution_history(DurableExecutionArn=arn)["Events"])


def test_a_name_is_one_execution_of_one_payload(durable: Durable) -> None:
    """Also after its end. The ARN has the name, and a list of the version finds it."""
    arn = durable.start("once", "")
    assert arn.startswith(f"{durable.function}/durable-execution/once/")
    assert durable.end(arn) == ("SUCCEEDED", "done")
    assert durable.start("once", "") == arn
    with pytest.raises(durable.client.exceptions.DurableExecutionAlreadyStartedException):
        durable.start("once", "crash")
    listed = durable.client.list_durable_executions_by_function(
        FunctionName=durable.function, DurableExecutionName="once"
    )
    assert [one["DurableExecutionArn"] for one in listed["DurableExecutions"]] == [arn]


def test_a_crashed_invocation_is_repeated_from_its_last_checkpoint(durable: Durable) -> None:
    arn = durable.start("crashes", "crash")
    assert durable.end(arn) == ("SUCCEEDED", "done")
    kinds = [one["EventType"] for one in durable.events(arn)]
    assert (kinds.count("StepSucceeded"), kinds.count("InvocationCompleted")) == (1, 2)


def test_a_callback_without_a_timeout_waits_for_its_answer(durable: Durable) -> None:
    arn = durable.start("asks", "ask")

    def callbacks() -> list[str]:
        details = (one.get("CallbackStartedDetails") for one in durable.events(arn))
        return [one["CallbackId"] for one in details if one]

    def waits() -> bool:
        return "InvocationCompleted" in [one["EventType"] for one in durable.events(arn)]

    [callback] = durable.aws.wait_until(callbacks, "it asks")
    durable.aws.wait_until(waits, "its invocation has ended")
    assert durable.client.get_durable_execution(DurableExecutionArn=arn)["Status"] == "RUNNING"
    durable.client.send_durable_execution_callback_success(CallbackId=callback, Result=b"yes")
    assert durable.end(arn) == ("SUCCEEDED", "yes")
