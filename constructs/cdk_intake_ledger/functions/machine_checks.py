"""Reasons why a state machine cannot be the processor of a consumer."""

import json
from collections.abc import Iterator
from typing import Any

from aws_cdk import Duration, Token
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.reporting import warn
from cdk_intake_ledger.checks.rules.execution_rules import (
    EXECUTION_ENVIRONMENT,
    EXECUTION_TIMEOUT,
    MACHINE_EXPRESS,
    MACHINE_VERSION,
    MACHINE_WITHOUT_TIMEOUT,
    STOP_EARLY,
)
from cdk_intake_ledger.checks.spans import span
from cdk_intake_ledger.resources.cloudformation import environments_of, properties_of

ARN_PARTS = 7
"""Parts of the ARN of a state machine. The ARN of a version or an alias has one more."""


def machine_problems(
    scope: Construct, machine: sfn.IStateMachine, timeout: Duration, *, stops_after: Duration | None = None
) -> Iterator[Problem]:
    """Compare a state machine with the construct that starts it. It warns if the machine has no timeout.

    An imported machine shows its account, its region and its name only.

    Args:
        scope: the pipeline, the intake of messages or the sets.
        machine: the machine.
        timeout: the limit of an execution.
        stops_after: the time for which a task may outlive an execution that a newer version stops. None: it stops none.

    """
    path, arn = machine.node.path, machine.state_machine_arn
    place = f"the state machine {path}"
    if not Token.is_unresolved(arn) and len(arn.split(":")) > ARN_PARTS:
        yield MACHINE_VERSION.problem(arn=arn)
    if (environments := environments_of(machine, scope)) is not None:
        yield EXECUTION_ENVIRONMENT.problem(place=place, **environments)
    resource = machine.node.default_child
    if not isinstance(resource, sfn.CfnStateMachine):
        return
    properties = properties_of(resource)
    if properties.get("stateMachineType") == "EXPRESS":
        yield MACHINE_EXPRESS.problem(path=path)
    definition = _definition(properties.get("definitionString"))
    if definition is None or timeout.is_unresolved():
        return
    limit = timeout.to_seconds(integral=False)
    seconds = definition.get("TimeoutSeconds")
    if seconds is None:
        warn(scope, MACHINE_WITHOUT_TIMEOUT, path=path, ours=span(limit))
    elif isinstance(seconds, int) and seconds > limit:
        yield EXECUTION_TIMEOUT.problem(place=place, theirs=span(seconds), ours=span(limit))
    elif isinstance(seconds, int) and stops_after is not None and not stops_after.is_unresolved():
        after = stops_after.to_seconds(integral=False)
        if seconds <= after < limit:
            yield STOP_EARLY.problem(longest_task=span(after), execution_timeout=span(seconds))


def _definition(text: Any) -> dict[str, Any] | None:
    """The definition of a machine, with a text in the place of each reference. None if it is not in the template."""
    match text:
        case {"Fn::Join": ["", list(parts)]}:
            text = "".join(part if isinstance(part, str) else "reference" for part in parts)
    if not isinstance(text, str):
        return None
    try:
        definition = json.loads(text)
    except ValueError:
        return None
    return definition if isinstance(definition, dict) else None
