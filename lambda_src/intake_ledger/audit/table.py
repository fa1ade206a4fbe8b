"""What the audit asks of the ledger's table beyond single rows: to go through all of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from intake_ledger import rows
from intake_ledger.rows import Row, RowKey, Status
from intake_ledger.table import plain

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# Each attribute costs the client about as much time as a whole key of S3's listing.
_OF_SETTLED = ("pk", "sk", "status", "committed_version")
_OF_UNSETTLED = ("pk", "sk", "status", "kind", "version_id", "etag", "size")


@dataclass(frozen=True, slots=True)
class RowPage:
    """Some rows, as far as the audit needs them. `after` is where the next page begins, None on the last one."""

    rows: list[tuple[RowKey, Row]]
    after: RowKey | None


class AuditTable:
    """The same table as `LedgerTable`'s."""

    def __init__(self, client: "DynamoDBClient", name: str) -> None:
        self._client = client
        self._name = name

    def rows(self, sort_key: str, start: RowKey | None = None) -> Iterator[RowPage]:
        """All rows with this sort key, from `start` on, not read consistently: what follows from them is read again."""
        yield from self._scan("#sk = :sk", {":sk": sort_key}, _OF_SETTLED, start)

    def unsettled(self, pipeline: str, start: RowKey | None = None) -> Iterator[RowPage]:
        """All rows of the pipeline, whatever their sort key, that an attempt may have left half done."""
        values = {":least": f"{pipeline}@", ":most": f"{pipeline}A", ":processing": Status.PROCESSING}
        filter_ = "#sk >= :least AND #sk < :most AND (#status = :processing OR #status = :failed)"
        yield from self._scan(filter_, {**values, ":failed": Status.FAILED}, _OF_UNSETTLED, start)

    def _scan(
        self, filter_: str, values: dict[str, str], needed: tuple[str, ...], start: RowKey | None
    ) -> Iterator[RowPage]:
        request: dict[str, Any] = {
            "TableName": self._name,
            "FilterExpression": filter_,
            "ProjectionExpression": ", ".join(f"#{name}" for name in needed),
            "ExpressionAttributeNames": {f"#{name}": name for name in needed},
            "ExpressionAttributeValues": {name: {"S": value} for name, value in values.items()},
        }
        if start is not None:
            request["ExclusiveStartKey"] = {"pk": {"S": start.pk}, "sk": {"S": start.sk}}
        for page in self._client.get_paginator("scan").paginate(**request):
            found = []
            for item in page["Items"]:
                content = plain(item)
                row = rows.from_attributes(content)
                if row is not None:
                    found.append((RowKey(content["pk"], content["sk"]), row))
            last = plain(page["LastEvaluatedKey"]) if "LastEvaluatedKey" in page else None
            yield RowPage(found, RowKey(last["pk"], last["sk"]) if last else None)
