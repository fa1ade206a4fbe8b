"""Compare two pipelines with a hand-written consumer. Exit with 0 if the ledger is right in every line, else 1."""

from __future__ import annotations

import sys

from examples.harness.command import exit_code, options_of  # isort: skip - before the CDK
from examples.fanout.run import Options, run


def main() -> int:
    parser = options_of("fanout", __doc__, output="build/fanout.json", short="fewer texts, and no killed worker")
    parser.add_argument(
        "--without-ledger", action="store_true", help="deploy and judge the hand-written consumer alone"
    )
    arguments = parser.parse_args()
    options = Options(arguments.output, arguments.seed, arguments.short, not arguments.without_ledger)
    return exit_code(lambda: run(options), arguments.output)


if __name__ == "__main__":
    sys.exit(main())
