"""What the ledger and S3 say, read for a person. Nothing here writes."""

import base64
import binascii
import heapq
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from intake_ledger.ledger import completeness
from intake_ledger.ledger.dynamodb_table import plain
from intake_ledger.protocol import row as rows
from intake_ledger.protocol.object_state import State, StateKind, bare_etag, real_version
from intake_ledger.protocol.row import Ordering, Row, Status
from intake_ledger.protocol.settings import Settings
from intake_ledger_cli.errors import CliError

if TYPE_CHECKING:
    from datetime import datetime

    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client

    from intake_ledger_cli.deployed import DeployedPipeline

REVIEW_INDEX = "needs_review"
type _Place = tuple[int, str, str]
"""Where an item stands among the rows that need review: by `updated_at`, then by its key."""


@dataclass(frozen=True, slots=True)
class ObjectRow:
    """A row with the object's key."""

    key: str
    row: Row


@dataclass(frozen=True, slots=True)
class ReviewPage:
    """Some rows that need attention, oldest first. `after` is where the next ones begin, None behind the last."""

    entries: list[ObjectRow]
    after: str | None


@dataclass(frozen=True, slots=True)
class ListedVersion:
    """One version of a key, or delete marker, that S3 lists."""

    state: State
    current: bool


@dataclass(frozen=True, slots=True)
class AuditState:
    """What the audit left in the ledger's table. Times are epoch milliseconds."""

    last: dict[str, Any] | None
    """The report of the last invocation that worked."""
    lease_until: int | None
    next_run_at: int | None
    sending: "SendProgress | None" = None


@dataclass(frozen=True, slots=True)
class SendProgress:
    """How far a run in parts has come with its messages. `begun_at` is in epoch milliseconds."""

    sent: int
    of: int
    """The number of its candidates. Some of them may need no message."""
    begun_at: int

    def left_ms(self, now: int) -> int:
        """An estimate of the time that is left, at the rate until now."""
        return (now - self.begun_at) * max(self.of - self.sent, 0) // max(self.sent, 1)


def read_rows(client: "DynamoDBClient", deployed: "DeployedPipeline", key: str) -> list[ObjectRow]:
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


def rows_to_review(
    client: "DynamoDBClient", deployed: "DeployedPipeline", status: Status | None = None, *, after: str | None = None
) -> Iterator[ObjectRow]:
    """Failed and rejected rows, oldest first. Read from an index, which is a moment behind.

    Raises:
        CliError: `after` is not a token that a list ended with.

    """
    for item in _review_items(client, deployed, status, after=_place(after)):
        if entry := _entry(deployed, plain(item)):
            yield entry


def list_rows_to_review(
    client: "DynamoDBClient",
    deployed: "DeployedPipeline",
    status: Status | None,
    *,
    limit: int,
    after: str | None,
    waiting: bool = False,
) -> ReviewPage:
    """The first `limit` of them. `waiting`: rows whose processor said `NotYet`, in place of failures.

    Raises:
        CliError: `after` is not a token that a list ended with.

    """
    found: list[ObjectRow] = []
    last: Any = None
    for item in _review_items(client, deployed, status, after=_place(after), waiting=waiting):
        if entry := _entry(deployed, plain(item)):
            if len(found) == limit:
                return ReviewPage(found, _token(last))
            found.append(entry)
            last = item
    return ReviewPage(found, None)


def read_audit_state(client: "DynamoDBClient", deployed: "DeployedPipeline") -> AuditState:
    """See `intake_ledger.audit.runs`, which writes it."""
    key: Any = {"pk": {"S": deployed.bucket}, "sk": {"S": f"{deployed.name}@audit"}}
    found = plain(client.get_item(TableName=deployed.table, Key=key, ConsistentRead=True).get("Item", {}))
    last = json.loads(found["last_report"]) if "last_report" in found else None
    sending = None
    if "lease_owner" in found:
        # Runs in parts count their messages there: `intake_ledger.audit.budget`.
        key["pk"] = {"S": f"{deployed.bucket}#{found['lease_owner']}"}
        count = plain(client.get_item(TableName=deployed.table, Key=key, ConsistentRead=True).get("Item", {}))
        sending = SendProgress(count["sent"], count["of"], count["begun_at"]) if "of" in count else None
    return AuditState(last, found.get("lease_until"), found.get("next_run_at"), sending)


def read_complete_since(client: "DynamoDBClient", deployed: "DeployedPipeline") -> int | None:
    """Return the time since when each processed object has a row, in epoch milliseconds. None: rows may be missing.

    See `intake_ledger.ledger.completeness`, which writes the item.
    """
    settings = Settings(
        pipeline=deployed.name,
        bucket=deployed.bucket,
        bucket_owner=deployed.bucket_owner,
        table=deployed.table,
        queue_url=deployed.queue_url,
        ordering=deployed.ordering,
        deletes=deployed.deletes,
        retention_seconds=deployed.retention_seconds,
        clock_skew_seconds=deployed.clock_skew_seconds,
        filters=deployed.filters,
        keeps_rows=deployed.keeps_rows,
        skips_existing=deployed.skips_existing,
    )
    place = completeness.record_key(settings)
    key: Any = {"pk": {"S": place.pk}, "sk": {"S": place.sk}}
    found = plain(client.get_item(TableName=deployed.table, Key=key, ConsistentRead=True).get("Item", {}))
    return completeness.complete_since(found, settings)


def list_key_versions(client: "S3Client", deployed: "DeployedPipeline", key: str) -> list[ListedVersion]:
    """What S3 lists for this very key, newest first. No version, no marker: S3 has never had it, or has no more.

    A listing tells what a HEAD tells, and needs no right to read the object.
    """
    found: list[ListedVersion] = []
    for name, shown in list_versions(client, deployed, key):
        # A key comes before all that merely begin with it.
        if name != key:
            break
        found.append(shown)
    return found


def list_versions(client: "S3Client", deployed: "DeployedPipeline", prefix: str) -> Iterator[tuple[str, ListedVersion]]:
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
            yield key, ListedVersion(state, latest)


def list_keys(client: "S3Client", deployed: "DeployedPipeline", prefix: str) -> Iterator[str]:
    """Every key under a prefix that is there now."""
    for page in client.get_paginator("list_objects_v2").paginate(**_common(deployed), Prefix=prefix):
        for one in page.get("Contents", ()):
            yield one["Key"]


def _common(deployed: "DeployedPipeline") -> dict[str, Any]:
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


def _review_items(
    client: "DynamoDBClient",
    deployed: "DeployedPipeline",
    status: Status | None,
    *,
    after: "_Place | None",
    waiting: bool = False,
) -> Iterator[Any]:
    """The index's items behind `after`, from all partitions, in the order of `_place_of`."""
    names = [rows.waiting_partition(deployed.name)] if waiting else rows.review_partitions(deployed.name)
    partitions = [_by_place(_one_partition(client, deployed, name, status, after)) for name in names]
    for item in heapq.merge(*partitions, key=_place_of):
        if after is None or _place_of(item) > after:
            yield item


def _one_partition(
    client: "DynamoDBClient",
    deployed: "DeployedPipeline",
    partition: str,
    status: Status | None,
    after: "_Place | None",
) -> Iterator[Any]:
    request: dict[str, Any] = {
        "TableName": deployed.table,
        "IndexName": REVIEW_INDEX,
        "KeyConditionExpression": "#needs_review = :partition",
        "ExpressionAttributeNames": {"#needs_review": "needs_review"},
        "ExpressionAttributeValues": {":partition": {"S": partition}},
    }
    if after is not None:
        request["KeyConditionExpression"] += " AND #updated_at >= :updated_at"
        request["ExpressionAttributeNames"]["#updated_at"] = "updated_at"
        request["ExpressionAttributeValues"][":updated_at"] = {"N": str(after[0])}
    if status is not None:
        request["FilterExpression"] = "#status = :status"
        request["ExpressionAttributeNames"]["#status"] = "status"
        request["ExpressionAttributeValues"][":status"] = {"S": status.value}
    for page in client.get_paginator("query").paginate(**request):
        yield from page["Items"]


def _by_place(items: Iterator[Any]) -> Iterator[Any]:
    """A partition's items come by `updated_at`; DynamoDB orders those of one millisecond as it likes."""
    for _, group in groupby(items, key=lambda item: item["updated_at"]["N"]):
        yield from sorted(group, key=_place_of)


def _place_of(item: Any) -> "_Place":
    return int(item["updated_at"]["N"]), item["pk"]["S"], item["sk"]["S"]


def _entry(deployed: "DeployedPipeline", content: dict[str, Any]) -> ObjectRow | None:
    """None for what is no row: an audit's mark alone, or a row of another bucket that was the pipeline's once."""
    row = rows.from_attributes(content)
    own = f"{deployed.bucket}/"
    return ObjectRow(content["pk"].removeprefix(own), row) if row and content["pk"].startswith(own) else None


def _token(item: Any) -> str:
    """Where a list ended, as text for the command line."""
    return base64.urlsafe_b64encode(json.dumps(_place_of(item)).encode()).decode()


def _place(token: str | None) -> "_Place | None":
    if token is None:
        return None
    try:
        updated_at, pk, sk = json.loads(base64.urlsafe_b64decode(token))
        return int(updated_at), str(pk), str(sk)
    except (TypeError, ValueError, binascii.Error):
        raise CliError(f"--after {token} is not a token that a list ended with: copy it as it was printed") from None


def _ms(moment: "datetime") -> int:
    return int(moment.timestamp() * 1000)
