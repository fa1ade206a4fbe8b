"""Select processed rows by a scan of the table: since a time, or by the version of the processor."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from intake_ledger.protocol.change import StateKind
from intake_ledger.protocol.row import Status, to_dynamodb
from intake_ledger_cli.act.reprocess import ReprocessResult, Target, row_target
from intake_ledger_cli.aws import reading
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.reading import ObjectRow

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@dataclass(frozen=True, slots=True)
class CommitFilter:
    """Rows by their last commit. A row has to pass all conditions. Times are in epoch milliseconds.

    The time of a commit is that of its attempt (`committed_fence`). Tags, failures and removals change a row later.
    """

    since: int | None = None
    before: int | None = None
    """Commits of this time are left out."""
    version: str | None = None
    """The version of the processor as rows have it."""

    def conditions(self, *, or_unknown: bool = False) -> "Iterator[tuple[str, str, str, str | int]]":
        """Yield attribute, condition, and name and value of its placeholder, as DynamoDB filters rows.

        Args:
            or_unknown: rows that name no version of the processor pass too.

        """
        if self.since is not None:
            yield "committed_fence", "#committed_fence >= :committed_since", ":committed_since", self.since
        if self.before is not None:
            yield "committed_fence", "#committed_fence < :committed_before", ":committed_before", self.before
        if self.version is not None:
            has = "#processor_version = :version"
            either = f"(attribute_not_exists(#processor_version) OR {has})"
            yield "processor_version", either if or_unknown else has, ":version", self.version


def row_targets(
    client: "DynamoDBClient",
    deployed: DeployedPipeline,
    selected: CommitFilter,
    prefix: str,
    result: ReprocessResult,
    *,
    after: str = "",
) -> Iterator[Target]:
    """Yield a target for each processed row that passes the filter. It reads the whole table, in no order.

    Args:
        client: of DynamoDB.
        deployed: the pipeline.
        selected: the rows. Its `before` has to be no later than the start of the first call: a request that is
            processed meanwhile changes its row, which would otherwise come again.
        prefix: of the keys.
        result: counts the keys that the pipeline's filters exclude, and the rows that name no version.
        after: position of an earlier call.

    """
    request = _scan(deployed, selected, prefix)
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


def _is_processed(deployed: DeployedPipeline, entry: ObjectRow) -> bool:
    readable = entry.row.status is not Status.LATER_FORMAT
    return readable and (entry.row.kind is StateKind.OBJECT or deployed.deletes)


def _scan(deployed: DeployedPipeline, selected: CommitFilter, prefix: str) -> dict[str, Any]:
    return scan_request(
        deployed,
        ("status", "#status = :processed", ":processed", Status.PROCESSED.value),
        *selected.conditions(or_unknown=True),
        prefix=prefix,
    )


def scan_request(
    deployed: DeployedPipeline, *conditions: tuple[str, str, str, str | int], prefix: str = ""
) -> dict[str, Any]:
    """The request for a scan of the pipeline's rows with these conditions, as `CommitFilter.conditions` yields them."""
    every = [
        ("sk", "begins_with(#sk, :own)", ":own", f"{deployed.name}@"),
        ("pk", "begins_with(#pk, :keys)", ":keys", f"{deployed.bucket}/{prefix}"),
        *conditions,
    ]
    return {
        "TableName": deployed.table,
        "FilterExpression": " AND ".join(condition for _, condition, _, _ in every),
        "ExpressionAttributeNames": {f"#{attribute}": attribute for attribute, _, _, _ in every},
        "ExpressionAttributeValues": to_dynamodb({name: value for _, _, name, value in every}),
    }
