"""Builds the JSON output of `--json`. Programs read it, so names and units stay the same. Times are in epoch
milliseconds.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from intake_ledger.protocol import Row, row_attributes

if TYPE_CHECKING:
    from intake_ledger_cli.adopt import AdoptionResult
    from intake_ledger_cli.deployed import DeployedPipeline
    from intake_ledger_cli.former import FormerPipeline
    from intake_ledger_cli.redrive import RedriveResult
    from intake_ledger_cli.reprocess import ReprocessResult
    from intake_ledger_cli.transfer import TransferResult

JsonObject = dict[str, Any]

VERSION = 1
"""The version of the documents. A release that removes a field or changes its meaning raises it."""


def versioned(result: Any) -> JsonObject:
    """Return the document of a result, with the version of its form."""
    return {"formatVersion": VERSION, **document(result)}


def document(value: Any) -> Any:
    """The JSON form of a result: each field of a dataclass, with its name in camel case.

    A row has the names of its attributes in DynamoDB. A class with another form has a method `as_document`.
    """
    if isinstance(value, Row):
        return {name: document(one) for name, one in row_attributes(value).items()}
    if own := getattr(value, "as_document", None):
        return document(own())
    if is_dataclass(value):
        return {_camel_case(one.name): document(getattr(value, one.name)) for one in fields(value) if one.init}
    if isinstance(value, Mapping):
        return {name: document(one) for name, one in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return [document(one) for one in value] if isinstance(value, (list, tuple)) else value


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(one.capitalize() for one in others)


def redrive_json(found: "RedriveResult", *, dry_run: bool) -> JsonObject:
    dead_letters = [
        {"id": one.id, "keys": one.keys, "reason": one.reason, "reasonCode": one.reason_code or None}
        for one in found.matched_messages
    ]
    return {
        "dryRun": dry_run,
        "matched": found.matched,
        "moved": found.moved,
        "unmoved": found.unmoved,
        "interrupted": found.interrupted,
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
