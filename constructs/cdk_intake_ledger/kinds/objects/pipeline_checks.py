"""Checks all options of a pipeline before it makes a resource."""

import math
from collections.abc import Iterator, Sequence

from aws_cdk import Stack, Token
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger.checks.plan import Plan
from cdk_intake_ledger.checks.plan_check import Check
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.rules import durable_rules, execution_rules, max_rate, number_rules, set_rules, time_rules
from cdk_intake_ledger.checks.rules.bucket_rules import EXISTING_DELIVERY_NEEDS_BOTH
from cdk_intake_ledger.checks.rules.content_rules import SAME_CONTENT_EACH_VERSION, SAME_CONTENT_EXECUTIONS
from cdk_intake_ledger.checks.rules.execution_rules import STOP_OVERTAKEN
from cdk_intake_ledger.checks.rules.key_network_rules import KEY_IN_SAME_REGION
from cdk_intake_ledger.checks.rules.number_rules import unknown_numbers
from cdk_intake_ledger.checks.rules.processor_rules import MANAGED_NETWORK
from cdk_intake_ledger.checks.rules.tag_rules import READY_NO_EXECUTIONS, READY_SAME_TAG
from cdk_intake_ledger.delivery.bucket_notifications import overlap_problems, owned_resource, resource_notifications
from cdk_intake_ledger.delivery.delivery_problems import bucket_problems
from cdk_intake_ledger.delivery.key_filters import KeyPattern, filter_problems
from cdk_intake_ledger.functions.processor import Processor
from cdk_intake_ledger.ledger_table import IntakeLedger
from cdk_intake_ledger.options.after_commit import Tag
from cdk_intake_ledger.options.extra import Extra
from cdk_intake_ledger.options.options import AuditOptions, ConcurrencyOptions, Delivery, NetworkOptions, Ordering
from cdk_intake_ledger.options.ready_when import ReadyTag
from cdk_intake_ledger.queue import IntakeQueue
from cdk_intake_ledger.resources.fixed_names import pipeline_name_problems

CHECKS = (
    *(*number_rules.CHECKS, *max_rate.CHECKS, *time_rules.CHECKS, *execution_rules.CHECKS),
    *(*durable_rules.CHECKS, *set_rules.CHECKS),
)
"""Every check of a plan, in the order of the messages."""


def plan_problems(plan: Plan, checks: Sequence[Check] = CHECKS) -> Iterator[Problem]:
    """Compare the numbers of a plan.

    Args:
        plan: the numbers.
        checks: those of pipelines and sets when omitted.

    Yields:
        A problem for each broken rule, in the order of the checks.

    """
    for check in checks:
        known = not any(math.isnan(getattr(plan, name)) for name in check.needs)
        if known and check.broken(plan):
            yield check.problem(plan)


def option_problems(
    scope: Construct,
    processor: Processor,
    plan: Plan,
    *,
    filters: Sequence[KeyPattern],
    concurrency: ConcurrencyOptions,
    audit: AuditOptions,
    network: NetworkOptions | None,
    encryption_key: kms.IKey | None = None,
) -> list[Problem]:
    """Reasons why the processor, the numbers of `plan`, the filters, the groups, the audit or the key cannot work."""
    return [
        *processor_problems(scope, processor),
        *([MANAGED_NETWORK.problem()] if processor.capacity_provider is not None and network else ()),
        *unknown_numbers(plan),
        *plan_problems(plan),
        *filter_problems(filters),
        *concurrency.group_problems(
            filters, max_per_call=processor.max_per_call, commit_together=concurrency.commit_together
        ),
        *audit.problems(),
        *(key_problems(scope, encryption_key) if encryption_key else ()),
    ]


def extra_problems(
    extras: Sequence[Extra], bucket: s3.IBucket | None, *, deletes: bool, plan: Plan
) -> Iterator[Problem]:
    """Reasons why these options cannot work."""
    resource = owned_resource(bucket) if bucket else None
    for extra in extras:
        yield from extra.problems(bucket, deletes=deletes, plan=plan)
        if extra.needs_versions and bucket and resource and resource.versioning_configuration is None:
            yield extra.needs_versions.problem(bucket=bucket.node.path)


def ready_problems(
    tag: ReadyTag | None,
    after_commit: Tag | None,
    bucket: s3.IBucket | None,
    processor: Processor,
    *,
    filters: Sequence[KeyPattern],
    delivery: Delivery | None,
) -> Iterator[Problem]:
    """Reasons why nothing can wait for this tag here, or why S3 would refuse to send its events."""
    if tag is None:
        return
    if processor.executions is not None:
        yield READY_NO_EXECUTIONS.problem()
    if after_commit is not None and after_commit.key == tag.key:
        yield READY_SAME_TAG.problem(key=tag.key)
    if delivery in (None, Delivery.S3):
        notifications = resource_notifications(owned_resource(bucket) if bucket else None)
        yield from overlap_problems(notifications, filters, tag.events.values())


def copy_problems(processor: Processor, ordering: Ordering) -> Iterator[Problem]:
    """Reasons why each version is processed here, also with `same_content`."""
    if processor.executions is not None:
        yield SAME_CONTENT_EXECUTIONS.problem()
    if ordering is Ordering.EVERY_VERSION:
        yield SAME_CONTENT_EACH_VERSION.problem()


def processor_problems(scope: Construct, processor: Processor) -> Iterator[Problem]:
    """Reasons why a processor cannot work, for each kind of work. `scope` is the construct that has it."""
    yield from processor.problems
    if processor.executions is not None:
        yield from processor.executions.problems(scope)


def stop_problems(scope: Construct, processor: Processor, place: str) -> Iterator[Problem]:
    """The reason why no execution can be overtaken here. `place` is in its text."""
    if processor.executions is not None and processor.executions.stop_overtaken:
        yield STOP_OVERTAKEN.problem(path=scope.node.path, place=place)


def key_problems(scope: Construct, key: kms.IKey) -> Iterator[Problem]:
    """Check that a key is in the pipeline's region."""
    theirs, ours = str(key.env.region), str(Stack.of(scope).region)
    if theirs != ours and not Token.is_unresolved(theirs) and not Token.is_unresolved(ours):
        yield KEY_IN_SAME_REGION.problem(theirs=theirs, ours=ours)


def resource_problems(
    scope: Construct,
    *,
    name: str | None,
    bucket: s3.IBucket | None,
    queue: IntakeQueue | None,
    ledger: IntakeLedger | None,
    delivery: Delivery | None,
    filters: Sequence[KeyPattern],
) -> list[Problem]:
    """Reasons why a pipeline cannot have this name, or work with these existing resources."""
    table = ledger.table if ledger else None
    existing = bucket is not None and queue is not None and queue.is_existing
    return [
        *(pipeline_name_problems(scope, name, table) if name is not None else ()),
        *(bucket_problems(bucket, scope, filters, delivery) if bucket else ()),
        *([EXISTING_DELIVERY_NEEDS_BOTH.problem()] if delivery is Delivery.EXISTING and not existing else ()),
        *(queue.problems() if queue else ()),
        *(ledger.problems() if ledger else ()),
    ]
