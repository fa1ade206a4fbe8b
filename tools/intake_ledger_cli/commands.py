"""The commands and their options. Other modules do the work."""

import json
import secrets
import sys
import time
from collections.abc import Sequence
from typing import Annotated

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import RenderableType
from rich.live import Live

from intake_ledger.protocol import RANDOM_BITS, ulid
from intake_ledger_cli import audits, json_output, reading, reprocess, result_tables, s3_listing, status, tables
from intake_ledger_cli.adopt import Adoption
from intake_ledger_cli.console import console, escape
from intake_ledger_cli.dead_letters import MessageFilter
from intake_ledger_cli.errors import CliError, denied_action, describe_error
from intake_ledger_cli.former import find_former
from intake_ledger_cli.inspection import compare
from intake_ledger_cli.json_output import JsonObject
from intake_ledger_cli.options import Call, check_reason, check_selection, review_status, with_shared_options
from intake_ledger_cli.rate_limit import RateLimit
from intake_ledger_cli.redrive import Redrive

app = typer.Typer(
    help="Inspect and operate a deployed intake pipeline.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the result and change nothing.", show_default=False)]
PerSecond = Annotated[
    float | None,
    typer.Option("--rate", help="Rate limit in messages per second. Without it there is no limit.", min=0.1),
]


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Args:
        arguments: of the command; those of the process when omitted.

    """
    try:
        app(args=None if arguments is None else list(arguments))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except (CliError, BotoCoreError, ClientError) as error:
        console(stderr=True).print(escape(f"intake-ledger: {describe_error(error)}"))
        return 1
    return 0


@app.command("status")
@with_shared_options
def status_command(call: Call) -> None:
    """Show queues, failed and rejected objects, the last audit and alarms."""
    aws, deployed = call.open()
    found, now = status.read_status(aws, deployed), _now()
    call.output(json_output.status_json(deployed, found, now), tables.status_table(deployed, found, now))


@app.command()
@with_shared_options
def watch(
    call: Call,
    *,
    interval: Annotated[float, typer.Option(help="Seconds between two updates.", min=1)] = 3,
) -> None:
    """Repeat the status until Ctrl-C. With --json, print one line for each update."""
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
        with Live(look()[1], console=console(), auto_refresh=False) as live:
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
    only: Annotated[str, typer.Option("--status", help="FAILED or REJECTED. Without it, both.")] = "",
    waiting: Annotated[bool, typer.Option("--waiting", help="List objects whose processor raised NotYet.")] = False,
    limit: Annotated[int, typer.Option(help="Largest number of objects.", min=1)] = 50,
    after: Annotated[str | None, typer.Option(help="Token that the previous page printed.", show_default=False)] = None,
) -> None:
    """List objects that failed or were rejected, with reasons, oldest first."""
    wanted = review_status(only)
    aws, deployed = call.open()
    found = reading.list_rows_to_review(aws.dynamodb, deployed, wanted, limit=limit, after=after, waiting=waiting)
    call.output(json_output.list_json(found), tables.list_table(found, _now()))


@app.command()
@with_shared_options
def inspect(
    call: Call,
    key: Annotated[str, typer.Argument(help="Key of the object, not encoded.", show_default=False)],
) -> None:
    """Compare the ledger's row of an object with S3."""
    aws, deployed = call.open()
    # Read the row before S3, so that a change in between can only make the ledger look late.
    entries, denied = reading.read_rows(aws.dynamodb, deployed, key), None
    try:
        versions = s3_listing.list_key_versions(aws.s3, deployed, key)
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
        str | None, typer.Option(help="Only messages about this key. A key that ends with * is a prefix.")
    ] = None,
    reason: Annotated[
        str | None,
        typer.Option(help="Only messages with this reason code, or with this text in the reason."),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Largest number of messages. Without it, all.", min=1)] = None,
    rate: PerSecond = None,
    dry_run: DryRun = False,
) -> None:
    """Move messages from the dead-letter queue back to the queue, to process rejected objects again."""
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
        with console(stderr=True).status("reading the dead-letter queue"):
            moving.run()
    finally:
        done = moving.outcome
        call.output(json_output.redrive_json(done, dry_run=dry_run), result_tables.redrive_table(done, dry_run=dry_run))
    if done.failed:
        raise typer.Exit(1)
    if not done.matched:
        check_reason(reason)


@app.command("adopt")
@with_shared_options
def adopt_command(
    call: Call,
    *,
    former: Annotated[str, typer.Option("--from", help="Former name of the pipeline, as in its rows and messages.")],
    from_table: Annotated[
        str | None,
        typer.Option(help="Table of the former pipeline. Without it, the table with its tag, or the current table."),
    ] = None,
    from_queue: Annotated[
        str | None, typer.Option(help="URL of its queue. Without it, the queue with its tag.")
    ] = None,
    from_dead_letter_queue: Annotated[
        str | None, typer.Option(help="URL of its dead-letter queue. Without it, the dead-letter queue with its tag.")
    ] = None,
    rate: PerSecond = None,
    dry_run: DryRun = False,
) -> None:
    """Move rows, messages and dead-letter messages of a former pipeline name to this pipeline.

    The exit code is 1 while another call can move the remaining ones.
    """
    aws, deployed = call.open()
    left = find_former(
        aws, deployed, former, table=from_table, queue=from_queue, dead_letter_queue=from_dead_letter_queue
    )
    adoption = Adoption(aws, deployed, left, rate=_rate(rate), clock=_now, dry_run=dry_run)
    try:
        with console(stderr=True).status("adopting"):
            adoption.run()
    finally:
        done = adoption.outcome
        call.output(
            json_output.adopt_json(left, deployed, done, dry_run=dry_run),
            result_tables.adopt_table(left, deployed, done, dry_run=dry_run),
        )
    if not done.complete:
        raise typer.Exit(1)


@app.command("reprocess")
@with_shared_options
def reprocess_command(
    call: Call,
    keys: Annotated[list[str] | None, typer.Argument(help="Keys of objects, not encoded.", show_default=False)] = None,
    *,
    prefix: Annotated[
        str | None, typer.Option(help="All objects under this prefix. Use '' for the whole bucket.")
    ] = None,
    rejected: Annotated[bool, typer.Option("--rejected", help="All rejected objects.")] = False,
    reason: Annotated[
        str | None,
        typer.Option(help="With --rejected: only this reason code, or this text in the reason."),
    ] = None,
    version_id: Annotated[str | None, typer.Option(help="With EVERY_VERSION: only this version of the key.")] = None,
    request_id: Annotated[
        str | None,
        typer.Option("--id", help="ID of an earlier call, to repeat it. No object is processed twice for an ID."),
    ] = None,
    rate: PerSecond = None,
    dry_run: DryRun = False,
) -> None:
    """Request that objects are processed again, or for the first time if the bucket is older than the pipeline."""
    check_selection(keys, prefix, rejected, reason, version_id)
    aws, deployed = call.open()
    if request_id is not None:
        reprocess.check_id(request_id, deployed, _now())
    result = reprocess.ReprocessResult(request_id or ulid(_now(), secrets.randbits(RANDOM_BITS)))
    if keys:
        # Check all keys before the first message is sent.
        targets = iter(list(reprocess.key_targets(aws.s3, deployed, dict.fromkeys(keys), version_id, result)))
    elif prefix is not None:
        targets = reprocess.prefix_targets(aws.s3, deployed, prefix, result)
    else:
        targets = reprocess.rejected_targets(aws.dynamodb, deployed, reason)
    notes = console(stderr=True)
    if not dry_run:
        notes.print(f"reprocess id {result.id}")
    try:
        with notes.status("sending requests"):
            if dry_run:
                result.sent = sum(1 for _ in targets)
            else:
                reprocess.send_requests(aws.sqs, deployed, targets, result, _rate(rate))
    finally:
        call.output(
            json_output.reprocess_json(result, dry_run=dry_run), result_tables.reprocess_table(result, dry_run=dry_run)
        )
    if result.failed:
        raise typer.Exit(1)
    if not result.sent:
        check_reason(reason)


@app.command()
@with_shared_options
def audit(
    call: Call,
    *,
    dry_run: DryRun = False,
) -> None:
    """Run the audit now: list the bucket and resubmit each key that differs from the ledger. It may take minutes."""
    aws, deployed = call.open()
    with console(stderr=True).status("the audit is running"):
        found = audits.run_audit(aws, deployed, dry_run=dry_run, sleep=time.sleep)
    call.output(found, tables.report_table(found, audits.report_location(deployed, found), _now()))


@app.command()
@with_shared_options
def report(call: Call) -> None:
    """Show the report of the last audit."""
    aws, deployed = call.open()
    found = audits.last_report(aws.dynamodb, deployed)
    call.output(found, tables.report_table(found, audits.report_location(deployed, found), _now()))


def _rate(per_second: float | None) -> RateLimit:
    return RateLimit(per_second, clock=time.monotonic, sleep=time.sleep)


def _now() -> int:
    return time.time_ns() // 1_000_000
