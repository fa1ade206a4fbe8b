"""Rename a deployed pipeline without a fixed name. Its successor adopts the old rows and messages, on the local AWS."""

import json
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger import AuditOptions, IntakePipeline, Processor
from cdk_intake_ledger.testing import LocalAws
from tests.inside.command import commands
from tests.local import cloudformation
from tests.local.support import TIMEOUT

STACK = "Renamed"
CODE = """
import os, boto3
from intake_ledger import Unprocessable

table = boto3.resource("dynamodb").Table(os.environ["CALLS_TABLE"])

def process(change):
    if change.key.startswith("bad") and "STRICT" in os.environ:
        raise Unprocessable("no invoice in it")
    table.update_item(Key={"file": change.key}, UpdateExpression="ADD calls :one",
        ExpressionAttributeValues={":one": 1})
"""
Json = dict[str, Any]


def synthesise(folder: Path, *, renamed: bool) -> tuple[Json, dict[str, Path]]:
    """The stack before or after the construct was renamed, moved, and its processor fixed."""
    code = folder / "code"
    code.mkdir(parents=True)
    (code / "counting.py").write_text(CODE)
    stack = cloudformation.new_stack(folder, STACK)
    key = dynamodb.Attribute(name="file", type=dynamodb.AttributeType.STRING)
    calls = dynamodb.Table(stack, "Counted", partition_key=key)
    environment = {"CALLS_TABLE": calls.table_name} | ({} if renamed else {"STRICT": "1"})
    pipeline = IntakePipeline(
        Construct(stack, "Domain") if renamed else stack,
        "Billing" if renamed else "Orders",
        bucket=s3.Bucket(stack, "Inbox", versioned=True),
        processor=Processor.from_asset(code, entrypoint="counting:process", environment=environment),
        processing_timeout=cdk.Duration.seconds(20),
        audit=AuditOptions(settle_time=cdk.Duration.seconds(1)),
    )
    calls.grant(pipeline, "dynamodb:UpdateItem")
    for name, value in {
        "Name": pipeline.name,
        "Bucket": pipeline.bucket.bucket_name,
        "Calls": calls.table_name,
        "Ledger": pipeline.table.table_name,
        "Queue": pipeline.queue.queue_url,
        "Consumer": pipeline.function.function_name,
    }.items():
        cdk.CfnOutput(stack, f"{name}Output", value=value)
    return cloudformation.synthesise(stack)


@pytest.mark.failure_mode("F97")
def test_a_renamed_pipeline_adopts_what_is_left(
    aws: LocalAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten queued, one rejected: all eleven are processed once, the rejected one after its redrive."""
    clients = {name: aws.client(name) for name in ("s3", "sqs", "dynamodb", "lambda")}
    clients["s3"].create_bucket(Bucket=cloudformation.ASSETS)
    old = cloudformation.deploy(aws, "create", STACK, *synthesise(tmp_path / "old", renamed=False))

    def upload(*keys: str) -> None:
        for key in keys:
            clients["s3"].put_object(Bucket=old["Bucket"], Key=key, Body=b"1 EUR")

    def statuses(table: str) -> dict[str, str]:
        items = clients["dynamodb"].scan(TableName=table, ConsistentRead=True)["Items"]
        rows = [one for one in items if "status" in one]
        return {one["pk"]["S"].partition("/")[2]: one["status"]["S"] for one in rows}

    upload("bad.csv")
    aws.wait_until(lambda: statuses(old["Ledger"]) == {"bad.csv": "REJECTED"}, "it is rejected", timeout=TIMEOUT)
    [source] = clients["lambda"].list_event_source_mappings(FunctionName=old["Consumer"])["EventSourceMappings"]
    clients["lambda"].update_event_source_mapping(UUID=source["UUID"], Enabled=False)
    ten = [f"{number}.csv" for number in range(10)]
    upload(*ten)

    new = cloudformation.deploy(aws, "update", STACK, *synthesise(tmp_path / "new", renamed=True))
    assert (new["Bucket"], new["Calls"]) == (old["Bucket"], old["Calls"])
    assert not {new[one] for one in ("Name", "Ledger", "Queue")} & {old[one] for one in ("Name", "Ledger", "Queue")}

    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in aws.environment.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)

    def types(*arguments: str) -> Any:
        code = commands.run([*arguments, "--stack", STACK, "--json"])
        captured = capsys.readouterr()
        assert code == 0, captured
        return json.loads(captured.out)

    said = types("adopt", "--from", old["Name"], "--yes")
    assert (said["rows"]["moved"], said["queue"]["moved"], said["deadLetters"]["moved"]) == (1, 10, 1)
    assert statuses(old["Ledger"]) == {}
    processed = dict.fromkeys(ten, "PROCESSED")
    expected = processed | {"bad.csv": "REJECTED"}
    aws.wait_until(lambda: statuses(new["Ledger"]) == expected, "the ten are processed", timeout=TIMEOUT)
    assert types("redrive", "--yes")["moved"] == 1
    expected = processed | {"bad.csv": "PROCESSED"}
    aws.wait_until(lambda: statuses(new["Ledger"]) == expected, "so is the rejected one", timeout=TIMEOUT)
    calls = clients["dynamodb"].scan(TableName=new["Calls"], ConsistentRead=True)["Items"]
    assert {one["file"]["S"]: one["calls"]["N"] for one in calls} == dict.fromkeys([*ten, "bad.csv"], "1")
