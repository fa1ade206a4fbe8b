"""Reasons why a processor's settings cannot work on Lambda."""

import re
from collections.abc import Iterator, Mapping

from aws_cdk import Token
from aws_cdk import aws_lambda as lambda_

from cdk_intake_ledger.checks.limits import MAX_ENVIRONMENT
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.rules.processor_rules import (
    ENVIRONMENT_NAME,
    ENVIRONMENT_SIZE,
    MANAGED_RUNTIME,
    PROCESSOR_VERSION,
    RUNTIME_VERSION,
)
from intake_ledger.protocol.settings import VERSION_BYTES

MIN_PYTHON = (3, 12)
MIN_MANAGED_PYTHON = (3, 13)
"""Lambda Managed Instances has no earlier one (Lambda developer guide, "Lambda Managed Instances runtimes")."""

_VERSION = re.compile(f"[!-~]{{1,{VERSION_BYTES}}}")
"""Visible ASCII characters without spaces, so that a shell and a log show what a row has."""

RESERVED_VARIABLES = ("INTAKE_", "POWERTOOLS_SERVICE_NAME", "POWERTOOLS_METRICS_NAMESPACE")
"""Beginnings of the names of environment variables that the pipeline sets."""


_LAMBDAS_OWN = ("AWS_LAMBDA_", "AWS_EXECUTION_ENV", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY",
    "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "LAMBDA_TASK_ROOT", "LAMBDA_RUNTIME_DIR")  # fmt: skip
"""Beginnings of names that Lambda reserves (Lambda developer guide, "Defined runtime environment variables")."""
_VARIABLE = re.compile("[a-zA-Z][a-zA-Z0-9_]+")
"""Lambda API reference, `Environment`."""


def environment_problems(environment: Mapping[str, str]) -> Iterator[Problem]:
    """Environment variables that Lambda refuses, or that the pipeline sets itself."""
    for name in environment:
        if name.startswith(RESERVED_VARIABLES):
            yield ENVIRONMENT_NAME.problem(name=name, why="the pipeline sets this variable")
        elif name.startswith(_LAMBDAS_OWN):
            yield ENVIRONMENT_NAME.problem(name=name, why="Lambda sets this variable, and refuses another value")
        elif not _VARIABLE.fullmatch(name):
            why = "Lambda takes a letter and then one or more letters, digits and underscores"
            yield ENVIRONMENT_NAME.problem(name=name, why=why)
    size = sum(len(name.encode()) + len(value.encode()) for name, value in environment.items())
    if size > MAX_ENVIRONMENT:
        yield ENVIRONMENT_SIZE.problem(size=size)


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


def version_problems(version: str | None) -> list[Problem]:
    """A version that rows would cut, or that cannot be told from another one."""
    if version is None or Token.is_unresolved(version) or _VERSION.fullmatch(version):
        return []
    return [PROCESSOR_VERSION.problem(version=version)]
