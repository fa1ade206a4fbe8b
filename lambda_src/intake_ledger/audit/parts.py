"""A run in parts: what it is about and how far each part has come, in the ledger's table.

    <bucket>#<run>              what the run is about, and how many messages it has sent
    <bucket>#<run>#list         one item for each part of a step: its place in the bucket, its progress, its findings

What parts hand on to each other lies beside these.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from intake_ledger.audit.items import RunItems
from intake_ledger.table import condition_failed


@dataclass(slots=True)
class Part:
    """One part of a step. `what` is its share, `work` its progress so far; None has not begun."""

    number: int
    what: Mapping[str, Any]
    work: Mapping[str, Any] | None = None
    done: bool = False


class Parts:
    """The parts of one run."""

    def __init__(self, items: RunItems) -> None:
        self._items = items

    def begin(self, about: Mapping[str, Any], steps: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Write down what the run is about, and what each part of each step has to do."""
        self._items.put_all(
            self._item(step, Part(number, what)) for step, parts in steps.items() for number, what in enumerate(parts)
        )
        # Last: who finds this finds all of it.
        self._items.put({**self._items.key(), "about": {"S": json.dumps(about)}, "sent": {"N": "0"}})

    def about(self) -> dict[str, Any]:
        """What the run is about."""
        found: dict[str, Any] = json.loads(self._items.get(self._items.key())["about"]["S"])
        return found

    def part(self, step: str, number: int) -> Part:
        """One part as it was saved last."""
        return _part(self._items.get(self._key(step, number)))

    def all(self, step: str) -> list[Part]:
        """All parts of a step."""
        return [_part(item) for item in self._items.query(f"#{step}")]

    def save(self, step: str, part: Part) -> None:
        """Keep how far a part has come."""
        self._items.put(self._item(step, part))

    def allow(self, wanted: int, budget: int) -> int:
        """Take `wanted` messages, or what is left, from the budget that all parts share."""
        items = self._items
        while wanted > 0:
            try:
                items.client.update_item(
                    TableName=items.table,
                    Key=items.key(),
                    UpdateExpression="SET #sent = #sent + :wanted",
                    ConditionExpression="#sent <= :most",
                    ExpressionAttributeNames={"#sent": "sent"},
                    ExpressionAttributeValues={":wanted": {"N": str(wanted)}, ":most": {"N": str(budget - wanted)}},
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
            except ClientError as error:
                if not condition_failed(error):
                    raise
                found: Any = error.response
                wanted = budget - int(found["Item"]["sent"]["N"])
            else:
                return wanted
        return 0

    def _key(self, step: str, number: int) -> dict[str, Any]:
        return self._items.key(f"#{step}", f"#{number:05d}")

    def _item(self, step: str, part: Part) -> dict[str, Any]:
        content = {"what": part.what, "work": part.work, "done": part.done}
        texts = {name: {"S": json.dumps(value)} for name, value in content.items()}
        return {**self._key(step, part.number), **texts, "part": {"N": str(part.number)}}


def _part(item: Mapping[str, Any]) -> Part:
    number, texts = int(item["part"]["N"]), {name: json.loads(item[name]["S"]) for name in ("what", "work", "done")}
    return Part(number, **texts)
