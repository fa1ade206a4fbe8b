"""The commands that only look: status, list, inspect and wait."""

import csv
import json
import sys
import time
from contextlib import nullcontext, suppress
from itertools import islice
from typing import Annotated

import typer
from rich.live import Live

from intake_ledger_cli.app import TIME_LIMIT, ExitCode, app, argument, end_with, now_ms, option
from intake_ledger_cli.aws import reading
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.executions import executions_table, list_running, without_running
from intake_ledger_cli.aws.reading import LEAST_REQUESTS, ReadBudget
from intake_ledger_cli.errors import UsageError
from intake_ledger_cli.options import Call, with_shared_options
from intake_ledger_cli.pipeline_options.exclusive_by import with_holder
from intake_ledger_cli.read import listing, pipelines, verdict
from intake_ledger_cli.read.inspection import inspect_key, inspect_table, key_in
from intake_ledger_cli.read.status import read_status
from intake_ledger_cli.show import formatting, status_table
from intake_ledger_cli.show.console import console, escape
from intake_ledger_cli.show.json_output import versioned


@app.command("status")
@with_shared_options
def status_command(
    call: Call,
    *,
    every: Annotated[bool, option("--all", help="Show also lines with nothing to say.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Repeat it until Ctrl-C. In a pipe, print a line for each look.")
    ] = False,
    interval: Annotated[float, typer.Option(help="With --watch: seconds between two looks.", min=1)] = 3,
    exit_code: ExitCode = False,
) -> None:
    """Say what is wrong and the next command. Shows breaker, queues, rows, the last audit and alarms.

    It takes at most 20 requests. Without a stack, it lists the pipelines of the account in a region.
    """
    if not (call.stack or call.pipeline or watch):
        pipelines_found = pipelines.list_pipelines(Aws(region=call.region, profile=call.profile))
        call.output(pipelines_found, pipelines.pipelines_table(pipelines_found))
        return
    aws, deployed = call.open()
    if watch:
        _watch(call, aws, deployed, interval, every=every)
        return
    found = read_status(aws, deployed)
    call.output(found, status_table.status_table(deployed, found, every=every))
    end_with(any(one.needs_a_person for one in verdict.findings_of(found)), exit_code)


def _watch(call: Call, aws: Aws, deployed: DeployedPipeline, interval: float, *, every: bool) -> None:
    screen = console()
    is_live = screen.is_terminal and not call.as_json
    with suppress(KeyboardInterrupt), Live(console=screen, auto_refresh=False) if is_live else nullcontext() as live:
        while True:
            found = read_status(aws, deployed)
            if live is not None:
                live.update(status_table.status_table(deployed, found, every=every), refresh=True)
            else:
                line = json.dumps(versioned(found)) if call.as_json else status_table.status_line(found)
                sys.stdout.write(line + "\n")
                sys.stdout.flush()
            time.sleep(interval)


@app.command("list")
@with_shared_options
def list_command(
    call: Call,
    *,
    status: Annotated[
        str,
        typer.Option(
            "--status",
            help=f"As the list prints it: {', '.join(listing.WORDS)}. Without it, failed and rejected. For `stuck`, "
            "claims without a living worker, the table is scanned.",
        ),
    ] = "",
    prefix: Annotated[str, typer.Option(help="Only keys with this prefix.")] = "",
    older_than: Annotated[str | None, option(help="Only rows whose last change is older, such as 2h or 3d.")] = None,
    by_reason: Annotated[bool, typer.Option("--by-reason", help="Count rows by status, code and reason.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header.")] = False,
    limit: Annotated[int, typer.Option(help="Largest number of objects.", min=1)] = 50,
    after: Annotated[str | None, option(help="Token that the previous page printed.")] = None,
    max_requests: Annotated[
        int | None, typer.Option(help="Largest number of reads of the table, by default 100.", min=LEAST_REQUESTS)
    ] = None,
    exit_code: ExitCode = False,
) -> None:
    """List objects that failed or were rejected, or those of another status, with reasons, oldest first."""
    word = status.lower()
    running = word == listing.RUNNING
    if word and word not in listing.WORDS:
        raise UsageError(f"--status {status} cannot be listed: use one of {', '.join(listing.WORDS)}, or omit it")
    if as_csv and (by_reason or call.as_json):
        raise UsageError("--csv prints rows: omit --by-reason and --json")
    if running and (prefix or older_than or by_reason or as_csv or after):
        raise UsageError("--status running lists executions: use it with --limit and --json only")
    now = now_ms()
    before = None if older_than is None else now - formatting.parse_age("--older-than", older_than)
    aws, deployed = call.open()
    if running:
        executions = list_running(aws, deployed, limit)
        call.output(executions, executions_table(executions, now))
        return
    most = None if by_reason else limit
    budget = ReadBudget(max_requests or reading.SEARCH_REQUESTS + (most or 0) // reading.ROWS_OF_A_REQUEST)
    rows = listing.select_rows(
        aws.dynamodb, deployed, word, prefix=prefix, before=before, now=now, after=after, limit=most, budget=budget
    )
    if word == listing.STUCK and deployed.has_executions:
        rows = without_running(aws, deployed, rows, now)
    rows = map(with_holder(aws, deployed), rows)
    if by_reason:
        counts = listing.count_reasons(rows, budget)
        call.output(counts, listing.reasons_table(counts))
        end_with(bool(counts.reasons) or budget.stopped, exit_code)
    elif as_csv:
        writer, number = csv.writer(sys.stdout, lineterminator="\n"), -1  # the header is not a row
        for values in listing.csv_rows(deployed, islice(rows, limit)):
            writer.writerow(values)
            number += 1
        if budget.stopped:
            console(stderr=True).print(str(listing.ListEnd(**budget.end())))
        end_with(number > 0 or budget.stopped, exit_code)
    else:
        found = listing.first_page(rows, limit, budget)
        call.output(found, listing.list_table(deployed, found, now))
        end_with(bool(found.rows) or budget.stopped, exit_code)


@app.command("wait")
@with_shared_options
def wait_command(
    call: Call,
    *,
    prefix: Annotated[str | None, option(help="Keys with this prefix.")] = None,
    request_id: Annotated[
        str | None, option("--id", help="Instead of --prefix: the requests of this `retry`, as `operations` lists it.")
    ] = None,
    until: Annotated[
        str | None,
        option(
            help="Time limit: a time of day in UTC such as 06:00, a time such as 2026-11-25T06:00:00Z, or an age such "
            "as 90m. Without it, none."
        ),
    ] = None,
    expect: Annotated[int | None, option(help="Least number of keys.", min=1)] = None,
    marker: Annotated[str | None, option(help="Key that S3 must have: a marker or a manifest, uploaded last.")] = None,
    interval: Annotated[float, typer.Option(help="Seconds between two looks.", min=1)] = 15,
) -> None:
    """Wait until all files under a prefix are committed. Exit codes: 0 committed, 1 one is rejected, 4 time limit."""
    if (prefix is None) == (request_id is None):
        raise UsageError("wait needs exactly one of: --prefix, --id")
    if request_id is not None and (expect is not None or marker is not None):
        raise UsageError("--id waits for the requests of an operation: omit --expect and --marker")
    if request_id is None and expect is None and marker is None:
        raise UsageError("wait needs --expect or --marker: a prefix without keys is no success")
    aws, deployed = call.open("" if request_id else "wait")
    from intake_ledger_cli.read import operation_wait, waiting  # noqa: PLC0415 - they import the runtime's clients

    limit = None if until is None else waiting.parse_until(until, now_ms())
    what = request_id if prefix is None else repr(prefix)
    limited = "without a time limit" if limit is None else f"until {formatting.timestamp(limit)}"
    console(stderr=True).print(escape(f"waiting for {what} {limited}"))
    wait: waiting.Repeated[waiting.WaitResult] | waiting.Repeated[operation_wait.OperationWaitResult]
    if prefix is None:
        wait = operation_wait.OperationWait(aws, deployed, request_id or "", limit, now_ms)
    else:
        wait = waiting.Wait(aws, deployed, prefix, expect, marker, limit, now_ms)
    found = wait.run(time.sleep, interval)
    call.output(found)
    if found.outcome != "committed":
        raise typer.Exit(TIME_LIMIT if found.outcome == "missing" else 1)


@app.command()
@with_shared_options
def inspect(
    call: Call,
    key: Annotated[str, argument(help="Key of the object, not encoded, or its s3:// URI.")],
    *,
    logs: Annotated[
        bool, typer.Option("--logs/--no-logs", help="Show the attempts of the consumer's log, with links.")
    ] = True,
    exit_code: ExitCode = False,
) -> None:
    """Compare the row of an object or a set with S3, and show its attempts. Or show the rows of a key of messages."""
    aws, deployed = call.open()
    key, now = key_in(deployed, key), now_ms()
    if deployed.has_sets:
        from intake_ledger_cli.read import sets  # noqa: PLC0415 - it imports the runtime's clients

        files = sets.inspect_set(aws, deployed, key, now, logs=logs)
        call.output(files, sets.set_table(files, now))
        end_with(not files.agree, exit_code)
        return
    found = inspect_key(aws, deployed, key, now, logs=logs)
    call.output(found, inspect_table(deployed, found, now))
    end_with(any(one.agree is False for one in found.states), exit_code)
