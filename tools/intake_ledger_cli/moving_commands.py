"""The commands that move messages and rows: redrive, adopt and reprocess."""

import secrets
from typing import Annotated

import typer

from intake_ledger.protocol import RANDOM_BITS, ulid
from intake_ledger_cli import json_output, reprocess, result_tables
from intake_ledger_cli.adopt import Adoption
from intake_ledger_cli.app import DryRun, PerSecond, app, now_ms, rate_limit
from intake_ledger_cli.console import console
from intake_ledger_cli.dead_letters import MessageFilter
from intake_ledger_cli.errors import CliError
from intake_ledger_cli.former import find_former
from intake_ledger_cli.options import Call, check_reason, check_selection, with_shared_options
from intake_ledger_cli.redrive import Redrive


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
        rate=rate_limit(rate),
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
    aws, deployed = call.open_files()
    left = find_former(
        aws, deployed, former, table=from_table, queue=from_queue, dead_letter_queue=from_dead_letter_queue
    )
    adoption = Adoption(aws, deployed, left, rate=rate_limit(rate), clock=now_ms, dry_run=dry_run)
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
    aws, deployed = call.open_files()
    if deployed.set_variables is not None:
        raise CliError(f"{deployed.name} has sets of files: reprocess a part, or upload the manifest again")
    if request_id is not None:
        reprocess.check_id(request_id, deployed, now_ms())
    result = reprocess.ReprocessResult(request_id or ulid(now_ms(), secrets.randbits(RANDOM_BITS)))
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
                reprocess.send_requests(aws.sqs, deployed, targets, result, rate_limit(rate))
    finally:
        call.output(
            json_output.reprocess_json(result, dry_run=dry_run), result_tables.reprocess_table(result, dry_run=dry_run)
        )
    if result.failed:
        raise typer.Exit(1)
    if not result.sent:
        check_reason(reason)
