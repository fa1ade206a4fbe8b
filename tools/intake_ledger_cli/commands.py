"""The entry point of the command line, and the commands about audits. Other modules do the work."""

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import current_thread, main_thread
from typing import Annotated, NoReturn

import typer
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from intake_ledger_cli import (
    acting_commands,
    audits,
    dismiss_command,
    looking_commands,
    moving_commands,
    operations,
    reprocess_command,
    tables,
    template_command,
)
from intake_ledger_cli.app import DryRun, ExitCode, app, end_with, now_ms
from intake_ledger_cli.console import console, escape
from intake_ledger_cli.errors import CliError, UsageError, describe_error
from intake_ledger_cli.options import Call, with_shared_options
from intake_ledger_cli.report_file import MOST_HOURS, write_report

TERMINATED = 128 + signal.SIGTERM
"""Exit code after SIGTERM, as shells name it."""
WRONG_USAGE = 2
"""Exit code of wrong options, as of click."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Args:
        arguments: of the command; those of the process when omitted.

    """
    with _stopped_by_sigterm():
        return _run(arguments)


def _run(arguments: Sequence[str] | None) -> int:
    try:
        return _finished(arguments)
    except UsageError as error:
        return _complain(describe_error(error), WRONG_USAGE)
    except (CliError, BotoCoreError, ClientError, ResponseParserError) as error:
        return _complain(describe_error(error), 1)
    except BrokenPipeError:
        # The reader of the pipe has ended, as `head` does.
        return _drop_output()
    except OSError as error:
        _drop_output()
        return _complain(f"{error.strerror or error}: check disk space and permissions", 1)


def _finished(arguments: Sequence[str] | None) -> int:
    """Run the command, and write what it has printed: a full disk refuses it only then."""
    code = 0
    try:
        app(args=None if arguments is None else list(arguments))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    sys.stdout.flush()
    return code


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """End the command as Ctrl-C does: messages that it has hidden become visible again."""
    if current_thread() is not main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop(*_: object) -> NoReturn:
    raise SystemExit(TERMINATED)


def _complain(text: str, code: int) -> int:
    console(stderr=True).print(escape(f"intake-ledger: {text}"))
    return code


def _drop_output() -> int:
    """Discard what was not written, so that Python does not try it again at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


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
    with console(stderr=True).status("the audit is running"):
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


__all__ = [
    "acting_commands",
    "app",
    "dismiss_command",
    "looking_commands",
    "moving_commands",
    "reprocess_command",
    "run",
    "template_command",
]
