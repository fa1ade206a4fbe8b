"""Compare consumers of the same pictures. Exit with 0 if the fenced outputs are right in each round and the
others are not, else with 1.
"""

from __future__ import annotations

import sys

from examples.harness.command import exit_code, options_of  # isort: skip - before the CDK
from examples.pictures.columns import Column
from examples.pictures.judge import demonstrated
from examples.pictures.run import Options, run


def main() -> int:
    short = "kill no workers, whose messages stay hidden for a while"
    parser = options_of("pictures", __doc__, output="build/pictures.png", short=short)
    parser.add_argument("--rounds", type=int, default=200, help="the number of keys (default: %(default)s)")
    parser.add_argument(
        "--must-be-right",
        type=Column,
        choices=tuple(Column),
        default=Column.FENCED,
        help="the consumer that must be right in each round; another one shows that the comparison can fail",
    )
    parser.add_argument(
        "--locks", action="store_true", help="two more columns, with published locks; it takes some minutes more"
    )
    parser.add_argument(
        "--without-ledger",
        action="store_true",
        help="the hand-written consumers alone; ends with 1 if a copy is wrong",
    )
    arguments = parser.parse_args()
    options = Options(
        arguments.rounds,
        arguments.output,
        arguments.seed,
        kills=not arguments.short,
        locks=arguments.locks,
        ledger=not arguments.without_ledger,
    )

    def shown() -> bool:
        wrong = run(options)
        if arguments.without_ledger:
            return not any(wrong.values())
        if demonstrated(wrong, arguments.must_be_right):
            return True
        print(
            f"NOT SHOWN: {arguments.must_be_right.label} has {wrong[arguments.must_be_right]} wrong rounds; all: "
            + ", ".join(f"{column.label} {count}" for column, count in wrong.items()),
            file=sys.stderr,
        )
        return False

    return exit_code(shown, arguments.output)


if __name__ == "__main__":
    sys.exit(main())
