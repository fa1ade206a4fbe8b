"""The rows, dead letters and objects that a `retry` selects."""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import batched, chain
from pathlib import Path
from typing import TYPE_CHECKING

from intake_ledger.ledger.dynamodb_table import BATCH_GET_KEYS, LedgerTable
from intake_ledger.protocol.change import Skipped, State, StateKind
from intake_ledger.protocol.reasons import matches_reason
from intake_ledger.protocol.row import (
    Ordering,
    Status,
    review_partitions,
    row_from_attributes,
    to_dynamodb,
    waiting_partition,
)
from intake_ledger.protocol.settings import short_version
from intake_ledger.set_members.forms import FormKind, FormSettings
from intake_ledger_cli.aws import reading, s3_listing
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.dead_letters import MessageFilter
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.reading import ObjectRow
from intake_ledger_cli.aws.s3_listing import ListedVersion
from intake_ledger_cli.errors import CliError, UsageError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client

_NAMED = 3
"""The largest number of keys that `str` names."""


@dataclass(frozen=True, slots=True)
class Target:
    """An object to process again: the current state of a key, or one of its states in EVERY_VERSION."""

    key: str
    state: State | None = None
    position: str = field(default="", compare=False)
    """The place of the object in its selection. A resumed call continues after it."""


@dataclass(frozen=True, slots=True)
class NotRequested:
    """An object whose request SQS refused."""

    key: str
    why: str


@dataclass(slots=True)
class ReprocessResult:
    """The requests of a `retry --again`."""

    sent: int = 0
    skipped: int = 0
    """The number of keys that the pipeline's filters exclude."""
    directory_markers: int = 0
    """The number of directory markers under a prefix that the pipeline skips."""
    excluded: int = 0
    """The number of keys under a prefix that `exclude` leaves out."""
    unknown_version: int = 0
    """The number of rows that do not name the version of the processor, if the call selects a version."""
    absent: list[str] = field(default_factory=list)
    """Keys without an object in S3. They are requested as removals."""
    failed: list[NotRequested] = field(default_factory=list)
    position: str = ""
    """The place up to which each object was requested."""


@dataclass(frozen=True, slots=True)
class CommitFilter:
    """Rows by their last commit. A row has to pass all conditions. Times are in epoch milliseconds.

    The time of a commit is that of its attempt (`committed_fence`). Tags, failures and removals change a row later.
    """

    since: int | None = None
    before: int | None = None
    """Commits of this time are left out."""
    version: str | None = None
    """The version of the processor as rows have it."""

    def conditions(self, *, or_unknown: bool = False) -> Iterator[tuple[str, str, str, str | int]]:
        """Yield attribute, condition, and name and value of its placeholder, as DynamoDB filters rows.

        Args:
            or_unknown: rows that name no version of the processor pass too.

        """
        if self.since is not None:
            yield "committed_fence", "#committed_fence >= :committed_since", ":committed_since", self.since
        if self.before is not None:
            yield "committed_fence", "#committed_fence < :committed_before", ":committed_before", self.before
        if self.version is not None:
            has = "#processor_version = :version"
            either = f"(attribute_not_exists(#processor_version) OR {has})"
            yield "processor_version", either if or_unknown else has, ":version", self.version


def commit_filter(
    version: str | None, *, since: tuple[str, str | None], before: tuple[str, str | None]
) -> CommitFilter:
    """The filter of commits by these options. Each time is the name of its option and its value.

    Raises:
        UsageError: A time is none, the version is empty, or no time is left.

    """
    if version is not None and not version.strip():
        raise UsageError("--processor-version is empty: use the version that `intake-ledger inspect KEY` shows")
    first, last = (None if text is None else parse_time(text, option) for option, text in (since, before))
    if first is not None and last is not None and first >= last:
        raise UsageError(f"{before[0]} {before[1]} is not after {since[0]} {since[1]}: no commit is between them")
    return CommitFilter(first, last, None if version is None else short_version(version))


def parse_time(text: str, option: str = "--since") -> int:
    """Parse a time such as `2026-11-23T07:00:00Z` into epoch milliseconds. Without an offset it is in UTC.

    Raises:
        UsageError: It is not a time.

    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option} {text} is not a time: use a form such as 2026-11-23T07:00:00Z") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The options of `retry` that select rows, dead letters and objects."""

    keys: tuple[str, ...] = ()
    prefix: str | None = None
    reason: str | None = None
    waiting: bool = False
    letter: str | None = None
    version_id: str | None = None
    since: str | None = None
    before: str | None = None
    processor_version: str | None = None

    @property
    def of_commits(self) -> bool:
        """True if rows are selected by their last commit."""
        return any(one is not None for one in (self.since, self.before, self.processor_version))

    @property
    def commits(self) -> CommitFilter:
        """The filter of commits.

        Raises:
            UsageError: A time is none, the version is empty, or no time is left.

        """
        return commit_filter(self.processor_version, since=("--since", self.since), before=("--before", self.before))

    def __str__(self) -> str:
        """The selection as a person types it. Of many keys, only some are named."""
        options = ("processor_version", "since", "before", "prefix", "reason", "letter", "version_id")
        typed = [(f"--{name.replace('_', '-')}", getattr(self, name)) for name in options]
        words = [f"{name} {value or repr('')}" for name, value in typed if value is not None]
        words += ["--waiting"] if self.waiting else []
        more = f" and {len(self.keys) - _NAMED:,} more" if len(self.keys) > _NAMED else ""
        return " ".join([*self.keys[:_NAMED], *words]) + more

    @property
    def one_by_one(self) -> bool:
        """True if keys, reasons or messages are selected, and not whole prefixes or commits."""
        return bool(self.keys) or self.waiting or self.reason is not None or self.letter is not None

    @property
    def filter(self) -> MessageFilter:
        """The filter of dead letters."""
        return MessageFilter(self.prefix, self.reason, self.letter, frozenset(self.keys) or None)

    def rows(self, aws: Aws, deployed: DeployedPipeline) -> Iterator[ObjectRow]:
        """Yield the rows. Without keys, those that the index has: failed, waiting and rejected ones."""
        rows: Iterator[ObjectRow]
        if self.keys:
            rows = (one for key in self.keys for one in reading.read_rows(aws.dynamodb, deployed, key))
        elif self.letter is not None:
            return
        else:
            names = [*([] if self.waiting else review_partitions(deployed.name)), waiting_partition(deployed.name)]
            failed = [reading.rows_to_review(aws.dynamodb, deployed, Status.FAILED)] if self.waiting else []
            rows = chain(*failed, reading.rows_to_review(aws.dynamodb, deployed, names=names))
        for entry in rows:
            row = entry.row
            if self.version_id not in (None, row.version_id) or not entry.key.startswith(self.prefix or ""):
                continue
            if self.reason is None or matches_reason(self.reason, row.reason_code, row.reason or ""):
                yield entry

    def named(self, aws: Aws, deployed: DeployedPipeline, result: ReprocessResult) -> list[Target]:
        """The objects or sets of the keys. All are checked before the first one is sent.

        Raises:
            CliError: A key cannot be requested.

        """
        if not deployed.has_sets:
            for key in self.keys:
                is_left_out = deployed.excludes(key) and not deployed.is_control(key)
                if is_left_out and not reading.read_rows(aws.dynamodb, deployed, key):
                    raise CliError(
                        f"{key} is left out by `exclude` of the pipeline, and has no row: rename it, or omit a pattern"
                    )
            return list(key_targets(aws.s3, deployed, self.keys, self.version_id, result))
        if self.version_id is not None:
            raise UsageError(f"--version-id {self.version_id} cannot be used: only the present set is processed")
        return list(_named_sets(aws.s3, deployed, self.keys))

    def targets(
        self, aws: Aws, deployed: DeployedPipeline, result: ReprocessResult, *, before: int, after: str
    ) -> Iterator[Target]:
        """Yield the objects or sets after a position. They are read while they are sent.

        Args:
            aws: clients.
            deployed: the pipeline.
            result: counts what is left out.
            before: commits of this time and later ones are left out, in epoch milliseconds.
            after: the position.

        Raises:
            UsageError: The kind of the pipeline has no such selection.

        """
        prefix = self.prefix or ""
        if deployed.has_sets:
            if self.of_commits:
                raise UsageError(
                    "--since, --before and --processor-version cannot be used for sets of files: use --prefix"
                )
            return sets_under(aws.s3, deployed, prefix)
        if self.of_commits:
            chosen = self.commits
            selected = replace(chosen, before=min(before, before if chosen.before is None else chosen.before))
            return row_targets(aws.dynamodb, deployed, selected, prefix, result, after=after)
        return prefix_targets(aws, deployed, prefix, result, after=after)


def key_targets(
    client: "S3Client",
    deployed: DeployedPipeline,
    keys: Iterable[str],
    version_id: str | None,
    result: ReprocessResult,
) -> Iterator[Target]:
    """Yield a target for each key. In EVERY_VERSION yield one for each version, or for the named version.

    Raises:
        CliError: The filters exclude a key, S3 does not have it, or a version does not fit the ordering.

    """
    for key in keys:
        if not deployed.wants(key):
            listed = ", ".join(f"{one.prefix}*{one.suffix}" for one in deployed.filters)
            raise CliError(f"{key} matches none of the pipeline's filters: {listed}")
        versions = s3_listing.list_key_versions(client, deployed, key)
        if deployed.ordering is Ordering.EVERY_VERSION:
            yield from _each_version(deployed, key, versions, version_id)
            continue
        if version_id is not None:
            raise CliError(
                f"--version-id {version_id} cannot be used: the ordering LATEST processes the current version only"
            )
        if not deployed.deletes and not any(one.current and not one.state.removed for one in versions):
            raise CliError(f"S3 has no object {key} in {deployed.bucket}: check the key")
        if not versions:
            result.absent.append(key)
        yield Target(key)


def _each_version(
    deployed: DeployedPipeline, key: str, versions: Iterable[ListedVersion], version_id: str | None
) -> Iterator[Target]:
    found = [
        one.state
        for one in versions
        if _is_processed(deployed, one.state.kind) and version_id in (None, one.state.version_id)
    ]
    if not found:
        which = f"version {version_id}" if version_id else "version"
        raise CliError(f"S3 has no {which} of {key} in {deployed.bucket}: check the key and --version-id")
    for state in found:
        yield Target(key, state)


def prefix_targets(
    aws: Aws, deployed: DeployedPipeline, prefix: str, result: ReprocessResult, *, after: str = ""
) -> Iterator[Target]:
    """Yield a target for each object under a prefix that passes the filters, after the key `after`. In EVERY_VERSION
    yield one for each version, and continue with the first version of `after`. Directory markers that the pipeline
    skips get none, nor do keys that `exclude` leaves out, unless they have a row.
    """
    if deployed.ordering is Ordering.LATEST:
        objects = s3_listing.list_objects(aws.s3, deployed, prefix, after=after)
        targets = ((Target(key, position=key), state) for key, state in objects)
    else:
        listed = s3_listing.list_versions(aws.s3, deployed, prefix)
        targets = (
            (Target(key, shown.state, position=key), shown.state)
            for key, shown in listed
            if key.encode() >= after.encode() and _is_processed(deployed, shown.state.kind)
        )
    table = LedgerTable(aws.dynamodb, deployed.table)
    for group in batched(targets, BATCH_GET_KEYS):
        skipped = [deployed.skips(target.key, state) for target, state in group]
        places = [deployed.row_key(target.key, state.identity) for target, state in group]
        excluded = [place for place, why in zip(places, skipped, strict=True) if why is Skipped.EXCLUDED]
        items = table.get_items(list(dict.fromkeys(excluded))) if excluded else {}
        for (target, _), why, place in zip(group, skipped, places, strict=True):
            if not deployed.wants(target.key):
                result.skipped += 1
            elif why is Skipped.DIRECTORY_MARKERS:
                # A request that names the key processes it.
                result.directory_markers += 1
            elif why is Skipped.EXCLUDED and row_from_attributes(items.get(place, {})) is None:
                result.excluded += 1
            else:
                yield target


def row_target(deployed: DeployedPipeline, entry: ObjectRow, position: str) -> Target:
    """Make a target of a row, with its place in the selection."""
    row = entry.row
    if deployed.ordering is Ordering.LATEST:
        return Target(entry.key, position=position)
    return Target(entry.key, row.state, position)


def row_targets(
    client: "DynamoDBClient",
    deployed: DeployedPipeline,
    selected: CommitFilter,
    prefix: str,
    result: ReprocessResult,
    *,
    after: str = "",
) -> Iterator[Target]:
    """Yield a target for each processed row that passes the filter. It reads the whole table, in no order.

    Args:
        client: of DynamoDB.
        deployed: the pipeline.
        selected: the rows. Its `before` has to be no later than the start of the first call: a request that is
            processed meanwhile changes its row, which would otherwise come again.
        prefix: of the keys.
        result: counts the keys that the pipeline's filters exclude, and the rows that name no version.
        after: position of an earlier call.

    """
    processed = ("status", "#status = :processed", ":processed", Status.PROCESSED.value)
    request = reading.scan_request(deployed, processed, *selected.conditions(or_unknown=True), prefix=prefix)
    if after:
        pk, sk = json.loads(after)
        request["ExclusiveStartKey"] = to_dynamodb({"pk": pk, "sk": sk})
    for page in client.get_paginator("scan").paginate(**request):
        for content, entry in reading.entries_of(deployed, page["Items"]):
            if entry.row.status is Status.LATER_FORMAT or not _is_processed(deployed, entry.row.kind):
                continue
            if not deployed.wants(entry.key):
                result.skipped += 1
            elif selected.version is not None and entry.row.processor_version is None:
                result.unknown_version += 1
            else:
                yield row_target(deployed, entry, json.dumps([content["pk"], content["sk"]]))


def _is_processed(deployed: DeployedPipeline, kind: StateKind) -> bool:
    """True if the pipeline processes states of this kind."""
    return deployed.deletes or kind is StateKind.OBJECT


def form_of(deployed: DeployedPipeline) -> FormSettings:
    """The form of the deployed sets."""
    from intake_ledger.sets.settings import set_settings  # noqa: PLC0415 - it imports the runtime's clients

    return set_settings(deployed.variables).form


def check_set_key(deployed: DeployedPipeline, key: str) -> None:
    """Refuse a key that names no set.

    Raises:
        UsageError: It is the key of a part, or does not match the pattern.

    """
    form = form_of(deployed)
    own = form.set_of(key)
    if own == key:
        return
    if own is not None:
        raise UsageError(f"{key} is a part of a set of {deployed.name}: use the key of the set, {own}")
    what = "folder" if form.kind is FormKind.QUIET else form.kind.value
    raise UsageError(
        f"{key} is no set of {deployed.name}: use the key of a {what} that matches {form.pattern}, or "
        "--pipeline with the name of the pipeline of the parts"
    )


def _named_sets(client: "S3Client", deployed: DeployedPipeline, keys: Iterable[str]) -> Iterator[Target]:
    """Yield a target for each key of a set.

    Raises:
        UsageError: A key names no set.
        CliError: S3 does not have the manifest, the marker, or an object of the folder.

    """
    is_folder = form_of(deployed).kind is FormKind.QUIET
    for key in keys:
        check_set_key(deployed, key)
        first = next(s3_listing.list_keys(client, deployed, key), None)
        if first is None or (first != key and not is_folder):
            raise CliError(f"S3 has no object {key} in {deployed.bucket}: check the key")
        yield Target(key)


def sets_under(client: "S3Client", deployed: DeployedPipeline, prefix: str) -> Iterator[Target]:
    """Yield a target for each set whose manifest, marker or objects are under a prefix."""
    form, last = form_of(deployed), None
    for name in s3_listing.list_keys(client, deployed, prefix):
        key = form.set_of(name)
        # The objects of a folder follow each other in a listing.
        if key is None or key == last or (form.kind is not FormKind.QUIET and key != name):
            continue
        last = key
        yield Target(key)


def keys_from(file: str) -> tuple[str, ...]:
    """The keys in a file, one a line, as they are in S3. `-` is standard input.

    Raises:
        UsageError: The file cannot be read, or has no key.

    """
    try:
        content = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        lines = content.decode("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--from {file} cannot be read: {error}. Use a file with one key a line, in UTF-8") from None
    if keys := tuple(key for line in lines if (key := line.removesuffix("\r"))):
        return keys
    raise UsageError(f"--from {file} has no key: write one key a line")
