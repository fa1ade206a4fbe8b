"""Book orders from a stock on a local AWS: `python -m examples.orders`. Exit with 0 if the stock is right, else 1."""

import argparse
import sys
from pathlib import Path

from examples.orders.run import run
from examples.orders.stack import STACK

from cdk_intake_ledger.testing import LocalAws

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="examples.orders", description=__doc__)
    parser.add_argument("--without-ledger", action="store_true", help="a hand-written consumer in the intake's place")
    without = parser.parse_args().without_ledger
    with LocalAws() as aws:
        sys.stdout.write("deploying to a local AWS\n")
        context = {"withoutLedger": "yes"} if without else {}
        outputs = aws.deploy(f"{sys.executable} -m examples.orders.stack", STACK, context=context, cwd=ROOT)
        found = run(aws, outputs[STACK], with_ledger=not without)
    for article, pieces in sorted(found.stock.items()):
        sys.stdout.write(f"{article:8} {pieces:4} in stock, {found.expected[article]:4} expected\n")
    sys.stdout.write(f"{found.booked} booked, {found.copies} copies without an effect\n")
    sys.stdout.write("".join(f"rejected: {reason}\n" for reason in found.reasons))
    return 0 if found.right else 1


if __name__ == "__main__":
    sys.exit(main())
