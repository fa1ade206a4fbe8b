"""Reasons why a processor's settings cannot work on Lambda."""

import re
from collections.abc import Iterable, Sequence

from aws_cdk import Token
from aws_cdk import aws_lambda as lambda_

from cdk_intake_ledger.validation.limits import DEFAULT_STORAGE, MAX_STORAGE
from cdk_intake_ledger.validation.processor_rules import (
    ENVIRONMENT_NAME,
    EPHEMERAL_STORAGE,
    LAYER_COUNT,
    MANAGED_RUNTIME,
    PROCESSOR_VERSION,
    RUNTIME_VERSION,
)
from cdk_intake_ledger.validation.registry import Problem
from intake_ledger.protocol import VERSION_BYTES

MIN_PYTHON = (3, 12)
MIN_MANAGED_PYTHON = (3, 13)
"""Lambda Managed Instances has no earlier one (Lambda developer guide, "Lambda Managed Instances runtimes")."""

_VERSION = re.compile(f"[!-~]{{1,{VERSION_BYTES}}}")
"""Visible ASCII characters without spaces, so that a shell and a log show what a row has."""

RESERVED_VARIABLES = ("INTAKE_", "POWERTOOLS_SERVICE_NAME", "POWERTOOLS_METRICS_NAMESPACE")
"""Beginnings of the names of environment variables that the pipeline sets."""


def environment_problems(names: Iterable[str]) -> list[Problem]:
    """Environment variables that the pipeline sets itself."""
    return [ENVIRONMENT_NAME.problem(name=name) for name in names if name.startswith(RESERVED_VARIABLES)]


def storage_problems(size: int) -> list[Problem]:
    """A size of `/tmp` that Lambda does not have, in MiB."""
    if Token.is_unresolved(size) or DEFAULT_STORAGE <= size <= MAX_STORAGE:
        return []
    return [EPHEMERAL_STORAGE.problem(size=size)]


def runtime_problems(runtime: lambda_.Runtime, *, managed: bool = False) -> list[Problem]:
    """A runtime that does not run the consumer. `managed`: on Lambda Managed Instances."""
    name = runtime.name
    if Token.is_unresolved(name):
        return []
    parts = name.removeprefix("python").split(".")
    version = tuple(int(part) for part in parts if part.isdigit())
    if not name.startswith("python") or version < MIN_PYTHON:
        return [RUNTIME_VERSION.problem(name=name)]
    return [MANAGED_RUNTIME.problem(name=name)] if managed and version < MIN_MANAGED_PYTHON else []


def layer_problems(layers: Sequence[lambda_.ILayerVersion]) -> list[Problem]:
    """More layers than Lambda allows."""
    if len(layers) <= 4:
        return []
    return [LAYER_COUNT.problem(count=len(layers))]


def version_problems(version: str | None) -> list[Problem]:
    """A version that rows would cut, or that cannot be told from another one."""
    if version is None or Token.is_unresolved(version) or _VERSION.fullmatch(version):
        return []
    return [PROCESSOR_VERSION.problem(version=version)]
