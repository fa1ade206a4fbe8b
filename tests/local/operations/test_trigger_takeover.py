"""The keys of a Lambda trigger are taken over as docs/recipes.md says, on the local AWS."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import aws_cdk as cdk
import pytest
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_notifications as s3n

from cdk_intake_ledger import IntakePipeline
from cdk_intake_ledger.testing import LocalAws
from tests.local import cloudformation
from tests.local.support import TIMEOUT

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "recipes.md").read_text()
OLD = """
import os
import boto3

def handler(event, context):
    for record in event["Records"]:
        boto3.client("dynamodb").update_item(
            TableName=os.environ["TABLE"], Key={"key": {"S": record["s3"]["object"]["key"]}},
            UpdateExpression="ADD calls :one", ExpressionAttributeValues={":one": {"N": "1"}})
"""
EVENTS = {"s3:ObjectCreated:*", "s3:ObjectRemoved:*", "s3:LifecycleExpiration:*", "s3:ObjectRestore:Completed"}
Json = dict[str, Any]


def snippets(text: str) -> list[str]:
    return re.findall("^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


INTRODUCTION, *RECIPES = re.split("^## ", PAGE, flags=re.MULTILINE)
[QUEUE, PIPELINE] = snippets(next(text for text in RECIPES if text.startswith("From a Lambda trigger")))
"""The snippets of the second and the fourth step."""
AT_ONCE = """
drops = s3.Bucket(self, "Drops", versioned=True)
IntakePipeline(self, "Drop", bucket=drops, filters=[s3.NotificationKeyFilter(prefix="in/")],
    processor=Processor.from_asset("processors/orders", entrypoint="orders:process"))
"""
"""The pipeline instead of the trigger, without the steps between."""


@dataclass
class Takeover:
    """The stack of a team, step by step."""

    aws: LocalAws
    folder: Path
    stack: str
    outputs: dict[str, str] = field(default_factory=dict)

    def deploy(self, what: Literal["create", "update"], make: Callable[[cdk.Stack], None]) -> None:
        """Deploy the stack with these resources."""
        stack = cloudformation.new_stack(self.folder, self.stack)
        make(stack)
        template, assets = cloudformation.synthesise(stack)
        self.outputs = cloudformation.deploy(self.aws, what, self.stack, template, assets)

    def upload(self, name: str) -> None:
        self.aws.client("s3").put_object(Bucket=self.outputs["Bucket"], Key=f"in/{name}.csv", Body=b"10")

    def notifications(self) -> Json:
        answer = self.aws.client("s3").get_bucket_notification_configuration(Bucket=self.outputs["Bucket"])
        return {name: entries for name, entries in answer.items() if name.endswith("Configurations") and entries}

    def audit(self) -> Json:
        answer = self.aws.client("lambda").invoke(FunctionName=self.outputs["Audit"], Payload=b'{"dryRun": true}')
        report: Json = json.load(answer["Payload"])
        return report

    def of_old_function(self) -> dict[str, int]:
        """Calls of the old function by key."""
        items = self.aws.client("dynamodb").scan(TableName=self.outputs["Done"], ConsistentRead=True)["Items"]
        return {item["key"]["S"]: int(item["calls"]["N"]) for item in items}

    def of_pipeline(self) -> dict[str, int]:
        """Attempts of the processor by key, of settled objects."""
        items = self.aws.client("dynamodb").scan(TableName=self.outputs["Ledger"], ConsistentRead=True)["Items"]
        settled = (item for item in items if item.get("status", {}).get("S") == "PROCESSED")
        return {item["pk"]["S"].partition("/")[2]: int(item["attempts"]["N"]) for item in settled}


def old_function(stack: cdk.Stack) -> lambda_.Function:
    done = dynamodb.Table(
        stack,
        "Done",
        partition_key=dynamodb.Attribute(name="key", type=dynamodb.AttributeType.STRING),
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
    )
    function = lambda_.Function(
        stack,
        "Old",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=lambda_.Code.from_inline(OLD),
        environment={"TABLE": done.table_name},
    )
    done.grant_read_write_data(function)
    cdk.CfnOutput(stack, "DoneOutput", value=done.table_name)
    return function


def with_trigger(stack: cdk.Stack) -> None:
    """The stack before the second step, with a bucket that calls the function."""
    bucket = s3.Bucket(stack, "Drops", versioned=True)
    destination = s3n.LambdaDestination(old_function(stack))
    bucket.add_event_notification(s3.EventType.OBJECT_CREATED, destination, s3.NotificationKeyFilter(prefix="in/"))
    cdk.CfnOutput(stack, "BucketOutput", value=bucket.bucket_name)


def with_recipe(*steps: str, old: bool = True) -> Callable[[cdk.Stack], None]:
    """The snippets of the page in a stack, as in its constructor."""

    def make(stack: cdk.Stack) -> None:
        orders = repr(str(ROOT / "tests" / "synth" / "processors" / "orders"))
        names: Json = {"self": stack}
        exec("\n".join((*snippets(INTRODUCTION), *steps)).replace('"processors/orders"', orders), names)
        cdk.CfnOutput(stack, "BucketOutput", value=names["drops"].bucket_name)
        if "waiting" in names:
            cdk.CfnOutput(stack, "WaitingOutput", value=names["waiting"].queue_arn)
        if old:
            old_function(stack)
        pipeline = stack.node.try_find_child("Drop")
        if isinstance(pipeline, IntakePipeline):
            cdk.CfnOutput(stack, "LedgerOutput", value=pipeline.table.table_name)
            cdk.CfnOutput(stack, "AuditOutput", value=pipeline.audit_function.function_name)

    return make


@pytest.mark.failure_mode("F225")
def test_each_upload_takes_effect_once_through_all_steps(aws: LocalAws, tmp_path: Path) -> None:
    """The old function, the queue and the pipeline each take their files, and no deployment loses the notification."""
    aws.client("s3").create_bucket(Bucket=cloudformation.ASSETS)
    team = Takeover(aws, tmp_path, "TriggerTakeover")

    team.deploy("create", with_trigger)
    team.upload("before")
    aws.wait_until(lambda: team.of_old_function() == {"in/before.csv": 1}, "the old function ran", timeout=TIMEOUT)

    team.deploy("update", with_recipe(QUEUE))
    assert_queue_only(team)
    team.upload("waits")

    team.deploy("update", with_recipe(QUEUE, PIPELINE))
    assert_queue_only(team)
    team.upload("after")
    processed = {"in/waits.csv": 1, "in/after.csv": 1}
    aws.wait_until(lambda: team.of_pipeline() == processed, "both are processed", timeout=TIMEOUT)
    assert team.of_old_function() == {"in/before.csv": 1}

    team.deploy("update", with_recipe(QUEUE, PIPELINE, old=False))
    assert_queue_only(team)
    team.upload("at-last")
    processed["in/at-last.csv"] = 1
    aws.wait_until(lambda: team.of_pipeline() == processed, "the last one is processed", timeout=TIMEOUT)
    report = team.audit()
    # MiniStack's CloudFormation enables neither time to live nor point-in-time recovery.
    assert [problem for problem in report["delivery"] if "DropLedgerTable" not in problem] == []


@pytest.mark.failure_mode("F225")
def test_in_one_deployment_the_bucket_loses_all_its_notifications(aws: LocalAws, tmp_path: Path) -> None:
    """The reason for the steps: CDK's custom resource is deleted after the bucket was updated. The audit reports it."""
    aws.client("s3").create_bucket(Bucket=cloudformation.ASSETS)
    team = Takeover(aws, tmp_path, "TriggerReplaced")
    team.deploy("create", with_trigger)
    assert team.notifications().keys() == {"LambdaFunctionConfigurations"}
    team.deploy("update", with_recipe(AT_ONCE))
    assert team.notifications() == {}
    assert any("notif" in problem for problem in team.audit()["delivery"])


def assert_queue_only(team: Takeover) -> None:
    """The bucket notifies the queue about each event, and nothing else."""
    found = team.notifications()
    assert found.keys() == {"QueueConfigurations"}
    entries = found["QueueConfigurations"]
    assert {entry["QueueArn"] for entry in entries} == {team.outputs["Waiting"]}
    assert sorted(event for entry in entries for event in entry["Events"]) == sorted(EVENTS)
    for entry in entries:
        [rule] = entry["Filter"]["Key"]["FilterRules"]
        assert (rule["Name"].lower(), rule["Value"]) == ("prefix", "in/")
