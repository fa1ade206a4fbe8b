"""Select rows by a scan of the table: by the time of their last commit, or by the version of the processor."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from intake_ledger.protocol.row import to_dynamodb
from intake_ledger.protocol.settings import short_version
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.errors import UsageError


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


def scan_request(
    deployed: DeployedPipeline, *conditions: tuple[str, str, str, str | int], prefix: str = ""
) -> dict[str, Any]:
    """The request for a scan of the pipeline's rows with these conditions, as `CommitFilter.conditions` yields them."""
    every = [
        ("sk", "begins_with(#sk, :own)", ":own", f"{deployed.name}@"),
        ("pk", "begins_with(#pk, :keys)", ":keys", f"{deployed.bucket}/{prefix}"),
        *conditions,
    ]
    return {
        "TableName": deployed.table,
        "FilterExpression": " AND ".join(condition for _, condition, _, _ in every),
        "ExpressionAttributeNames": {f"#{attribute}": attribute for attribute, _, _, _ in every},
        "ExpressionAttributeValues": to_dynamodb({name: value for _, _, name, value in every}),
    }
