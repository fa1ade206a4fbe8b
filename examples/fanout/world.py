"""The deployed demonstration: its outputs by name, and the requests that its parts share."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdk_intake_ledger.testing import LocalAws

STACK = "FanOut"
BUS_SOURCE = "local.s3"
"""The source of the events on the demonstration's own bus."""
PIPELINES = ("Archive", "Search")
DRAIN_SECONDS = 900.0


@dataclass(frozen=True)
class World:
    """The deployed stack and the local AWS."""

    aws: LocalAws
    outputs: Mapping[str, str]
    with_ledger: bool

    @property
    def bucket(self) -> str:
        return self.outputs["BucketName"]

    @property
    def pipelines(self) -> tuple[str, ...]:
        """The names of the deployed pipelines."""
        return PIPELINES if self.with_ledger else ()

    def wait_until_drained(self, what: str) -> None:
        """Wait until no queue has a message, visible or hidden."""
        queues = [self.outputs[f"{name}QueueUrl"] for name in ("Handwritten", *self.pipelines)]
        self.aws.wait_until(
            lambda: not any(self._depth(queue) for queue in queues), what, timeout=DRAIN_SECONDS, interval=0.2
        )

    def dead_letters(self) -> dict[str, int]:
        """Return the number of dead-letter messages of each side."""
        counts = {"hand-written": self._depth(self.outputs["HandwrittenDeadLetterQueueUrl"])}
        if self.with_ledger:
            counts["ledger"] = sum(self._depth(self.outputs[f"{name}DeadLetterQueueUrl"]) for name in PIPELINES)
        return counts

    def commits(self) -> int:
        """Return the number of commits in the ledger so far."""
        return sum(int(self.aws.metrics(self.outputs[f"{name}Function"])["Committed"]) for name in self.pipelines)

    def audit(self, pipeline: str, settle_seconds: float) -> dict[str, Any]:
        """Run one pipeline's audit after its settle time, and return its report."""
        self.aws.wait_until(lambda: self._settled(settle_seconds), "the settle time is over", interval=0.2)
        report = self.aws.wait_until(lambda: self._audit_once(pipeline), "the scheduled audit, if one runs, has ended")
        assert report is not None
        return report

    def deliver_directly(self, *queues: str) -> None:
        """Let only these queues (outputs of the stack) receive S3's events by a rule of the default bus."""
        sqs, events = self.aws.client("sqs"), self.aws.client("events")
        chosen = set()
        for output in queues:
            attributes = sqs.get_queue_attributes(QueueUrl=self.outputs[output], AttributeNames=["QueueArn"])
            chosen.update(events.list_rule_names_by_target(TargetArn=attributes["Attributes"]["QueueArn"])["RuleNames"])
        for rule in events.list_rules()["Rules"]:
            if "aws.s3" in rule.get("EventPattern", ""):
                (events.enable_rule if rule["Name"] in chosen else events.disable_rule)(Name=rule["Name"])

    def _audit_once(self, pipeline: str) -> dict[str, Any] | None:
        """Run an audit, or return None while a scheduled run holds the lease."""
        answer = self.aws.client("lambda").invoke(FunctionName=self.outputs[f"{pipeline}Audit"], Payload=b"{}")
        report: dict[str, Any] = json.load(answer["Payload"])
        if "skipped" in report:
            return None
        if "counts" not in report:
            raise RuntimeError(f"the audit failed: {report}")
        return report

    def _settled(self, seconds: float) -> bool:
        pages = self.aws.client("dynamodb").get_paginator("scan")
        rows = [
            int(item["updated_at"]["N"])
            for page in pages.paginate(TableName=self.outputs["LedgerTable"], ConsistentRead=True)
            for item in page["Items"]
            if "status" in item
        ]
        return time.time() - max(rows, default=0) / 1000 > seconds + 0.2

    def _depth(self, queue_url: str) -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        attributes = self.aws.client("sqs").get_queue_attributes(QueueUrl=queue_url, AttributeNames=names)["Attributes"]
        return sum(int(attributes[name]) for name in names)
