"""Writes the template of the acceptance stack: see the package."""

from argparse import ArgumentParser

from aws_cdk import App
from aws_cdk import aws_lambda as lambda_

from cdk_intake_ledger.acceptance.stack import AcceptanceStack

_ARCHITECTURES = {"arm64": lambda_.Architecture.ARM_64, "x86_64": lambda_.Architecture.X86_64}


def main() -> None:
    """Synthesise the stack `Acceptance`."""
    parser = ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--assets", required=True)
    parser.add_argument("--architecture", choices=_ARCHITECTURES, default="arm64")
    given = parser.parse_args()
    app = App(outdir=given.folder, analytics_reporting=False, builtin_cloud_formation_validation=False)
    AcceptanceStack(app, "Acceptance", assets=given.assets, architecture=_ARCHITECTURES[given.architecture])
    app.synth()


if __name__ == "__main__":
    main()
