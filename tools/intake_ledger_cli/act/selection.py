"""The rows, dead letters and objects that a `retry` selects."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from intake_ledger.protocol.reasons import matches_reason
from intake_ledger.protocol.row import Status, review_partitions, waiting_partition
from intake_ledger.protocol.settings import short_version
from intake_ledger_cli.act import reprocess, row_scan
from intake_ledger_cli.act.reprocess import ReprocessResult, Target
from intake_ledger_cli.act.row_scan import CommitFilter
from intake_ledger_cli.aws import reading
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.dead_letters import MessageFilter
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.reading import ObjectRow
from intake_ledger_cli.errors import UsageError

_NAMED = 3
"""The largest number of keys that `str` names."""


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
    def commits(self) -> "CommitFilter":
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
            return row_scan.row_targets(aws.dynamodb, deployed, selected, prefix, result, after=after)
        return reprocess.prefix_targets(aws.s3, deployed, prefix, result, after=after)


def named_targets(
    aws: Aws, deployed: DeployedPipeline, keys: Iterable[str], version_id: str | None, result: ReprocessResult
) -> list[Target]:
    """The objects or sets of keys. All are checked before the first one is sent.

    Raises:
        CliError: A key cannot be requested.

    """
    if deployed.set_variables is None:
        return list(reprocess.key_targets(aws.s3, deployed, keys, version_id, result))
    from intake_ledger_cli.act import set_keys  # noqa: PLC0415 - as above

    if version_id is not None:
        raise UsageError(f"--version-id {version_id} cannot be used: only the present set is processed")
    return list(set_keys.key_targets(aws.s3, deployed, keys))


def commit_filter(
    version: str | None, *, since: tuple[str, str | None], before: tuple[str, str | None]
) -> "CommitFilter":
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
