"""What the ledger and S3 say, read for a person. Nothing here writes."""

import base64
import binascii
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdk_intake_ledger.cli.errors import CliError
from intake_ledger import rows
from intake_ledger.rows import Ordering, Row, Status
from intake_ledger.states import State, StateKind, bare_etag, real_version
from intake_ledger.table import plain

if TYPE_CHECKING:
    from datetime import datetime

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client

    from cdk_intake_ledger.cli.deployed import Deployed

ATTENTION_INDEX = "attention"
COUNT_LIMIT = 10_000
"""Counting reads every row; who has more than this needs no exact number."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A row with the object's key."""

    key: str
    row: Row


@dataclass(frozen=True, slots=True)
class Listed:
    """Some rows that need attention, oldest first. `after` is where the next ones begin, None behind the last."""

    entries: list[Entry]
    after: str | None


@dataclass(frozen=True, slots=True)
class Shown:
    """One version of a key, or delete marker, that S3 lists."""

    state: State
    current: bool


@dataclass(frozen=True, slots=True)
class AuditItem:
    """What the audit left in the ledger's table. Times are epoch milliseconds."""

    last: dict[str, Any] | None
    """The report of the last invocation that worked."""
    held_until: int | None
    due_at: int | None


def rows_of(client: "DynamoDBClient", deployed: "Deployed", key: str) -> list[Entry]:
    """The key's row, or in EVERY_VERSION its rows, read consistently. Those of another ordering, which the pipeline may
    have had before, are left out.
    """
    pages = client.get_paginator("query").paginate(
        TableName=deployed.table,
        KeyConditionExpression="#pk = :pk AND begins_with(#sk, :own)",
        ExpressionAttributeNames={"#pk": "pk", "#sk": "sk"},
        ExpressionAttributeValues={":pk": {"S": f"{deployed.bucket}/{key}"}, ":own": {"S": f"{deployed.name}@"}},
        ConsistentRead=True,
    )
    contents = [plain(item) for page in pages for item in page["Items"]]
    latest = deployed.ordering is Ordering.LATEST
    fitting = [one for one in contents if one["sk"].endswith("@latest") is latest]
    return [entry for one in fitting if (entry := _entry(deployed, one))]


def needing_attention(
    client: "DynamoDBClient", deployed: "Deployed", status: Status | None = None, *, after: str | None = None
) -> Iterator[Entry]:
    """Failed and rejected rows, oldest first. Read from an index, which is a moment behind."""
    for page in _attention(client, deployed, status, start=_start(deployed, after)):
        for item in page["Items"]:
            if entry := _entry(deployed, plain(item)):
                yield entry


def some_needing_attention(
    client: "DynamoDBClient", deployed: "Deployed", status: Status | None, *, limit: int, after: str | None
) -> Listed:
    """The first `limit` of them.

    Raises:
        CliError: `after` is none that a list ended with.

    """
    found: list[Entry] = []
    place: dict[str, Any] | None = None
    for page in _attention(client, deployed, status, start=_start(deployed, after)):
        for item in page["Items"]:
            if len(found) == limit:
                return Listed(found, _token(place))
            if entry := _entry(deployed, plain(item)):
                found.append(entry)
                place = item
    return Listed(found, None)


def counted(client: "DynamoDBClient", deployed: "Deployed") -> Counter[Status]:
    """How many rows need attention, by status; counting ends at `COUNT_LIMIT`."""
    counts: Counter[Status] = Counter()
    for page in _attention(client, deployed, None, start={}):
        counts.update(Status(plain(item)["status"]) for item in page["Items"])
        if counts.total() >= COUNT_LIMIT:
            break
    return counts


def audit_item(client: "DynamoDBClient", deployed: "Deployed") -> AuditItem:
    """See `intake_ledger.audit.runs`, which writes it."""
    key: Any = {"pk": {"S": deployed.bucket}, "sk": {"S": f"{deployed.name}@audit"}}
    found = plain(client.get_item(TableName=deployed.table, Key=key, ConsistentRead=True).get("Item", {}))
    last = json.loads(found["last"]) if "last" in found else None
    return AuditItem(last, found.get("held_until"), found.get("due_at"))


def versions_of(client: "S3Client", deployed: "Deployed", key: str) -> list[Shown]:
    """What S3 lists for this very key, newest first. No version, no marker: S3 has never had it, or has no more.

    A listing tells what a HEAD tells, and needs no right to read the object.
    """
    found: list[Shown] = []
    for name, shown in listed_versions(client, deployed, key):
        # A key comes before all that merely begin with it.
        if name != key:
            break
        found.append(shown)
    return found


def listed_versions(client: "S3Client", deployed: "Deployed", prefix: str) -> Iterator[tuple[str, Shown]]:
    """Every version and every delete marker under a prefix: by key, and of one key the newest first."""
    for page in client.get_paginator("list_object_versions").paginate(**_common(deployed), Prefix=prefix):
        entries = [
            (one["Key"], one["LastModified"], _version(one), one["IsLatest"]) for one in page.get("Versions", ())
        ]
        entries += [
            (one["Key"], one["LastModified"], _marker(one), one["IsLatest"]) for one in page.get("DeleteMarkers", ())
        ]
        # S3's own order of both kinds together is not told, but a key's versions are in it by age.
        entries.sort(key=lambda one: (one[0].encode(), not one[3], -_ms(one[1])))
        for key, _, state, latest in entries:
            yield key, Shown(state, latest)


def listed_keys(client: "S3Client", deployed: "Deployed", prefix: str) -> Iterator[str]:
    """Every key under a prefix that is there now."""
    for page in client.get_paginator("list_objects_v2").paginate(**_common(deployed), Prefix=prefix):
        for one in page.get("Contents", ()):
            yield one["Key"]


def _common(deployed: "Deployed") -> dict[str, Any]:
    owner = {"ExpectedBucketOwner": deployed.bucket_owner} if deployed.bucket_owner else {}
    return {"Bucket": deployed.bucket, **owner}


def _version(one: Any) -> State:
    return State(
        StateKind.OBJECT,
        real_version(one["VersionId"]),
        bare_etag(one["ETag"]),
        one["Size"],
        _ms(one["LastModified"]),
    )


def _marker(one: Any) -> State:
    return State(StateKind.MARKER, real_version(one["VersionId"]), created_at=_ms(one["LastModified"]))


def _attention(
    client: "DynamoDBClient", deployed: "Deployed", status: Status | None, *, start: dict[str, Any]
) -> Iterator[Any]:
    request: dict[str, Any] = {
        "TableName": deployed.table,
        "IndexName": ATTENTION_INDEX,
        "KeyConditionExpression": "#attention = :own",
        "ExpressionAttributeNames": {"#attention": "attention"},
        "ExpressionAttributeValues": {":own": {"S": deployed.name}},
        **start,
    }
    if status is not None:
        request["FilterExpression"] = "#status = :status"
        request["ExpressionAttributeNames"]["#status"] = "status"
        request["ExpressionAttributeValues"][":status"] = {"S": status.value}
    yield from client.get_paginator("query").paginate(**request)


def _entry(deployed: "Deployed", content: dict[str, Any]) -> Entry | None:
    """None for what is no row: an audit's mark alone, or a row of another bucket that was the pipeline's once."""
    row = rows.from_attributes(content)
    own = f"{deployed.bucket}/"
    return Entry(content["pk"].removeprefix(own), row) if row and content["pk"].startswith(own) else None


def _token(item: dict[str, Any] | None) -> str | None:
    """Where a list ended, as text for the command line."""
    if item is None:
        return None
    place = [item["pk"]["S"], item["sk"]["S"], item["updated_at"]["N"]]
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def _start(deployed: "Deployed", token: str | None) -> dict[str, Any]:
    if token is None:
        return {}
    try:
        pk, sk, updated_at = json.loads(base64.urlsafe_b64decode(token))
    except (ValueError, binascii.Error):
        raise CliError(f"--after {token} is none that a list ended with: copy it as it was printed") from None
    return {
        "ExclusiveStartKey": {
            "pk": {"S": pk},
            "sk": {"S": sk},
            "attention": {"S": deployed.name},
            "updated_at": {"N": updated_at},
        }
    }


def _ms(moment: "datetime") -> int:
    return int(moment.timestamp() * 1000)
