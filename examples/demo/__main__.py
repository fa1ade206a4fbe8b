"""Compare the intake ledger with a hand-written consumer. Exit with 0 if the ledger is right in every line, else 1."""

from __future__ import annotations

import sys
from pathlib import Path

from examples.demo.material import MaterialError, botocore_models, files_below
from examples.harness.command import exit_code, options_of


def main() -> int:
    short = "do not kill workers, whose messages stay hidden for a minute"
    parser = options_of("demo", __doc__, output="build/demo.html", short=short)
    parser.add_argument("--files", type=Path, help="a folder or a file to upload instead of botocore's service models")
    parser.add_argument(
        "--locks", action="store_true", help="two more columns, with published locks; it takes some minutes more"
    )
    arguments = parser.parse_args()
    try:
        if arguments.files is None:
            sources = botocore_models()
        else:
            sources, left_out = files_below(arguments.files)
            if left_out:
                print(f"FILES: {left_out} files are left out (hidden, unreadable, too large, or beyond the first 450)")
    except MaterialError as error:
        print(error, file=sys.stderr)
        return 2

    from examples.demo.run import Options, run  # noqa: PLC0415 - not needed to find out that a path is wrong

    options = Options(sources, arguments.output, arguments.seed, arguments.short, arguments.locks)
    return exit_code(lambda: run(options), arguments.output)


if __name__ == "__main__":
    sys.exit(main())
