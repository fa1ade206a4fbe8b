"""The deployed demo: its outputs by name, and the requests that all parts of the demo share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from examples.harness.world import Deployed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SIDES = ("ledger", "naive")
LOCKS = ("flag", "index")
"""Two more sides, with published locks; see `examples.published_locks`."""


@dataclass(frozen=True)
class World(Deployed):
    """The deployed stack, with its sides."""

    sides: Sequence[str] = SIDES
    """The consumers that get each message."""

    def queue(self, side: str) -> str:
        return self.outputs["QueueUrl" if side == "ledger" else f"{side.capitalize()}QueueUrl"]

    def dead_letters(self, side: str) -> str:
        return self.outputs["DeadLetterQueueUrl" if side == "ledger" else f"{side.capitalize()}DeadLetterQueueUrl"]

    def table(self, side: str) -> str:
        return self.outputs["CatalogueTable" if side == "ledger" else f"{side.capitalize()}Table"]

    def queues(self, *sides: str) -> dict[str, str]:
        """Return the URLs of the queues, of all sides by default."""
        return {side: self.queue(side) for side in sides or self.sides}

    def items(self, table: str) -> Iterator[dict[str, Any]]:
        """Yield all items of a table as Python values."""
        for page in self.aws.client("dynamodb").get_paginator("scan").paginate(TableName=table, ConsistentRead=True):
            for item in page["Items"]:
                yield {name: _plain(value) for name, value in item.items()}

    def effects(self) -> dict[str, list[dict[str, Any]]]:
        """Return the effects of all sides in the order of their ends, and the killed workers as `<side>-killed`."""
        found: dict[str, list[dict[str, Any]]] = {name: [] for side in self.sides for name in (side, f"{side}-killed")}
        for item in self.items(self.outputs["EffectsTable"]):
            found[item["side"]].append(item)
        return {name: sorted(entries, key=lambda entry: entry["at"]) for name, entries in found.items()}

    def messages(self, queue_url: str) -> list[dict[str, Any]]:
        """Receive all visible messages of a queue with their attributes, and hide them for a minute."""
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
