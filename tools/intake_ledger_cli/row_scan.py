"""Select processed rows by a scan of the table: since a time, or by the version of the processor."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from intake_ledger.protocol import StateKind, Status, to_dynamodb
from intake_ledger_cli import reading
from intake_ledger_cli.reprocess import ReprocessResult, Target, row_target

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from intake_ledger_cli.deployed import DeployedPipeline
    from intake_ledger_cli.reading import ObjectRow


@dataclass(frozen=True, slots=True)
class RowFilter:
    """The processed rows that a call selects. A row has to pass all conditions."""

    before: int
    """The start of the first call in epoch milliseconds. A request that is processed meanwhile changes its row, which
    would otherwise come again."""
    since: int = 0
    """Epoch milliseconds."""
    prefix: str = ""
    version: str | None = None
    """The version of the processor as rows have it. None: any."""


def row_targets(
    client: "DynamoDBClient",
    deployed: "DeployedPipeline",
    selected: RowFilter,
    result: ReprocessResult,
    *,
    after: str = "",
) -> Iterator[Target]:
    """Yield a target for each processed row that passes the filter. It reads the whole table, in no order.

    Args:
        client: of DynamoDB.
        deployed: the pipeline.
        selected: the rows.
        result: counts the keys that the pipeline's filters exclude, and the rows that name no version.
        after: position of an earlier call.

    """
    request = _scan(deployed, selected)
    if after:
        pk, sk = json.loads(after)
        request["ExclusiveStartKey"] = to_dynamodb({"pk": pk, "sk": sk})
    for page in client.get_paginator("scan").paginate(**request):
        for content, entry in reading.entries_of(deployed, page["Items"]):
            if not _is_processed(deployed, entry):
                continue
            if not deployed.wants(entry.key):
                result.skipped += 1
            elif selected.version is not None and entry.row.processor_version is None:
                result.unknown_version += 1
            else:
                yield row_target(deployed, entry, json.dumps([content["pk"], content["sk"]]))


def _is_processed(deployed: "DeployedPipeline", entry: "ObjectRow") -> bool:
    readable = entry.row.status is not Status.LATER_FORMAT
    return readable and (entry.row.kind is StateKind.OBJECT or deployed.deletes)


def _scan(deployed: "DeployedPipeline", selected: RowFilter) -> dict[str, Any]:
    names = ["sk", "status", "updated_at"]
    conditions = ["begins_with(#sk, :own)", "#status = :processed", "#updated_at BETWEEN :since AND :before"]
    values: dict[str, Any] = {
        ":own": f"{deployed.name}@",
        ":processed": Status.PROCESSED.value,
        ":since": selected.since,
        ":before": selected.before,
    }
    if selected.prefix:
        names.append("pk")
        conditions.append("begins_with(#pk, :keys)")
        values[":keys"] = f"{deployed.bucket}/{selected.prefix}"
    if selected.version is not None:
        names.append("processor_version")
        conditions.append("(attribute_not_exists(#processor_version) OR #processor_version = :version)")
        values[":version"] = selected.version
    return {
        "TableName": deployed.table,
        "FilterExpression": " AND ".join(conditions),
        "ExpressionAttributeNames": {f"#{name}": name for name in names},
        "ExpressionAttributeValues": to_dynamodb(values),
    }
