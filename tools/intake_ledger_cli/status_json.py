"""Builds the JSON output of `status --json`. Times are in epoch milliseconds."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from intake_ledger_cli.counting import Count
from intake_ledger_cli.executions import ExecutionCount
from intake_ledger_cli.json_output import document as document_of
from intake_ledger_cli.kinds import kind_of
from intake_ledger_cli.metrics import LastHour
from intake_ledger_cli.reading import AuditState
from intake_ledger_cli.status import NotRead, PipelineStatus, QueueDepth, TableSize

if TYPE_CHECKING:
    from intake_ledger_cli.deployed import DeployedPipeline
    from intake_ledger_cli.json_output import JsonObject


def status_json(deployed: "DeployedPipeline", found: PipelineStatus, now: int) -> "JsonObject":
    counts, hour = found.needs_review, found.last_hour
    ages = None if isinstance(hour, NotRead) else hour
    document: JsonObject = {
        "pipeline": deployed.name,
        "bucket": deployed.bucket,
        "messageSource": deployed.message_source,
        "kind": kind_of(deployed).name.lower(),
        "at": now,
        "consumer": _denied(found.source) if isinstance(found.source, NotRead) else found.source,
        "pause": None if found.pause is None else asdict(found.pause),
        "queue": _depth(found.queue, ages.queue_age_seconds if ages else None),
        "deadLetters": _depth(found.dead_letters, ages.dead_letter_age_seconds if ages else None),
        "lastHour": _denied(hour) if isinstance(hour, NotRead) else _last_hour(hour),
        "breaker": _denied(found.breaker) if isinstance(found.breaker, NotRead) else document_of(found.breaker),
        "table": _denied(found.table) if isinstance(found.table, NotRead) else _table(found.table),
        "audit": _denied(found.audit) if isinstance(found.audit, NotRead) else _audit(found.audit, now),
        "tick": None if ages is None or ages.tick_at is None else {"at": ages.tick_at, "problems": ages.tick_problems},
        "function": document_of(found.function),
        "executions": _executions(found.executions),
        "maxWaitSeconds": deployed.max_wait_seconds,
        "alarms": _denied(found.alarms) if isinstance(found.alarms, NotRead) else [asdict(one) for one in found.alarms],
    }
    if isinstance(counts, NotRead):
        return document | dict.fromkeys(
            ("failed", "rejected", "dismissed", "removed", "waiting", "laterFormat"), _denied(counts)
        )
    return document | {
        "failed": count_json(counts.failed),
        "rejected": count_json(counts.rejected),
        "dismissed": count_json(counts.dismissed),
        "removed": count_json(counts.removed),
        "waiting": count_json(counts.waiting),
        "laterFormat": count_json(counts.later_format),
        "oldest": {
            "failed": counts.failed.oldest_at,
            "rejected": counts.rejected.oldest_at,
            "waiting": counts.waiting.oldest_at,
        },
    }


def count_json(count: Count) -> "int | JsonObject":
    """Return an exact count as a number, and other counts as an object."""
    if count.unknown:
        return {"unknown": count.why}
    return {"atLeast": count.number, "why": count.why} if count.why else count.number


def _executions(count: ExecutionCount | NotRead | None) -> "JsonObject | None":
    if count is None or isinstance(count, NotRead):
        return None if count is None else _denied(count)
    return {"running": count.number, "more": count.more, "oldestAt": count.oldest_at}


def _last_hour(hour: LastHour) -> "JsonObject":
    return {
        "retries": hour.retries,
        "lapsedLeases": hour.lapsed_leases,
        "finished": hour.finished,
        "executionsPerUpload": hour.executions_per_upload,
        "heldBack": hour.held_back,
        "commitLagMs": hour.commit_lag_ms,
        "functionErrors": hour.errors,
        "functionThrottles": hour.throttles,
    }


def _table(size: TableSize) -> "JsonObject":
    return {"approximateRows": size.rows, "approximateReviewRows": size.index_rows}


def _depth(depth: QueueDepth | NotRead, age_seconds: int | None) -> "JsonObject":
    if isinstance(depth, NotRead):
        return _denied(depth)
    return {"waiting": depth.waiting, "hidden": depth.hidden, "delayed": depth.delayed, "oldestSeconds": age_seconds}


def _audit(item: AuditState, now: int) -> "JsonObject":
    running = item.lease_until is not None and item.lease_until > now
    sending = item.sending
    progress = {"sent": sending.sent, "of": sending.of, "leftMs": sending.left_ms(now)} if sending else None
    return {"last": item.last, "running": running, "dueAt": item.next_run_at, "sending": progress}


def _denied(denied: NotRead) -> dict[str, Any]:
    return {"denied": denied.action} if denied.action else {"unknown": denied.why}
