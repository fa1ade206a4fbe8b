"""Load CSV files into PostgreSQL under faults, with the intake ledger and with a hand-written consumer.

Exit with 0 if the ledger's table is right in every line, else 1. `--without-ledger` deploys and judges the hand-written
consumer alone, and exits with 1.
"""

from __future__ import annotations

import sys

from examples.harness.command import exit_code, options_of


def main() -> int:
    short = "fewer and smaller files, and shorter gaps"
    parser = options_of("load", __doc__, output="build/load.html", short=short)
    parser.add_argument("--without-ledger", action="store_true", help="the hand-written consumer alone")
    arguments = parser.parse_args()

    from examples.load.run import Options, run  # noqa: PLC0415 - not needed to print the help

    options = Options(arguments.output, arguments.seed, arguments.short, with_ledger=not arguments.without_ledger)
    return exit_code(lambda: run(options), arguments.output)


if __name__ == "__main__":
    sys.exit(main())
