"""Takes a claim from a worker that is dead, before its lease ends. The runtime's `break_claim` says what it changes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text

from intake_ledger.ledger import ConditionFailed, LedgerTable, break_claim
from intake_ledger.protocol import Reason, ReasonCode, Row, Status, row_key
from intake_ledger_cli import reading, retrying
from intake_ledger_cli.console import GOOD, WARNING, escape
from intake_ledger_cli.errors import CliError, UsageError
from intake_ledger_cli.formatting import duration, relative_time

if TYPE_CHECKING:
    from intake_ledger_cli.aws import Aws
    from intake_ledger_cli.deployed import DeployedPipeline
    from intake_ledger_cli.operations import Operation
    from intake_ledger_cli.reading import ObjectRow

LATE_EFFECTS = (
    "A worker that still runs cannot commit any more. Its writes with `transact`, its outputs and its SQL "
    "transactions are refused as soon as the next attempt has begun. Its other effects, such as requests to a service, "
    "may still happen beside those of the next attempt, which has the same idempotency key."
)


@dataclass(frozen=True, slots=True)
class ReleaseResult:
    """The document of `release`. Times are in epoch milliseconds."""

    pipeline: str
    key: str
    version_id: str | None
    """The version of an object, or the identity of a message."""
    attempt: int
    """The attempt that was taken from its worker. It counts."""
    lease_owner: str
    claimed_at: int
    lease_until: int
    """The end of the lease without this command."""
    fence: int
    """The raised fence."""
    woken: bool
    """A message wakes the key at once. False for messages, which only their source delivers again."""
    delivered_by: int | None
    """The time until which the source of a message delivers it again. None if the key was woken."""


def find_claim(aws: "Aws", deployed: "DeployedPipeline", key: str, version_id: str | None, now: int) -> "ObjectRow":
    """Return the row of the key that a worker holds.

    Raises:
        UsageError: Several versions or messages of the key are in work, and none was named.
        CliError: None is in work.

    """
    entries = reading.read_rows(aws.dynamodb, deployed, key)
    entries = [one for one in entries if version_id in (None, one.row.version_id)]
    held = [one for one in entries if one.row.is_live(now)]
    if len(held) > 1:
        names = ", ".join(str(one.row.version_id) for one in held)
        raise UsageError(f"{len(held)} versions of {key} are in work, name one with --version-id: {names}")
    if held:
        return held[0]
    if any(one.row.status is Status.PROCESSING for one in entries):
        raise CliError(f"the lease of {key} has ended, so that nothing holds it: see intake-ledger retry-now")
    states = ", ".join(sorted({one.row.status.value for one in entries})) or "no row"
    raise CliError(f"no worker holds {key} (the ledger has: {states}): see intake-ledger inspect")


def describe_claim(deployed: "DeployedPipeline", entry: "ObjectRow", now: int) -> str:
    """Describe the claim, and the result of its release."""
    row = entry.row
    begun = relative_time(row.updated_at, now)
    return (
        f"A worker ({row.lease_owner}) of {deployed.name} holds {entry.key}: attempt {row.attempts}, since {begun}. "
        f"Its lease ends {relative_time(row.lease_until or now, now)}. {LATE_EFFECTS} "
        "The attempt counts. Release it only if the worker is dead."
    )


def release(aws: "Aws", deployed: "DeployedPipeline", entry: "ObjectRow", operation: "Operation") -> ReleaseResult:
    """Take the claim from its worker, and wake the key.

    Raises:
        CliError: The attempt has ended, or its worker has extended its lease. Or SQS refused the message.
        ClientError: AWS refuses a request.

    """
    row = entry.row
    place = row_key(deployed.name, deployed.ordering, deployed.bucket, entry.key, row.identity)
    who, now = operation.by.rpartition("/")[2], operation.at
    reason = Reason(ReasonCode.LOCK_BROKEN, f"released by {who}: {operation.because}")
    try:
        after = break_claim(LedgerTable(aws.dynamodb, deployed.table), deployed.name, place, row, reason, now=now)
    except ConditionFailed as refused:
        raise CliError(f"{entry.key} was not released: {_changed(row, refused.row)}") from None
    is_message = not deployed.work.in_bucket
    if not is_message and (why := retrying.wake(aws, deployed, entry)) is not None:
        raise CliError(f"{entry.key} is released, and SQS refused the message that wakes it: {why}. Use retry-now")
    return ReleaseResult(
        pipeline=deployed.name,
        key=entry.key,
        version_id=row.version_id,
        attempt=row.attempts,
        lease_owner=row.lease_owner or "",
        claimed_at=row.updated_at,
        lease_until=row.lease_until or 0,
        fence=after.fence,
        woken=not is_message,
        delivered_by=_delivered_by(aws, deployed, row) if is_message else None,
    )


def _changed(seen: Row, present: Row | None) -> str:
    if present is not None and (present.fence, present.lease_owner) == (seen.fence, seen.lease_owner):
        if present.status is Status.PROCESSING:
            return "its worker has extended the lease meanwhile, so it is alive"
        return f"the attempt has ended meanwhile: {present.status.value}"
    return "another attempt has the row: see intake-ledger inspect"


def _delivered_by(aws: "Aws", deployed: "DeployedPipeline", row: Row) -> int:
    """The time until which the source delivers the message again.

    A queue shows it again when its visibility timeout has ended. A stream repeats the batch when the invocation has
    ended, which is before the end of the lease.
    """
    if deployed.reads_stream:
        return row.lease_until or 0
    return row.updated_at + retrying.in_flight(aws, deployed).visibility_seconds * 1000


def release_text(found: ReleaseResult, now: int) -> Text:
    """The document for people."""
    left = duration(found.lease_until - now)
    text = f"released: {found.key}, attempt {found.attempt}, {left} before its lease ended; "
    if found.delivered_by is None:
        return Text(escape(text + "it is tried now"), style=GOOD)
    when = relative_time(found.delivered_by, now)
    return Text(escape(f"{text}its source delivers the message again by {when}"), style=WARNING)
