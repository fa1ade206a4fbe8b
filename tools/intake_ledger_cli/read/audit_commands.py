"""The command about audits."""

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from intake_ledger_cli.act import operations
from intake_ledger_cli.app import ExitCode, app, end_with, now_ms, option
from intake_ledger_cli.errors import UsageError
from intake_ledger_cli.options import Call, with_shared_options
from intake_ledger_cli.read import audits
from intake_ledger_cli.read.report_page import MOST_HOURS, write_page
from intake_ledger_cli.show import tables
from intake_ledger_cli.show.console import console


@app.command()
@with_shared_options
def audit(
    call: Call,
    *,
    resend: Annotated[bool, option("--resend", help="Send what is missing, as the schedule does.")] = False,
    last: Annotated[bool, option("--last", help="Show the last report instead.")] = False,
    html: Annotated[
        Path | None,
        typer.Option(help="Write a page with state, reasons, charts and the last audits to this file instead."),
    ] = None,
    hours: Annotated[int, typer.Option(help="Length of the page's charts.", min=1, max=MOST_HOURS)] = 24,
    exit_code: ExitCode = False,
) -> None:
    """Compare the bucket with the ledger now. With --resend, send each key that differs. It may take minutes."""
    if resend and (last or html is not None):
        raise UsageError("--resend runs the audit: omit --last and --html")
    if html is not None:
        end_with(write_page(call, html, hours), exit_code)
        return
    aws, deployed = call.open()
    if last:
        found = audits.last_report(aws.dynamodb, deployed)
    else:
        running = operations.acting(aws, deployed, "audit") if resend else nullcontext()
        with console(stderr=True).status("the audit is running"), running as act:
            found = audits.run_audit(aws, deployed, dry_run=not resend, sleep=time.sleep)
            if act is not None:
                act.ends(audits.result_of(found))
    shown = tables.report_table(found, audits.report_location(deployed, found), now_ms())
    looked = not (resend or last)
    if looked and any(found["counts"].values()):
        shown = Group(shown, Text("to send what differs: intake-ledger audit --resend"))
    call.output(found, shown)
    end_with(audits.has_findings(found), exit_code or looked)
