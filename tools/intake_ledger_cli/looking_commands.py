"""The commands that only look: status, watch, ls, list and inspect."""

import json
import sys
import time
from typing import Annotated

import typer
from rich.console import Group
from rich.live import Live

from intake_ledger_cli import (
    formatting,
    listing,
    pipelines,
    reading,
    status,
    status_table,
    tables,
)
from intake_ledger_cli.app import TIME_LIMIT, ExitCode, app, end_with, now_ms
from intake_ledger_cli.aws import Aws
from intake_ledger_cli.console import console, escape
from intake_ledger_cli.errors import UsageError
from intake_ledger_cli.executions import executions_table, list_running, without_running
from intake_ledger_cli.function_errors import errors_line
from intake_ledger_cli.history_output import history_lines
from intake_ledger_cli.inspection import inspect_key, key_in
from intake_ledger_cli.json_output import versioned
from intake_ledger_cli.options import Call, review_status, with_shared_options
from intake_ledger_cli.read_budget import LEAST_REQUESTS, ReadBudget, requests_for


@app.command("status")
@with_shared_options
def status_command(call: Call, *, exit_code: ExitCode = False) -> None:
    """Show breaker, queues, failed and rejected objects, claims, the last audit and alarms, in at most 20 requests."""
    aws, deployed = call.open()
    found = status.read_status(aws, deployed)
    call.output(found, status_table.status_table(deployed, found))
    end_with(status.needs_a_person(found, deployed), exit_code)


@app.command()
@with_shared_options
def watch(
    call: Call,
    *,
    interval: Annotated[float, typer.Option(help="Seconds between two updates.", min=1)] = 3,
) -> None:
    """Repeat the status until Ctrl-C. In a pipe or with --json, print one line for each update."""
    aws, deployed = call.open()
    screen = console()
    try:
        if screen.is_terminal and not call.as_json:
            with Live(console=screen, auto_refresh=False) as live:
                while True:
                    found = status.read_status(aws, deployed)
                    live.update(status_table.status_table(deployed, found), refresh=True)
                    time.sleep(interval)
        while True:
            found = status.read_status(aws, deployed)
            line = json.dumps(versioned(found)) if call.as_json else status_table.status_line(found)
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
            time.sleep(interval)
    except KeyboardInterrupt:
        return


@app.command("ls")
def ls_command(
    region: Annotated[str | None, typer.Option(help="AWS Region, as for the AWS CLI.", show_default=False)] = None,
    profile: Annotated[str | None, typer.Option(help="AWS profile, as for the AWS CLI.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.", show_default=False)] = False,
) -> None:
    """List the pipelines of the account in a region, with their stacks."""
    aws = Aws(region=region, profile=profile)
    found = pipelines.list_pipelines(aws)
    if as_json:
        sys.stdout.write(json.dumps(versioned(found), indent=2) + "\n")
    else:
        console().print(pipelines.pipelines_table(found))


@app.command("list")
@with_shared_options
def list_command(
    call: Call,
    *,
    only: Annotated[str, typer.Option("--status", help="FAILED or REJECTED. Without it, both.")] = "",
    waiting: Annotated[bool, typer.Option("--waiting", help="List objects whose processor raised NotYet.")] = False,
    dismissed: Annotated[bool, typer.Option("--dismissed", help="List rejected objects that were dismissed.")] = False,
    removed: Annotated[
        bool, typer.Option("--removed", help="List objects that were removed before they were processed.")
    ] = False,
    rejected_rows: Annotated[
        bool, typer.Option("--rejected-rows", help="List files that were committed without their bad rows.")
    ] = False,
    stuck: Annotated[
        bool,
        typer.Option(
            "--stuck",
            help="List claims whose lease ended without an outcome, and new claims after one. Scans the table.",
        ),
    ] = False,
    running: Annotated[bool, typer.Option("--running", help="List the executions that run, newest first.")] = False,
    prefix: Annotated[str, typer.Option(help="Only keys with this prefix.")] = "",
    older_than: Annotated[
        str | None, typer.Option(help="Only rows whose last change is older, such as 2h or 3d.", show_default=False)
    ] = None,
    by_reason: Annotated[bool, typer.Option("--by-reason", help="Count rows by status, code and reason.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header.")] = False,
    limit: Annotated[int, typer.Option(help="Largest number of objects.", min=1)] = 50,
    after: Annotated[str | None, typer.Option(help="Token that the previous page printed.", show_default=False)] = None,
    max_requests: Annotated[
        int | None,
        typer.Option(help="Largest number of reads of the table, by default 100.", min=LEAST_REQUESTS),
    ] = None,
    exit_code: ExitCode = False,
) -> None:
    """List objects that failed or were rejected, with reasons, oldest first."""
    kinds = bool(only), waiting, dismissed, removed, rejected_rows, stuck
    if sum(kinds) > 1:
        raise UsageError("use only one of --status, --waiting, --dismissed, --removed, --rejected-rows and --stuck")
    if as_csv and (by_reason or call.as_json):
        raise UsageError("--csv prints rows: omit --by-reason and --json")
    if running and (any(kinds) or prefix or older_than or by_reason or as_csv or after):
        raise UsageError("--running lists executions: use it with --limit and --json only")
    now = now_ms()
    selection = listing.ListedRows(
        status=review_status(only),
        waiting=waiting,
        dismissed=dismissed,
        removed=removed,
        rejected_rows=rejected_rows,
        stuck=stuck,
        prefix=prefix,
        before=None if older_than is None else now - formatting.parse_age("--older-than", older_than),
    )
    aws, deployed = call.open()
    if running:
        executions = list_running(aws, deployed, limit)
        call.output(executions, executions_table(executions, now))
        return
    most = None if by_reason else limit
    budget = ReadBudget(max_requests or requests_for(most))
    rows = listing.select_rows(aws.dynamodb, deployed, selection, now=now, after=after, limit=most, budget=budget)
    if stuck and deployed.has_executions:
        rows = without_running(aws, deployed, rows)
    if by_reason:
        counts = listing.count_reasons(rows, budget)
        call.output(counts, tables.reasons_table(counts))
        end_with(bool(counts.reasons) or budget.stopped, exit_code)
    elif as_csv:
        number = -1  # the header is not a row
        for line in listing.csv_lines(deployed, rows, limit):
            sys.stdout.write(line)
            number += 1
        if budget.stopped:
            console(stderr=True).print(tables.stopped_text(budget.used, budget.token, budget.why))
        end_with(number > 0 or budget.stopped, exit_code)
    else:
        found = reading.first_page(rows, limit, budget)
        call.output(found, tables.list_table(deployed, found, now))
        end_with(bool(found.rows) or budget.stopped, exit_code)


@app.command("wait")
@with_shared_options
def wait_command(
    call: Call,
    *,
    prefix: Annotated[str, typer.Option(help="Keys with this prefix.", show_default=False)],
    until: Annotated[
        str | None,
        typer.Option(
            help="Time limit: a time of day in UTC such as 06:00, a time such as 2026-11-25T06:00:00Z, or an age such "
            "as 90m. Without it, none.",
            show_default=False,
        ),
    ] = None,
    expect: Annotated[int | None, typer.Option(help="Least number of keys.", min=1, show_default=False)] = None,
    marker: Annotated[
        str | None,
        typer.Option(help="Key that S3 must have: a marker or a manifest, uploaded last.", show_default=False),
    ] = None,
    interval: Annotated[float, typer.Option(help="Seconds between two looks.", min=1)] = 15,
) -> None:
    """Wait until all files under a prefix are committed. Exit codes: 0 committed, 1 one is rejected, 4 time limit."""
    if expect is None and marker is None:
        raise UsageError("wait needs --expect or --marker: a prefix without keys is no success")
    aws, deployed = call.open("wait")
    from intake_ledger_cli import waiting  # noqa: PLC0415 - it imports the runtime's clients

    limit = None if until is None else waiting.parse_until(until, now_ms())
    console(stderr=True).print(escape(f"waiting for {prefix!r} {waiting.limit_text(limit)}"))
    found = waiting.Wait(aws, deployed, prefix, expect, marker, limit, now_ms).run(time.sleep, interval)
    call.output(found, waiting.wait_lines(found))
    if found.outcome != waiting.COMMITTED:
        raise typer.Exit(1 if found.outcome == waiting.REJECTED else TIME_LIMIT)


@app.command()
@with_shared_options
def inspect(
    call: Call,
    key: Annotated[str, typer.Argument(help="Key of the object, not encoded, or its s3:// URI.", show_default=False)],
    *,
    logs: Annotated[
        bool, typer.Option("--logs/--no-logs", help="Show the attempts of the consumer's log, with links.")
    ] = True,
    exit_code: ExitCode = False,
) -> None:
    """Compare the row of an object or a set with S3, and show its attempts. Or show the rows of a key of messages."""
    aws, deployed = call.open()
    key, now = key_in(deployed, key), now_ms()
    if deployed.set_variables is not None:
        from intake_ledger_cli import sets  # noqa: PLC0415 - it imports the runtime's clients

        files = sets.inspect_set(aws, deployed, key, now, logs=logs)
        call.output(files, Group(sets.set_table(files, now), *history_lines(files.history)))
        end_with(not files.agree, exit_code)
        return
    found = inspect_key(aws, deployed, key, now, logs=logs)
    history = history_lines(found.history, of_messages=not deployed.work.in_bucket)
    errors = filter(None, [errors_line(found.consumer_errors, now)])
    call.output(found, Group(tables.inspect_table(deployed, found, now), *history, *errors))
    end_with(any(one.agree is False for one in found.states), exit_code)
