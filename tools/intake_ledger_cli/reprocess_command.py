"""The command that requests that objects are processed again."""

import secrets
from typing import Annotated

import typer

from intake_ledger.protocol import RANDOM_BITS, ulid
from intake_ledger_cli import announcing, json_output, operations, reprocess, result_tables
from intake_ledger_cli.app import DryRun, PerSecond, Yes, app, now_ms, rate_limit
from intake_ledger_cli.console import console
from intake_ledger_cli.options import Call, check_reason, with_shared_options
from intake_ledger_cli.reprocess import ReprocessResult
from intake_ledger_cli.selection import Selection


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
    yes: Yes = False,
) -> None:
    """Request that objects or sets are processed again, or first if the bucket is older than the pipeline."""
    selection = Selection(tuple(dict.fromkeys(keys or ())), prefix, rejected, reason, version_id)
    selection.check()
    aws, deployed = call.open("reprocess")
    if request_id is not None:
        reprocess.check_id(request_id, deployed, now_ms())
    result = ReprocessResult(request_id or ulid(now_ms(), secrets.randbits(RANDOM_BITS)))
    chosen = selection.targets(aws, deployed, result)
    notes = console(stderr=True)
    operation = None
    if not dry_run:
        counted = selection.targets(aws, deployed, ReprocessResult(result.id)) if operations.may_ask(yes=yes) else None
        does = announcing.reprocess(deployed, str(selection), counted)
        by = operations.ask(aws, does, yes=yes)
        operation = operations.begin(aws, deployed, by, f"{selection} --id {result.id}")
        notes.print(f"reprocess id {result.id}")
    try:
        with notes.status("sending requests"):
            if dry_run:
                result.sent = sum(1 for _ in chosen)
            else:
                reprocess.send_requests(aws.sqs, deployed, chosen, result, rate_limit(rate))
    finally:
        if operation is not None:
            operations.finish(aws, deployed, operation, f"{result.sent:,} requests sent, {len(result.failed):,} failed")
        call.output(
            json_output.reprocess_json(result, dry_run=dry_run), result_tables.reprocess_table(result, dry_run=dry_run)
        )
    if result.failed:
        raise typer.Exit(1)
    if not result.sent:
        check_reason(reason)
