"""The report of an audit of sets or of messages, in the form of a pipeline's report, and its record in the table."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

KEPT_FINDINGS = 20
"""The largest number of findings in the record. The log has all of them."""


def short_report(
    run_id: str,
    *,
    started_at: int,
    checked: int,
    findings: Mapping[str, Sequence[str]],
    summary: str,
    complete: bool,
    sent: int,
    dry_run: bool = False,
) -> dict[str, Any]:
    """The report as the function returns and stores it. It has no lines, because nothing was listed by line.

    Args:
        run_id: a ULID.
        started_at: epoch milliseconds.
        checked: the number of sets or rows that were judged.
        findings: keys by the name of the finding.
        summary: the run in one line.
        complete: false if the time has ended before.
        sent: the number of messages that the run sent.
        dry_run: true if the run changed nothing.

    """
    return {
        "runId": run_id,
        "startedAt": started_at,
        "dryRun": dry_run,
        "summary": summary,
        "listed": checked,
        "checked": checked,
        "counts": {why: len(keys) for why, keys in findings.items()},
        "resubmitted": sent,
        "laterFormat": 0,
        "complete": complete,
        "stopped": "" if complete else "the time has ended before all were checked",
        "held": "",
        "delivery": [],
        "findings": [{"key": key, "why": why} for why, keys in findings.items() for key in keys],
    }


def keep_report(client: "DynamoDBClient", table: str, pipeline: str, bucket: str, report: Mapping[str, Any]) -> None:
    """Write the report where the audit of a pipeline has its own, for `intake-ledger status` and `audit --last`.

    Args:
        client: the client.
        table: the ledger's table.
        pipeline: the name of the pipeline.
        bucket: the name of its bucket in the ledger.
        report: the report. Its first findings are kept.

    Raises:
        ClientError: DynamoDB refuses the request. Also BotoCoreError.

    """
    kept = {**report, "findings": report["findings"][:KEPT_FINDINGS]}
    client.update_item(
        TableName=table,
        Key={"pk": {"S": bucket}, "sk": {"S": f"{pipeline}@audit"}},
        UpdateExpression="SET #last_report = :report",
        ExpressionAttributeNames={"#last_report": "last_report"},
        ExpressionAttributeValues={":report": {"S": json.dumps(kept)}},
    )
