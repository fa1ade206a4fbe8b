"""Compare the intake ledger with a hand-written consumer. Exit with 0 if the ledger is right in every line, else 1."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

# This process only uses helpers of the library, so it does not show jsii's warning about the version of Node.js.
os.environ["JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION"] = "20,22,24"
os.environ["JSII_SILENCE_WARNING_DEPRECATED_NODE_VERSION"] = "20,22,24"

from examples.demo.material import MaterialError, botocore_models, files_below


def main() -> int:
    parser = argparse.ArgumentParser(prog="examples.demo", description=__doc__)
    parser.add_argument("--files", type=Path, help="a folder or a file to upload instead of botocore's service models")
    parser.add_argument(
        "--output", type=Path, default=Path("build/demo.html"), help="the HTML file (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=2026, help="seed of the script (default: %(default)s)")
    parser.add_argument(
        "--short", action="store_true", help="do not kill workers, whose messages stay hidden for a minute"
    )
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

    from examples.demo.run import Options, run  # noqa: PLC0415

    from cdk_intake_ledger.testing import LocalAwsError  # noqa: PLC0415 - not needed to find out that a path is wrong

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the same as Ctrl-C
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    try:
        right = run(Options(sources, arguments.output, arguments.seed, arguments.short, arguments.locks))
    except KeyboardInterrupt:
        print("\ninterrupted; the local AWS is gone", file=sys.stderr)
        return 130
    except (LocalAwsError, TimeoutError, RuntimeError) as error:
        print(f"the demo stopped before its end: {error}", file=sys.stderr)
        return 1
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
