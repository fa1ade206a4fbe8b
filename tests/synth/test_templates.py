"""The helpers for snapshot tests of your stacks."""

import json
import re
from pathlib import Path

import pytest
from aws_cdk import App, Stack, Stage
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger import IntakePipeline, Processor
from cdk_intake_ledger.testing import logical_ids, stable_template
from tests.synth.build import Json, new_app, new_stack, processor


@pytest.fixture(scope="module")
def stack() -> Stack:
    """A stack with all values that change by themselves: assets, CDK's inline handler, a function's version."""
    stack = Stack(new_app(analytics_reporting=True), "Stack")
    IntakePipeline(
        stack, "Orders", processor=processor(), bucket=s3.Bucket.from_bucket_name(stack, "In", "partner-inbox")
    )
    own = lambda_.Function(
        stack,
        "Own",
        code=lambda_.Code.from_inline("def handler(event, context): ..."),
        handler="index.handler",
        runtime=lambda_.Runtime.PYTHON_3_13,
    )
    _ = own.current_version
    return stack


@pytest.fixture(scope="module")
def template(stack: Stack) -> Json:
    return stable_template(stack)


def test_nothing_is_left_that_changes_by_itself(template: Json) -> None:
    """The template has no hashes of assets or versions, no bootstrap version, and no source of CDK's handlers."""
    text = json.dumps(template)
    assert not re.search("[0-9a-f]{32}(?![0-9A-F])", text.replace("BucketNotificationsHandler050a0587b754", ""))
    assert set(template) == {"Resources"}
    inline = [
        resource["Properties"]["Code"].get("ZipFile")
        for resource in template["Resources"].values()
        if _function(resource)
    ]
    assert "<inline>" in inline
    assert "def handler(event, context): ..." in inline, "inline code of the stack stays"


def _function(resource: Json) -> bool:
    return bool(resource["Type"] == "AWS::Lambda::Function")


def test_another_content_is_the_same_template(tmp_path: Path) -> None:
    """An edit of the processor does not change the snapshot. A changed option does."""

    def template(text: str, memory_size: int = 512) -> Json:
        (tmp_path / "orders.py").write_text(text)
        stack = new_stack()
        processor = Processor.from_asset(tmp_path, entrypoint="orders:process", memory_size=memory_size)
        IntakePipeline(stack, "Orders", processor=processor)
        return stable_template(stack)

    first = template("def process(change): ...")
    assert first == template("def process(change): return 'x'")
    assert first != template("def process(change): ...", memory_size=1024)


def test_logical_ids_are_listed_by_type(stack: Stack) -> None:
    """Without types, the result has the types that hold data. With types, it has only these."""
    ids = logical_ids(stack)
    assert set(ids) == {"AWS::DynamoDB::Table", "AWS::Logs::LogGroup", "AWS::SQS::Queue"}
    assert ids["AWS::DynamoDB::Table"] == ["OrdersLedgerTableBA0CFD3B"]
    assert len(ids["AWS::SQS::Queue"]) == 2
    assert list(logical_ids(stack, "AWS::Lambda::LayerVersion")) == ["AWS::Lambda::LayerVersion"]
    assert logical_ids(stack, "AWS::S3::Bucket") == {}


def test_a_stage_of_a_cdk_pipeline() -> None:
    """The helpers accept a stack inside a stage."""
    stage = Stage(App(builtin_cloud_formation_validation=False), "Production")
    stack = Stack(stage, "Stack")
    IntakePipeline(stack, "Orders", processor=processor())
    assert logical_ids(stack, "AWS::S3::Bucket") == {"AWS::S3::Bucket": ["OrdersBucket195ECF73"]}
