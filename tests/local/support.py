"""Read the state of a deployed pipeline."""

import gzip
import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

from boto3.dynamodb.types import TypeDeserializer

from cdk_intake_ledger.testing import LocalAws
from tests.known import known

Entry = dict[str, Any]
TIMEOUT = 240.0
"""Seconds. No test waits for so long, unless the machine is very busy."""
_read = TypeDeserializer().deserialize


def model(version: str, operations: int = 1) -> bytes:
    """A small service model as botocore ships them."""
    content = {"metadata": {"apiVersion": version}, "operations": {str(n): {} for n in range(operations)}}
    return gzip.compress(json.dumps(content).encode(), mtime=0)


@dataclass(frozen=True)
class Pipeline:
    """One deployed pipeline, and the table of its processor's effects."""

    aws: LocalAws
    bucket: str
    function: str
    effects_table: str

    def put(self, key: str, body: bytes) -> str:
        version: str = self.aws.client("s3").put_object(Bucket=self.bucket, Key=key, Body=body)["VersionId"]
        return version

    def delete(self, key: str, version: str | None = None) -> str:
        which = {"VersionId": version} if version else {}
        deleted: str = self.aws.client("s3").delete_object(Bucket=self.bucket, Key=key, **which)["VersionId"]
        return deleted

    def effects(self, key: str) -> list[Entry]:
        answer = self.aws.client("dynamodb").query(
            TableName=self.effects_table,
            KeyConditionExpression="place = :place",
            ExpressionAttributeValues={":place": {"S": f"{self.bucket}/{key}"}},
            ConsistentRead=True,
        )
        return [_plain(item) for item in answer["Items"]]

    def effect(self, key: str, version: str) -> Entry:
        """The one effect of a version, awaited."""

        def found() -> list[Entry]:
            return [entry for entry in self.effects(key) if entry["version"] == version]

        [entry] = self.aws.wait_until(found, f"{key} has its effect", timeout=TIMEOUT)
        return entry

    def decisions(self, key: str) -> list[Entry]:
        """Return the consumer's log lines about a key, in order: verdicts and outcomes."""
        return [record for record in self.aws.records(self.function) if record.get("key") == key]


@dataclass(frozen=True)
class Catalogue(Pipeline):
    """The example's pipeline."""

    queue: str
    dead_letters: str
    ledger: str
    audit_function: str
    table: str

    @classmethod
    def of(
        cls, aws: LocalAws, found: Mapping[str, str], name: str = "", *, effects_table: str = "", table: str = ""
    ) -> "Catalogue":
        """A pipeline of a stack whose outputs for it begin with its name. Some have no queue or audit among them."""
        return cls(
            aws,
            found[f"{name}Bucket"],
            found[f"{name}Function"],
            effects_table,
            queue=found.get(f"{name}QueueUrl", ""),
            dead_letters=found.get(f"{name}DeadLetterQueueUrl", ""),
            ledger=found[f"{name}LedgerTable"],
            audit_function=found.get(f"{name}AuditFunction", ""),
            table=table,
        )

    def row(self, name: str) -> Entry | None:
        answer = self.aws.client("dynamodb").get_item(
            TableName=self.table, Key={"service": {"S": name}}, ConsistentRead=True
        )
        return _plain(answer["Item"]) if "Item" in answer else None

    def ledger_row(self, key: str) -> Entry:
        answer = self.aws.client("dynamodb").query(
            TableName=self.ledger,
            KeyConditionExpression="pk = :pk",
            ExpressionAttributeValues={":pk": {"S": f"{self.bucket}/{key}"}},
            ConsistentRead=True,
        )
        return _plain(answer["Items"][0]) if answer["Items"] else {}

    def settled(self, key: str, identity: str) -> Entry:
        """The key's ledger row, once it says that this state is the committed one."""

        def committed() -> Entry:
            row = self.ledger_row(key)
            return row if row.get("status") == "PROCESSED" and row["committed_state"] == identity else {}

        return self.aws.wait_until(committed, f"{key} is settled at {identity}", timeout=TIMEOUT)

    def send(self, *bodies: str) -> None:
        """Messages sent by hand, together, so that they may well share a batch."""
        for few in itertools.batched(bodies, 10):
            entries = [{"Id": str(n), "MessageBody": body} for n, body in enumerate(few)]
            self.aws.client("sqs").send_message_batch(QueueUrl=self.queue, Entries=entries)

    def drained(self) -> None:
        """Wait until the queue has no message."""
        drained(self.aws, self.queue)

    def rejected(self, word: str) -> Entry:
        """The dead letter whose body or reason has `word` in it, awaited; it stays where it is."""

        def found() -> Entry | None:
            messages = self.aws.client("sqs").receive_message(
                QueueUrl=self.dead_letters, MaxNumberOfMessages=10, MessageAttributeNames=["All"], VisibilityTimeout=0
            )
            return next(
                (message for message in messages.get("Messages", []) if word in json.dumps(message)),
                None,
            )

        return known(self.aws.wait_until(found, f"a dead letter about {word}", timeout=TIMEOUT))

    def audit(self, *, dry_run: bool = False) -> Entry:
        payload = json.dumps({"dryRun": dry_run}).encode()

        def ran() -> Entry | None:
            answer = self.aws.client("lambda").invoke(FunctionName=self.audit_function, Payload=payload)
            report: Entry = json.load(answer["Payload"])
            # The schedule may have started another run.
            return None if "skipped" in report else report

        report = known(self.aws.wait_until(ran, "no other audit is at work", timeout=TIMEOUT))
        assert "counts" in report, report
        return report

    def event(self, key: str, version: str, *, name: str = "ObjectCreated:Put", sequencer: str = "00AB") -> str:
        """An S3 notification as S3 would send it."""
        record = {
            "eventVersion": "2.6",
            "eventSource": "aws:s3",
            "awsRegion": self.aws.region,
            "eventTime": "2026-11-21T12:00:00.000Z",
            "eventName": name,
            "s3": {
                "s3SchemaVersion": "1.0",
                "bucket": {"name": self.bucket, "arn": f"arn:aws:s3:::{self.bucket}"},
                "object": {"key": quote_plus(key), "size": 1, "versionId": version, "sequencer": sequencer},
            },
        }
        return json.dumps({"Records": [record]})


def drained(aws: LocalAws, *queues: str) -> None:
    """Wait until the queues have no message, visible or hidden. Name a queue before those that its consumer sends to.

    Then each message was handled and deleted, so that rows, effects and log are final. Wait for this, not for lines.
    """
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]

    def empty() -> bool:
        sqs = aws.client("sqs")
        found = [sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=names)["Attributes"] for queue in queues]
        return all(one[name] == "0" for one in found for name in names)

    aws.wait_until(empty, "no message is left", timeout=TIMEOUT)


def _plain(item: Entry) -> Entry:
    return {name: _read(value) for name, value in item.items()}
