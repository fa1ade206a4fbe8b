"""The typer application, and the options that several commands have."""

import sys
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

import typer

FINDINGS = 3
"""Exit code with `--exit-code` if there is something that a person should look at."""
TIME_LIMIT = 4
"""Exit code of `wait` at its time limit."""

app = typer.Typer(
    help="Inspect and operate a deployed intake pipeline.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def option(*names: str, help: str, **more: Any) -> Any:
    """An option whose default value is not in the help."""
    return typer.Option(*names, help=help, show_default=False, **more)


def argument(*, help: str, **more: Any) -> Any:
    """An argument whose default value is not in the help."""
    return typer.Argument(help=help, show_default=False, **more)


DryRun = Annotated[bool, option("--dry-run", help="Show the result and change nothing.")]
Yes = Annotated[bool, option("--yes", help="Do not ask.")]
Because = Annotated[str, option("--because", help="The reason, for others.")]
Wait = Annotated[bool, option("--wait", help="Wait until it has had its effect.")]
ExitCode = Annotated[bool, option("--exit-code", help="End with exit code 3 if a person should look at it.")]
PerSecond = Annotated[
    float | None,
    typer.Option("--rate", help="Rate limit in messages per second. Without it there is no limit.", min=0.1),
]


def _print_version(asked: bool) -> None:
    if not asked:
        return
    try:
        number = version("cdk-intake-ledger")
    except PackageNotFoundError:
        number = "unknown"
    sys.stdout.write(f"intake-ledger {number}\n")
    raise typer.Exit


@app.callback()
def main_options(
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Inspect and operate a deployed intake pipeline."""


def end_with(found: bool, wanted: bool) -> None:
    """End the command with exit code 3 if something was found and `--exit-code` was given."""
    if found and wanted:
        raise typer.Exit(FINDINGS)


def now_ms() -> int:
    """Return the time in epoch milliseconds."""
    return time.time_ns() // 1_000_000
