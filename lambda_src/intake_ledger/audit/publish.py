"""The report of each run as an object in S3, where it outlives logs and the run's item."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from intake_ledger.audit.report import Report
from intake_ledger.protocol import AuditSettings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def publish(s3: "S3Client", settings: AuditSettings, report: Report, *, now: int) -> str | None:
    """Write the report of a run that is over, and say under which key; None where nobody asked for reports. `now` is in
    epoch milliseconds. Raises ClientError when S3 refuses.

    The key has the day on which the run began and the run's id: what is written twice is the same object.
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
