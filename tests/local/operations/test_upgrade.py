"""Upgrade from a release to the present code, and roll back. Data stay, and each code reads the rows of the other."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from cdk_intake_ledger.testing import LocalAws
from tests.local import cloudformation
from tests.local.operations import release
from tests.local.support import TIMEOUT

STATEFUL = ("AWS::S3::Bucket", "AWS::DynamoDB::Table", "AWS::SQS::Queue", "AWS::Logs::LogGroup")
RELEASES = sorted(path.name.removesuffix(".template.json") for path in release.RELEASES.glob("*.template.json"))
NONE_KEPT = pytest.param("", marks=pytest.mark.skip(reason="no release is kept yet: docs/upgrade.md says when"))


@dataclass(frozen=True)
class Deployed:
    """One stack, by the logical ids of its template."""

    aws: LocalAws

    def put(self, what: Literal["create", "update"], template: Mapping[str, Any], assets: Mapping[str, Path]) -> None:
        """Make the stack, or update it."""
        cloudformation.deploy(self.aws, what, release.STACK, dict(template), assets)

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

    def function(self, template: Mapping[str, Any], beginning: str) -> str:
        """The physical name of the only function that begins so."""
        name = self.aws.physical_id(release.STACK, self.only(template, "AWS::Lambda::Function", beginning))
        assert name is not None
        return name

    def knows(self, template: Mapping[str, Any], queue: str, event: Mapping[str, Any]) -> None:
        """Wait until the deployed consumer calls a copy of an event a duplicate."""
        function = self.function(template, "OrdersConsumer")
        before = self.aws.metrics(function)["Duplicates"]
        for last in (False, False, True):
            self.aws.client("sqs").send_message(QueueUrl=queue, MessageBody=json.dumps({"Records": [event]}))
            try:
                self.aws.wait_until(
                    lambda: self.aws.metrics(function)["Duplicates"] > before, "the row is known", timeout=30
                )
            except TimeoutError:
                # MiniStack may call the function while its stack is being updated. SQS would show the messages of such
                # a failed call again, but only after the queue's visibility timeout of 280 s.
                if last:
                    raise
            else:
                return

    def audit(self, template: Mapping[str, Any], objects: int) -> dict[str, Any]:
        """The report of a dry run that judges all objects."""
        function, client = self.function(template, "OrdersAudit"), self.aws.client("lambda")
        variables = client.get_function_configuration(FunctionName=function)["Environment"]["Variables"]
        wanted = variables | {"INTAKE_SETTLE_SECONDS": "1"}
        client.update_function_configuration(FunctionName=function, Environment={"Variables": wanted})

        def settled() -> dict[str, Any]:
            answer = client.invoke(FunctionName=function, Payload=b'{"dryRun": true}')
            report: dict[str, Any] = json.load(answer["Payload"])
            return report if report.get("checked") == objects else {}

        return self.aws.wait_until(settled, f"the audit judges {objects} objects", timeout=TIMEOUT)


def copy_of(bucket: str, key: str, version: str) -> dict[str, Any]:
    """A copy of the event of an upload."""
    return {
        "eventVersion": "2.6",
        "eventSource": "aws:s3",
        "eventName": "ObjectCreated:Put",
        "eventTime": "2026-11-21T12:00:00.000Z",
        "s3": {"bucket": {"name": bucket}, "object": {"key": key, "versionId": version, "size": 5}},
    }


@pytest.mark.failure_mode("F185")
@pytest.mark.parametrize("version", RELEASES or [NONE_KEPT])
def test_an_upgrade_keeps_the_data_and_so_does_its_rollback(aws: LocalAws, tmp_path: Path, version: str) -> None:
    """The release, the present code, and the release again. Bucket, table and queues are not replaced. Each version of
    an object is processed once, by the code that was deployed at its upload.
    """
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    deployed = Deployed(aws)
    aws.client("s3").create_bucket(Bucket=cloudformation.ASSETS)
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
    aws.client("sqs").send_message(QueueUrl=dead_letters, MessageBody="read me")

    after, assets = release.synthesise(tmp_path / "new")
    assert set(assets) != set(its_assets), "nothing is upgraded"
    deployed.put("update", after, assets)

    assert {name: one for name, one in deployed.physical(after, *STATEFUL).items() if name in held} == held
    assert deployed.committed(table, first) == row
    assert aws.client("s3").head_object(Bucket=bucket, Key="before.csv")["VersionId"] == first
    (kept,) = aws.client("sqs").receive_message(QueueUrl=dead_letters)["Messages"]
    assert kept["Body"] == "read me"

    deployed.knows(after, queue, copy_of(bucket, "before.csv", first))
    second = deployed.upload(bucket, "after.csv")
    row_of_present = deployed.committed(table, second)
    assert [deployed.calls(calls, one) for one in (first, second)] == [1, 1]

    # The rollback: the rows of the present code stay, and the release reads them.
    deployed.put("update", before, its_assets)
    assert deployed.physical(before, *STATEFUL) == held
    assert deployed.committed(table, second) == row_of_present
    deployed.knows(before, queue, copy_of(bucket, "after.csv", second))
    third = deployed.upload(bucket, "after.csv")
    row_of_release = deployed.committed(table, third)
    assert int(row_of_release["fence"]["N"]) > int(row_of_present["fence"]["N"])
    fourth = deployed.upload(bucket, "again.csv")
    deployed.committed(table, fourth)
    report = deployed.audit(before, objects=3)
    assert set(report["counts"].values()) == {0}, report
    assert [deployed.calls(calls, one) for one in (first, second, third, fourth)] == [1, 1, 1, 1]
