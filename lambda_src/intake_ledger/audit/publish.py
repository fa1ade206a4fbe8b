"""Writes the report of each run to S3, where it outlives the logs and the run's item."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from intake_ledger.audit.report import Report
from intake_ledger.protocol.settings_audit import AuditSettings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def publish(s3: "S3Client", settings: AuditSettings, report: Report, *, now: int) -> str | None:
    """Write the report of a finished run, and return its key. None if no reports are configured.

    The key has the run's first day and its ID, so a repeated call writes the same object. `now` is in epoch
    milliseconds. Raises ClientError if S3 refuses.
    """
    reports = settings.reports
    if reports is None:
        return None
    day = datetime.fromtimestamp(report.started_at / 1000, UTC).date().isoformat()
    key = f"{reports.prefix}{settings.pipeline}/{day}/{report.run_id}.json"
    content = {"pipeline": settings.pipeline, "bucket": settings.bucket, "endedAt": now, **report.as_json(now)}
    owner: dict[str, Any] = {"ExpectedBucketOwner": reports.owner} if reports.owner else {}
    s3.put_object(
        Bucket=reports.bucket,
        Key=key,
        Body=json.dumps(content, indent=2, ensure_ascii=False).encode(),
        ContentType="application/json",
        **owner,
    )
    return key
