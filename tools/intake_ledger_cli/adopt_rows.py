"""Moves the rows of a former pipeline to its successor.

One transaction writes the new row and deletes the old one, so a command that is killed leaves each row in one place. A
row that the successor has written already is newer, and stays; its fence is raised above the old row's where it is not
greater. The old row is moved only as it was read and while no worker holds it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import batched
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from intake_ledger.ledger import condition_failed
from intake_ledger.protocol import FORMAT, Row, Status, from_dynamodb, operations_partition, row_from_attributes
from intake_ledger.requests import BATCHES, STOPS
from intake_ledger_cli.renaming import Item, Renaming, rename_row

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_TOGETHER = 50  # of two writes each: DynamoDB's limit of TransactWriteItems is 100
_CONDITION, _NOTHING = "ConditionalCheckFailed", "None"


@dataclass(slots=True)
class RowAdoptionResult:
    """Counted rows."""

    moved: int = 0
    superseded: int = 0
    """The successor has a newer row of the same object: the old row was deleted."""
    held: int = 0
    """A worker or an audit of the former pipeline may still hold them, or they changed meanwhile: they stay."""
    later_format: int = 0
    """A later release wrote them: they stay."""
    of_other_buckets: Counter[str] = field(default_factory=Counter)
    """By bucket: the successor takes nothing from there, so they stay."""


class RowAdoption:
    """One call of the command. `clock` gives epoch milliseconds."""

    def __init__(
        self,
        client: "DynamoDBClient",
        source: str,
        target: str,
        renaming: Renaming,
        *,
        clock: Callable[[], int],
        dry_run: bool,
    ) -> None:
        self._client = client
        self._source = source
        self._target = target
        self._renaming = renaming
        self._clock = clock
        self._dry_run = dry_run
        self._records: list[Item] = []
        """Items about the bucket, not about an object: of the audit, and of the ledger itself."""
        self._requests: list[Item] = []
        """The recorded requests of people, and the stops of operations."""
        self.outcome = RowAdoptionResult()
        """True at any time, when the run was interrupted too."""

    def run(self) -> RowAdoptionResult:
        """Move all rows of the former pipeline that are about the successor's bucket, then its records.

        Raises:
            ClientError: DynamoDB refuses.

        """
        for page in self._pages():
            movable = [item for item in page if self._is_movable(item)]
            if self._dry_run:
                self.outcome.moved += len(movable)
                continue
            for batch in batched(movable, _TOGETHER):
                self._move(batch)
        if not self._dry_run and not self.outcome.of_other_buckets:
            self._adopt_requests()
        if not self._dry_run and not self.outcome.held:
            self._adopt_records()
        return self.outcome

    def _pages(self) -> Iterator[list[Item]]:
        former = self._renaming.former
        pages = self._client.get_paginator("scan").paginate(
            TableName=self._source,
            FilterExpression="(#sk >= :least AND #sk < :most) OR (#pk = :operations AND "
            "(begins_with(#sk, :requests) OR begins_with(#sk, :stops)))",
            ExpressionAttributeNames={"#pk": "pk", "#sk": "sk"},
            # `A` follows `@`.
            ExpressionAttributeValues={
                ":least": {"S": f"{former}@"},
                ":most": {"S": f"{former}A"},
                ":operations": {"S": operations_partition(former)},
                ":requests": {"S": BATCHES},
                ":stops": {"S": STOPS},
            },
            ConsistentRead=True,
        )
        for page in pages:
            of_people = [item for item in page["Items"] if item["pk"]["S"] == operations_partition(former)]
            self._requests += of_people
            yield [item for item in page["Items"] if item not in of_people]

    def _is_movable(self, item: Item) -> bool:
        """True for a row to move now. Other rows are counted."""
        out, partition = self.outcome, item["pk"]["S"]
        bucket, slash, _ = partition.partition("/")
        if not slash:
            if bucket.partition("#")[0] == self._renaming.bucket:
                self._records.append(item)
            return False
        if "status" not in item:
            return False  # an audit's mark alone, which expires
        if bucket != self._renaming.bucket:
            out.of_other_buckets[bucket] += 1
            return False
        if int(item.get("format", {}).get("N", "0")) > FORMAT:
            out.later_format += 1
            return False
        row = row_from_attributes(from_dynamodb(item))
        if row is None or row.is_live(self._clock()):
            out.held += 1
            return False
        return True

    def _move(self, items: Sequence[Item]) -> None:
        """Move all rows in one transaction, or each in its own if a condition fails."""
        try:
            self._client.transact_write_items(
                TransactItems=[write for one in items for write in (self._put(one), self._delete(one))]
            )
        except ClientError as error:
            codes = _cancelled(error)
            if len(items) > 1:
                for one in items:
                    self._move([one])
            elif codes[0] == _CONDITION and codes[1] in (_NOTHING, _CONDITION):
                self._supersede(items[0])
            else:
                self.outcome.held += 1
        else:
            self.outcome.moved += len(items)

    def _supersede(self, item: Item) -> None:
        """The successor has a row already: keep it, above the old fence."""
        key = _key(rename_row(item, self._renaming.former, self._renaming.name))
        found = self._client.get_item(TableName=self._target, Key=key, ConsistentRead=True).get("Item", {})
        new, fence = row_from_attributes(from_dynamodb(found)), int(item["fence"]["N"])
        writes = [self._delete(item)]
        if new is None or (new.fence <= fence and new.status is Status.PROCESSING):
            # Deleted in between, or in work under a fence that must not change: the next call moves it.
            self.outcome.held += 1
            return
        if new.fence <= fence:
            writes.append(self._raise_fence(key, new, fence + 1))
        try:
            self._client.transact_write_items(TransactItems=writes)
        except ClientError as error:
            _cancelled(error)
            self.outcome.held += 1
        else:
            self.outcome.superseded += 1

    def _put(self, item: Item) -> Any:
        return {
            "Put": {
                "TableName": self._target,
                "Item": rename_row(item, self._renaming.former, self._renaming.name),
                "ConditionExpression": "attribute_not_exists(#status)",
                "ExpressionAttributeNames": {"#status": "status"},
            }
        }

    def _delete(self, item: Item) -> Any:
        seen = ("fence", "status", "updated_at")
        return {
            "Delete": {
                "TableName": self._source,
                "Key": _key(item),
                "ConditionExpression": " AND ".join(
                    f"#{name} = :{name}" if name in item else f"attribute_not_exists(#{name})" for name in seen
                ),
                "ExpressionAttributeNames": {f"#{name}": name for name in seen},
                "ExpressionAttributeValues": {f":{name}": item[name] for name in seen if name in item},
            }
        }

    def _raise_fence(self, key: Any, seen: Row, fence: int) -> Any:
        return {
            "Update": {
                "TableName": self._target,
                "Key": key,
                "UpdateExpression": "SET #fence = :fence",
                "ConditionExpression": "#fence = :seen AND #status = :status",
                "ExpressionAttributeNames": {"#fence": "fence", "#status": "status"},
                "ExpressionAttributeValues": {
                    ":fence": {"N": str(fence)},
                    ":seen": {"N": str(seen.fence)},
                    ":status": {"S": seen.status.value},
                },
            }
        }

    def _adopt_requests(self) -> None:
        """Move the recorded requests of people, and the stops of operations, before their messages."""
        partition = operations_partition(self._renaming.name)
        for item in self._requests:
            self._client.put_item(TableName=self._target, Item={**item, "pk": {"S": partition}})
            self._client.delete_item(TableName=self._source, Key=_key(item))

    def _adopt_records(self) -> None:
        """Keep the time of the audit's first run, because the audit judges later uploads only. Delete all records."""
        now = self._clock()
        if any(int(one.get("lease_until", {}).get("N", "0")) > now for one in self._records):
            self.outcome.held += 1
            return
        for item in self._records:
            if "first_run_at" in item:
                self._keep_first_run(item["first_run_at"])
        for item in self._records:
            self._client.delete_item(TableName=self._source, Key=_key(item))

    def _keep_first_run(self, first: Any) -> None:
        try:
            self._client.update_item(
                TableName=self._target,
                Key={"pk": {"S": self._renaming.bucket}, "sk": {"S": f"{self._renaming.name}@audit"}},
                UpdateExpression="SET #first = :first",
                ConditionExpression="attribute_not_exists(#first) OR #first > :first",
                ExpressionAttributeNames={"#first": "first_run_at"},
                ExpressionAttributeValues={":first": first},
            )
        except ClientError as error:
            if not condition_failed(error):
                raise


def _key(item: Item) -> Any:
    return {"pk": item["pk"], "sk": item["sk"]}


def _cancelled(error: ClientError) -> list[str]:
    """Why a transaction was cancelled, by write; any other error is raised."""
    if error.response["Error"]["Code"] != "TransactionCanceledException":
        raise error
    reasons: Any = error.response.get("CancellationReasons", ())
    return [one["Code"] for one in reasons]
