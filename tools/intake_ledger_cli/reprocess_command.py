"""The command that requests that objects are processed again."""

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer
from botocore.exceptions import ClientError

from intake_ledger.protocol import RANDOM_BITS, ulid
from intake_ledger.requests import BATCH_ENTRIES, Command
from intake_ledger_cli import announcing, operations, reprocess, result_tables, stopping
from intake_ledger_cli import selection as positions
from intake_ledger_cli.app import BecauseStopped, DryRun, PerSecond, Stop, Yes, app, now_ms, rate_limit
from intake_ledger_cli.aws import Aws
from intake_ledger_cli.console import console
from intake_ledger_cli.deployed import DeployedPipeline
from intake_ledger_cli.errors import UsageError, denied_action
from intake_ledger_cli.options import Call, check_reason, with_shared_options
from intake_ledger_cli.rate_limit import RateLimit
from intake_ledger_cli.recording import RequestRecorder
from intake_ledger_cli.reprocess import ReprocessResult
from intake_ledger_cli.selection import Selection
from intake_ledger_cli.stopping import StopWatch

if TYPE_CHECKING:
    from intake_ledger_cli.operations import Operation


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
    failed: Annotated[bool, typer.Option("--failed", help="All failed objects, without those that wait.")] = False,
    since: Annotated[
        str | None,
        typer.Option(
            help="All objects that were processed since this time. Reads the whole table.", show_default=False
        ),
    ] = None,
    processor_version: Annotated[
        str | None,
        typer.Option(
            help="All objects that this version of the processor committed, as `inspect` shows it. Reads the whole "
            "table. Takes --prefix and --since too.",
            show_default=False,
        ),
    ] = None,
    reason: Annotated[
        str | None,
        typer.Option(help="With --rejected or --failed: only this reason code, or this text in the reason."),
    ] = None,
    version_id: Annotated[str | None, typer.Option(help="With EVERY_VERSION: only this version of the key.")] = None,
    request_id: Annotated[
        str | None,
        typer.Option(
            "--id", help="ID of an earlier call, to repeat it or with --stop. No object is processed twice for an ID."
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(help="ID of an interrupted call, to continue it where it ended.", show_default=False),
    ] = None,
    rate: PerSecond = None,
    dry_run: DryRun = False,
    stop: Stop = False,
    because: BecauseStopped = None,
    yes: Yes = False,
) -> None:
    """Request that objects or sets are processed again, or first if the bucket is older than the pipeline."""
    if stop:
        others = (keys, prefix, rejected, failed, since, processor_version, reason, version_id, resume, rate, dry_run)
        stopping.stop(call, Command.REPROCESS, request_id, because, others=others, yes=yes)
        return
    if because is not None:
        raise UsageError("--because belongs to --stop: add --stop, or omit it")
    chosen = tuple(dict.fromkeys(keys or ()))
    selection = Selection(chosen, prefix, rejected, failed, since, reason, version_id, processor_version)
    if resume is None:
        selection.check()
    elif selection != Selection() or request_id is not None:
        raise UsageError("--resume takes the selection and the ID of the earlier call: omit the other options")
    aws, deployed = call.open("reprocess")
    if given := resume or request_id:
        reprocess.check_id(given, deployed, now_ms())
    result = ReprocessResult(given or ulid(now_ms(), secrets.randbits(RANDOM_BITS)), dry_run)
    if resume is not None:
        selection, result.position = positions.resume(aws, deployed, resume)
    run = ReprocessCall(aws, deployed, selection, result)
    try:
        run.count() if dry_run else run.send(rate_limit(rate), yes=yes)
    finally:
        if dry_run or run.operation is not None:
            call.output(result, result_tables.reprocess_table(result))
    if result.failed:
        raise typer.Exit(1)
    if not result.sent:
        check_reason(reason)


class ReprocessCall:
    """One call of the command."""

    def __init__(self, aws: Aws, deployed: DeployedPipeline, selection: Selection, result: ReprocessResult) -> None:
        self._aws = aws
        self._deployed = deployed
        self._selection = selection
        self._result = result
        self._stores = not selection.keys
        self._stored = bool(result.position)
        self.operation: Operation | None = None
        """None before the person has agreed."""
        self._recorder: RequestRecorder | None = None

    def count(self) -> None:
        """Count the objects, and send nothing."""
        targets = self._selection.targets(self._aws, self._deployed, self._result, after=self._result.position)
        self._result.sent = sum(1 for _ in targets)

    def send(self, rate: RateLimit, *, yes: bool) -> None:
        """Ask, and send the requests. The position is stored on the way, and deleted when all are sent.

        Raises:
            CliError: A key cannot be requested.
            ClientError: AWS refuses a request.

        """
        aws, deployed, selection, result = self._aws, self._deployed, self._selection, self._result
        own_id = result.reprocess_id
        watch = StopWatch(aws, deployed, own_id)
        watch.check()
        targets = selection.targets(aws, deployed, result, after=result.position)
        counted = None
        if operations.may_ask(yes=yes):
            counted = selection.targets(aws, deployed, ReprocessResult(own_id), after=result.position)
        by = operations.ask(aws, announcing.reprocess(deployed, str(selection), counted), yes=yes)
        self.operation = operations.begin(aws, deployed, by, f"{selection} --id {own_id}", own_id)
        recorder = self._recorder = RequestRecorder(aws, deployed, own_id, Command.REPROCESS, most=BATCH_ENTRIES)
        notes = console(stderr=True)
        notes.print(f"reprocess id {own_id}")
        complete = False
        try:
            with notes.status("sending requests"):
                reprocess.send_requests(
                    aws.sqs, deployed, targets, result, rate, recorder=recorder, store=self._store, check=watch.check
                )
            complete = not result.failed
        finally:
            self._end(complete=complete)

    def _end(self, *, complete: bool) -> None:
        result = self._result
        if complete:
            if self._stored:
                self._change(positions.forget, result.reprocess_id)
        elif result.position:
            self._store()
            if self._stores:
                console(stderr=True).print(f"to continue, run: intake-ledger reprocess --resume {result.reprocess_id}")
        if self.operation is not None:
            text = f"{result.sent:,} requests sent, {len(result.failed):,} failed"
            text = text if complete else f"{text}; interrupted"
            recorded = result.sent if self._recorder and not self._recorder.denied else None
            operations.finish(self._aws, self._deployed, self.operation, text, sent=operations.Sent(recorded))

    def _store(self) -> None:
        self._stored = True
        self._change(positions.store, self._selection, self._result)

    def _change(self, change: Callable[..., None], *arguments: object) -> None:
        """Change the stored position. Without permission the call goes on, and cannot be resumed."""
        if not self._stores:
            return
        try:
            change(self._aws, self._deployed, *arguments)
        except ClientError as error:
            if (action := denied_action(error)) is None:
                raise
            self._stores = False
            console(stderr=True).print(f"this call cannot be resumed: {action} is not allowed")
