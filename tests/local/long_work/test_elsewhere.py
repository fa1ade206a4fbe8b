"""A state machine as the processor of messages, of sets of files and of overtaken objects, deployed."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from boto3.dynamodb.types import TypeDeserializer

from cdk_intake_ledger.testing import LocalAws
from tests.local.conftest import Outputs
from tests.local.long_work.elsewhere_stack import STACK
from tests.local.support import TIMEOUT

Entry = dict[str, Any]
_read = TypeDeserializer().deserialize
ORDERS = [("o-1", "e-1"), ("o-1", "e-1"), ("o-1", "e-2"), ("o-2", "e-3"), ("o-3", "reject"), ("o-2", "e-3")]
"""Key and identity: copies, two messages of a key, and one that the task rejects."""


@dataclass(frozen=True)
class Elsewhere:
    """The deployed stack."""

    aws: LocalAws
    found: dict[str, str]

    def rows(self, table: str, sort: str = "") -> list[Entry]:
        """The rows whose sort key has this text."""
        items = self.aws.client("dynamodb").scan(TableName=self.found[f"Out{table}"], ConsistentRead=True)["Items"]
        plain = ({name: _read(value) for name, value in item.items()} for item in items)
        return [one for one in plain if "status" in one and sort in one["sk"]]

    def executions(self, machine: str = "Machine") -> list[Entry]:
        """The input of each execution, with its times, its status and its error. The oldest is first."""
        states = self.aws.client("stepfunctions")
        pages = states.get_paginator("list_executions").paginate(stateMachineArn=self.found[f"Out{machine}Arn"])
        described = (
            states.describe_execution(executionArn=one["executionArn"]) for page in pages for one in page["executions"]
        )
        found = [
            json.loads(one["input"])
            | {"start": one["startDate"], "stop": one.get("stopDate"), "end": (one["status"], one.get("error"))}
            for one in described
        ]
        return sorted(found, key=lambda one: one["start"])


@pytest.fixture(scope="module")
def elsewhere(aws: LocalAws, outputs: Outputs) -> Elsewhere:
    return Elsewhere(aws, outputs[STACK])


@pytest.fixture(scope="module")
def orders(elsewhere: Elsewhere) -> list[Entry]:
    """The rows of all messages, settled."""
    for key, identity in ORDERS:
        body = {"order_id": key, "event_id": identity, "do": "reject" if identity == "reject" else "book"}
        elsewhere.aws.client("sqs").send_message(QueueUrl=elsewhere.found["OutQueue"], MessageBody=json.dumps(body))

    def settled() -> list[Entry]:
        ended = [row for row in elsewhere.rows("OrdersTable") if row["status"] in ("PROCESSED", "REJECTED")]
        return ended if len(ended) == len({*ORDERS}) else []

    return list(elsewhere.aws.wait_until(settled, "each message is settled", timeout=TIMEOUT))


def test_each_message_has_one_execution_whose_output_is_its_commit(elsewhere: Elsewhere, orders: list[Entry]) -> None:
    """A copy starts none."""
    started = [one for one in elsewhere.executions() if "identity" in one]
    assert Counter((one["key"], one["identity"]) for one in started) == Counter(dict.fromkeys(ORDERS, 1))
    committed = {row["commit_id"] for row in orders if row["status"] == "PROCESSED"}
    expected = {f"{one['key']} {one['identity']} {one['fenceText']}" for one in started}
    assert committed == {text for text in expected if "reject" not in text}


def test_executions_of_a_key_follow_each_other(elsewhere: Elsewhere, orders: list[Entry]) -> None:
    assert orders
    first, second = sorted(
        (one for one in elsewhere.executions() if one["key"] == "o-1"), key=lambda one: int(one["fenceText"])
    )
    assert first["stop"] <= second["start"]


def test_a_rejected_message_is_a_dead_letter_with_its_reason(elsewhere: Elsewhere, orders: list[Entry]) -> None:
    assert [row["reason"] for row in orders if row["status"] == "REJECTED"] == ["the order is empty"]
    answer = elsewhere.aws.client("sqs").receive_message(
        QueueUrl=elsewhere.found["OutDeadLetters"], MessageAttributeNames=["All"], VisibilityTimeout=0
    )
    [letter] = answer["Messages"]
    assert letter["MessageAttributes"]["reason"]["StringValue"] == "the order is empty"


def test_a_set_gives_its_execution_the_list_of_its_parts(elsewhere: Elsewhere) -> None:
    """The task reads the list, and each part in the version that is named there."""
    put = elsewhere.aws.client("s3").put_object
    bucket, keys = elsewhere.found["OutBucket"], ["loads/day/a.csv", "loads/day/b.csv"]
    for key in keys:
        put(Bucket=bucket, Key=key, Body=b"12345")
    put(
        Bucket=bucket, Key="loads/day/manifest.json", Body=json.dumps([key.rpartition("/")[2] for key in keys]).encode()
    )

    def committed() -> list[Entry]:
        return [row for row in elsewhere.rows("PartsTable", "Loads@") if row.get("commit_id")]

    [row] = elsewhere.aws.wait_until(committed, "the set is committed", timeout=TIMEOUT)
    assert row["commit_id"] == "2 parts, 10 bytes"


def test_a_newer_version_stops_the_execution_of_the_older_one(elsewhere: Elsewhere) -> None:
    """It begins after the longest task of the older one, which would run for a hundred seconds."""
    s3, bucket = elsewhere.aws.client("s3"), elsewhere.found["OutTextsBucket"]
    first = s3.put_object(Bucket=bucket, Key="a.txt", Body=bytes(100))["VersionId"]
    elsewhere.aws.wait_until(lambda: elsewhere.executions("Paused"), "the first one is in work", timeout=TIMEOUT)
    second = s3.put_object(Bucket=bucket, Key="a.txt", Body=b"1")["VersionId"]

    def settled() -> bool:
        rows = elsewhere.rows("TextsTable")
        return [(one["status"], one["version_id"]) for one in rows] == [("PROCESSED", second)]

    elsewhere.aws.wait_until(settled, "the second one is committed", timeout=TIMEOUT)
    older, newer = elsewhere.executions("Paused")
    assert (older["versionId"], older["end"]) == (first, ("ABORTED", "IntakeLedger.Overtaken"))
    assert (newer["versionId"], newer["attempt"], newer["end"][0]) == (second, 1, "SUCCEEDED")
    assert (newer["start"] - older["stop"]).total_seconds() >= 2
