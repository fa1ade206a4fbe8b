"""Compare consumers of the same pictures. Exit with 0 if the fenced outputs are right in each round and the
others are not, else with 1.
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

from examples.pictures.columns import Column
from examples.pictures.judge import demonstrated
from examples.pictures.run import Options, run

from cdk_intake_ledger.testing import LocalAwsError


def main() -> int:
    parser = argparse.ArgumentParser(prog="examples.pictures", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="the number of keys (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=Path("build/pictures.png"), help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=2026, help="seed of the script (default: %(default)s)")
    parser.add_argument("--short", action="store_true", help="kill no workers, whose messages stay hidden for a while")
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
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the same as Ctrl-C
    try:
        wrong = run(
            Options(
                arguments.rounds,
                arguments.output,
                arguments.seed,
                kills=not arguments.short,
                locks=arguments.locks,
                ledger=not arguments.without_ledger,
            )
        )
    except KeyboardInterrupt:
        print("\ninterrupted; the local AWS is gone", file=sys.stderr)
        return 130
    except (LocalAwsError, TimeoutError, RuntimeError) as error:
        print(f"the comparison stopped before its end: {error}", file=sys.stderr)
        return 1
    if arguments.without_ledger:
        return 1 if any(wrong.values()) else 0
    if demonstrated(wrong, arguments.must_be_right):
        return 0
    print(
        f"NOT SHOWN: {arguments.must_be_right.label} has {wrong[arguments.must_be_right]} wrong rounds; all: "
        + ", ".join(f"{column.label} {count}" for column, count in wrong.items()),
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
