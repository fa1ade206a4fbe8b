"""The typer application, and the options that several commands have."""

import time
from typing import Annotated

import typer

from intake_ledger_cli.rate_limit import RateLimit

app = typer.Typer(
    help="Inspect and operate a deployed intake pipeline.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the result and change nothing.", show_default=False)]
PerSecond = Annotated[
    float | None,
    typer.Option("--rate", help="Rate limit in messages per second. Without it there is no limit.", min=0.1),
]


def rate_limit(per_second: float | None) -> RateLimit:
    """Make the rate limit of an option `--rate`."""
    return RateLimit(per_second, clock=time.monotonic, sleep=time.sleep)


def now_ms() -> int:
    """Return the time in epoch milliseconds."""
    return time.time_ns() // 1_000_000
