"""The deployed pipelines, with their state in S3, the ledger, the queues and the downstream."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Protocol, Self
from urllib.parse import unquote

from boto3.dynamodb.types import TypeDeserializer

from cdk_intake_ledger.testing import LocalAws
from intake_ledger.events.parser import parse_message
from intake_ledger.outputs.conditional_put import REMOVED
from intake_ledger.protocol.change import Change
from intake_ledger_testing.events import s3_notification
from tests.local.faults.downstream import Downstream
from tests.local.faults.durable_api import DurableApi, Invoked
from tests.local.faults.judge import Expected, Facts, Letter, Report, Row, Version, judge
from tests.local.faults.proxy import Proxy

GRACE_SECONDS = 20.0
"""Seconds for which an empty queue may disagree with S3: a notification may still arrive."""
UNREAD_EVERY = 5
"""One of so many batches of reads and writes of the table leaves a key for later."""
_read = TypeDeserializer().deserialize


class Reported(Protocol):
    """Judges the present facts. `counted` adds the verdicts in the logs."""

    def __call__(self, *, counted: bool) -> Report: ...


@dataclass
class Sources:
    """The servers that cause the faults."""

    aws: LocalAws
    downstream: Downstream = field(default_factory=Downstream)
    proxy: Proxy = field(init=False)

    def __post_init__(self) -> None:
        self.proxy = Proxy(lambda: self.aws.endpoint_url, DurableApi(self._invoke))
        self.proxy.corrections.unread_every = UNREAD_EVERY

    def _invoke(self, function: str, payload: bytes) -> Invoked:
        """Run a deployed function once."""
        answer = self.aws.client("lambda").invoke(FunctionName=function, Payload=payload)
        content = json.loads(answer["Payload"].read())
        return Invoked(None if "FunctionError" in answer else content)

    @contextmanager
    def running(self) -> Iterator[dict[str, str]]:
        """Run both servers. Yields the CDK context for the stack."""
        with self.downstream.server() as downstream, self.proxy.server() as proxy:
            yield {"downstream": downstream.url, "proxy": proxy.url}


@dataclass(frozen=True)
class Line:
    """One deployed pipeline."""

    aws: LocalAws
    downstream: Downstream
    bucket: str
    queue: str
    dead_letters: str
    table: str
    function: str
    rejects: str = ""
    """The bucket of rejected rows, if there is one."""
    _looking: Lock = field(default_factory=Lock, compare=False)

    @classmethod
    def of(cls, sources: Sources, outputs: Mapping[str, str], name: str) -> Self:
        """Read the names from the stack's outputs."""
        return cls(
            aws=sources.aws,
            downstream=sources.downstream,
            bucket=outputs[f"{name}Bucket"],
            queue=outputs[f"{name}QueueUrl"],
            dead_letters=outputs[f"{name}DeadLetterQueueUrl"],
            table=outputs[f"{name}Table"],
            function=outputs[f"{name}Function"],
            rejects=outputs.get(f"{name}RejectsBucket", ""),
        )

    # -- acting --

    def put(self, key: str, content: str = "") -> str:
        """Upload the content, or unique one, and return its version ID."""
        body = (content or f"{key} {time.monotonic_ns()}").encode()
        version: str = self.aws.client("s3").put_object(Bucket=self.bucket, Key=key, Body=body)["VersionId"]
        return version

    def put_all(self, keys: Iterable[str]) -> None:
        """Upload several, some at the same time."""
        with ThreadPoolExecutor(4) as pool:
            for _ in pool.map(self.put, keys):
                pass

    def announce(self, key: str, version: str, *, copies: int) -> None:
        """Send S3's message about a version `copies` more times."""
        body = s3_notification(self.bucket, key, version_id=version)
        entries = [{"Id": str(n), "MessageBody": body} for n in range(copies)]
        self.aws.client("sqs").send_message_batch(QueueUrl=self.queue, Entries=entries)

    def hide_for(self, seconds: int) -> None:
        """Set how long the queue hides a message that was received."""
        attributes = {"VisibilityTimeout": str(seconds)}
        self.aws.client("sqs").set_queue_attributes(QueueUrl=self.queue, Attributes=attributes)

    def redrive(self) -> int:
        """Move every dead-letter message to the queue, with its attributes. Returns their number."""
        sqs, moved = self.aws.client("sqs"), 0
        for message in self._received(hidden=True):
            sqs.send_message(
                QueueUrl=self.queue,
                MessageBody=message["Body"],
                MessageAttributes={
                    name: {part: value for part, value in attribute.items() if part in {"DataType", "StringValue"}}
                    for name, attribute in message.get("MessageAttributes", {}).items()
                },
            )
            sqs.delete_message(QueueUrl=self.dead_letters, ReceiptHandle=message["ReceiptHandle"])
            moved += 1
        return moved

    # -- asking --

    def quiet(self) -> bool:
        """Return whether the queue holds no message, not even a hidden one."""
        names = [f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible", "Delayed")]
        answer = self.aws.client("sqs").get_queue_attributes(QueueUrl=self.queue, AttributeNames=names)
        return not any(int(answer["Attributes"][name]) for name in names)

    def wait(self, condition: Callable[[], bool], what: str, *, timeout: float) -> list[str]:
        """Wait for the condition. Returns the problem if it never holds."""
        try:
            self.aws.wait_until(condition, what, timeout=timeout)
        except TimeoutError as late:
            return [str(late)]
        return []

    def settled(self, prefix: str, expected: Expected, *, timeout: float) -> Report:
        """Return the report when it has no problems, or when the queue is empty and the grace time is over."""

        def report(*, counted: bool) -> Report:
            return judge(self.facts(prefix, counted=counted), expected)

        return self.until_right(report, f"{prefix} is done with", timeout=timeout)

    def until_right(self, report: Reported, what: str, *, timeout: float) -> Report:
        """Return the report when it has no problems, or when the queue is empty and the grace time is over."""
        quiet_since: float | None = None

        def ended() -> bool:
            nonlocal quiet_since
            if not self.quiet():
                quiet_since = None
                return False
            quiet_since = quiet_since or time.monotonic()
            return report(counted=False).right or time.monotonic() - quiet_since > GRACE_SECONDS

        late = self.wait(ended, what, timeout=timeout)
        found = report(counted=True)
        return replace(found, problems=(*found.problems, *late))

    def facts(self, prefix: str, *, counted: bool = False) -> Facts:
        """Collect the facts about the keys under `prefix`. `counted` adds the verdicts in the logs."""
        return Facts(
            versions=self.versions(prefix),
            rows=self.rows(prefix),
            letters=[letter for letter in self.letters() if letter.key.startswith(prefix) or not letter.key],
            effects=self.downstream.effects_of(prefix),
            verdicts=self.verdicts(prefix) if counted else {},
        )

    def versions(self, prefix: str) -> list[Version]:
        """List the versions, the newest of a key last. S3 lists it first."""
        pages = self.aws.client("s3").get_paginator("list_object_versions").paginate(Bucket=self.bucket, Prefix=prefix)
        found = [
            Version(one["Key"], one["VersionId"], one["ETag"].strip('"'), one["IsLatest"])
            for page in pages
            for one in page.get("Versions", ())
        ]
        return found[::-1]

    def rows(self, prefix: str) -> dict[str, Row]:
        """Return the rows by key. Other items have no status."""
        return {
            key: Row(
                item["status"],
                item.get("committed_state", "").removeprefix("v#"),
                item.get("reason", ""),
                int(item.get("redrive_count", 0)),
            )
            for key, item in self.items(prefix)
            if "status" in item
        }

    def items(self, prefix: str) -> list[tuple[str, dict[str, Any]]]:
        """Return all items of the ledger's table under `prefix`, each with its key."""
        pages = self.aws.client("dynamodb").get_paginator("scan").paginate(
            TableName=self.table,
            ConsistentRead=True,
            FilterExpression="begins_with(pk, :start)",
            ExpressionAttributeValues={":start": {"S": f"{self.bucket}/{prefix}"}},
        )  # fmt: skip
        items = [{name: _read(value) for name, value in item.items()} for page in pages for item in page["Items"]]
        return [(item["pk"].removeprefix(f"{self.bucket}/"), item) for item in items]

    def rejected_rows(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rejected rows by key. Readers take a tombstone for an absent object."""
        s3, found = self.aws.client("s3"), dict[str, list[dict[str, Any]]]()
        for one in s3.list_objects_v2(Bucket=self.rejects).get("Contents", ()):
            answer = s3.get_object(Bucket=self.rejects, Key=one["Key"])
            if REMOVED not in answer["Metadata"]:
                key = one["Key"].removeprefix("rejects/").removesuffix(".rejects.jsonl")
                found[key] = [json.loads(line) for line in answer["Body"].read().splitlines()]
        return found

    def letters(self) -> list[Letter]:
        """Return the dead-letter messages without deleting them."""
        return [_letter(body, attributes) for body, attributes in self.dead()]

    def dead(self) -> list[tuple[str, dict[str, str]]]:
        """Return body and attributes of each dead-letter message without deleting it."""
        return [(message["Body"], _attributes(message)) for message in self._received(hidden=False)]

    def verdicts(self, prefix: str) -> Counter[str]:
        """Count the verdicts in the consumer's logs."""
        records = self.aws.records(self.function)
        return Counter(str(one["verdict"]) for one in records if "verdict" in one and one["key"].startswith(prefix))

    def _received(self, *, hidden: bool) -> list[dict[str, Any]]:
        """Receive every message of the dead-letter queue. Unless `hidden`, they become visible again at once."""
        sqs = self.aws.client("sqs")
        found: list[dict[str, Any]] = []
        with self._looking:
            while messages := sqs.receive_message(
                QueueUrl=self.dead_letters, MaxNumberOfMessages=10, MessageAttributeNames=["All"], VisibilityTimeout=600
            ).get("Messages"):
                found += messages
            for message in () if hidden else found:
                sqs.change_message_visibility(
                    QueueUrl=self.dead_letters, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
                )
        return found


def _attributes(message: Mapping[str, Any]) -> dict[str, str]:
    return {name: value.get("StringValue", "") for name, value in message.get("MessageAttributes", {}).items()}


def _letter(body: str, attributes: Mapping[str, str]) -> Letter:
    if "key" in attributes:
        return Letter(unquote(attributes["key"]), attributes.get("reason", ""))
    # The queue itself moved the message here because it was received too often.
    changes = [one for one in parse_message(body) if isinstance(one, Change)]
    return Letter(changes[0].key if changes else "", json.dumps(attributes) if attributes else "")
