"""The commands about audits: audit and report."""

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from intake_ledger_cli import audits, operations, tables
from intake_ledger_cli.app import DryRun, ExitCode, app, end_with, now_ms
from intake_ledger_cli.console import console
from intake_ledger_cli.options import Call, with_shared_options
from intake_ledger_cli.report_file import MOST_HOURS, write_report


@app.command()
@with_shared_options
def audit(
    call: Call,
    *,
    dry_run: DryRun = False,
    exit_code: ExitCode = False,
) -> None:
    """Run the audit now: list the bucket and resubmit each key that differs from the ledger. It may take minutes."""
    aws, deployed = call.open()
    operation = None if dry_run else operations.begin(aws, deployed, operations.caller(aws), "audit")
    noting = nullcontext() if operation is None else operations.noting_failures(aws, deployed, operation)
    with console(stderr=True).status("the audit is running"), noting:
        found = audits.run_audit(aws, deployed, dry_run=dry_run, sleep=time.sleep)
    if operation is not None:
        operations.finish(aws, deployed, operation, audits.result_of(found))
    call.output(found, tables.report_table(found, audits.report_location(deployed, found), now_ms()))
    end_with(audits.has_findings(found), exit_code)


@app.command()
@with_shared_options
def report(
    call: Call,
    *,
    html: Annotated[
        Path | None,
        typer.Option(help="Write a page with state, reasons, charts and the last audits to this file instead."),
    ] = None,
    hours: Annotated[int, typer.Option(help="Length of the page's charts.", min=1, max=MOST_HOURS)] = 24,
    exit_code: ExitCode = False,
) -> None:
    """Show the report of the last audit. With --html, write one self-contained page about the pipeline."""
    if html is not None:
        end_with(write_report(call, html, hours), exit_code)
        return
    aws, deployed = call.open()
    found = audits.last_report(aws.dynamodb, deployed)
    call.output(found, tables.report_table(found, audits.report_location(deployed, found), now_ms()))
    end_with(audits.has_findings(found), exit_code)
