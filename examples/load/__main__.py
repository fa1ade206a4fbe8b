"""Load CSV files into PostgreSQL under faults, with the intake ledger and with a hand-written consumer.

Exit with 0 if the ledger's table is right in every line, else 1. `--without-ledger` deploys and judges the hand-written
consumer alone, and exits with 1.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

# This process only uses helpers of the library, so it does not show jsii's warning about the version of Node.js.
os.environ["JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION"] = "20,22,24"
os.environ["JSII_SILENCE_WARNING_DEPRECATED_NODE_VERSION"] = "20,22,24"


def main() -> int:
    parser = argparse.ArgumentParser(prog="examples.load", description=__doc__)
    parser.add_argument(
        "--output", type=Path, default=Path("build/load.html"), help="the HTML file (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=2026, help="seed of the script (default: %(default)s)")
    parser.add_argument("--short", action="store_true", help="fewer and smaller files, and shorter gaps")
    parser.add_argument("--without-ledger", action="store_true", help="the hand-written consumer alone")
    arguments = parser.parse_args()

    from examples.load.run import Options, run  # noqa: PLC0415 - not needed to print the help

    from cdk_intake_ledger.testing import LocalAwsError  # noqa: PLC0415

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the same as Ctrl-C
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    try:
        right = run(
            Options(arguments.output, arguments.seed, arguments.short, with_ledger=not arguments.without_ledger)
        )
    except KeyboardInterrupt:
        print("\ninterrupted; the local AWS and PostgreSQL are gone", file=sys.stderr)
        return 130
    except (LocalAwsError, TimeoutError, RuntimeError) as error:
        print(f"the demonstration stopped before its end: {error}", file=sys.stderr)
        return 1
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
