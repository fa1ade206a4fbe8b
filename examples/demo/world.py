"""The deployed demo: its outputs by name, and the few questions that every part of the demo asks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cdk_intake_ledger.testing import LocalAws

SIDES = ("ledger", "naive")
SETTLE_SECONDS = 2
"""For how long the audit leaves alone what is fresh."""


@dataclass(frozen=True)
class World:
    """What was deployed, and the way to it."""

    aws: LocalAws
    outputs: Mapping[str, str]

    @property
    def bucket(self) -> str:
        return self.outputs["BucketName"]

    def queue(self, side: str) -> str:
        return self.outputs["QueueUrl" if side == "ledger" else "NaiveQueueUrl"]

    def dead_letters(self, side: str) -> str:
        return self.outputs["DeadLetterQueueUrl" if side == "ledger" else "NaiveDeadLetterQueueUrl"]

    def table(self, side: str) -> str:
        return self.outputs["CatalogueTable" if side == "ledger" else "NaiveTable"]

    def depth(self, queue_url: str) -> tuple[int, int]:
        """How many messages wait in a queue, and how many are in somebody's hands or hidden until a retry."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        attributes = self.aws.client("sqs").get_queue_attributes(QueueUrl=queue_url, AttributeNames=names)["Attributes"]
        return int(attributes[names[0]]), int(attributes[names[1]])

    def items(self, table: str) -> Iterator[dict[str, Any]]:
        """All items of a table, as plain values."""
        for page in self.aws.client("dynamodb").get_paginator("scan").paginate(TableName=table, ConsistentRead=True):
            for item in page["Items"]:
                yield {name: _plain(value) for name, value in item.items()}

    def effects(self) -> dict[str, list[dict[str, Any]]]:
        """The effects of both sides, in the order in which they were complete; and, as `<side>-killed`, the deaths."""
        found: dict[str, list[dict[str, Any]]] = {name: [] for side in SIDES for name in (side, f"{side}-killed")}
        for item in self.items(self.outputs["EffectsTable"]):
            found[item["side"]].append(item)
        return {name: sorted(entries, key=lambda entry: entry["at"]) for name, entries in found.items()}

    def count(self, table: str) -> int:
        """How many items a table has now."""
        pages = self.aws.client("dynamodb").get_paginator("scan").paginate(TableName=table, Select="COUNT")
        return sum(page["Count"] for page in pages)

    def messages(self, queue_url: str) -> list[dict[str, Any]]:
        """Every message that waits in a queue, with attributes. They are hidden from others for a minute."""
        sqs = self.aws.client("sqs")
        found: list[dict[str, Any]] = []
        while True:
            batch = sqs.receive_message(
                QueueUrl=queue_url, MaxNumberOfMessages=10, MessageAttributeNames=["All"], VisibilityTimeout=60
            ).get("Messages", [])
            if not batch:
                return found
            found += batch


def _plain(value: Mapping[str, Any]) -> Any:
    [(kind, content)] = value.items()
    if kind == "N":
        return int(content)
    return None if kind == "NULL" else content
