"""The commands that move messages and rows: redrive and adopt."""

import secrets
from contextlib import nullcontext
from typing import Annotated

import typer

from intake_ledger.protocol import RANDOM_BITS, ulid
from intake_ledger.requests import Command
from intake_ledger_cli import announcing, operations, result_tables, stopping
from intake_ledger_cli.adopt import Adoption
from intake_ledger_cli.app import BecauseStopped, DryRun, PerSecond, Stop, Yes, app, now_ms, rate_limit
from intake_ledger_cli.console import console
from intake_ledger_cli.dead_letters import MessageFilter
from intake_ledger_cli.errors import UsageError
from intake_ledger_cli.former import find_former
from intake_ledger_cli.options import Call, check_reason, with_shared_options
from intake_ledger_cli.recording import RequestRecorder
from intake_ledger_cli.redrive import RECORDED, Redrive
from intake_ledger_cli.redrive_lock import redrive_lock
from intake_ledger_cli.stopping import StopWatch


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
    stop: Stop = False,
    request_id: Annotated[
        str | None, typer.Option("--id", help="With --stop: ID of the redrive, as `operations` lists it.")
    ] = None,
    because: BecauseStopped = None,
    yes: Yes = False,
) -> None:
    """Move messages from the dead-letter queue back to the queue, to process rejected objects again."""
    if stop:
        stopping.stop(call, Command.REDRIVE, request_id, because, others=(key, reason, limit, rate, dry_run), yes=yes)
        return
    if request_id is not None or because is not None:
        raise UsageError("--id and --because belong to --stop: add --stop, or omit them")
    aws, deployed = call.open()
    wanted = MessageFilter(key, reason)
    what, does = announcing.redrive(aws.sqs, deployed, wanted, limit)
    # A dry run takes the lock too, because it hides messages from a redrive while it reads them.
    by = operations.caller(aws) if dry_run else operations.ask(aws, does, yes=yes)
    with redrive_lock(aws, deployed, by, now_ms) as lock:
        request_id = ulid(now_ms(), secrets.randbits(RANDOM_BITS))
        operation = None if dry_run else operations.begin(aws, deployed, by, what, request_id)
        recorder = None if dry_run else RequestRecorder(aws, deployed, request_id, Command.REDRIVE, most=RECORDED)
        watch = StopWatch(aws, deployed, request_id)

        def renew() -> None:
            lock.renew()
            if not dry_run:
                watch.check()

        moving = Redrive(
            aws.sqs,
            deployed,
            wanted,
            rate=rate_limit(rate),
            limit=limit,
            dry_run=dry_run,
            renew=renew,
            recorder=recorder,
            request_id="" if dry_run else request_id,
        )
        done = moving.outcome

        def moved() -> str:
            left = f", {done.unmoved:,} not moved" if done.unmoved else ""
            return f"{done.moved:,} messages moved, {len(done.failed):,} failed{left}"

        def sent() -> operations.Sent:
            return operations.Sent(None if recorder is None or recorder.denied else done.recorded, done.unmarked)

        notes = (
            nullcontext() if operation is None else operations.noting_failures(aws, deployed, operation, moved, sent)
        )
        try:
            with notes, console(stderr=True).status("reading the dead-letter queue"):
                moving.run()
            if operation is not None:
                operations.finish(aws, deployed, operation, moved(), sent=sent())
        finally:
            call.output(done, result_tables.redrive_table(done))
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
    yes: Yes = False,
) -> None:
    """Move rows, messages and dead-letter messages of a former pipeline name to this pipeline.

    The exit code is 1 while another call can move the remaining ones.
    """
    aws, deployed = call.open("adopt")
    left = find_former(
        aws, deployed, former, table=from_table, queue=from_queue, dead_letter_queue=from_dead_letter_queue
    )
    adoption = Adoption(aws, deployed, left, rate=rate_limit(rate), clock=now_ms, dry_run=dry_run)
    operation = None
    if not dry_run:
        what, does = announcing.adopt(aws.sqs, left, deployed)
        operation = operations.begin(aws, deployed, operations.ask(aws, does, yes=yes), what)
    done = adoption.outcome

    def moved() -> str:
        return announcing.adopted(done)

    noting = nullcontext() if operation is None else operations.noting_failures(aws, deployed, operation, moved)
    try:
        with console(stderr=True).status("adopting"), noting:
            adoption.run()
        if operation is not None:
            operations.finish(aws, deployed, operation, moved())
    finally:
        call.output(done, result_tables.adopt_table(done))
    if not done.complete:
        raise typer.Exit(1)
