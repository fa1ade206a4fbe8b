"""Finds former names of the pipeline: the table has an audit of the same bucket under a name that is not deployed.

It reads one item for each name, not the rows: the items of an audit have the bucket alone as their partition key.
"""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from intake_ledger.protocol.row import from_dynamodb
from intake_ledger.protocol.settings_audit import AuditSettings

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_LEAST = " "
"""Less than each name."""


def former_names(client: "DynamoDBClient", settings: AuditSettings, *, first_run_at: int) -> list[str]:
    """Names that are neither this pipeline's nor those of `settings.other_pipelines`, and whose last audit began before
    `first_run_at`, the time of this pipeline's first run (epoch milliseconds).
    """
    return [
        name
        for name, item in _audits(client, settings)
        if name not in (settings.pipeline, *settings.other_pipelines) and _last_run_at(item) < first_run_at
    ]


def problems(names: list[str]) -> list[str]:
    """The names in words, with the fix."""
    return [
        f"the table has rows of this bucket under the name {name}, which is not deployed in this app: if this pipeline "
        f"had that name, deploy it with its former queue and name={name}"
        for name in names
    ]


def _audits(client: "DynamoDBClient", settings: AuditSettings) -> Iterator[tuple[str, dict[str, Any]]]:
    """The first item of each name's audit."""
    after = _LEAST
    while True:
        items = client.query(
            TableName=settings.table,
            KeyConditionExpression="#pk = :bucket AND #sk > :after",
            ExpressionAttributeNames={"#pk": "pk", "#sk": "sk"},
            ExpressionAttributeValues={":bucket": {"S": settings.bucket}, ":after": {"S": after}},
            Limit=1,
        )["Items"]
        if not items:
            return
        name = items[0]["sk"]["S"].partition("@")[0]
        yield name, from_dynamodb(items[0])
        # `A` follows `@`: the next one has another name.
        after = f"{name}A"


def _last_run_at(item: dict[str, Any]) -> int:
    """The latest sign of life of an audit, in epoch milliseconds."""
    report = json.loads(item["last_report"]) if "last_report" in item else {}
    return max(int(report.get("startedAt", 0)), int(item.get("lease_until", 0)))
