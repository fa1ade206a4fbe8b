"""The commands, with their options. What they do is in the modules beside this one."""

import json
import re
import secrets
import sys
import time
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import RenderableType
from rich.live import Live

from intake_ledger.protocol.reasons import ReasonCode
from intake_ledger.protocol.row import Status
from intake_ledger.protocol.ulid import RANDOM_BITS, ulid
from intake_ledger_cli import audits, json_output, reading, reprocess, status, tables
from intake_ledger_cli.adopt import Adoption
from intake_ledger_cli.dead_letters import MessageFilter
from intake_ledger_cli.errors import CliError, denied_action, describe_error
from intake_ledger_cli.former import find_former
from intake_ledger_cli.inspection import compare
from intake_ledger_cli.json_output import JsonObject
from intake_ledger_cli.options import Call, with_shared_options
from intake_ledger_cli.rate_limit import RateLimit
from intake_ledger_cli.redrive import Redrive

app = typer.Typer(
    help="Look at a deployed intake pipeline, and act on it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_CODE = re.compile("[a-z0-9]+(_[a-z0-9]+)+")
"""Texts that look like a reason code."""
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.", show_default=False)]
PerSecond = Annotated[
    float | None, typer.Option("--rate", help="Messages a second; as fast as SQS takes them when omitted.", min=0.1)
]


def run(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments (the process's own when omitted) say; the exit code."""
    try:
        app(args=None if arguments is None else list(arguments))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except (CliError, BotoCoreError, ClientError) as error:
        tables.console(stderr=True).print(tables.escape(f"intake-ledger: {describe_error(error)}"))
        return 1
    return 0


@app.command("status")
@with_shared_options
def status_command(call: Call) -> None:
    """How the pipeline stands: queue, dead letters, failed and rejected objects, last audit, alarms."""
    aws, deployed = call.open()
    found, now = status.read_status(aws, deployed), _now()
    call.output(json_output.status_json(deployed, found, now), tables.status_table(deployed, found, now))


@app.command()
@with_shared_options
def watch(
    call: Call,
    *,
    interval: Annotated[float, typer.Option(help="Seconds between two looks.", min=1)] = 3,
) -> None:
    """The same, again and again, until Ctrl-C. With --json, one line for each look."""
    aws, deployed = call.open()

    def look() -> tuple[JsonObject, RenderableType]:
        found, now = status.read_status(aws, deployed), _now()
        return json_output.status_json(deployed, found, now), tables.status_table(deployed, found, now)

    try:
        if call.as_json:
            while True:
                sys.stdout.write(json.dumps(look()[0]) + "\n")
                sys.stdout.flush()
                time.sleep(interval)
        with Live(look()[1], console=tables.console(), auto_refresh=False) as live:
            while True:
                time.sleep(interval)
                live.update(look()[1], refresh=True)
    except KeyboardInterrupt:
        return


@app.command("list")
@with_shared_options
def list_command(
    call: Call,
    *,
    only: Annotated[str, typer.Option("--status", help="FAILED or REJECTED; both when omitted.")] = "",
    waiting: Annotated[
        bool, typer.Option("--waiting", help="Those that wait for something which the processor needs.")
    ] = False,
    limit: Annotated[int, typer.Option(help="How many at most.", min=1)] = 50,
    after: Annotated[str | None, typer.Option(help="Go on where a list ended.", show_default=False)] = None,
) -> None:
    """Objects that failed or were rejected, with the reasons; those that have waited longest come first."""
    wanted = _review_status(only)
    aws, deployed = call.open()
    found = reading.list_rows_to_review(aws.dynamodb, deployed, wanted, limit=limit, after=after, waiting=waiting)
    call.output(json_output.list_json(found), tables.list_table(found, _now()))


@app.command()
@with_shared_options
def inspect(
    call: Call,
    key: Annotated[str, typer.Argument(help="The object's key, as it is.", show_default=False)],
) -> None:
    """What the ledger says of an object, what S3 shows, and whether they agree."""
    aws, deployed = call.open()
    # The row first: what happens in between makes it look behind, which is no lie.
    entries, denied = reading.read_rows(aws.dynamodb, deployed, key), None
    try:
        versions = reading.list_key_versions(aws.s3, deployed, key)
    except ClientError as error:
        if (denied := denied_action(error)) is None:
            raise
        versions = None
    now = _now()
    found = compare(entries, versions, deployed, now, reading.read_complete_since(aws.dynamodb, deployed))
    document = json_output.inspect_json(deployed, key, found, denied)
    call.output(document, tables.inspect_table(deployed, key, found, denied, now))


@app.command()
@with_shared_options
def redrive(
    call: Call,
    *,
    key: Annotated[
        str | None, typer.Option(help="Only of this object; with * at its end, of all keys that begin so.")
    ] = None,
    reason: Annotated[
        str | None, typer.Option(help="Only with this reason: a reason code, or a part of the text in any case.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="How many at most; all when omitted.", min=1)] = None,
    rate: PerSecond = None,
    dry_run: DryRun = False,
) -> None:
    """Move messages from the dead-letter queue back to the queue: each rejected object gets another round."""
    aws, deployed = call.open()
    wanted = MessageFilter(key, reason)
    moving = Redrive(
        aws.sqs,
        deployed,
        wanted,
        rate=_rate(rate),
        limit=limit,
        dry_run=dry_run,
    )
    try:
        with tables.console(stderr=True).status("going through the dead-letter queue"):
            moving.run()
    finally:
        done = moving.outcome
        call.output(json_output.redrive_json(done, dry_run=dry_run), tables.redrive_table(done, dry_run=dry_run))
    if done.failed:
        raise typer.Exit(1)
    if not done.matched:
        _check_reason(reason)


@app.command("adopt")
@with_shared_options
def adopt_command(
    call: Call,
    *,
    former: Annotated[
        str, typer.Option("--from", help="The name that the pipeline had before, as rows and messages have it.")
    ],
    from_table: Annotated[
        str | None, typer.Option(help="Its table; when omitted, the one with its tag, or the pipeline's own.")
    ] = None,
    from_queue: Annotated[str | None, typer.Option(help="Its queue's URL; the one with its tag when omitted.")] = None,
    from_dead_letter_queue: Annotated[
        str | None, typer.Option(help="Its dead-letter queue's URL; the one with its tag when omitted.")
    ] = None,
    rate: PerSecond = None,
    dry_run: DryRun = False,
) -> None:
    """Take over rows, messages and dead letters of the name that the pipeline had before. Ends with 1 while some are
    left that another call can move.
    """
    aws, deployed = call.open()
    left = find_former(
        aws, deployed, former, table=from_table, queue=from_queue, dead_letter_queue=from_dead_letter_queue
    )
    adoption = Adoption(aws, deployed, left, rate=_rate(rate), clock=_now, dry_run=dry_run)
    try:
        with tables.console(stderr=True).status("adopting"):
            adoption.run()
    finally:
        done = adoption.outcome
        call.output(
            json_output.adopt_json(left, deployed, done, dry_run=dry_run),
            tables.adopt_table(left, deployed, done, dry_run=dry_run),
        )
    if not done.complete:
        raise typer.Exit(1)


@app.command("reprocess")
@with_shared_options
def reprocess_command(
    call: Call,
    keys: Annotated[list[str] | None, typer.Argument(help="Objects' keys, as they are.", show_default=False)] = None,
    *,
    prefix: Annotated[
        str | None, typer.Option(help="Everything under this prefix that S3 has now; '' is the whole bucket.")
    ] = None,
    rejected: Annotated[bool, typer.Option("--rejected", help="All that was rejected.")] = False,
    reason: Annotated[
        str | None, typer.Option(help="With --rejected: only with this reason code, or this part of the text.")
    ] = None,
    version_id: Annotated[str | None, typer.Option(help="In EVERY_VERSION: only this version of the key.")] = None,
    request_id: Annotated[
        str | None, typer.Option("--id", help="Repeat the call that had this id: nothing is served twice.")
    ] = None,
    rate: PerSecond = None,
    dry_run: DryRun = False,
) -> None:
    """Have objects processed again, though they were committed or rejected; and fill the ledger from a full bucket."""
    _one_way(keys, prefix, rejected, reason, version_id)
    aws, deployed = call.open()
    if request_id is not None:
        reprocess.check_id(request_id, deployed, _now())
    result = reprocess.ReprocessResult(request_id or ulid(_now(), secrets.randbits(RANDOM_BITS)))
    if keys:
        # All are checked before any is sent.
        targets = iter(list(reprocess.key_targets(aws.s3, deployed, dict.fromkeys(keys), version_id, result)))
    elif prefix is not None:
        targets = reprocess.prefix_targets(aws.s3, deployed, prefix, result)
    else:
        targets = reprocess.rejected_targets(aws.dynamodb, deployed, reason)
    notes = tables.console(stderr=True)
    if not dry_run:
        notes.print(f"reprocess id {result.id}")
    try:
        with notes.status("asking"):
            if dry_run:
                result.sent = sum(1 for _ in targets)
            else:
                reprocess.send_requests(aws.sqs, deployed, targets, result, _rate(rate))
    finally:
        call.output(
            json_output.reprocess_json(result, dry_run=dry_run), tables.reprocess_table(result, dry_run=dry_run)
        )
    if result.failed:
        raise typer.Exit(1)
    if not result.sent:
        _check_reason(reason)


@app.command()
@with_shared_options
def audit(
    call: Call,
    *,
    dry_run: DryRun = False,
) -> None:
    """Compare bucket and ledger now, and resubmit what differs. It may take minutes."""
    aws, deployed = call.open()
    with tables.console(stderr=True).status("the audit is at work"):
        found = audits.run_audit(aws, deployed, dry_run=dry_run, sleep=time.sleep)
    call.output(found, tables.report_table(found, audits.report_location(deployed, found), _now()))


@app.command()
@with_shared_options
def report(call: Call) -> None:
    """What the last audit found."""
    aws, deployed = call.open()
    found = audits.last_report(aws.dynamodb, deployed)
    call.output(found, tables.report_table(found, audits.report_location(deployed, found), _now()))


def _one_way(
    keys: list[str] | None, prefix: str | None, rejected: bool, reason: str | None, version_id: str | None
) -> None:
    if sum((bool(keys), prefix is not None, rejected)) != 1:
        raise CliError("say what to reprocess: keys, or --prefix, or --rejected, and one of the three only")
    if reason is not None and not rejected:
        raise CliError("--reason goes with --rejected: nothing else has one")
    if version_id is not None and len(keys or ()) != 1:
        raise CliError("--version-id goes with one key")


def _check_reason(reason: str | None) -> None:
    """Refuse a reason that matches nothing, if it looks like a misspelled code.

    Raises:
        CliError: with all codes.

    """
    if reason is None or reason in ReasonCode:
        return
    if _CODE.fullmatch(reason) or get_close_matches(reason, list(ReasonCode)):
        codes = ", ".join(sorted(ReasonCode))
        raise CliError(f"--reason {reason}: no reason has this text, and it is not a code. The codes are {codes}")


def _review_status(name: str) -> Status | None:
    allowed = {"": None, "FAILED": Status.FAILED, "REJECTED": Status.REJECTED}
    if name.upper() not in allowed:
        raise CliError(f"--status {name}: the index holds FAILED and REJECTED rows, say one of them or neither")
    return allowed[name.upper()]


def _rate(per_second: float | None) -> RateLimit:
    return RateLimit(per_second, clock=time.monotonic, sleep=time.sleep)


def _now() -> int:
    return time.time_ns() // 1_000_000
