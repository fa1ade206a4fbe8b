"""Reasons why a processor's settings cannot work on Lambda."""

from collections.abc import Iterable, Sequence

from aws_cdk import Token
from aws_cdk import aws_lambda as lambda_

MIN_PYTHON = (3, 12)
DEFAULT_STORAGE, MAX_STORAGE = 512, 10_240
"""MiB of `/tmp`: Lambda's default and maximum."""

RESERVED_VARIABLES = ("INTAKE_", "POWERTOOLS_SERVICE_NAME", "POWERTOOLS_METRICS_NAMESPACE")
"""Beginnings of the names of environment variables that the pipeline sets."""


def environment_problems(names: Iterable[str]) -> list[str]:
    """Environment variables that the pipeline sets itself."""
    return [
        f"processor environment has {name!r}: the pipeline sets it itself, choose another name"
        for name in names
        if name.startswith(RESERVED_VARIABLES)
    ]


def storage_problems(size: int) -> list[str]:
    """A size of `/tmp` that Lambda does not have, in MiB."""
    if Token.is_unresolved(size) or DEFAULT_STORAGE <= size <= MAX_STORAGE:
        return []
    return [f"processor ephemeral_storage_size is {size:,}: give 512 to 10,240, in MiB, the range of Lambda"]


def runtime_problems(runtime: lambda_.Runtime) -> list[str]:
    """A runtime that does not run the consumer."""
    name = runtime.name
    if Token.is_unresolved(name):
        return []
    version = name.removeprefix("python").split(".")
    if name.startswith("python") and tuple(int(part) for part in version if part.isdigit()) >= MIN_PYTHON:
        return []
    return [f"processor runtime is {name!r}: the consumer is Python, give lambda_.Runtime.PYTHON_3_12 or later"]


def layer_problems(layers: Sequence[lambda_.ILayerVersion]) -> list[str]:
    """More layers than Lambda allows."""
    if len(layers) <= 4:
        return []
    return [f"processor has {len(layers)} layers: Lambda allows five, and one is the pipeline's, give at most 4"]
