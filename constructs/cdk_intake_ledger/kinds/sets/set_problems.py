"""Reasons why sets of files cannot work."""

import math
from collections.abc import Iterator
from dataclasses import replace

from aws_cdk import Duration, Stack
from constructs import Construct

from cdk_intake_ledger.checks.plan import QUEUE_RETENTION_DAYS, Plan
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.reporting import warn
from cdk_intake_ledger.checks.rules.set_rules import (
    SET_AFTER_WORKERS,
    SET_DEADLINE_TWICE,
    SET_EVERY_VERSION,
    SET_FORMS_OVERLAP,
    SET_OTHER_STACK,
    SET_PER_CALL,
    SET_ROWS_EXPIRE,
)
from cdk_intake_ledger.checks.spans import DAY, NOT_GIVEN, span
from cdk_intake_ledger.consumer_function import IntakeConsumer
from cdk_intake_ledger.functions.processor import Processor
from cdk_intake_ledger.kinds.objects.pipeline_plan import seconds_of
from cdk_intake_ledger.kinds.sets.set_form import SetForm
from cdk_intake_ledger.options.options import Ordering, RetryOptions
from intake_ledger.protocol.settings import HOLD_SHARE


def set_problems(
    scope: Construct,
    parts: IntakeConsumer,
    *,
    form: SetForm,
    processor: Processor,
    retry: RetryOptions,
) -> Iterator[Problem]:
    """Find reasons why these options cannot work together.

    Args:
        scope: the construct of the sets.
        parts: the consumer of the pipeline of the parts.
        form: what names the parts.
        processor: the processor of the sets.
        retry: the option of the sets.

    """
    resources, stack = parts.resources, Stack.of(scope)
    path = parts.node.scope.node.path if parts.node.scope else ""
    if resources.ordering is Ordering.EVERY_VERSION:
        yield SET_EVERY_VERSION.problem(path=path)
    if stack is not resources.stack:
        yield SET_OTHER_STACK.problem(stack=stack.node.path, other=resources.stack.node.path)
    for extra in resources.extras:
        yield from extra.problems_of_parts(path)
    if parts.has_workers:
        yield SET_AFTER_WORKERS.problem(path=path)
    if processor.max_per_call > 1:
        yield SET_PER_CALL.problem(most=processor.max_per_call)
    yield from processor.argument_problems("FileSet")
    found = list(form.problems(tuple(resources.filters)))
    yield from found
    for content in () if found else parts.sets:
        other = SetForm(str(content["form"]), str(content["pattern"]))
        if form.overlaps(other):
            yield SET_FORMS_OVERLAP.problem(
                pattern=form.pattern, other_pattern=other.pattern, other=str(content["name"])
            )
    if retry.max_wait is not None:
        yield SET_DEADLINE_TWICE.problem()


def warn_of_expiry(scope: Construct, parts: IntakeConsumer) -> None:
    """Warn if the rows of parts expire.

    Args:
        scope: the construct of the sets.
        parts: the consumer of the pipeline of the parts.

    """
    resources = parts.resources
    if resources.deletes or resources.ledger.retention is None:
        return
    path = parts.node.scope.node.path if parts.node.scope else ""
    warn(scope, SET_ROWS_EXPIRE, path=path, retention=span(seconds_of(resources.retention)))


def with_waits(plan: Plan, form: SetForm, *, deadline: Duration | None, alarm_after: Duration | None) -> Plan:
    """The numbers of a plan with the waits of sets.

    Args:
        plan: the other numbers.
        form: what names the parts.
        deadline: the option, or None for the largest that the queue allows.
        alarm_after: the option.

    """
    retention = QUEUE_RETENTION_DAYS * DAY if math.isnan(plan.queue_retention) else plan.queue_retention
    return replace(
        plan,
        deadline=seconds_of(deadline) if deadline else int(HOLD_SHARE * retention),
        alarm_after=seconds_of(alarm_after) if alarm_after else NOT_GIVEN,
        quiet_for=seconds_of(form.quiet_for) if form.quiet_for else NOT_GIVEN,
    )
