"""The matrix in an environment that has the oldest of everything: `python -m tests.synth.lowest <cloud assembly>`."""

import sys

from aws_cdk import App

from tests.synth.matrix import CONTEXT, ROWS


def main() -> None:
    app = App(context=CONTEXT, outdir=sys.argv[1])
    for row in ROWS:
        row(app)
    app.synth()


if __name__ == "__main__":
    main()
