"""Checks that the final template has what is planned, after property injectors, mixins, aspects and overrides."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from constructs import Construct, IConstruct

from cdk_intake_ledger.checks.final_template import FinalTemplates, at_synthesis, expected_in, resource_of
from cdk_intake_ledger.checks.plan import Plan
from cdk_intake_ledger.checks.registry import Problem, Severity
from cdk_intake_ledger.checks.reporting import warn
from cdk_intake_ledger.checks.rules.final_rules import TABLE, value_at
from cdk_intake_ledger.checks.spans import UNKNOWN

_NUMBERS = (
    # The plan's number, the kind of the resource, and the property.
    ("reserved_concurrency", "consumer", "ReservedConcurrentExecutions"),
    ("visibility_timeout", "queue", "VisibilityTimeout"),
    ("queue_retention", "queue", "MessageRetentionPeriod"),
    ("dead_letter_retention", "dead", "MessageRetentionPeriod"),
    ("batch_size", "mapping", "BatchSize"),
    ("max_batching_window", "mapping", "MaximumBatchingWindowInSeconds"),
    ("max_concurrency", "mapping", "ScalingConfig.MaximumConcurrency"),
)


class _Final(NamedTuple):
    """A resource, with its planned values and those of the template."""

    kind: str
    owner: IConstruct
    wanted: dict[str, Any]
    found: Mapping[str, Any]


def check_final_template(
    scope: Construct,
    plan: Plan | None = None,
    numbers: Callable[[Plan], Iterable[Problem]] = lambda _: (),
) -> None:
    """Compare the templates with what is expected of the resources of a construct, when the app is complete.

    Args:
        scope: the construct.
        plan: its numbers; None if it has none.
        numbers: finds problems of a plan with the numbers of the template.

    """

    def check(templates: FinalTemplates) -> Iterator[Problem]:
        resources = [*_read(scope, templates)]
        yield from _rows(scope, resources)
        if plan is not None:
            yield from _changed_numbers(plan, numbers, resources)

    at_synthesis(scope, check)


def _read(scope: Construct, templates: FinalTemplates) -> Iterator[_Final]:
    made = [(one, resource) for one in expected_in(scope) if (resource := resource_of(one.owner)) is not None]
    answers = templates.read((resource, one.wanted) for one, resource in made)
    sizes = [
        value_at(found, "MaximumMessageSize")
        for (one, _), (found, _) in zip(made, answers, strict=True)
        if one.kind == "queue"
    ]
    for (one, _), (found, wanted) in zip(made, answers, strict=True):
        # A copy of each message of the queue has to fit into the dead-letter queue.
        sized = {"MaximumMessageSize": sizes[0]} if one.kind == "dead" and sizes else {}
        yield _Final(one.kind, one.owner, wanted | sized, found)


def _rows(scope: Construct, resources: list[_Final]) -> Iterator[Problem]:
    for row in TABLE:
        for kind, owner, wanted, found in resources:
            if kind not in row.kinds or row.path not in wanted:
                continue
            if (values := row.difference(found, wanted[row.path])) is None:
                continue
            if row.rule.severity is Severity.WARNING:
                warn(scope, row.rule, path=owner.node.path, **values)
            else:
                yield row.rule.problem(path=owner.node.path, **values)


def _changed_numbers(
    plan: Plan, check: Callable[[Plan], Iterable[Problem]], resources: list[_Final]
) -> Iterator[Problem]:
    """The checks of the plan again, if the template has other numbers."""
    # The batches of a plan are those of the stream, if there is one.
    skipped = "mapping" if any(one.kind == "stream" for one in resources) else ""
    numbers: dict[str, Any] = {"visibility_timeout": plan.visibility}
    reasons = []
    for name, kind, path in _NUMBERS:
        before = numbers.get(name, getattr(plan, name))
        for one in resources:
            if one.kind != kind or kind == skipped:
                continue
            value = value_at(one.found, path)
            number = float(value) if isinstance(value, int | float) else UNKNOWN
            if number != before and not (math.isnan(number) and math.isnan(before)):
                numbers[name] = number
                reasons.append(f"{path} of {one.owner.node.path} is {value} in the template")
    if reasons:
        for problem in check(replace(plan, **numbers)):
            yield problem.within("; ".join(reasons))
