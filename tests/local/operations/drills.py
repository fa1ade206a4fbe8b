"""A pipeline for the drills: its stack in three forms, its effects, and its audits."""

import json
import os
from contextlib import AbstractContextManager, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from examples.lost_event import events_are_lost

from cdk_intake_ledger import (
    AuditOptions,
    Delivery,
    Existing,
    IntakeLedger,
    IntakePipeline,
    IntakeQueue,
    Processor,
)
from cdk_intake_ledger.testing import LocalAws
from intake_ledger_cli import commands
from intake_ledger_testing.function_logs import json_objects
from tests.local import cloudformation
from tests.local.support import TIMEOUT

STACK = "Drilled"
EFFECTS = "drills-effects"
REPLICA = "drills-replica"
OBJECTS = 6
"""Objects at the beginning of each drill."""
CODE = f"""
import json, os
import boto3
from intake_ledger import Unprocessable

table = boto3.resource("dynamodb").Table("{EFFECTS}")

def process(change):
    content = "" if change.kind == "removed" else change.read(max_bytes=1_000).decode()
    if content == "bad" and not table.get_item(Key={{"file": "fixed"}}).get("Item"):
        raise Unprocessable("a bad file")
    if content == "stuck" and change.attempt == 1:
        os._exit(1)
    table.update_item(Key={{"file": change.key}},
        UpdateExpression="SET content = :content, fence = :fence ADD calls :one",
        ConditionExpression="attribute_not_exists(fence) OR fence < :fence",
        ExpressionAttributeValues={{":content": content, ":fence": change.fence, ":one": 1}})
    return change.key
"""
EFFECT = "    table.update_item"
"""The line of the code in which the effect begins."""
Json = dict[str, Any]
Form = Literal["first", "over", "replica"]


@dataclass
class Drilled:
    """The deployed pipeline. Its processor writes the content of each key, if no later attempt has written it."""

    aws: LocalAws
    folder: Path
    outputs: dict[str, str] = field(default_factory=dict)
    visibility: int = 0
    """The queue's visibility timeout in seconds."""
    published: int = 0
    """Lines of the consumer whose metrics CloudWatch has."""

    def __getitem__(self, output: str) -> str:
        return self.outputs[output]

    def client(self, service: str) -> Any:
        return self.aws.client(service)

    def deploy(self, form: Form) -> None:
        """Create or update the stack in one of its forms."""
        self.outputs = cloudformation.deploy(
            self.aws, "update" if form == "replica" else "create", STACK, *self._synthesise(form)
        )
        queue = self.client("sqs").get_queue_attributes(QueueUrl=self["Queue"], AttributeNames=["VisibilityTimeout"])
        self.visibility = int(queue["Attributes"]["VisibilityTimeout"])

    def put_code(self, code: str, *, visibility: int | None = None) -> None:
        """Deploy code of the processor.

        Args:
            code: of the module.
            visibility: seconds until a message of a failed invocation comes back. None: as the stack deploys it.

        """
        archive = self.folder / f"code-{len(list(self.folder.iterdir()))}"
        archive.mkdir()
        (archive / "noting.py").write_text(code)
        functions, sqs = self.client("lambda"), self.client("sqs")
        functions.update_function_code(FunctionName=self["Function"], ZipFile=cloudformation.zipped(archive))
        seconds = str(visibility or self.visibility)
        sqs.set_queue_attributes(QueueUrl=self["Queue"], Attributes={"VisibilityTimeout": seconds})

    def log_group(self) -> str:
        """The name of the consumer's log group."""
        group: str = self.client("lambda").get_function_configuration(FunctionName=self["Function"])["LoggingConfig"][
            "LogGroup"
        ]
        return group

    def finish_table(self) -> None:
        """Enable TTL and point-in-time recovery, which CreateTable does not enable."""
        client, table = self.client("dynamodb"), self["Ledger"]
        expiry = {"AttributeName": "expires_at", "Enabled": True}
        if client.describe_time_to_live(TableName=table)["TimeToLiveDescription"]["TimeToLiveStatus"] == "DISABLED":
            client.update_time_to_live(TableName=table, TimeToLiveSpecification=expiry)
        recovery = {"PointInTimeRecoveryEnabled": True}
        client.update_continuous_backups(TableName=table, PointInTimeRecoverySpecification=recovery)

    def upload(self, *keys: str, content: str = "1 EUR") -> None:
        for key in keys:
            self.client("s3").put_object(Bucket=self["Bucket"], Key=key, Body=content.encode())

    def delete(self, key: str) -> None:
        self.client("s3").delete_object(Bucket=self["Bucket"], Key=key)

    def wanted(self) -> dict[str, str]:
        """The content that each key has in the bucket, empty for a removed one."""
        found = self.client("s3").list_object_versions(Bucket=self["Bucket"])
        content = {one["Key"]: "" for one in found.get("DeleteMarkers", ()) if one["IsLatest"]}
        for one in found.get("Versions", ()):
            if one["IsLatest"]:
                got = self.client("s3").get_object(Bucket=self["Bucket"], Key=one["Key"])
                content[one["Key"]] = got["Body"].read().decode()
        return content

    def effects(self, attribute: str = "content") -> dict[str, str]:
        """One attribute of the effect of each key."""
        items = self.client("dynamodb").scan(TableName=EFFECTS, ConsistentRead=True)["Items"]
        return {one["file"]["S"]: next(iter(one[attribute].values())) for one in items if attribute in one}

    def fix(self) -> None:
        """Let the processor take bad files from now on."""
        self.client("dynamodb").put_item(TableName=EFFECTS, Item={"file": {"S": "fixed"}})

    def dead_letters(self) -> int:
        """The number of dead-letter messages."""
        return self.messages("Dead")

    def messages(self, queue: str) -> int:
        """The number of messages of a queue that are not in flight."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed"]
        answer = self.client("sqs").get_queue_attributes(QueueUrl=self[queue], AttributeNames=names)
        return sum(int(number) for number in answer["Attributes"].values())

    def rows(self) -> list[Json]:
        """All items of the ledger's table."""
        scan = self.client("dynamodb").get_paginator("scan").paginate(TableName=self["Ledger"], ConsistentRead=True)
        return [item for page in scan for item in page["Items"]]

    def disagreements(self) -> list[str]:
        """Compare the bucket with rows, queues and effects, without the audit."""
        found = self.client("s3").list_object_versions(Bucket=self["Bucket"])
        states = {one["Key"]: one["VersionId"] for one in found.get("Versions", ()) if one["IsLatest"]}
        rows = {item["pk"]["S"]: item for item in self.rows() if item["pk"]["S"].startswith(f"{self['Bucket']}/")}
        wrong = [
            f"{key}: no committed row of {version}"
            for key, version in states.items()
            if (row := rows.get(f"{self['Bucket']}/{key}")) is None
            or row["status"]["S"] != "PROCESSED"
            or row["version_id"]["S"] != version
        ]
        wrong += [f"{place}: {row['status']['S']}" for place, row in rows.items() if row["status"]["S"] != "PROCESSED"]
        wrong += [f"the queue {name} has messages" for name in ("Queue", "Dead") if self.messages(name)]
        return wrong + ["effects differ"] * (self.effects() != self.wanted())

    def publish(self) -> None:
        """Give the metrics of the consumer's log to CloudWatch, which the local AWS does not do."""
        lines = self.aws.logs(self["Function"])
        for record in json_objects(lines[self.published :]):
            for directive in record.get("_aws", {}).get("CloudWatchMetrics", ()):
                data = [
                    {
                        "MetricName": metric["Name"],
                        "Dimensions": [{"Name": name, "Value": record[name]} for name in names],
                        "Timestamp": record["_aws"]["Timestamp"] / 1000,
                        "Values": value if isinstance(value := record[metric["Name"]], list) else [value],
                    }
                    for metric in directive["Metrics"]
                    for names in directive["Dimensions"]
                ]
                self.client("cloudwatch").put_metric_data(Namespace=directive["Namespace"], MetricData=data)
        self.published = len(lines)

    def status(self) -> Json:
        """The status of the pipeline, with the latest metrics."""
        self.publish()
        return self.command("status")

    def requests(self) -> list[Json]:
        """The operations that have recorded requests, newest first."""
        return [one for one in self.command("operations")["operations"] if "sent" in one]

    def processed(self) -> None:
        """Wait until the effects are those of the bucket."""
        self.aws.wait_until(lambda: self.effects() == self.wanted(), "the effects are right", timeout=TIMEOUT)

    def audit(self) -> Json:
        """The report of one run."""

        def ran() -> Json:
            answer = self.client("lambda").invoke(FunctionName=self["Audit"], Payload=b"{}")
            report: Json = json.load(answer["Payload"])
            assert "errorMessage" not in report, report
            # The schedule may have started another run.
            return report if "counts" in report else {}

        return self.aws.wait_until(ran, "no other audit runs", timeout=TIMEOUT)

    def repaired(self) -> dict[str, int]:
        """Run audits until one is clean: each state agrees, without a problem of the delivery. Effects are right.

        Returns:
            the findings of all runs, by kind.

        """
        findings: dict[str, set[str]] = {}

        def clean() -> bool:
            report = self.audit()
            for one in report["findings"]:
                findings.setdefault(one["why"], set()).add(one["key"])
            # A backfill counts no findings, so no state may be in another line. Removed objects of a replica are its
            # baseline.
            others = [
                count
                for lines in (report["lines"], report["unlisted"])
                for line, count in lines.items()
                if line not in ("agrees", "baseline")
            ]
            agreed = not (any(report["counts"].values()) or any(others) or report["delivery"])
            # The messages of a backfill may still be on their way.
            return agreed and self.effects() == self.wanted()

        self.aws.wait_until(clean, "an audit is clean and the effects are right", timeout=TIMEOUT, interval=1)
        return {kind: len(keys) for kind, keys in findings.items()}

    def command(self, *arguments: str, ends: int = 0) -> Json:
        """Run `intake-ledger` as a person does, which ends with this exit code; its JSON output."""
        document: Json = json.loads(self.types(*arguments, "--json", ends=ends))
        return document

    def types(self, *arguments: str, ends: int = 0) -> str:
        """The output of a command for people."""
        ours = {name: value for name, value in self.aws.environment.items() if name.startswith("AWS_")}
        theirs = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "AWS_PROFILE")
        rest = {name: value for name, value in os.environ.items() if name not in theirs}
        with mock.patch.dict(os.environ, rest | ours, clear=True), redirect_stdout(StringIO()) as output:
            code = commands.run([*arguments, "--stack", STACK])
        assert code == ends, output.getvalue()
        return output.getvalue()

    def no_notification(self) -> AbstractContextManager[None]:
        """The bucket notifies nothing in the meantime."""
        return events_are_lost(self.client("s3"), self["Bucket"])

    def _synthesise(self, form: Form) -> tuple[Json, dict[str, Path]]:
        folder = self.folder / form
        code = folder / "code"
        code.mkdir(parents=True)
        (code / "noting.py").write_text(CODE)
        stack = cloudformation.new_stack(folder, STACK)
        pipeline = IntakePipeline(
            stack,
            "Orders",
            processor=Processor.from_asset(code, entrypoint="noting:process"),
            processing_timeout=cdk.Duration.seconds(20),
            deletes=True,
            audit=AuditOptions(
                settle_time=cdk.Duration.seconds(1),
                existing=Existing.BASELINE if form == "first" else Existing.BACKFILL,
            ),
            **self._existing(stack, form),
        )
        for name, value in {
            "Bucket": pipeline.bucket.bucket_name,
            "Ledger": pipeline.table.table_name,
            "Queue": pipeline.queue.queue_url,
            "QueueArn": pipeline.queue.queue_arn,
            "Dead": pipeline.dead_letter_queue.queue_url,
            "DeadArn": pipeline.dead_letter_queue.queue_arn,
            "Audit": pipeline.audit_function.function_name,
            "Function": pipeline.function.function_name,
        }.items():
            cdk.CfnOutput(stack, f"{name}Output", value=value)
        return cloudformation.synthesise(stack)

    def _existing(self, stack: cdk.Stack, form: Form) -> Json:
        """Options for the resources that are there already."""
        if form == "first":
            return {}
        ledger = {"ledger": IntakeLedger(stack, "KeptLedger", table=kept_ledger(stack, self["Ledger"]))}
        if form == "replica":
            return ledger | {"bucket": s3.Bucket.from_bucket_name(stack, "Replica", REPLICA)}
        queue = kept_queue(stack, self["QueueArn"], self["DeadArn"], visibility=self.visibility)
        bucket = s3.Bucket.from_bucket_name(stack, "KeptBucket", self["Bucket"])
        return ledger | {"bucket": bucket, "queue": queue, "delivery": Delivery.EXISTING}


def kept_ledger(stack: cdk.Stack, name: str) -> dynamodb.ITable:
    """The table that a pipeline has left."""
    return dynamodb.Table.from_table_attributes(stack, "KeptTable", table_name=name, global_indexes=["needs_review"])


def kept_queue(stack: cdk.Stack, queue: str, dead_letters: str, *, visibility: int) -> IntakeQueue:
    """The queues that a pipeline has left, by their ARNs, with the visibility timeout in seconds."""
    return IntakeQueue(
        stack,
        "KeptQueue",
        queue=sqs.Queue.from_queue_arn(stack, "KeptMessages", queue),
        dead_letter_queue=sqs.Queue.from_queue_arn(stack, "KeptDead", dead_letters),
        visibility_timeout=cdk.Duration.seconds(visibility),
        retention=cdk.Duration.days(4),
        dead_letter_retention=cdk.Duration.days(14),
    )
