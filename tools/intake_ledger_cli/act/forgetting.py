"""Removes a key from the stores of a pipeline, for a person's right to be forgotten.

The key's marker comes first, and has a hash only. `intake_ledger.ledger.forgotten` says how workers see it: after
`WAIT` and the difference of clocks, no worker handles a message that was sent before the marker without a look at it.
Each step may be repeated, so a command that was killed is run again.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, quote_plus

from botocore.exceptions import ClientError

from intake_ledger.ledger.conditions import Condition, ConditionFailed, row_unchanged
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.forgotten import FORGOTTEN_AT, REMOVED, UNCHECKED_MS
from intake_ledger.options.exclusive_by import holder_row
from intake_ledger.outputs.conditional_put import REMOVED as OUTPUT_REMOVED
from intake_ledger.outputs.conditional_put import Present, source_of
from intake_ledger.protocol.change import StateKind
from intake_ledger.protocol.row import (
    Ordering,
    Row,
    RowKey,
    Status,
    forgotten_key,
    from_dynamodb,
    group_key,
    newest_forgotten_key,
    rejects_place,
    row_from_attributes,
    to_dynamodb,
)
from intake_ledger.protocol.ulids import made_at
from intake_ledger.requests.record import batch_item, batch_key, queried_batches
from intake_ledger.set_members.forms import FormKind
from intake_ledger_cli.act.selection import form_of
from intake_ledger_cli.aws import s3_listing
from intake_ledger_cli.aws.drain import Drain
from intake_ledger_cli.errors import CliError, UsageError
from intake_ledger_cli.pipeline_options.exclusive_by import group_name
from intake_ledger_cli.show.formatting import duration, relative_time

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from intake_ledger_cli.aws.clients import Aws
    from intake_ledger_cli.aws.deployed import DeployedPipeline

_DAY_MS = 86_400_000
_LONGEST_WAIT_MS = 365 * _DAY_MS
"""The longest `max_wait`, for a function of a release that does not tell its own."""
_LONGEST_STREAM_MS = 365 * _DAY_MS
"""The longest retention of a stream of Kinesis."""
GUARDS_MS = _DAY_MS
"""The age from which a tombstone guards nothing: no lease is as long. The lifecycle rule of `grant_output` deletes it
then, too."""
FORGOTTEN = "(forgotten)"
"""Replaces the key in records of operations."""


@dataclass(frozen=True, slots=True)
class Remain:
    """A thing that the command cannot remove. `until` is the time at which it ends, in epoch milliseconds."""

    what: str
    until: int | None = None
    """None: it has no end, or the end is not known."""


@dataclass(slots=True)
class ForgetResult:
    """The document of `forget`. Times are in epoch milliseconds."""

    pipeline: str
    digest: str
    """The hash in the marker."""
    forgotten_at: int = 0
    """Messages that were sent before are refused."""
    refused_until: int = 0
    """The end of the marker. By then no message that was sent before can exist."""
    rows: int = 0
    other_items: int = 0
    """Locks of keys, and memberships of sets."""
    dead_letters: int = 0
    operations: int = 0
    """Records of operations, and marks of a pause or of the circuit breaker, that named the key."""
    outputs: int = 0
    """Tombstones of outputs."""
    unfinished: bool = False
    """True if another call can remove more."""
    remains: list[Remain] = field(default_factory=list)


class Tombstone(NamedTuple):
    """The tombstone of an output. It keeps a late worker from writing the output again."""

    bucket: str
    key: str
    etag: str


@dataclass(frozen=True, slots=True)
class Item:
    """An item of the table."""

    place: RowKey
    content: dict[str, Any]

    @property
    def row(self) -> Row | None:
        return row_from_attributes(self.content)


class Forgetting:
    """Forgets one key of one pipeline."""

    def __init__(self, aws: "Aws", deployed: "DeployedPipeline", key: str) -> None:
        self._aws = aws
        self._deployed = deployed
        self._key = key
        self._table = LedgerTable(aws.dynamodb, deployed.table)
        self._pk = f"{deployed.bucket}/{key}"
        self._marker = forgotten_key(deployed.name, self._pk)
        self._text = _text_of(key)
        self.result = ForgetResult(deployed.name, self._marker.sk)

    @property
    def key(self) -> str:
        """The key."""
        return self._key

    @property
    def wait_ms(self) -> int:
        """The time after which each worker sees the marker, or shows its claim in its row."""
        return UNCHECKED_MS + self._deployed.clock_skew_seconds * 1000

    def items(self) -> list[Item]:
        """The key's rows, its lock and its memberships."""
        sets = {target.name for target in self._deployed.sets_of_parts}
        found = []
        for item in self._query(self._pk):
            name, _, kind = item.place.sk.partition("@")
            if name == self._deployed.name or (name in sets and kind.startswith("part-of#")):
                found.append(item)
        return found

    def check(self, now: int, *, since: int | None = None) -> None:
        """Refuse a key that is in use. `since`: an attempt that ended after it may be one of a new message.

        Raises:
            CliError: S3 has a version of the object, or an attempt holds the key, has just ended, or is missing.

        """
        deployed = self._deployed
        if deployed.work.in_bucket and (number := self._number_of_versions()):
            raise CliError(
                f"S3 has {number} of the key in {deployed.bucket}: each would be processed again. Delete all versions "
                "and delete markers first, see docs/forget.md"
            )
        rows = [row for item in self.items() if (row := item.row) is not None]
        for row in rows:
            self._check_row(row, now, since)
        if deployed.deletes and (untold := _untold(rows, deployed.ordering)):
            raise CliError(f"the processor was not told of the removal of {untold}, so its effect stays: see inspect")

    def _check_row(self, row: Row, now: int, since: int | None) -> None:
        if row.status is Status.LATER_FORMAT:
            raise CliError("a later release wrote the row: use the command of that release")
        if row.is_live(now):
            raise CliError(
                f"a worker holds the key, and its lease ends {relative_time(row.lease_until or now, now)}: run the "
                "command again after its end"
            )
        if row.status is Status.PROCESSING and self._deployed.has_executions:
            raise CliError("an execution of the key may run: see inspect, and run the command again after its end")
        skew_ms = self._deployed.clock_skew_seconds * 1000
        if row.updated_at > (now if since is None else since) - skew_ms:
            wait = duration(skew_ms)
            raise CliError(f"the last attempt on the key ended a moment ago: run the command again after {wait}")

    def wait(self) -> None:
        """Wait until each worker sees the marker."""
        time.sleep(self.wait_ms / 1000)

    def mark(self) -> None:
        """Write the marker. From then on, messages that were sent before are refused."""
        now, kept_ms = self._time_of_sqs()
        self.result.forgotten_at, self.result.refused_until = now, now + kept_ms
        mark_forgotten(self._table, self._deployed.name, self._marker, now, kept_ms)

    def remove_before(self, at: int, now: int) -> int:
        """Remove the key that was forgotten at this time, and that a restore has brought back. Later rows stay.

        Returns:
            The number of later rows.

        Raises:
            CliError: The bucket has the key, or an attempt holds it.

        """
        items = self.items()
        later = [item for item in items if max(item.content.get("updated_at", 0), item.content.get("fence", 0)) > at]
        left = [item for item in items if item not in later and (not later or item.row is not None)]
        if left and self._deployed.work.in_bucket and (number := self._number_of_versions()):
            raise CliError(f"S3 has {number} of it: delete them, or let the key be used again")
        for row in [row for item in left if (row := item.row) is not None]:
            self._check_row(row, now, at)
        self._remove(left, now)
        if not later:
            self._leave_set_and_group()
        self.remove_from_records()
        return len([item for item in later if item.row is not None])

    def kept_ms(self) -> int:
        """The time for which a message of before may exist, in milliseconds."""
        return self._time_of_sqs()[1]

    def _time_of_sqs(self) -> tuple[int, int]:
        """The present time of SQS, and the time for which an earlier message may exist. Both in milliseconds."""
        deployed, kept_ms = self._deployed, _DAY_MS
        names: Any = ["MessageRetentionPeriod"]
        for url in (deployed.queue_url, deployed.dead_letter_url):
            answer = self._aws.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)
            kept_ms += int(answer["Attributes"]["MessageRetentionPeriod"]) * 1000
        waits = deployed.max_wait_seconds
        kept_ms += _LONGEST_WAIT_MS if waits is None else waits * 1000
        kept_ms += _LONGEST_STREAM_MS if deployed.reads_stream else 0
        # The header has whole seconds.
        date = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
        return int(date.timestamp() + 1) * 1000, kept_ms

    def remove_dead_letters(self, renew: Callable[[], None]) -> None:
        """Delete the key's dead-letter messages. Those that are about other keys too stay."""
        deployed = self._deployed
        with Drain(self._aws.sqs, deployed) as drain:
            if hidden := drain.hidden():
                self._unfinished(f"{hidden} dead-letter messages that someone else reads now: run the command again")
            for messages in drain.receive():
                renew()
                own = []
                for one in messages:
                    ours = one.pipeline in ("", deployed.name)
                    if ours and {self._key} == set(one.keys):
                        own.append(one)
                    elif self._key in one.keys or self.finds_key(one.body):
                        whose = "" if ours else f" of {one.pipeline}"
                        self._unfinished(
                            f"the dead-letter message {one.id}{whose}, which may be about other keys too: retry it, "
                            "or delete it, both with --letter"
                        )
                if own and (failed := drain.delete(own)):
                    self._unfinished(f"{failed} dead-letter messages, which SQS did not delete: run the command again")
                    self.result.dead_letters -= failed
                self.result.dead_letters += len(own)

    def remove_items(self, now: int) -> None:
        """Delete the rows, the lock and the memberships, if no attempt has changed them since they were read.

        Raises:
            CliError: An attempt has changed them.

        """
        self._remove(self.items(), now)
        at = self.result.forgotten_at
        with suppress(ConditionFailed):  # a later command has marked it
            is_own = Condition(f"#{FORGOTTEN_AT} = :at", (FORGOTTEN_AT,), {":at": at})
            self._table.mark(self._marker, {REMOVED: at}, is_own)
        self._leave_set_and_group()

    def _remove(self, items: Sequence[Item], now: int) -> None:
        for item in items:
            row = item.row
            condition = row_unchanged(row, now) if row is not None else _as_read(item.content)
            try:
                self._table.delete(item.place, condition)
            except ConditionFailed:
                raise CliError("an attempt on the key has begun meanwhile: run the command again") from None
            if row is not None:
                self.result.rows += 1
            else:
                self.result.other_items += 1

    def _leave_set_and_group(self) -> None:
        self._leave_group()
        for place in self._parts_of_set():
            self._table.delete(place, Condition("attribute_exists(#pk)", ("pk",), {}))
            self.result.other_items += 1

    def _leave_group(self) -> None:
        """Remove the key's name from the lock of its group, and from the line of those that wait for it."""
        if (group := group_name(self._deployed, self._key)) is None:
            return
        place = group_key(self._deployed.name, group)
        holder = self._table.read(place).get("holder", "")
        if holder_row(holder).pk == self._pk:
            # Another key may take it meanwhile.
            with suppress(ConditionFailed):
                self._table.mark(place, {"holder": ""}, Condition("#holder = :seen", ("holder",), {":seen": holder}))
                self.result.other_items += 1
        for item in self._query(place.pk):
            if holder_row(item.content.get("waiter", "")).pk == self._pk:
                with suppress(ConditionFailed):
                    self._table.delete(item.place, _as_read(item.content))
                    self.result.other_items += 1

    def remove_from_records(self) -> None:
        """Replace the key in records of operations, and in the marks of a pause and of the circuit breaker."""
        for partition in (self._deployed.operations_partition, f"{self._deployed.name}#downstream"):
            for item in self._query(partition):
                changed = {
                    name: self._text.sub(FORGOTTEN, value)
                    for name, value in item.content.items()
                    if isinstance(value, str) and name not in ("pk", "sk") and self._text.search(value)
                }
                if self._is_place(item.content.get("position", "")):
                    # The call is resumed from its beginning. An ID has no second effect.
                    changed["position"] = ""
                if changed:
                    # A call that ends deletes its position.
                    with suppress(ConditionFailed):
                        self._table.mark(item.place, changed, Condition("attribute_exists(#pk)", ("pk",), {}))
                        self.result.operations += 1
        # The requests of a record are compressed.
        for batch in queried_batches(self._aws.dynamodb, self._deployed.table, self._deployed.name):
            left = [entry for entry in batch.entries if entry.key != self._key]
            if len(left) < len(batch.entries):
                # A reprocess may write its record meanwhile, with more requests.
                seen = {":at": batch.sent_at, ":number": len(batch.entries)}
                as_read = Condition("#sent_at = :at AND #outstanding = :number", ("sent_at", "outstanding"), seen)
                batch.entries = left
                content = batch_item(batch, made_at=made_at(batch.request_id))
                try:
                    self._table.mark(batch_key(self._deployed.name, batch), content, as_read)
                except ConditionFailed:
                    self._unfinished("a record of requests that is written now: run the command again")
                else:
                    self.result.operations += 1

    def _is_place(self, position: str) -> bool:
        """True if the position of a `retry --again` is the key, or the place of its row."""
        with suppress(ValueError):
            content = json.loads(position)
            return position == self._key or (isinstance(content, list) and self._pk in content)
        return position == self._key

    def others(self) -> Iterator[Remain]:
        """Items of the key that other pipelines have in this table."""
        own = {item.place for item in self.items()}
        others = (item.place.sk for item in self._query(self._pk) if item.place not in own)
        for name in sorted({sk.partition("@")[0] for sk in others}):
            yield Remain(f"items of the key of {name}: use the command with --pipeline {name}")

    def finds_key(self, text: str) -> bool:
        """True if a text names the key."""
        return self._text.search(text) is not None

    def _identities(self) -> list[str]:
        """The identities of the versions in the rows."""
        return [row.identity for item in self.items() if (row := item.row) is not None]

    def _unfinished(self, what: str) -> None:
        self.result.unfinished = True
        self.result.remains.append(Remain(what))

    def _number_of_versions(self) -> str:
        """The number of versions and delete markers of the key. Of a quiet folder: whether it has any object."""
        client, deployed = self._aws.s3, self._deployed
        if self._form() is FormKind.QUIET:
            return "objects" if next(s3_listing.list_versions(client, deployed, self._key), None) else ""
        number = len(s3_listing.list_key_versions(client, deployed, self._key))
        return f"{number} versions or delete markers" if number else ""

    def _form(self) -> FormKind | None:
        """The form of the sets. None: the pipeline has none."""
        return form_of(self._deployed).kind if self._deployed.has_sets else None

    def _query(self, pk: str) -> list[Item]:
        return [*read_items(self._aws, self._deployed, "query", {":pk": pk}, KeyConditionExpression="#pk = :pk")]

    def _parts_of_set(self) -> list[RowKey]:
        """The memberships of the parts of a manifest. Only the manifest names the parts, so all items are read."""
        deployed = self._deployed
        if self._form() is not FormKind.MANIFEST:
            return []
        values = {":set_key": self._key, ":own": f"{deployed.name}@part-of#"}
        wanted = "#set_key = :set_key AND begins_with(#sk, :own)"
        items = read_items(self._aws, deployed, "scan", values, FilterExpression=wanted)
        return [one.place for one in items if one.place.pk.startswith(f"{deployed.bucket}/")]

    def tombstones(self, outputs: Sequence[str], now: int) -> list[Tombstone]:
        """The tombstones at these `s3://` URIs, and those of the key's outputs with rejected rows. A place without an
        object has none.

        Raises:
            UsageError: A text is no URI of an object.
            CliError: The output exists, belongs to another key, or its tombstone is younger than a day.

        """
        deployed, versions, found = self._deployed, self._identities(), list[Tombstone]()
        names = versions if deployed.ordering is Ordering.EVERY_VERSION else (None,)
        rejects = deployed.setting("rejects")
        places = [rejects_place(rejects, self._key, name) for name in names] if rejects else []
        sources = {source_of(self._key, version) for version in (None, *versions)}
        for uri in (*outputs, *("s3://" + "/".join(place) for place in places)):
            bucket, _, name = uri.removeprefix("s3://").partition("/")
            if not uri.startswith("s3://") or not name:
                raise UsageError(f"--output {uri} names no object: use s3://bucket/key")
            if (head := _head(self._aws.s3, bucket, name)) is None:
                continue
            present = Present.of(head)
            if present.source not in sources:
                raise CliError(f"{uri} is no output of this key: its metadata name another one, or none")
            if present.removed_by is None:
                raise CliError(
                    f"{uri} still has its content: remove it with `change.output`, or delete all versions of it"
                )
            if now < (end := present.removed_by + GUARDS_MS):
                raise CliError(
                    f"the tombstone {uri} guards against a late worker until {relative_time(end, now)}: run the "
                    "command again then"
                )
            found.append(Tombstone(bucket, name, str(present.etag)))
        return found

    def remove_tombstone(self, tombstone: Tombstone) -> None:
        """Delete all versions of the output, unless it was written since.

        Raises:
            CliError: It was written since.

        """
        client, (bucket, key, etag) = self._aws.s3, tombstone
        head = _head(client, bucket, key)
        if head is None or head["ETag"] != etag or OUTPUT_REMOVED not in head["Metadata"]:
            raise CliError(f"s3://{bucket}/{key} has changed meanwhile: run the command again")
        pages = client.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=key)
        listed: list[Any] = [
            one for page in pages for one in (*page.get("Versions", ()), *page.get("DeleteMarkers", ()))
        ]
        for version in [one["VersionId"] for one in listed if one["Key"] == key]:
            if version == "null":
                client.delete_object(Bucket=bucket, Key=key, IfMatch=etag)
            client.delete_object(Bucket=bucket, Key=key, VersionId=version)
        self.result.outputs += 1


def read_items(
    aws: "Aws", deployed: "DeployedPipeline", operation: Any, values: dict[str, Any], **expressions: str
) -> Iterator[Item]:
    """Yield the items of a query or a scan, read consistently. In expressions, `#name` is the attribute `name`."""
    names = re.findall(r"#(\w+)", " ".join(expressions.values()))
    request: dict[str, Any] = {
        "TableName": deployed.table,
        "ConsistentRead": True,
        "ExpressionAttributeNames": {f"#{name}": name for name in names},
        "ExpressionAttributeValues": to_dynamodb(values),
    }
    pages = aws.dynamodb.get_paginator(operation).paginate(**request, **expressions)
    for content in (from_dynamodb(item) for page in pages for item in page["Items"]):
        yield Item(RowKey(content["pk"], content["sk"]), content)


def mark_forgotten(table: LedgerTable, pipeline: str, marker: RowKey, at: int, kept_ms: int) -> None:
    """Write the marker of a key that was forgotten at this time, and the time of the newest one. Later ones stay."""
    for place in (marker, newest_forgotten_key(pipeline)):
        for name, value in {FORGOTTEN_AT: at, "expires_at": (at + kept_ms) // 1000}.items():
            later = Condition(f"attribute_not_exists(#{name}) OR #{name} < :value", (name,), {":value": value})
            with suppress(ConditionFailed):
                table.mark(place, {name: value}, later)


def _as_read(content: dict[str, Any]) -> Condition:
    """The item is as it was read. A lock has a fence, which grows with each attempt that takes it."""
    if "fence" not in content:
        return Condition("attribute_exists(#pk)", ("pk",), {})
    return Condition("#fence = :seen", ("fence",), {":seen": content["fence"]})


def _untold(rows: Sequence[Row], ordering: Ordering) -> str:
    """Versions whose removal the processor was not told, for people. Empty: it was told each removal."""
    if ordering is Ordering.LATEST:
        return "" if all(row.settled and row.kind is not StateKind.OBJECT for row in rows) else "the object"
    told = {row.version_id for row in rows if row.settled and row.kind is StateKind.DELETED}
    versions = [row.version_id for row in rows if row.kind is StateKind.OBJECT and row.version_id is not None]
    left = [version for version in versions if version not in told]
    return f"{len(left)} versions" if left else ""


def _text_of(key: str) -> re.Pattern[str]:
    """Finds the key in a text, as it is, as `s3://bucket/key`, and encoded. Not in a longer word or key."""
    written = {key, quote(key), quote(key, safe=""), quote_plus(key), quote_plus(key, safe="/"), json.dumps(key)[1:-1]}
    forms = sorted(written, key=len, reverse=True)
    return re.compile(rf"(?<![\w./%-])(?:s3://[^/\s]+/)?(?:{'|'.join(map(re.escape, forms))})(?![\w/%-]|[.+]\w)")


def _head(client: "S3Client", bucket: str, key: str) -> Any:
    """The answer to HeadObject. None: it does not exist."""
    try:
        return client.head_object(Bucket=bucket, Key=key)
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
            return None
        raise
