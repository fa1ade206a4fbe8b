"""The command that takes a claim from a worker that is dead, before its lease ends, or ends work for good.

The runtime's `break_claim` and `end_work` say what they change.
"""

import time
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from intake_ledger.events.parser import body_unknown
from intake_ledger.ledger.conditions import ConditionFailed
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import break_claim, end_work
from intake_ledger.protocol.reasons import Reason, ReasonCode
from intake_ledger.protocol.row import Ordering, Row, Status
from intake_ledger_cli.act import operations
from intake_ledger_cli.act.operations import Operation
from intake_ledger_cli.act.retrying import dead_letter_of, in_flight, wake_body
from intake_ledger_cli.app import Because, Wait, Yes, app, argument, now_ms
from intake_ledger_cli.aws import reading
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.executions import execution_of, executions_of, standing
from intake_ledger_cli.aws.reading import ObjectRow
from intake_ledger_cli.aws.sending import OutgoingMessage, send
from intake_ledger_cli.errors import CliError, UsageError
from intake_ledger_cli.options import Call, with_shared_options
from intake_ledger_cli.read.inspection import key_in
from intake_ledger_cli.show.console import console, escape
from intake_ledger_cli.show.formatting import relative_time

_LOOK_SECONDS = 5.0
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


@dataclass(frozen=True, slots=True)
class EndResult:
    """The document of `release --end`."""

    pipeline: str
    key: str
    version_id: str | None
    """The version of an object, or the identity of a message."""
    attempt: int
    fence: int
    execution: str | None
    """The ARN or the name of its execution, which the command does not stop."""
    may_run: bool
    """The execution exists, or may be started. Stop it, or its success is still committed."""
    woken: bool
    """A message looks at the key at once. False for messages, which only their source delivers again."""


@app.command("release")
@with_shared_options
def release_command(
    call: Call,
    key: Annotated[str, argument(help="Key whose worker is dead, or its s3:// URI.")],
    *,
    because: Because,
    version_id: Annotated[
        str | None, typer.Option(help="Version, or identity of a message, if several are in work.")
    ] = None,
    wait: Wait = False,
    ends: Annotated[
        bool, typer.Option("--end", help="End the work of an execution for good: its next message rejects it.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Take a key from a dead worker before its lease ends. A worker that is alive is fenced, and the attempt counts."""
    aws, deployed = call.open("" if ends else "release")
    key = key_in(deployed, key)
    entry = _find(aws, deployed, key, version_id, ends=ends)
    does = _describe_end(aws, deployed, entry) if ends else _describe_claim(deployed, entry)
    what = f"release {key}{' --end' if ends else ''}"
    done: ReleaseResult | EndResult
    with operations.acting(aws, deployed, what, does=does, yes=yes, because=because) as act:
        if ends:
            done = _end(aws, deployed, entry, act.operation)
            act.ends(f"attempt {done.attempt} ended, fence {done.fence}")
        else:
            done = _release(aws, deployed, entry, act.operation)
            act.ends(f"attempt {done.attempt} of {done.lease_owner} taken, fence {done.fence}")
    call.output(done)
    if wait and (status := _wait_for_end(aws, deployed, key, done.version_id)) is not Status.PROCESSED and not ends:
        console(stderr=True).print(escape(f"{key} is {status.value}: see intake-ledger inspect"))
        raise typer.Exit(1)


def _rows(aws: Aws, deployed: DeployedPipeline, key: str, version_id: str | None) -> list[ObjectRow]:
    found = reading.read_rows(aws.dynamodb, deployed, key)
    return [one for one in found if version_id in (None, one.row.version_id)]


def _find(aws: Aws, deployed: DeployedPipeline, key: str, version_id: str | None, *, ends: bool) -> ObjectRow:
    """Return the row of the key that a worker holds, or whose work a person may end.

    Raises:
        UsageError: There are several versions or messages, and none was named. Or the pipeline has no executions.
        CliError: There is none.

    """
    if ends and not deployed.has_executions:
        raise UsageError(f"--end is for executions, and {deployed.name} has none: use release without it")
    entries, now = _rows(aws, deployed, key, version_id), now_ms()
    found = [one for one in entries if (one.row.unfinished if ends else one.row.is_live(now))]
    if len(found) > 1:
        names, state = ", ".join(str(one.row.version_id) for one in found), "unfinished" if ends else "in work"
        raise UsageError(f"{len(found)} versions of {key} are {state}, name one with --version-id: {names}")
    if found:
        return found[0]
    states = ", ".join(sorted({one.row.status.value for one in entries})) or "no row"
    if ends:
        raise CliError(f"nothing of {key} is unfinished (the ledger has: {states}): see intake-ledger inspect")
    if any(one.row.status is Status.PROCESSING for one in entries):
        raise CliError(f"the lease of {key} has ended, so that nothing holds it: see intake-ledger retry")
    raise CliError(f"no worker holds {key} (the ledger has: {states}): see intake-ledger inspect")


def _wait_for_end(aws: Aws, deployed: DeployedPipeline, key: str, version_id: str | None) -> Status:
    """Wait until an attempt of the key has ended for good. Returns the status of its row."""
    version = version_id if deployed.ordering is Ordering.EVERY_VERSION else None
    while True:
        rows = [one.row for one in _rows(aws, deployed, key, version)]
        if not any(row.unfinished for row in rows):
            return next((row.status for row in rows if row.status is not Status.PROCESSED), Status.PROCESSED)
        time.sleep(_LOOK_SECONDS)


def _describe_claim(deployed: DeployedPipeline, entry: ObjectRow) -> str:
    """Describe the claim, and the result of its release."""
    row, now = entry.row, now_ms()
    begun = relative_time(row.updated_at, now)
    return (
        f"A worker ({row.lease_owner}) of {deployed.name} holds {entry.key}: attempt {row.attempts}, since {begun}. "
        f"Its lease ends {relative_time(row.lease_until or now, now)}. {LATE_EFFECTS} "
        "The attempt counts. Release it only if the worker is dead."
    )


def _release(aws: Aws, deployed: DeployedPipeline, entry: ObjectRow, operation: Operation) -> ReleaseResult:
    """Take the claim from its worker, and wake the key.

    Raises:
        CliError: The attempt has ended, or its worker has extended its lease. Or SQS refused the message.

    """
    row = entry.row
    place = deployed.row_key(entry.key, row.identity)
    who, now = operation.by.rpartition("/")[2], operation.at
    reason = Reason(ReasonCode.LOCK_BROKEN, f"released by {who}: {operation.because}")
    try:
        after = break_claim(LedgerTable(aws.dynamodb, deployed.table), deployed.name, place, row, reason, now=now)
    except ConditionFailed as refused:
        raise CliError(f"{entry.key} was not released: {_changed(row, refused.row)}") from None
    woken = _wake(aws, deployed, entry, "released")
    return ReleaseResult(
        pipeline=deployed.name,
        key=entry.key,
        version_id=row.version_id,
        attempt=row.attempts,
        lease_owner=row.lease_owner or "",
        claimed_at=row.updated_at,
        lease_until=row.lease_until or 0,
        fence=after.fence,
        woken=woken,
        delivered_by=None if woken else _delivered_by(aws, deployed, row),
    )


def _describe_end(aws: Aws, deployed: DeployedPipeline, entry: ObjectRow) -> str:
    """Describe the unfinished work, and the result of its end."""
    _, stands = _standing(aws, deployed, entry, now_ms())
    return (
        f"{entry.key} of {deployed.name}, attempt {entry.row.attempts}: {stands}. Its next message rejects it, with a "
        "copy in the dead-letter queue, and no other attempt follows. A success of its execution is still committed. "
        "End it only if no worker is about to start it."
    )


def _end(aws: Aws, deployed: DeployedPipeline, entry: ObjectRow, operation: Operation) -> EndResult:
    """End the work of an unfinished row for good, and wake the key.

    Raises:
        CliError: The row has changed, or SQS refused the message.

    """
    row, now = entry.row, operation.at
    may_run, _ = _standing(aws, deployed, entry, now)
    place = deployed.row_key(entry.key, row.identity)
    reason = Reason(ReasonCode.ENDED, f"ended by {operation.by.rpartition('/')[2]}: {operation.because}")
    table = LedgerTable(aws.dynamodb, deployed.table)
    try:
        after = end_work(table, deployed.name, place, row, reason, now=now, may_run=may_run)
    except ConditionFailed:
        raise CliError(f"{entry.key} was not ended, since its row has changed: see intake-ledger inspect") from None
    woken = _wake(aws, deployed, entry, "ended")
    if not woken and not may_run and row.status is Status.PROCESSING:
        _send_copy(aws, deployed, entry, after)
    name = execution_of(executions_of(aws, deployed), deployed, entry.key, row)
    runs = may_run and row.status is Status.PROCESSING
    return EndResult(deployed.name, entry.key, row.version_id, row.attempts, after.fence, name, runs, woken)


def _wake(aws: Aws, deployed: DeployedPipeline, entry: ObjectRow, what: str) -> bool:
    """Send a message about the key. False: only the source of a message delivers it again."""
    if not deployed.work.in_bucket:
        return False
    [why] = send(aws.sqs, deployed.queue_url, [OutgoingMessage(wake_body(deployed, entry))])
    if why is not None:
        raise CliError(f"{entry.key} is {what}, and SQS refused the message that wakes it: {why}. Use retry")
    return True


def _send_copy(aws: Aws, deployed: DeployedPipeline, entry: ObjectRow, after: Row) -> None:
    """Send a copy without a body to the dead-letter queue. If the message comes again, its own copy has the body.

    The row lists the rejection, if SQS refuses the copy.
    """
    told = dead_letter_of(deployed, replace(entry, row=after)).attributes
    kept = {name: told[name] for name in ("reason", "reason_code", "pipeline", "key", "version_id")}
    body = body_unknown(entry.key, str(after.version_id))
    send(aws.sqs, deployed.dead_letter_url, [OutgoingMessage(body, kept)])


def _standing(aws: Aws, deployed: DeployedPipeline, entry: ObjectRow, now: int) -> tuple[bool, str]:
    executions = executions_of(aws, deployed)
    if executions is None or entry.row.status is not Status.PROCESSING:
        return False, f"it is {entry.row.status.value}: {entry.row.reason}"
    return standing(executions, deployed, entry.key, entry.row, now)


def _changed(seen: Row, present: Row | None) -> str:
    if present is not None and (present.fence, present.lease_owner) == (seen.fence, seen.lease_owner):
        if present.status is Status.PROCESSING:
            return "its worker has extended the lease meanwhile, so it is alive"
        return f"the attempt has ended meanwhile: {present.status.value}"
    return "another attempt has the row: see intake-ledger inspect"


def _delivered_by(aws: Aws, deployed: DeployedPipeline, row: Row) -> int:
    """The time until which the source delivers the message again.

    A queue shows it again when its visibility timeout has ended. A stream repeats the batch when the invocation has
    ended, which is before the end of the lease.
    """
    if deployed.reads_stream:
        return row.lease_until or 0
    return row.updated_at + in_flight(aws, deployed).visibility_seconds * 1000
