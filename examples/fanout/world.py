"""The deployed demonstration: its outputs by name, and the requests that its parts share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from examples.harness.world import SETTLE_SECONDS, Deployed

STACK = "FanOut"
BUS_SOURCE = "local.s3"
"""The source of the events on the demonstration's own bus."""
PIPELINES = ("Archive", "Search")


@dataclass(frozen=True)
class World(Deployed):
    """The deployed stack."""

    with_ledger: bool

    @property
    def pipelines(self) -> tuple[str, ...]:
        """The names of the deployed pipelines."""
        return PIPELINES if self.with_ledger else ()

    def wait_until_drained(self) -> None:
        """Wait until no queue has a message, visible or hidden."""
        names = ("Handwritten", *self.pipelines)
        self.wait_until_empty({name: self.outputs[f"{name}QueueUrl"] for name in names}, lambda _, __: None)

    def dead_letters(self) -> dict[str, int]:
        """Return the number of dead-letter messages of each side."""
        counts = {"hand-written": sum(self.depth(self.outputs["HandwrittenDeadLetterQueueUrl"]))}
        if self.with_ledger:
            urls = [self.outputs[f"{name}DeadLetterQueueUrl"] for name in PIPELINES]
            counts["ledger"] = sum(sum(self.depth(url)) for url in urls)
        return counts

    def commits(self) -> int:
        """Return the number of commits in the ledger so far."""
        return sum(int(self.aws.metrics(self.outputs[f"{name}Function"])["Committed"]) for name in self.pipelines)

    def audit_of(self, pipeline: str, settle_seconds: float = SETTLE_SECONDS) -> dict[str, Any]:
        """Run one pipeline's audit after its settle time, and return its report."""
        return self.audit(self.outputs[f"{pipeline}Audit"], self.outputs["LedgerTable"], settle_seconds)

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
