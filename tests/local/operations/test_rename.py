"""A pipeline without a fixed name is renamed or moves to another stack, and goes on with its former name and resources.

On the local AWS. docs/drills.md describes the steps.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger import AuditOptions, Delivery, IntakeLedger, IntakePipeline, Processor
from cdk_intake_ledger.testing import LocalAws
from intake_ledger_cli import commands
from tests.local import cloudformation
from tests.local.operations.drills import kept_ledger, kept_queue
from tests.local.support import TIMEOUT

CODE = """
import os, boto3
from intake_ledger import Unprocessable

table = boto3.resource("dynamodb").Table(os.environ["COUNTS"])

def process(change):
    if change.key.startswith("bad") and "STRICT" in os.environ:
        raise Unprocessable("no invoice in it")
    table.update_item(Key={"file": change.key}, UpdateExpression="ADD calls :one",
        ExpressionAttributeValues={":one": 1})
"""
TEN = [f"{number}.csv" for number in range(10)]
Json = dict[str, Any]


@dataclass
class Team:
    """A team's stacks, and what their pipelines have done."""

    aws: LocalAws
    folder: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    former: dict[str, str] = field(default_factory=dict)
    """The outputs of the pipeline under its former name."""
    stacks: int = 0

    def __post_init__(self) -> None:
        self.s3, self.dynamodb = self.aws.client("s3"), self.aws.client("dynamodb")
        self.counts = f"counts-{self.folder.name}"
        self.s3.create_bucket(Bucket=cloudformation.ASSETS)
        self.dynamodb.create_table(
            TableName=self.counts,
            KeySchema=[{"AttributeName": "file", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "file", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "AWS_PROFILE"):
            self.monkeypatch.delenv(name, raising=False)
        for name, value in self.aws.environment.items():
            if name.startswith("AWS_"):
                self.monkeypatch.setenv(name, value)

    def new_stack(self, name: str) -> cdk.Stack:
        self.stacks += 1
        return cloudformation.new_stack(self.folder / str(self.stacks), name)

    def pipeline(self, scope: Construct, id_: str, *, strict: bool = False, **options: Any) -> IntakePipeline:
        """A pipeline whose processor counts its calls for each key. If it is strict, it rejects bad files."""
        stack = cdk.Stack.of(scope)
        code = self.folder / str(self.stacks) / "code"
        code.mkdir(parents=True)
        (code / "counting.py").write_text(CODE)
        pipeline = IntakePipeline(
            scope,
            id_,
            processor=Processor.from_asset(
                code,
                entrypoint="counting:process",
                environment={"COUNTS": self.counts} | ({"STRICT": "1"} if strict else {}),
            ),
            processing_timeout=cdk.Duration.seconds(20),
            audit=AuditOptions(settle_time=cdk.Duration.seconds(1)),
            **options,
        )
        dynamodb.Table.from_table_name(stack, "Counts", self.counts).grant(pipeline, "dynamodb:UpdateItem")
        for name, value in {
            "Name": pipeline.name,
            "Bucket": pipeline.bucket.bucket_name,
            "Ledger": pipeline.table.table_name,
            "QueueArn": pipeline.queue.queue_arn,
            "DeadArn": pipeline.dead_letter_queue.queue_arn,
            "Consumer": pipeline.function.function_name,
            "Audit": pipeline.audit_function.function_name,
        }.items():
            cdk.CfnOutput(stack, f"{name}Output", value=value)
        return pipeline

    def deploy(self, what: Any, stack: cdk.Stack) -> dict[str, str]:
        return cloudformation.deploy(self.aws, what, stack.stack_name, *cloudformation.synthesise(stack))

    def kept(self, stack: cdk.Stack) -> Json:
        """The options with which another construct goes on where the former pipeline has stopped."""
        return {
            "name": self.former["Name"],
            "ledger": IntakeLedger(stack, "KeptLedger", table=kept_ledger(stack, self.former["Ledger"])),
            "queue": kept_queue(stack, self.former["QueueArn"], self.former["DeadArn"], visibility=self.visibility()),
        }

    def visibility(self) -> int:
        """The visibility timeout of the former queue in seconds."""
        sqs = self.aws.client("sqs")
        url = sqs.get_queue_url(QueueName=self.former["QueueArn"].rpartition(":")[2])["QueueUrl"]
        answer = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout"])
        return int(answer["Attributes"]["VisibilityTimeout"])

    def upload(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.s3.put_object(Bucket=self.former["Bucket"], Key=key, Body=b"1 EUR")

    def stops_with_work(self) -> None:
        """One file is processed and one is rejected, and the audit runs. Then ten messages wait in the queue."""
        self.upload(["done.csv", "bad.csv"])
        self.settles({"done.csv": "PROCESSED", "bad.csv": "REJECTED"})
        self.audit(self.former)
        functions = self.aws.client("lambda")
        [source] = functions.list_event_source_mappings(FunctionName=self.former["Consumer"])["EventSourceMappings"]
        functions.update_event_source_mapping(UUID=source["UUID"], Enabled=False)
        self.upload(TEN)

    def settles(self, expected: dict[str, str]) -> None:
        """Wait until the rows of the former name have this status by key."""

        def statuses() -> dict[str, str]:
            items = self.dynamodb.scan(TableName=self.former["Ledger"], ConsistentRead=True)["Items"]
            place = f"{self.former['Name']}@latest"
            # An audit's mark has no status.
            rows = [one for one in items if one["sk"]["S"] == place and "status" in one]
            return {row["pk"]["S"].partition("/")[2]: row["status"]["S"] for row in rows}

        self.aws.wait_until(lambda: statuses() == expected, "the rows are settled", timeout=TIMEOUT)

    def goes_on(self, outputs: dict[str, str], stack: str, meanwhile: Iterable[str] = ()) -> None:
        """The waiting and the rejected files are processed, new ones too, and the audit is clean."""
        assert [outputs[one] for one in ("Name", "Bucket", "Ledger", "QueueArn", "DeadArn")] == [
            self.former[one] for one in ("Name", "Bucket", "Ledger", "QueueArn", "DeadArn")
        ]
        self.upload(["later.csv"])
        processed = dict.fromkeys([*TEN, "done.csv", "later.csv", *meanwhile], "PROCESSED")
        if meanwhile:
            self.aws.wait_until(lambda: any(self.audit(outputs)["counts"].values()), "it finds them", timeout=TIMEOUT)
        self.settles(processed | {"bad.csv": "REJECTED"})
        assert commands.run(["retry", "--prefix=", "--yes", "--stack", stack, "--json"]) == 0
        assert json.loads(self.capsys.readouterr().out)["redriven"]["moved"] == 1
        self.settles(processed | {"bad.csv": "PROCESSED"})
        report = self.audit(outputs)
        assert not any(report["counts"].values()), report
        assert not report["delivery"], report

    def audit(self, outputs: dict[str, str]) -> Json:
        """The report of one run."""

        def ran() -> Json:
            answer = self.aws.client("lambda").invoke(FunctionName=outputs["Audit"], Payload=b"{}")
            report: Json = json.load(answer["Payload"])
            # The schedule may have started another run.
            return report if "counts" in report else {}

        return self.aws.wait_until(ran, "no other audit runs", timeout=TIMEOUT)

    def calls(self) -> dict[str, int]:
        items = self.dynamodb.scan(TableName=self.counts, ConsistentRead=True)["Items"]
        return {one["file"]["S"]: int(one["calls"]["N"]) for one in items}


@pytest.fixture
def team(aws: LocalAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Team:
    return Team(aws, tmp_path, monkeypatch, capsys)


def inbox(stack: cdk.Stack) -> s3.Bucket:
    """The bucket of the team, which stays in its stack."""
    return s3.Bucket(stack, "Inbox", versioned=True)


@pytest.mark.failure_mode("F97")
def test_a_renamed_pipeline_loses_no_message(team: Team) -> None:
    """Each file is processed once: those that wait, one that was rejected, and a new one."""
    stack = team.new_stack("Renamed")
    team.pipeline(stack, "Orders", bucket=inbox(stack), strict=True)
    team.former = team.deploy("create", stack)
    team.stops_with_work()

    stack = team.new_stack("Renamed")
    team.pipeline(Construct(stack, "Domain"), "Billing", bucket=inbox(stack), **team.kept(stack))
    team.goes_on(team.deploy("update", stack), "Renamed")
    assert team.calls() == dict.fromkeys([*TEN, "done.csv", "bad.csv", "later.csv"], 1)


@pytest.mark.failure_mode("F97")
def test_a_rename_that_was_deployed_is_taken_back(team: Team) -> None:
    """What the other name has processed is processed again. Of all others, each is processed once."""
    stack = team.new_stack("Mistaken")
    team.pipeline(stack, "Orders", bucket=inbox(stack), strict=True)
    team.former = team.deploy("create", stack)
    team.stops_with_work()

    stack = team.new_stack("Mistaken")
    team.pipeline(stack, "Billing", bucket=inbox(stack))
    mistaken = team.deploy("update", stack)
    assert not {mistaken[one] for one in ("Name", "Ledger", "QueueArn")} & set(team.former.values())
    team.upload(["meanwhile.csv"])
    team.aws.wait_until(lambda: "meanwhile.csv" in team.calls(), "the other name processes it", timeout=TIMEOUT)

    stack = team.new_stack("Mistaken")
    team.pipeline(stack, "Orders", bucket=inbox(stack), **team.kept(stack))
    team.goes_on(team.deploy("update", stack), "Mistaken", ["meanwhile.csv"])
    assert team.calls() == dict.fromkeys([*TEN, "done.csv", "bad.csv", "later.csv"], 1) | {"meanwhile.csv": 2}


@pytest.mark.parametrize("shared", [False, True], ids=["own-ledger", "shared-ledger"])
@pytest.mark.failure_mode("F97")
def test_a_pipeline_goes_on_in_another_stack(team: Team, shared: bool) -> None:
    """The stack that had it keeps bucket, queues and table. The table may be one that others use too."""
    first, second = (f"{name}{'Shared' if shared else ''}" for name in ("From", "To"))

    def ledger(stack: cdk.Stack) -> Json:
        return {"ledger": IntakeLedger(stack, "Ledger")} if shared else {}

    stack = team.new_stack(first)
    team.pipeline(stack, "Orders", strict=True, **ledger(stack))
    team.former = team.deploy("create", stack)
    team.stops_with_work()

    stack = team.new_stack(first)
    ledger(stack)
    team.deploy("update", stack)
    stack = team.new_stack(second)
    bucket = s3.Bucket.from_bucket_name(stack, "KeptBucket", team.former["Bucket"])
    team.pipeline(stack, "Orders", bucket=bucket, delivery=Delivery.EXISTING, **team.kept(stack))
    team.goes_on(team.deploy("create", stack), second)
    assert team.calls() == dict.fromkeys([*TEN, "done.csv", "bad.csv", "later.csv"], 1)
