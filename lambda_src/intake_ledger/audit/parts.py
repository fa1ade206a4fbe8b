"""A run in parts: what it is about and how far each part has come, in the ledger's table.

    <bucket>#<run>              what the run is about, and how many messages it has sent
    <bucket>#<run>#list         one item for each part of a step: its place in the bucket, its progress, its findings
    <bucket>#<run>#shown#7      a filter that part 7 has filled, in pieces

No object's row can have such a partition key: a bucket's name has neither `#` nor `/`. All of it expires.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import batched
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from intake_ledger.audit.shown import Shown

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

KEPT_SECONDS = 14 * 86_400
"""How long a run can be looked at afterwards."""
_WRITE_BATCH = 25  # DynamoDB's limit of BatchWriteItem


@dataclass(slots=True)
class Part:
    """One part of a step. `what` is its share, `work` its progress so far; None has not begun."""

    number: int
    what: Mapping[str, Any]
    work: Mapping[str, Any] | None = None
    done: bool = False


class Parts:
    """The parts of one run. `clock` gives epoch milliseconds."""

    def __init__(
        self,
        client: "DynamoDBClient",
        table: str,
        *,
        bucket: str,
        pipeline: str,
        run: str,
        clock: Callable[[], int],
    ) -> None:
        self._client = client
        self._table = table
        self._name = f"{bucket}#{run}"
        self._sort = f"{pipeline}@audit"
        self._clock = clock

    def begin(self, about: Mapping[str, Any], steps: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Write down what the run is about, and what each part of each step has to do."""
        items = [
            self._part_item(step, Part(number, what))
            for step, parts in steps.items()
            for number, what in enumerate(parts)
        ]
        for few in batched(items, _WRITE_BATCH):
            request: Any = {self._table: [{"PutRequest": {"Item": item}} for item in few]}
            while request:
                request = self._client.batch_write_item(RequestItems=request).get("UnprocessedItems")
        # Last: who finds this finds all of it.
        self._put(self._key(), {"about": {"S": json.dumps(about)}, "sent": {"N": "0"}})

    def about(self) -> dict[str, Any]:
        """What the run is about."""
        item = self._client.get_item(TableName=self._table, Key=self._key(), ConsistentRead=True)["Item"]
        found: dict[str, Any] = json.loads(item["about"]["S"])
        return found

    def part(self, step: str, number: int) -> Part:
        """One part as it was saved last."""
        key = self._part_key(step, number)
        return _part(self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True)["Item"])

    def all(self, step: str) -> list[Part]:
        """All parts of a step."""
        return [_part(item) for item in self._query(f"#{step}")]

    def save(self, step: str, part: Part) -> None:
        """Keep how far a part has come."""
        item = self._part_item(step, part)
        self._client.put_item(TableName=self._table, Item=item)

    def allow(self, wanted: int, budget: int) -> int:
        """Take `wanted` messages, or what is left, from the budget that all parts share."""
        while wanted > 0:
            try:
                self._client.update_item(
                    TableName=self._table,
                    Key=self._key(),
                    UpdateExpression="SET #sent = #sent + :wanted",
                    ConditionExpression="#sent <= :most",
                    ExpressionAttributeNames={"#sent": "sent"},
                    ExpressionAttributeValues={":wanted": {"N": str(wanted)}, ":most": {"N": str(budget - wanted)}},
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
            except ClientError as error:
                if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                    raise
                found: Any = error.response
                wanted = budget - int(found["Item"]["sent"]["N"])
            else:
                return wanted
        return 0

    def keep(self, name: str, number: int, content: Shown) -> None:
        """Store what a part has filled of a filter."""
        for place, piece in content.parts():
            self._put(self._key(f"#{name}#{number}", f"#{place:03d}"), {"piece": {"B": piece}, "at": {"N": str(place)}})

    def merge(self, name: str, numbers: Iterable[int], content: Shown) -> None:
        """Add to a filter what these parts have filled, all of them with the same salt."""
        for number in numbers:
            for item in self._query(f"#{name}#{number}"):
                content.restore(int(item["at"]["N"]), bytes(item["piece"]["B"]))

    def _query(self, name: str) -> Iterator[dict[str, Any]]:
        # Consistently: a piece that is missing would be keys that nobody has shown.
        for page in self._client.get_paginator("query").paginate(
            TableName=self._table,
            KeyConditionExpression="#pk = :pk AND begins_with(#sk, :sk)",
            ExpressionAttributeNames={"#pk": "pk", "#sk": "sk"},
            ExpressionAttributeValues={":pk": {"S": f"{self._name}{name}"}, ":sk": {"S": f"{self._sort}#"}},
            ConsistentRead=True,
        ):
            yield from page["Items"]

    def _part_key(self, step: str, number: int) -> dict[str, Any]:
        return self._key(f"#{step}", f"#{number:05d}")

    def _part_item(self, step: str, part: Part) -> dict[str, Any]:
        content = {"what": part.what, "work": part.work, "done": part.done}
        texts = {name: {"S": json.dumps(value)} for name, value in content.items()}
        return {**self._part_key(step, part.number), **texts, "part": {"N": str(part.number)}, **self._expiry()}

    def _put(self, key: Mapping[str, Any], content: Mapping[str, Any]) -> None:
        self._client.put_item(TableName=self._table, Item={**key, **content, **self._expiry()})

    def _key(self, name: str = "", sort: str = "") -> dict[str, Any]:
        return {"pk": {"S": f"{self._name}{name}"}, "sk": {"S": f"{self._sort}{sort}"}}

    def _expiry(self) -> dict[str, Any]:
        return {"expires_at": {"N": str(self._clock() // 1000 + KEPT_SECONDS)}}


def _part(item: Mapping[str, Any]) -> Part:
    number, texts = int(item["part"]["N"]), {name: json.loads(item[name]["S"]) for name in ("what", "work", "done")}
    return Part(number, **texts)
