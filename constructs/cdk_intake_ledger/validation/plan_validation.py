"""Compares the numbers of a plan with all rules about numbers."""

import math
from collections.abc import Iterator

from cdk_intake_ledger.validation import number_rules, time_rules
from cdk_intake_ledger.validation.plan import Plan
from cdk_intake_ledger.validation.registry import Problem

CHECKS = (*number_rules.CHECKS, *time_rules.CHECKS)
"""Every check of a plan, in the order of the messages."""


def plan_problems(plan: Plan) -> Iterator[Problem]:
    """Compare the numbers of a plan.

    Args:
        plan: the numbers.

    Yields:
        A problem for each broken rule, in the order of `CHECKS`.

    """
    for check in CHECKS:
        known = not any(math.isnan(getattr(plan, name)) for name in check.needs)
        if known and check.broken(plan):
            yield check.problem(plan)
