"""Builds the JSON output of `--json`. Programs read it, so names and units stay the same. Times are in epoch
milliseconds.
"""

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from intake_ledger.protocol import Row, State, row_attributes
from intake_ledger_cli.executions import execution_arn
from intake_ledger_cli.read_budget import ReadBudget
from intake_ledger_cli.reading import ObjectRow, ReviewPage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from intake_ledger_cli.adopt import AdoptionResult
    from intake_ledger_cli.deployed import DeployedPipeline
    from intake_ledger_cli.former import FormerPipeline
    from intake_ledger_cli.inspection import Inspected
    from intake_ledger_cli.listing import ListedReason
    from intake_ledger_cli.redrive import RedriveResult
    from intake_ledger_cli.reprocess import ReprocessResult
    from intake_ledger_cli.transfer import TransferResult

JsonObject = dict[str, Any]

VERSION = 1
"""The version of the documents. A release that removes a field or changes its meaning raises it."""


def versioned(document: JsonObject) -> JsonObject:
    """Return the document with the version of its form."""
    return {"formatVersion": VERSION, **document}


def document(value: Any) -> Any:
    """The JSON form of a document: each field of a dataclass, with its name in camel case."""
    if is_dataclass(value):
        return {_camel_case(one.name): document(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, (list, tuple)):
        return [document(one) for one in value]
    return {name: document(one) for name, one in value.items()} if isinstance(value, dict) else value


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(one.capitalize() for one in others)


def list_json(found: ReviewPage) -> JsonObject:
    rows = [_entry(one) for one in found.entries]
    return {"rows": rows, "after": found.after, "stoppedAfter": found.stopped_after, "why": found.why}


def reasons_json(counts: "Mapping[ListedReason, int]", budget: ReadBudget) -> JsonObject:
    return {
        "reasons": [
            {**document(one), "rows": number}
            for one, number in sorted(counts.items(), key=lambda one: (-one[1], one[0]))
        ],
        "after": budget.token,
        "stoppedAfter": budget.used if budget.stopped else None,
        "why": budget.why,
    }


def inspect_json(
    deployed: "DeployedPipeline", key: str, found: "Sequence[Inspected]", denied: str | None
) -> JsonObject:
    return {
        "pipeline": deployed.name,
        "bucket": deployed.bucket,
        "key": key,
        "wanted": deployed.wants(key),
        "filters": [{"prefix": one.prefix, "suffix": one.suffix} for one in deployed.filters],
        "denied": denied,
        "states": [
            {
                "row": None if one.row is None else _row(one.row),
                "execution": None if one.row is None else execution_arn(deployed, key, one.row),
                "s3": None if one.state is None else _state(one.state),
                "agree": one.agree,
                "why": one.why,
            }
            for one in found
        ],
    }


def redrive_json(found: "RedriveResult", *, dry_run: bool) -> JsonObject:
    dead_letters = [
        {"id": one.id, "keys": one.keys, "reason": one.reason, "reasonCode": one.reason_code or None}
        for one in found.matched_messages
    ]
    return {
        "dryRun": dry_run,
        "matched": found.matched,
        "moved": found.moved,
        "left": found.left,
        "ofOthers": dict(found.of_others),
        "removed": found.removed,
        "arrivedMeanwhile": found.arrived_meanwhile,
        "hiddenByOthers": found.hidden_by_others,
        "undeleted": found.undeleted,
        "overfull": found.overfull,
        "reasons": dict(found.reasons.most_common()),
        "failed": [{"id": one.id, "keys": one.keys, "why": why} for one, why in found.failed],
    } | ({"deadLetters": dead_letters} if dry_run else {})


def adopt_json(
    former: "FormerPipeline", deployed: "DeployedPipeline", done: "AdoptionResult", *, dry_run: bool
) -> JsonObject:
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


def _transferred(found: "TransferResult | None") -> JsonObject | None:
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


def reprocess_json(found: "ReprocessResult", *, dry_run: bool) -> JsonObject:
    return {
        "dryRun": dry_run,
        "reprocessId": found.id,
        "sent": found.sent,
        "skipped": found.skipped,
        "directoryMarkers": found.directory_markers,
        "unknownVersion": found.unknown_version,
        "absent": found.absent,
        "failed": [{"key": one.key, "why": why} for one, why in found.failed],
    }


def _entry(entry: ObjectRow) -> JsonObject:
    return {"key": entry.key, **_row(entry.row)}


def _row(row: Row) -> JsonObject:
    """Return the row's attributes. Sets become sorted lists."""
    return {
        name: sorted(value) if isinstance(value, frozenset) else value for name, value in row_attributes(row).items()
    }


def _state(state: State) -> JsonObject:
    return {
        "kind": state.kind.value,
        "versionId": state.version_id,
        "etag": state.etag,
        "size": state.size,
        "createdAt": state.created_at,
    }
