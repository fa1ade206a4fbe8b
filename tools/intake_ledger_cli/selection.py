"""The objects that a reprocess selects, and the position of a call that was interrupted."""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from intake_ledger.protocol import RowKey, Status, made_at, short_version, to_dynamodb
from intake_ledger_cli import reading, reprocess, row_scan
from intake_ledger_cli.errors import CliError, UsageError
from intake_ledger_cli.row_scan import RowFilter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from intake_ledger_cli.aws import Aws
    from intake_ledger_cli.deployed import DeployedPipeline
    from intake_ledger_cli.reprocess import ReprocessResult, Target

NAMED = 3
"""The largest number of keys that `str` names."""
_KEPT_SECONDS = 14 * 86_400
"""The time for which a position can be resumed."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The options of reprocess that select objects."""

    keys: tuple[str, ...] = ()
    prefix: str | None = None
    rejected: bool = False
    failed: bool = False
    since: str | None = None
    reason: str | None = None
    version_id: str | None = None
    processor_version: str | None = None

    def check(self) -> None:
        """Check the options.

        Raises:
            UsageError: They select nothing, or contradict each other.

        """
        if self.processor_version is not None:
            self._check_version(self.processor_version)
            return
        given = (bool(self.keys), self.prefix is not None, self.rejected, self.failed, self.since is not None)
        if sum(given) != 1:
            raise UsageError(
                "reprocess needs exactly one of: keys, --prefix, --rejected, --failed, --since, --processor-version, "
                "--resume"
            )
        if self.reason is not None and not (self.rejected or self.failed):
            raise UsageError(f"--reason {self.reason} needs --rejected or --failed: only these objects have a reason")
        if self.version_id is not None and len(self.keys) != 1:
            raise UsageError(f"--version-id {self.version_id} needs exactly one key, and {len(self.keys)} were given")
        if self.since is not None:
            parse_time(self.since)

    def _check_version(self, version: str) -> None:
        if self.keys or self.rejected or self.failed or self.reason is not None or self.version_id is not None:
            raise UsageError(
                f"--processor-version {version} selects processed objects: combine it with --prefix and --since only"
            )
        if not version.strip():
            raise UsageError("--processor-version is empty: use the version that `intake-ledger inspect KEY` shows")
        if self.since is not None:
            parse_time(self.since)

    def __str__(self) -> str:
        """The command as a person types it. Of many keys, only some are named."""
        if self.keys:
            more = f" and {len(self.keys) - NAMED:,} more" if len(self.keys) > NAMED else ""
            version = f" --version-id {self.version_id}" if self.version_id else ""
            return f"reprocess {' '.join(self.keys[:NAMED])}{more}{version}"
        if self.processor_version is not None:
            prefix = f" --prefix {self.prefix}" if self.prefix else ""
            since = f" --since {self.since}" if self.since else ""
            return f"reprocess --processor-version {self.processor_version}{prefix}{since}"
        if self.prefix is not None:
            return f"reprocess --prefix {self.prefix or repr('')}"
        if self.since is not None:
            return f"reprocess --since {self.since}"
        status = "--rejected" if self.rejected else "--failed"
        return f"reprocess {status}" + (f" --reason {self.reason}" if self.reason else "")

    def targets(
        self, aws: "Aws", deployed: "DeployedPipeline", result: "ReprocessResult", *, after: str = ""
    ) -> "Iterator[Target]":
        """Yield the objects or sets after a position. Keys are checked before the first one. Other objects are
        read while they are sent.

        Raises:
            CliError: A key cannot be requested.

        """
        before = made_at(result.reprocess_id)
        if deployed.set_variables is not None and not (self.rejected or self.failed):
            return self._sets(aws, deployed)
        if self.keys:
            return iter(list(reprocess.key_targets(aws.s3, deployed, self.keys, self.version_id, result)))
        if self.processor_version is not None or self.since is not None:
            since = parse_time(self.since) if self.since is not None else 0
            version = short_version(self.processor_version or "")
            selected = RowFilter(before, since, self.prefix or "", version)
            return row_scan.row_targets(aws.dynamodb, deployed, selected, result, after=after)
        if self.prefix is not None:
            return reprocess.prefix_targets(aws.s3, deployed, self.prefix, result, after=after)
        status = Status.REJECTED if self.rejected else Status.FAILED
        return reprocess.review_targets(aws.dynamodb, deployed, status, self.reason, before=before, after=after)

    def _sets(self, aws: "Aws", deployed: "DeployedPipeline") -> "Iterator[Target]":
        from intake_ledger_cli import set_keys  # noqa: PLC0415 - it imports the runtime's clients

        if self.version_id is not None:
            raise UsageError(f"--version-id {self.version_id} cannot be used: only the present set is processed")
        if self.processor_version is not None:
            version = self.processor_version
            raise UsageError(f"--processor-version {version} cannot be used for sets of files: use --prefix")
        if self.since is not None:
            raise UsageError(f"--since {self.since} cannot be used for sets of files: use --prefix")
        if self.keys:
            return iter(list(set_keys.key_targets(aws.s3, deployed, self.keys)))
        return set_keys.prefix_targets(aws.s3, deployed, self.prefix or "")


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


def store(aws: "Aws", deployed: "DeployedPipeline", selection: Selection, result: "ReprocessResult") -> None:
    """Write the position of a call into the ledger's table, so that it can be resumed.

    Raises:
        ClientError: DynamoDB refuses the request.

    """
    place = _place(deployed, result.reprocess_id)
    content = {
        "pk": place.pk,
        "sk": place.sk,
        "selection": json.dumps(asdict(selection)),
        "position": result.position,
        "sent": result.sent,
        "expires_at": made_at(result.reprocess_id) // 1000 + _KEPT_SECONDS,
    }
    aws.dynamodb.put_item(TableName=deployed.table, Item=to_dynamodb(content))


def resume(aws: "Aws", deployed: "DeployedPipeline", request_id: str) -> tuple[Selection, str]:
    """Return the selection and the position of an interrupted call.

    Raises:
        CliError: No call with this ID has stored a position.

    """
    found = reading.read_item(aws.dynamodb, deployed, _place(deployed, request_id))
    if not found:
        raise CliError(f"--resume {request_id} has no stored position: it is done, never sent a message, or is too old")
    content = json.loads(found["selection"])
    return Selection(**content | {"keys": tuple(content["keys"])}), found["position"]


def forget(aws: "Aws", deployed: "DeployedPipeline", request_id: str) -> None:
    """Delete the position of a call that is complete.

    Raises:
        ClientError: DynamoDB refuses the request.

    """
    place = _place(deployed, request_id)
    key: Any = {"pk": {"S": place.pk}, "sk": {"S": place.sk}}
    aws.dynamodb.delete_item(TableName=deployed.table, Key=key)


def _place(deployed: "DeployedPipeline", request_id: str) -> RowKey:
    return RowKey(deployed.operations_partition, f"reprocess#{request_id}")
