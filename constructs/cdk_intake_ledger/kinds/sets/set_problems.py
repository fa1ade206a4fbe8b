"""Reasons why sets of files cannot work."""

import math
from collections.abc import Iterator

from aws_cdk import Duration, Stack
from constructs import Construct

from cdk_intake_ledger.checks.plan import DAY, QUEUE_RETENTION_DAYS, Plan, span
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
    alarm_after_problems,
    deadline_problems,
    quiet_deadline_problems,
)
from cdk_intake_ledger.consumer_function import IntakeConsumer
from cdk_intake_ledger.functions.pipeline_resources import PipelineResources
from cdk_intake_ledger.functions.processor import Processor
from cdk_intake_ledger.kinds.objects.pipeline_plan import seconds_of, unknown_times
from cdk_intake_ledger.kinds.sets.set_form import SetForm
from cdk_intake_ledger.options.options import Ordering, RetryOptions
from intake_ledger.protocol.settings import HOLD_SHARE


def _expiry_problems(parts: PipelineResources, path: str) -> Iterator[Problem]:
    """Find options of the pipeline of the parts that sets exclude. `path` is that of the pipeline."""
    for extra in parts.extras:
        yield from extra.problems_of_parts(path)


def set_problems(
    scope: Construct,
    parts: IntakeConsumer,
    *,
    form: SetForm,
    processor: Processor,
    deadline: tuple[Duration | None, RetryOptions],
    plan: Plan,
) -> Iterator[Problem]:
    """Find reasons why these options cannot work together.

    Args:
        scope: the construct of the sets.
        parts: the consumer of the pipeline of the parts.
        form: what names the parts.
        processor: the processor of the sets.
        deadline: the deadline, and the retry options.
        plan: the numbers of the sets.

    """
    resources, stack = parts.resources, Stack.of(scope)
    path = parts.node.scope.node.path if parts.node.scope else ""
    if resources.ordering is Ordering.EVERY_VERSION:
        yield SET_EVERY_VERSION.problem(path=path)
    if stack is not resources.stack:
        yield SET_OTHER_STACK.problem(stack=stack.node.path, other=resources.stack.node.path)
    yield from _expiry_problems(resources, path)
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
    until, retry = deadline
    if retry.max_wait is not None:
        yield SET_DEADLINE_TWICE.problem()
    if unknown := [*unknown_times(deadline=until)]:
        yield from unknown
        return
    yield from deadline_problems(until.to_seconds() if until else None)
    if form.quiet_seconds is not None:
        yield from quiet_deadline_problems(form.quiet_seconds, seconds_until_rejected(until, plan))


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


def alarm_problems(alarm_after: Duration | None, deadline: Duration | None, plan: Plan) -> Iterator[Problem]:
    """Find reasons why the alarm about waiting sets could not go into ALARM before the deadline.

    Args:
        alarm_after: the time until the alarm.
        deadline: the deadline.
        plan: the numbers of the sets.

    """
    if unknown := [*unknown_times(alarm_after=alarm_after)]:
        yield from unknown
    elif alarm_after is not None and not [*unknown_times(deadline=deadline)]:
        yield from alarm_after_problems(alarm_after.to_seconds(), seconds_until_rejected(deadline, plan))


def seconds_until_rejected(deadline: Duration | None, plan: Plan) -> float:
    """The time for which a set waits before it is rejected, in seconds.

    Args:
        deadline: the deadline, or None for the largest that the queue allows.
        plan: the numbers of the sets.

    """
    return HOLD_SHARE * _queue_retention(plan) if deadline is None else deadline.to_seconds()


def _queue_retention(plan: Plan) -> float:
    return QUEUE_RETENTION_DAYS * DAY if math.isnan(plan.queue_retention) else plan.queue_retention
