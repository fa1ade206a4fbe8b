"""Reasons why a durable function cannot be the processor of a consumer, and its configuration."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from aws_cdk import CfnDeletionPolicy, CfnResource, Duration, Fn, Token
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.reporting import warn
from cdk_intake_ledger.checks.rules.durable_rules import (
    DURABLE_MANAGED,
    DURABLE_NOT_ENABLED,
    DURABLE_UNKNOWN,
    DURABLE_UNQUALIFIED,
    DURABLE_VERSION_REMOVED,
)
from cdk_intake_ledger.checks.rules.execution_rules import EXECUTION_ENVIRONMENT, EXECUTION_TIMEOUT
from cdk_intake_ledger.checks.spans import span
from cdk_intake_ledger.resources.cloudformation import environments_of, properties_of

_ARN_PARTS = 8
"""Parts of the ARN of a version or an alias. The ARN of the function has one less."""
_LONGEST_INVOCATION = Duration.minutes(15)
_LEAST_RETENTION = Duration.days(1)
"""The least that Lambda takes."""
_RETENTION_DAYS = 14
"""Lambda's default (CloudFormation, `AWS::Lambda::Function DurableConfig`)."""
_KEPT = (CfnDeletionPolicy.RETAIN, CfnDeletionPolicy.RETAIN_EXCEPT_ON_CREATE)


@dataclass(frozen=True, kw_only=True)
class DurableConfiguration:
    """The configuration of a durable function, with bounds that always hold in the place of values that are unknown."""

    known: bool = False
    """False for an imported function."""
    enabled: bool = True
    managed: bool = False
    """True if it runs on Lambda Managed Instances."""
    execution_seconds: float | None = None
    """The limit of an execution. None if it is unknown."""
    retention: Duration = _LEAST_RETENTION
    """The time for which Lambda remembers an execution that has ended."""
    invocation_timeout: Duration = _LONGEST_INVOCATION
    """The timeout of one invocation."""

    @classmethod
    def of(cls, function: lambda_.IFunction) -> "DurableConfiguration":
        """Read the resource of the function behind a version or an alias."""
        base = _base(function)
        resource = base.node.default_child if base is not None else None
        if not isinstance(resource, lambda_.CfnFunction):
            return cls()
        properties = properties_of(resource)
        durable = properties.get("durableConfig")
        if not isinstance(durable, dict):
            return cls(known=True, enabled=False)
        limit, days = durable.get("executionTimeout"), durable.get("retentionPeriodInDays", _RETENTION_DAYS)
        timeout = properties.get("timeout", 3)  # Lambda's own default
        return cls(
            known=True,
            managed="capacityProviderConfig" in properties,
            execution_seconds=limit if isinstance(limit, int | float) else None,
            retention=Duration.days(days) if isinstance(days, int) else _LEAST_RETENTION,
            invocation_timeout=Duration.seconds(timeout) if isinstance(timeout, int) else _LONGEST_INVOCATION,
        )


def durable_problems(scope: Construct, function: lambda_.IFunction, timeout: Duration) -> Iterator[Problem]:
    """Compare a durable function with the construct that invokes it. It warns if nothing can be compared.

    Args:
        scope: the pipeline, the intake of messages or the sets.
        function: a version or an alias.
        timeout: the limit of an execution.

    """
    path = function.node.path
    place = f"the durable function {path}"
    if _is_unqualified(function):
        yield DURABLE_UNQUALIFIED.problem(path=path)
        return
    if (environments := environments_of(function, scope)) is not None:
        yield EXECUTION_ENVIRONMENT.problem(place=place, **environments)
    if _is_removed(function):
        yield DURABLE_VERSION_REMOVED.problem(path=path)
    found = DurableConfiguration.of(function)
    if not found.known:
        limit = "the processor's timeout" if timeout.is_unresolved() else span(timeout.to_seconds(integral=False))
        warn(scope, DURABLE_UNKNOWN, path=path, limit=limit)
    elif not found.enabled:
        yield DURABLE_NOT_ENABLED.problem(path=path)
    elif found.managed:
        yield DURABLE_MANAGED.problem(path=path)
    elif found.execution_seconds is not None and not timeout.is_unresolved():
        limit_seconds = timeout.to_seconds(integral=False)
        if found.execution_seconds > limit_seconds:
            yield EXECUTION_TIMEOUT.problem(place=place, theirs=span(found.execution_seconds), ours=span(limit_seconds))


def unqualified_arn(function: lambda_.IFunction) -> str:
    """The ARN of the function, without the version or the alias."""
    base = _base(function)
    if base is not None:
        return base.function_arn
    arn = function.function_arn
    if not Token.is_unresolved(arn):
        return ":".join(arn.split(":")[: _ARN_PARTS - 1])
    return Fn.join(":", [Fn.select(part, Fn.split(":", arn)) for part in range(_ARN_PARTS - 1)])


def _version(function: Any) -> Any:
    """The version behind an alias, or the version itself. None for others."""
    version = getattr(function, "version", None)
    return function if isinstance(version, str) else version


def _base(function: lambda_.IFunction) -> lambda_.IFunction | None:
    """The function of a version or an alias. None if only its ARN is known."""
    base: lambda_.IFunction | None = getattr(_version(function), "lambda_", None)
    return base


def _is_unqualified(function: lambda_.IFunction) -> bool:
    arn = function.function_arn
    if arn.endswith(":$LATEST"):
        return True
    if _version(function) is not None:
        return False
    return isinstance(function, lambda_.Function) or (not Token.is_unresolved(arn) and len(arn.split(":")) < _ARN_PARTS)


def _is_removed(function: lambda_.IFunction) -> bool:
    """True if a deployment of other code removes the version of before."""
    resource = getattr(_version(function), "node", function.node).default_child
    return (
        isinstance(resource, CfnResource)
        and isinstance(resource, lambda_.CfnVersion)
        and resource.cfn_options.deletion_policy not in _KEPT
    )
