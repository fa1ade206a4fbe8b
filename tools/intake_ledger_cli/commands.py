"""The commands that only look, and the entry point of the command line. Other modules do the work."""

import json
import sys
import time
from collections.abc import Sequence
from typing import Annotated

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import RenderableType
from rich.live import Live

from intake_ledger_cli import (
    audits,
    json_output,
    moving_commands,
    reading,
    s3_listing,
    status,
    status_json,
    status_table,
    tables,
)
from intake_ledger_cli.app import DryRun, app, now_ms
from intake_ledger_cli.console import console, escape
from intake_ledger_cli.errors import CliError, denied_action, describe_error
from intake_ledger_cli.inspection import compare
from intake_ledger_cli.json_output import JsonObject
from intake_ledger_cli.options import Call, review_status, with_shared_options


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
    found, now = status.read_status(aws, deployed), now_ms()
    call.output(status_json.status_json(deployed, found, now), status_table.status_table(deployed, found, now))


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
        found, now = status.read_status(aws, deployed), now_ms()
        return status_json.status_json(deployed, found, now), status_table.status_table(deployed, found, now)

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
    call.output(json_output.list_json(found), tables.list_table(found, now_ms()))


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
    now = now_ms()
    found = compare(entries, versions, deployed, now, reading.read_complete_since(aws.dynamodb, deployed))
    document = json_output.inspect_json(deployed, key, found, denied)
    call.output(document, tables.inspect_table(deployed, key, found, denied, now))


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
    call.output(found, tables.report_table(found, audits.report_location(deployed, found), now_ms()))


@app.command()
@with_shared_options
def report(call: Call) -> None:
    """Show the report of the last audit."""
    aws, deployed = call.open()
    found = audits.last_report(aws.dynamodb, deployed)
    call.output(found, tables.report_table(found, audits.report_location(deployed, found), now_ms()))


__all__ = ["app", "moving_commands", "run"]
