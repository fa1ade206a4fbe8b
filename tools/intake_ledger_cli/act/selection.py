"""The rows, dead letters and objects that a `retry` selects."""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.reasons import matches_reason
from intake_ledger.protocol.row import Ordering, Status, review_partitions, to_dynamodb, waiting_partition
from intake_ledger_cli.act.row_scan import CommitFilter, commit_filter, scan_request
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
    unknown_version: int = 0
    """The number of rows that do not name the version of the processor, if the call selects a version."""
    absent: list[str] = field(default_factory=list)
    """Keys without an object in S3. They are requested as removals."""
    failed: list[NotRequested] = field(default_factory=list)
    position: str = ""
    """The place up to which each object was requested."""


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
        if deployed.set_variables is not None:
            from intake_ledger_cli.act import set_keys  # noqa: PLC0415 - it imports the runtime's clients

            if self.of_commits:
                raise UsageError(
                    "--since, --before and --processor-version cannot be used for sets of files: use --prefix"
                )
            return set_keys.prefix_targets(aws.s3, deployed, prefix)
        if self.of_commits:
            chosen = self.commits
            selected = replace(chosen, before=min(before, before if chosen.before is None else chosen.before))
            return row_targets(aws.dynamodb, deployed, selected, prefix, result, after=after)
        return prefix_targets(aws.s3, deployed, prefix, result, after=after)


def named_targets(
    aws: Aws, deployed: DeployedPipeline, keys: Iterable[str], version_id: str | None, result: ReprocessResult
) -> list[Target]:
    """The objects or sets of keys. All are checked before the first one is sent.

    Raises:
        CliError: A key cannot be requested.

    """
    if deployed.set_variables is None:
        return list(key_targets(aws.s3, deployed, keys, version_id, result))
    from intake_ledger_cli.act import set_keys  # noqa: PLC0415 - as above

    if version_id is not None:
        raise UsageError(f"--version-id {version_id} cannot be used: only the present set is processed")
    return list(set_keys.key_targets(aws.s3, deployed, keys))


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
    client: "S3Client", deployed: DeployedPipeline, prefix: str, result: ReprocessResult, *, after: str = ""
) -> Iterator[Target]:
    """Yield a target for each object under a prefix that passes the filters, after the key `after`. In EVERY_VERSION
    yield one for each version, and continue with the first version of `after`. Directory markers that the pipeline
    skips get none.
    """
    if deployed.ordering is Ordering.LATEST:
        objects = s3_listing.list_objects(client, deployed, prefix, after=after)
        targets = ((Target(key, position=key), state) for key, state in objects)
    else:
        listed = s3_listing.list_versions(client, deployed, prefix)
        targets = (
            (Target(key, shown.state, position=key), shown.state)
            for key, shown in listed
            if key.encode() >= after.encode() and _is_processed(deployed, shown.state.kind)
        )
    for target, state in targets:
        if not deployed.wants(target.key):
            result.skipped += 1
        elif deployed.skips(target.key, state):
            # A request that names the key processes it.
            result.directory_markers += 1
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
    request = scan_request(deployed, processed, *selected.conditions(or_unknown=True), prefix=prefix)
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
