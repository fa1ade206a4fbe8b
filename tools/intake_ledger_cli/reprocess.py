"""Asks the consumer to process objects again. Each request has one id, a ULID: the ledger serves it once per object."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import batched
from typing import TYPE_CHECKING

from intake_ledger.events.parser import own_message
from intake_ledger.protocol.change import Origin
from intake_ledger.protocol.object_state import State, StateKind
from intake_ledger.protocol.reasons import matches_reason
from intake_ledger.protocol.row import Ordering, Status
from intake_ledger.protocol.ulid import is_ulid, made_at
from intake_ledger_cli import reading
from intake_ledger_cli.errors import CliError
from intake_ledger_cli.rate_limit import RateLimit
from intake_ledger_cli.reading import ListedVersion
from intake_ledger_cli.sending import OutgoingMessage, send

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

    from intake_ledger_cli.deployed import DeployedPipeline

TRIES = 3
"""How often a message is sent before it is reported: SQS may refuse single ones of a batch for a moment."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is to be processed again: a key as S3 shows it then, or in EVERY_VERSION one of its states."""

    key: str
    state: State | None = None


@dataclass(slots=True)
class ReprocessResult:
    """What became of the requests."""

    id: str
    sent: int = 0
    skipped: int = 0
    """Keys that the pipeline's filters leave out."""
    absent: list[str] = field(default_factory=list)
    """Keys that S3 has nothing of: asked for as removals."""
    failed: list[tuple[Target, str]] = field(default_factory=list)


def check_id(request_id: str, deployed: "DeployedPipeline", now: int) -> None:
    """Refuse what the consumer would refuse. `now` is in epoch milliseconds.

    Raises:
        CliError: It is not a ULID in canonical form, or it was made in the future.

    """
    if not is_ulid(request_id):
        raise CliError(f"--id {request_id} is not a ULID in upper case: give the one that was printed, or leave it out")
    ahead_seconds = (made_at(request_id) - now) // 1000
    if ahead_seconds > deployed.clock_skew_seconds:
        raise CliError(
            f"--id {request_id} was made {ahead_seconds} s in the future: every later request would be taken for "
            "served; give the one that was printed, or leave it out"
        )


def key_targets(
    client: "S3Client",
    deployed: "DeployedPipeline",
    keys: Iterable[str],
    version_id: str | None,
    result: ReprocessResult,
) -> Iterator[Target]:
    """These keys; in EVERY_VERSION each version that they have, or the one that is named.

    Raises:
        CliError: The pipeline takes no such key, S3 has never had it, or a version makes no sense.

    """
    for key in keys:
        if not deployed.wants(key):
            listed = ", ".join(f"{one.prefix}*{one.suffix}" for one in deployed.filters)
            raise CliError(f"{key} is none of the pipeline's keys: its filters are {listed}")
        versions = reading.list_key_versions(client, deployed, key)
        if deployed.ordering is Ordering.EVERY_VERSION:
            yield from _each_version(deployed, key, versions, version_id)
            continue
        if version_id is not None:
            raise CliError(
                f"--version-id {version_id}: this pipeline's ordering is LATEST, it only brings about what S3 shows"
            )
        if not deployed.deletes and not any(one.current and not one.state.removed for one in versions):
            raise CliError(f"S3 has no object {key} in {deployed.bucket}: see to the key's spelling")
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
        raise CliError(f"S3 has no {which} of {key} in {deployed.bucket}: see to the key's spelling")
    for state in found:
        yield Target(key, state)


def prefix_targets(
    client: "S3Client", deployed: "DeployedPipeline", prefix: str, result: ReprocessResult
) -> Iterator[Target]:
    """What S3 has under a prefix and the filters let through; in EVERY_VERSION each version."""
    if deployed.ordering is Ordering.LATEST:
        targets = (Target(key) for key in reading.list_keys(client, deployed, prefix))
    else:
        listed = reading.list_versions(client, deployed, prefix)
        targets = (Target(key, shown.state) for key, shown in listed if _is_processed(deployed, shown.state))
    for target in targets:
        if deployed.wants(target.key):
            yield target
        else:
            result.skipped += 1


def rejected_targets(client: "DynamoDBClient", deployed: "DeployedPipeline", reason: str | None) -> Iterator[Target]:
    """All rejected objects, or those with this reason: a reason code, or a part of the text in any case."""
    # Read to the end first: a request that is served changes the index that is read.
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
    """Send a message for each.

    Raises:
        ClientError: SQS refuses.

    """
    for few in batched(targets, rate.batch_size):
        rate.wait_for(len(few))
        open_, why = list(few), dict[Target, str]()
        for _ in range(TRIES):
            messages = [OutgoingMessage(_body(deployed, one, result.id)) for one in open_]
            answers = send(client, deployed.queue_url, messages)
            why = {one: said for one, said in zip(open_, answers, strict=True) if said is not None}
            open_ = list(why)
            if not open_:
                break
        result.sent += len(few) - len(open_)
        result.failed += why.items()


def _body(deployed: "DeployedPipeline", target: Target, request_id: str) -> str:
    return own_message(Origin.REPROCESS, deployed.bucket, target.key, target.state, reprocess_id=request_id)


def _is_processed(deployed: "DeployedPipeline", state: State) -> bool:
    """Whether the processor hears of this state."""
    return deployed.deletes or state.kind is StateKind.OBJECT
