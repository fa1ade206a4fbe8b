"""Requests that objects are processed again. A request has one ID, a ULID, and the ledger accepts an ID once per
object.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import batched
from typing import TYPE_CHECKING

from intake_ledger.events.parser import own_message
from intake_ledger.protocol.change import Origin, State, StateKind
from intake_ledger.protocol.row import Ordering
from intake_ledger.protocol.ulids import is_ulid, made_at
from intake_ledger.requests.record import BATCH_ENTRIES, Entry
from intake_ledger_cli.act.sender import Request, Sender
from intake_ledger_cli.aws import s3_listing
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.reading import ObjectRow
from intake_ledger_cli.aws.s3_listing import ListedVersion
from intake_ledger_cli.errors import CliError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MOST_FAILED = 1_000
"""The number of failed messages after which the call sends no further record."""


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


def check_id(request_id: str, deployed: DeployedPipeline, now: int) -> None:
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
        if _is_processed(deployed, one.state) and version_id in (None, one.state.version_id)
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
            if key.encode() >= after.encode() and _is_processed(deployed, shown.state)
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


def send_requests(
    sender: Sender, targets: Iterable[Target], result: ReprocessResult, store: Callable[[], None] = lambda: None
) -> None:
    """Send a recorded message for each target. It holds one record at a time.

    `store` is called between two records.

    Raises:
        CliError: See `Sender.check`.
        ClientError: AWS refuses a request.

    """
    for group in batched(targets, BATCH_ENTRIES):
        if result.sent:
            store()
        if len(result.failed) >= MOST_FAILED:
            return
        _send_group(sender, group, result)


def _send_group(sender: Sender, group: Sequence[Target], result: ReprocessResult) -> None:
    def answered(place: int, why: str | None) -> None:
        if why is None:
            result.sent += 1
        else:
            result.failed.append(NotRequested(group[place].key, why))
        if not result.failed:
            # A resumed call begins with the first message that failed.
            result.position = group[place].position

    bucket, id_ = sender.deployed.bucket, sender.request_id
    bodies = [own_message(Origin.REPROCESS, bucket, one.key, one.state, reprocess_id=id_) for one in group]
    entries = [Entry(one.key, state=one.state) for one in group]
    sender.send([*map(Request, bodies, entries)], answered)


def _is_processed(deployed: DeployedPipeline, state: State) -> bool:
    """True if the pipeline processes this state."""
    return deployed.deletes or state.kind is StateKind.OBJECT
