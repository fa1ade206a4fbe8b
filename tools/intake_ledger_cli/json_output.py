"""What `--json` prints: for programs, so names and units stay as they are. Times are epoch milliseconds. Pure."""

from typing import TYPE_CHECKING, Any

from intake_ledger.protocol.object_state import State
from intake_ledger.protocol.row import Row, attributes
from intake_ledger_cli.adopt import Adopted
from intake_ledger_cli.counting import Count
from intake_ledger_cli.reading import AuditItem, Entry, Listed
from intake_ledger_cli.redrive import Redriven
from intake_ledger_cli.reprocess import Asked
from intake_ledger_cli.status import Denied, Depth, Standing
from intake_ledger_cli.transfer import Transferred

if TYPE_CHECKING:
    from collections.abc import Sequence

    from intake_ledger_cli.deployed import Deployed
    from intake_ledger_cli.former import Former
    from intake_ledger_cli.inspection import Compared

Document = dict[str, Any]


def standing(deployed: "Deployed", found: Standing, now: int) -> Document:
    counts = found.needs_review
    return {
        "pipeline": deployed.name,
        "bucket": deployed.bucket,
        "at": now,
        "consumer": _denied(found.source) if isinstance(found.source, Denied) else found.source,
        "queue": _depth(found.queue),
        "deadLetters": _depth(found.dead_letters),
        "failed": _denied(counts) if isinstance(counts, Denied) else _count(counts.failed),
        "rejected": _denied(counts) if isinstance(counts, Denied) else _count(counts.rejected),
        "waiting": _denied(counts) if isinstance(counts, Denied) else _count(counts.waiting),
        "laterFormat": _denied(counts) if isinstance(counts, Denied) else _count(counts.later_format),
        "lastHour": _denied(found.repeats)
        if isinstance(found.repeats, Denied)
        else {"retries": found.repeats.retries, "lapsedLeases": found.repeats.lapsed_leases},
        "audit": _denied(found.audit) if isinstance(found.audit, Denied) else _audit(found.audit, now),
        "alarms": _denied(found.alarms)
        if isinstance(found.alarms, Denied)
        else [{"name": one.name, "state": one.state, "why": one.why} for one in found.alarms],
    }


def listed(found: Listed) -> Document:
    return {"rows": [_entry(one) for one in found.entries], "after": found.after}


def inspected(deployed: "Deployed", key: str, found: "Sequence[Compared]", denied: str | None) -> Document:
    return {
        "pipeline": deployed.name,
        "bucket": deployed.bucket,
        "key": key,
        "wanted": deployed.wants(key),
        "denied": denied,
        "states": [
            {
                "row": None if one.row is None else _row(one.row),
                "s3": None if one.state is None else _state(one.state),
                "agree": one.agree,
                "why": one.why,
            }
            for one in found
        ],
    }


def redriven(found: Redriven, *, dry_run: bool) -> Document:
    letters = [{"id": one.id, "keys": one.keys, "reason": one.reason} for one in found.letters]
    return {
        "dryRun": dry_run,
        "matched": found.matched,
        "moved": found.moved,
        "left": found.left,
        "ofOthers": dict(found.of_others),
        "arrivedMeanwhile": found.arrived_meanwhile,
        "hiddenByOthers": found.hidden_by_others,
        "undeleted": found.undeleted,
        "overfull": found.overfull,
        "reasons": dict(found.reasons.most_common()),
        "failed": [{"id": one.id, "keys": one.keys, "why": why} for one, why in found.failed],
    } | ({"letters": letters} if dry_run else {})


def adopted(former: "Former", deployed: "Deployed", done: Adopted, *, dry_run: bool) -> Document:
    rows = done.rows
    return {
        "dryRun": dry_run,
        "from": former.name,
        "to": deployed.name,
        "complete": done.complete,
        "rows": {
            "moved": rows.moved,
            "superseded": rows.superseded,
            "held": rows.held,
            "laterFormat": rows.later_format,
            "ofOtherBuckets": dict(rows.of_other_buckets),
        },
        "queue": _transferred(done.queue),
        "deadLetters": _transferred(done.dead_letters),
        "oldBuckets": [
            {"bucket": one.name, "objects": one.objects, "more": one.more, "keys": list(one.keys), "why": one.why}
            for one in done.old_buckets
        ],
    }


def _transferred(found: Transferred | None) -> Document | None:
    if found is None:
        return None
    return {
        "moved": found.moved,
        "hidden": found.hidden,
        "ofOthers": dict(found.of_others),
        "ofOtherBuckets": dict(found.of_other_buckets),
        "undeleted": found.undeleted,
        "overfull": found.overfull,
        "failed": [{"id": one.id, "keys": one.keys, "why": why} for one, why in found.failed],
    }


def asked(found: Asked, *, dry_run: bool) -> Document:
    return {
        "dryRun": dry_run,
        "reprocessId": found.id,
        "sent": found.sent,
        "skipped": found.skipped,
        "absent": found.absent,
        "failed": [{"key": one.key, "why": why} for one, why in found.failed],
    }


def _entry(entry: Entry) -> Document:
    return {"key": entry.key, **_row(entry.row)}


def _row(row: Row) -> Document:
    """The row's attributes; JSON has no sets."""
    return {name: sorted(value) if isinstance(value, frozenset) else value for name, value in attributes(row).items()}


def _state(state: State) -> Document:
    return {
        "kind": state.kind.value,
        "versionId": state.version_id,
        "etag": state.etag,
        "size": state.size,
        "createdAt": state.created_at,
    }


def _depth(depth: Depth | Denied) -> Document:
    return _denied(depth) if isinstance(depth, Denied) else {"waiting": depth.waiting, "hidden": depth.hidden}


def _audit(item: AuditItem, now: int) -> Document:
    running = item.lease_until is not None and item.lease_until > now
    sending = item.sending
    progress = {"sent": sending.sent, "of": sending.of, "leftMs": sending.left_ms(now)} if sending else None
    return {"last": item.last, "running": running, "dueAt": item.next_run_at, "sending": progress}


def _count(count: Count) -> int | Document:
    """The number, where it is certain."""
    if count.more:
        return {"moreThan": count.number}
    if count.unknown:
        return {"unknown": count.why}
    return {"atLeast": count.number, "why": count.why} if count.why else count.number


def _denied(denied: Denied) -> Document:
    return {"denied": denied.action}
