"""The command of a comparison: its options, and its end."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# The process of the command uses helpers of the library only, so it shows no warning of jsii about Node.js.
os.environ["JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION"] = "20,22,24"
os.environ["JSII_SILENCE_WARNING_DEPRECATED_NODE_VERSION"] = "20,22,24"


def options_of(name: str, description: str | None, *, output: str, short: str) -> argparse.ArgumentParser:
    """Return a parser with `--output`, `--seed` and `--short`. `output` is the default, `short` the help."""
    parser = argparse.ArgumentParser(prog=f"examples.{name}", description=description)
    parser.add_argument("--output", type=Path, default=Path(output), help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=2026, help="seed of the script (default: %(default)s)")
    parser.add_argument("--short", action="store_true", help=short)
    return parser


def exit_code(run: Callable[[], bool], output: Path) -> int:
    """Run a comparison, and return the exit code: 0 if it shows the difference, 130 after Ctrl-C or SIGTERM, else 1.

    Args:
        run: carries it out. It returns true if the judged column is right.
        output: the file that it writes. Its folder is created.

    """
    from cdk_intake_ledger.testing import LocalAwsError  # noqa: PLC0415 - not needed to print the help

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the same as Ctrl-C
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        return 0 if run() else 1
    except KeyboardInterrupt:
        print("\ninterrupted; the local AWS is gone", file=sys.stderr)
        return 130
    except (LocalAwsError, TimeoutError, RuntimeError) as error:
        print(f"stopped before its end: {error}", file=sys.stderr)
        return 1
