"""Checks all options of a pipeline before it makes a resource."""

from collections.abc import Sequence

from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger.audit import report_problems
from cdk_intake_ledger.delivery import KeyFilter, bucket_problems, delivery_mode_problems, filter_problems
from cdk_intake_ledger.functions import Processor
from cdk_intake_ledger.options import AuditOptions, Delivery
from cdk_intake_ledger.resources import IntakeLedger, IntakeQueue, pipeline_name_problems
from cdk_intake_ledger.validation.number_rules import unknown_numbers
from cdk_intake_ledger.validation.plan import Plan
from cdk_intake_ledger.validation.plan_validation import plan_problems
from cdk_intake_ledger.validation.registry import Problem


def option_problems(
    scope: Construct,
    plan: Plan,
    *,
    processor: Processor,
    pipeline_name: str | None,
    bucket: s3.IBucket | None,
    filters: Sequence[KeyFilter],
    delivery: Delivery | None,
    queue: IntakeQueue | None,
    ledger: IntakeLedger | None,
    audit: AuditOptions,
) -> list[Problem]:
    """Reasons why these options of a pipeline cannot work. `plan` has their numbers."""
    table = ledger.table if ledger else None
    return [
        *(pipeline_name_problems(scope, pipeline_name, table) if pipeline_name is not None else ()),
        *processor.problems,
        *unknown_numbers(plan),
        *plan_problems(plan),
        *filter_problems(filters),
        *(bucket_problems(bucket, scope, filters, delivery) if bucket else ()),
        *delivery_mode_problems(delivery, existing=bucket is not None and queue is not None and queue.is_existing),
        *(queue.problems(plan.max_attempts) if queue else ()),
        *(ledger.problems() if ledger else ()),
        *report_problems(audit, bucket, filters),
        *audit.scale.problems(),
    ]
