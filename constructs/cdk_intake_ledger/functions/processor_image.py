"""The container image of a processor, from a folder with a Dockerfile."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from aws_cdk import aws_lambda as lambda_

from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.rules.processor_rules import IMAGE_DOCKERFILE, IMAGE_FOLDER


def image_problem(folder: Path) -> Problem | None:
    """The reason why no image can be built from a folder, or None."""
    if not folder.exists():
        return IMAGE_FOLDER.problem(folder=folder, current=Path.cwd())
    if not (folder / "Dockerfile").is_file():
        return IMAGE_DOCKERFILE.problem(folder=folder)
    return None


def image_of(folder: Path) -> lambda_.DockerImageCode:
    """The image of a folder. Its build has this library's version as an argument."""
    try:
        arguments = {"INTAKE_LEDGER_VERSION": version("cdk-intake-ledger")}
    except PackageNotFoundError:  # this library runs from its sources
        arguments = {}
    # The CDK builds the image for the function's architecture.
    return lambda_.DockerImageCode.from_image_asset(str(folder), build_args=arguments)
