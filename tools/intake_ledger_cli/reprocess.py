"""Requests that objects are processed again. A request has one ID, a ULID, and the ledger accepts an ID once per
object.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import batched
from typing import TYPE_CHECKING

from intake_ledger.events import own_message
from intake_ledger.protocol import Ordering, Origin, State, StateKind, Status, is_ulid, made_at, matches_reason
from intake_ledger_cli import reading, s3_listing
from intake_ledger_cli.errors import CliError
from intake_ledger_cli.rate_limit import RateLimit
from intake_ledger_cli.s3_listing import ListedVersion
from intake_ledger_cli.sending import OutgoingMessage, send

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

    from intake_ledger_cli.deployed import DeployedPipeline

TRIES = 3
"""The number of sends before a message is reported as failed. SQS may refuse single messages of a batch."""


@dataclass(frozen=True, slots=True)
class Target:
    """An object to process again: the current state of a key, or one of its states in EVERY_VERSION."""

    key: str
    state: State | None = None


@dataclass(slots=True)
class ReprocessResult:
    """The result of the requests."""

    id: str
    sent: int = 0
    skipped: int = 0
    """The number of keys that the pipeline's filters exclude."""
    absent: list[str] = field(default_factory=list)
    """Keys without an object in S3. They are requested as removals."""
    failed: list[tuple[Target, str]] = field(default_factory=list)


def check_id(request_id: str, deployed: "DeployedPipeline", now: int) -> None:
    """Refuse an ID that the consumer would refuse. `now` is in epoch milliseconds.

    Raises:
        CliError: The ID is not a canonical ULID, or its time is in the future.

    """
    if not is_ulid(request_id):
        raise CliError(
            f"--id {request_id} is not a ULID in upper case: use the ID that the command printed, or omit --id"
        )
    ahead_seconds = (made_at(request_id) - now) // 1000
    if ahead_seconds > deployed.clock_skew_seconds:
        raise CliError(
            f"--id {request_id} is {ahead_seconds} s in the future, and the ledger would ignore later requests: use "
            "the ID that the command printed, or omit --id"
        )


def key_targets(
    client: "S3Client",
    deployed: "DeployedPipeline",
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
    deployed: "DeployedPipeline", key: str, versions: Iterable[ListedVersion], version_id: str | None
) -> Iterator[Target]:
    found = [
        one.state
        for one in versions
        if _is_processed(deployed, one.state) and version_id in (None, one.state.version_id)
    ]
    if not found:
        which = f"version {version_id}" if version_id else "version"
        raise CliError(f"S3 has no {which} of {key} in {deployed.bucket}: check the key and --version-id")
    for state in found:
        yield Target(key, state)


def prefix_targets(
    client: "S3Client", deployed: "DeployedPipeline", prefix: str, result: ReprocessResult
) -> Iterator[Target]:
    """Yield a target for each object under a prefix that passes the filters. In EVERY_VERSION yield one for each
    version.
    """
    if deployed.ordering is Ordering.LATEST:
        targets = (Target(key) for key in s3_listing.list_keys(client, deployed, prefix))
    else:
        listed = s3_listing.list_versions(client, deployed, prefix)
        targets = (Target(key, shown.state) for key, shown in listed if _is_processed(deployed, shown.state))
    for target in targets:
        if deployed.wants(target.key):
            yield target
        else:
            result.skipped += 1


def rejected_targets(client: "DynamoDBClient", deployed: "DeployedPipeline", reason: str | None) -> Iterator[Target]:
    """Yield a target for each rejected row, or for those with this reason code or with this text in the reason."""
    # Read all rows first, because a processed request changes the index.
    entries = list(reading.rows_to_review(client, deployed, Status.REJECTED))
    for entry in entries:
        if entry.row.status is Status.LATER_FORMAT:
            continue  # the consumer would only give the message back
        if reason is not None and not matches_reason(reason, entry.row.reason_code, entry.row.reason or ""):
            continue
        if deployed.ordering is Ordering.LATEST:
            yield Target(entry.key)
        else:
            row = entry.row
            yield Target(entry.key, State(row.kind, row.version_id, row.etag, row.size))


def send_requests(
    client: "SQSClient",
    deployed: "DeployedPipeline",
    targets: Iterable[Target],
    result: ReprocessResult,
    rate: RateLimit,
) -> None:
    """Send a message for each target.

    Raises:
        ClientError: SQS refuses.

    """
    for batch in batched(targets, rate.batch_size):
        rate.wait_for(len(batch))
        remaining, why = list(batch), dict[Target, str]()
        for _ in range(TRIES):
            messages = [OutgoingMessage(_body(deployed, one, result.id)) for one in remaining]
            answers = send(client, deployed.queue_url, messages)
            why = {one: error for one, error in zip(remaining, answers, strict=True) if error is not None}
            remaining = list(why)
            if not remaining:
                break
        result.sent += len(batch) - len(remaining)
        result.failed += why.items()


def _body(deployed: "DeployedPipeline", target: Target, request_id: str) -> str:
    return own_message(Origin.REPROCESS, deployed.bucket, target.key, target.state, reprocess_id=request_id)


def _is_processed(deployed: "DeployedPipeline", state: State) -> bool:
    """True if the pipeline processes this state."""
    return deployed.deletes or state.kind is StateKind.OBJECT
