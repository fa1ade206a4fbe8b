"""Gives problems to the CDK: as one error that has all of them, or as warnings."""

from collections.abc import Sequence

from aws_cdk import Annotations
from constructs import IConstruct

from cdk_intake_ledger.checks.errors import IntakeConfigurationError
from cdk_intake_ledger.checks.registry import Problem, Rule

WARNING_PREFIX = "cdk-intake-ledger"
"""Begins the ID of each warning, by which it can be acknowledged: `cdk-intake-ledger:bucketNotVersioned`."""


def refuse(path: str, problems: Sequence[Problem]) -> None:
    """End the synthesis if there are problems.

    Args:
        path: the construct that is refused, as `Stack/Pipeline`.
        problems: the complete list, so that one synthesis shows everything.

    Raises:
        IntakeConfigurationError: There is at least one problem.

    """
    if problems:
        raise IntakeConfigurationError(path, problems)


def warn(scope: IConstruct, rule: Rule, **values: object) -> None:
    """Print a warning after synthesis.

    Args:
        scope: the construct that the warning is about.
        rule: a rule of severity `WARNING`.
        values: for the rule's message.

    """
    Annotations.of(scope).add_warning_v2(f"{WARNING_PREFIX}:{rule.acknowledgement}", str(rule.problem(**values)))
