"""Upgrade from a release to the present code. Resources with data stay the same, and the code reads their data."""

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from cdk_intake_ledger.testing import LocalAws
from tests.local import release
from tests.local.support import TIMEOUT

STATEFUL = ("AWS::S3::Bucket", "AWS::DynamoDB::Table", "AWS::SQS::Queue", "AWS::Logs::LogGroup")
RELEASES = sorted(path.name.removesuffix(".template.json") for path in release.RELEASES.glob("*.template.json"))


@dataclass(frozen=True)
class Deployed:
    """One stack, by the logical ids of its template."""

    aws: LocalAws

    def put(self, what: Literal["create", "update"], template: Mapping[str, Any], assets: Mapping[str, Path]) -> None:
        """Make the stack, or update it."""
        for key, path in assets.items():
            body = path.read_bytes() if path.is_file() else zipped(path)
            self.aws.client("s3").put_object(Bucket=release.ASSETS, Key=key, Body=body)
        cloudformation = self.aws.client("cloudformation")
        put = getattr(cloudformation, f"{what}_stack")
        put(StackName=release.STACK, TemplateBody=json.dumps(template), Capabilities=["CAPABILITY_IAM"])
        done = cloudformation.get_waiter(f"stack_{what}_complete")
        done.wait(StackName=release.STACK, WaiterConfig={"Delay": 1, "MaxAttempts": 240})

    def physical(self, template: Mapping[str, Any], *types: str) -> dict[str, str]:
        """The physical ids of the resources of these types."""
        names = [name for name, one in template["Resources"].items() if one["Type"] in types]
        return {name: str(self.aws.physical_id(release.STACK, name)) for name in names}

    @staticmethod
    def only(template: Mapping[str, Any], type_: str, beginning: str = "Orders") -> str:
        """The logical id of the only resource of a type that begins so."""
        found = [name for name, one in template["Resources"].items() if one["Type"] == type_]
        (name,) = (name for name in found if name.startswith(beginning))
        return str(name)

    def upload(self, bucket: str, key: str) -> str:
        version: str = self.aws.client("s3").put_object(Bucket=bucket, Key=key, Body=b"1 EUR")["VersionId"]
        return version

    def committed(self, table: str, version: str) -> dict[str, Any]:
        """The ledger's row, once this version is the committed one."""

        def row() -> dict[str, Any]:
            items = self.aws.client("dynamodb").scan(TableName=table, ConsistentRead=True)["Items"]
            return next((one for one in items if one.get("committed_state", {}).get("S") == f"v#{version}"), {})

        return self.aws.wait_until(row, f"version {version} is committed", timeout=TIMEOUT)

    def calls(self, table: str, version: str) -> int:
        """Count the processor's calls for a version."""
        item = self.aws.client("dynamodb").get_item(TableName=table, Key={"version": {"S": version}})["Item"]
        return int(item["calls"]["N"])


def zipped(folder: Path) -> bytes:
    """A folder as Lambda takes it."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*.py")):
            archive.write(path, path.relative_to(folder))
    return content.getvalue()


@pytest.mark.parametrize("version", RELEASES)
def test_an_upgrade_keeps_what_there_is(aws: LocalAws, tmp_path: Path, version: str) -> None:
    """Bucket, table and queues are the same ones; an object that was processed before is not processed again, and a new
    one is processed by the new runtime.
    """
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    deployed = Deployed(aws)
    aws.client("s3").create_bucket(Bucket=release.ASSETS)
    before, its_assets = release.kept(version, tmp_path / "old")
    deployed.put("create", before, its_assets)
    held = deployed.physical(before, *STATEFUL)
    bucket, table, calls, queue, dead_letters = (
        held[deployed.only(before, *wanted)]
        for wanted in (
            ("AWS::S3::Bucket", "OrdersBucket"),
            ("AWS::DynamoDB::Table", "OrdersLedger"),
            ("AWS::DynamoDB::Table", "Calls"),
            ("AWS::SQS::Queue", "OrdersQueueMessages"),
            ("AWS::SQS::Queue", "OrdersQueueDeadLetters"),
        )
    )
    first = deployed.upload(bucket, "before.csv")
    row = deployed.committed(table, first)
    aws.client("sqs").send_message(QueueUrl=dead_letters, MessageBody="somebody has to look at this")

    after, assets = release.synthesise(tmp_path / "new")
    assert set(assets) != set(its_assets), "nothing is upgraded"
    deployed.put("update", after, assets)

    assert {name: one for name, one in deployed.physical(after, *STATEFUL).items() if name in held} == held
    assert deployed.committed(table, first) == row
    assert aws.client("s3").head_object(Bucket=bucket, Key="before.csv")["VersionId"] == first
    (kept,) = aws.client("sqs").receive_message(QueueUrl=dead_letters)["Messages"]
    assert kept["Body"] == "somebody has to look at this"

    event: dict[str, Any] = {
        "s3": {"bucket": {"name": bucket}, "object": {"key": "before.csv", "versionId": first, "size": 5}}
    }
    event |= {
        "eventVersion": "2.6",
        "eventSource": "aws:s3",
        "eventName": "ObjectCreated:Put",
        "eventTime": "2026-11-21T12:00:00.000Z",
    }
    function = aws.physical_id(release.STACK, deployed.only(after, "AWS::Lambda::Function", "OrdersConsumer"))
    assert function is not None
    for last in (False, False, True):
        aws.client("sqs").send_message(QueueUrl=queue, MessageBody=json.dumps({"Records": [event]}))
        try:
            aws.wait_until(
                lambda: aws.metrics(function)["Duplicates"], "the new consumer knows the old row", timeout=30
            )
        except TimeoutError:
            # MiniStack may call the function while its stack is being updated. SQS would show the messages of such a
            # failed call again, but only after the queue's visibility timeout of 280 s.
            if last:
                raise
        else:
            break
    second = deployed.upload(bucket, "after.csv")
    deployed.committed(table, second)
    assert [deployed.calls(calls, one) for one in (first, second)] == [1, 1]
