"""The entry point of the command line. The modules of the commands are imported when they are used."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from threading import current_thread, main_thread
from typing import NoReturn

from intake_ledger_cli.app import app
from intake_ledger_cli.errors import CliError, UsageError, describe_error, is_of_aws
from intake_ledger_cli.show.console import console, escape

COMMANDS = {
    "status": "read.looking_commands",
    "list": "read.looking_commands",
    "inspect": "read.looking_commands",
    "wait": "read.looking_commands",
    "retry": "act.retry_command",
    "dismiss": "act.dismissing",
    "release": "act.releasing",
    "pause": "act.pausing",
    "resume": "act.pausing",
    "forget": "act.forget_command",
    "operations": "act.stopping",
    "audit": "read.audit_commands",
    "export": "read.export_command",
    "rehearse": "read.rehearse_command",
    "template": "template_command",
}
"""The module of each command, in the order of the help."""
REPLACED = {
    "ls": "status",
    "redrive --stop": "operations stop",
    "redrive --key": "retry KEY",
    "redrive --reason": "retry --reason",
    "redrive --letter": "retry --letter",
    "redrive": "retry --prefix ''",
    "dismiss --undo": "retry KEY",
    "reprocess --stop": "operations stop",
    "reprocess --rejected": "retry --prefix ''",
    "reprocess --failed": "retry --prefix ''",
    "reprocess --keys-from": "retry --again --from",
    "reprocess": "retry --again",
    "report": "audit --last",
    "watch": "status --watch",
    "retry-now": "retry --waiting`, or `retry KEY",
}
"""The commands of before, and those that do their work now."""
TERMINATED = 128 + signal.SIGTERM
"""Exit code after SIGTERM, as shells name it."""
WRONG_USAGE = 2
"""Exit code of wrong options, as of click."""
registered = app.registered_commands


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Args:
        arguments: of the command; those of the process when omitted.

    """
    with _stopped_by_sigterm():
        return _run(arguments)


def load(command: str = "") -> None:
    """Import the module of a command, or of all commands if there is no such command."""
    names = [COMMANDS[command]] if command in COMMANDS else dict.fromkeys(COMMANDS.values())
    for name in names:
        import_module(f"intake_ledger_cli.{name}")
    order = list(COMMANDS)
    registered.sort(key=lambda one: order.index(one.name or str(getattr(one.callback, "__name__", ""))))


def _run(arguments: Sequence[str] | None) -> int:
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        _refuse_replaced(given)
        load(given[0] if given else "")
        return _finished(given)
    except UsageError as error:
        return _complain(describe_error(error), WRONG_USAGE)
    except CliError as error:
        return _complain(describe_error(error), 1)
    except BrokenPipeError:
        # The reader of the pipe has ended, as `head` does.
        return _drop_output()
    except Exception as error:
        if is_of_aws(error):  # first, because some of its errors are also errors of the system
            return _complain(describe_error(error), 1)
        if not isinstance(error, OSError):
            raise
        _drop_output()
        return _complain(f"{error.strerror or error}: check disk space and permissions", 1)


def _refuse_replaced(given: Sequence[str]) -> None:
    for old, new in REPLACED.items():
        command, *options = old.split()
        if given[:1] == [command] and set(options) <= set(given):
            raise UsageError(f"`{old}` is now `intake-ledger {new}`")


def _finished(arguments: list[str]) -> int:
    """Run the command, and write what it has printed: a full disk refuses it only then."""
    code = 0
    try:
        app(args=arguments)
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


__all__ = ["COMMANDS", "app", "load", "run"]
