"""Lets AWS services send messages to the queues of a pipeline."""

import json
from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from cdk_intake_ledger.resources.queue import IntakeQueue
from cdk_intake_ledger.validation.bucket_rules import KEY_POLICY_UNKNOWN, QUEUE_POLICY_UNKNOWN
from cdk_intake_ledger.validation.registry import Rule
from cdk_intake_ledger.validation.reporting import warn


def allow_service(
    scope: Construct,
    queue: IntakeQueue,
    service: str,
    conditions: dict[str, dict[str, str]],
    *,
    key_conditions: dict[str, dict[str, str]],
    dead_letters: bool = False,
) -> None:
    """Let an AWS service send to the queue, and use the queue's key.

    CDK cannot extend the policy of an imported queue or key. A warning then shows the statement that it needs.

    Args:
        scope: the pipeline, which gets the warnings.
        queue: the pipeline's.
        service: the service principal, such as `s3.amazonaws.com`.
        conditions: conditions of the queue's statement, as IAM writes them.
        key_conditions: conditions of the key's statement.
        dead_letters: whether the service also sends to the dead-letter queue; it does not when omitted.

    """
    principal = iam.ServicePrincipal(service)
    for target in (queue.queue, queue.dead_letter_queue) if dead_letters else (queue.queue,):
        statement = iam.PolicyStatement(
            actions=["sqs:SendMessage"], principals=[principal], resources=[target.queue_arn], conditions=conditions
        )
        _add(scope, target, statement, QUEUE_POLICY_UNKNOWN)
    if queue.encryption_key is not None:
        statement = iam.PolicyStatement(
            actions=["kms:Decrypt", "kms:GenerateDataKey"],
            principals=[principal],
            resources=["*"],
            conditions=key_conditions,
        )
        _add(scope, queue.encryption_key, statement, KEY_POLICY_UNKNOWN)


def _add(scope: Construct, resource: Any, statement: iam.PolicyStatement, imported: Rule) -> None:
    """Add a statement to the policy of a queue or key, or warn if it is imported."""
    if not resource.add_to_resource_policy(statement).statement_added:
        text = json.dumps(Stack.of(scope).resolve(statement.to_statement_json()))
        warn(scope, imported, path=resource.node.path, statement=text)
