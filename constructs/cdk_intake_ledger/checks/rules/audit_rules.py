"""Rules about the audit: its reports, its scale, and its alarm."""

from cdk_intake_ledger.checks.limits import (
    LONGEST_WATCH_DAYS,
    MAX_CONCURRENCY,
    MAX_MEMORY,
    MAX_SHARDS,
    MIN_MEMORY,
    MIN_SCAN_LIMIT,
    MIN_SHARDS,
)
from cdk_intake_ledger.checks.registry import Subject

SUBJECT = Subject("Audit")

REPORTS_ARE_PROCESSED = SUBJECT.error(
    "reports-are-processed",
    inputs=("report_bucket", "report_prefix", "filters"),
    what=(
        "the audit's reports would be written into the audited bucket under {prefix!r}, where the pipeline processes "
        "{filter}"
    ),
    why="the pipeline would process each report",
    fix="Set a report_prefix that no filter matches, or another report_bucket",
)
SHARD_COUNT = SUBJECT.error(
    "shard-count",
    inputs=("scale",),
    what="the audit's number of shards is {count:,}",
    why=f"it must be {MIN_SHARDS} to {MAX_SHARDS:,}",
    fix="Set a number in this range, or omit the scale to use one function",
)
AUDIT_CONCURRENCY = SUBJECT.error(
    "audit-concurrency",
    inputs=("scale",),
    what="the audit's concurrency is {concurrency:,}",
    why=f"it must be 1 to {MAX_CONCURRENCY:,}, the default quota of an account for all its functions",
    fix="Set a number in this range",
)
JOIN_MEMORY = SUBJECT.error(
    "join-memory",
    inputs=("scale",),
    what="the audit's join_memory is {memory:,} MB",
    why=f"it must be {MIN_MEMORY:,} to {MAX_MEMORY:,}, the limit of Lambda",
    fix="Set a number in this range",
)
BACKFILL_RATE_NEEDS_BACKFILL = SUBJECT.error(
    "backfill-rate-needs-backfill",
    inputs=("backfill_rate", "existing"),
    what="the audit has a backfill_rate without existing=Existing.BACKFILL",
    why="objects that were in the bucket before the pipeline are ignored, so that it would have no effect",
    fix="Set existing=Existing.BACKFILL, or omit backfill_rate",
)
RESUBMIT_RATE_NEEDS_PARTS = SUBJECT.error(
    "resubmit-rate-needs-parts",
    inputs=("resubmit_rate", "scale"),
    what="the audit has a resubmit_rate without a scale of parts",
    why="one function sends its messages at once, so that it would have no effect",
    fix="Set scale=AuditScale.shards() or AuditScale.inventory(...), or omit resubmit_rate",
)
SCAN_LIMIT_NEEDS_ATHENA = SUBJECT.error(
    "scan-limit-needs-athena",
    inputs=("scale",),
    what="the audit has a scan_limit without engine=Engine.ATHENA",
    why="only queries of Athena have this limit",
    fix="Omit scan_limit, or set engine=Engine.ATHENA",
)
JOIN_MEMORY_NEEDS_DUCKDB = SUBJECT.error(
    "join-memory-needs-duckdb",
    inputs=("scale",),
    what="the audit has a join_memory with engine=Engine.ATHENA",
    why="only DuckDB runs in a function that has this memory",
    fix="Omit join_memory, or omit engine",
)
SCAN_LIMIT_MINIMUM = SUBJECT.error(
    "scan-limit-minimum",
    inputs=("scale",),
    what="the audit's scan_limit is {limit:,} bytes",
    why=f"Athena takes at least {MIN_SCAN_LIMIT:,}",
    fix="Raise scan_limit",
)
INVENTORY_ID = SUBJECT.error(
    "inventory-id",
    inputs=("scale",),
    what="the audit's inventory has an empty id",
    why="the keys of S3's reports have the ID in them",
    fix="Pass the ID of the bucket's inventory configuration",
)
AUDIT_NOT_WATCHED = SUBJECT.warning(
    "audit-not-watched",
    inputs=("audit_interval",),
    what="the audit runs every {interval}",
    why=f"an alarm looks back {LONGEST_WATCH_DAYS} days at most, so it cannot report that the audit stopped running",
    fix="Let the audit run at least every 6 days",
)
