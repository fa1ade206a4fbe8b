"""Makes a schedule of EventBridge Scheduler with its role."""

import json
from collections.abc import Mapping

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from cdk_intake_ledger.checks.final_template import expect
from cdk_intake_ledger.checks.nag_suppressions import INLINE_POLICIES, suppress


def schedule(
    scope: Construct,
    id: str,
    *,
    description: str,
    minutes: int,
    target: str,
    action: str,
    content: Mapping[str, object],
) -> scheduler.CfnSchedule:
    """Call the target with this content every `minutes`, without retries.

    The role allows this action on this target only, and only for this account.
    """
    role = iam.Role(
        scope,
        f"{id}Role",
        description=f"{description}: its schedule",
        assumed_by=iam.ServicePrincipal(
            "scheduler.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": Stack.of(scope).account}}
        ),
    )
    suppress(role, INLINE_POLICIES)
    role.add_to_policy(iam.PolicyStatement(actions=[action], resources=[target]))
    rate = f"rate({minutes} minute{'' if minutes == 1 else 's'})"
    made = scheduler.CfnSchedule(
        scope,
        id,
        description=description,
        schedule_expression=rate,
        flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
        target=scheduler.CfnSchedule.TargetProperty(
            arn=target,
            role_arn=role.role_arn,
            input=json.dumps(content),
            # A retry would run in parallel with the next call, which does the same work.
            retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(maximum_retry_attempts=0),
        ),
    )
    made.node.add_dependency(role)
    expect(scope, "schedule", made, {"ScheduleExpression": rate, "State": "ENABLED"})
    return made
