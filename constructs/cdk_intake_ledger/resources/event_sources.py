"""Finds other consumers of a queue."""

from collections.abc import Iterator

from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs

from cdk_intake_ledger.checks.final_template import FinalTemplates
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.rules.queue_rules import QUEUE_HAS_OTHER_CONSUMER


def other_consumer_problems(
    templates: FinalTemplates, queue: sqs.IQueue, own: lambda_.EventSourceMapping
) -> Iterator[Problem]:
    """Find event source mappings of other functions of the app on a queue (F128).

    Args:
        templates: of the app.
        queue: the queue.
        own: the mapping of the intake's own consumer.

    """
    own_mapping, arn = f"{own.node.path}/Resource", queue.queue_arn
    mappings = templates.constructs(lambda_.CfnEventSourceMapping)
    # Another environment cannot name the queue, so its ARN is compared as the token that it is.
    others = [one for one in mappings if one.event_source_arn == arn and one.node.path != own_mapping]
    for mapping, (found, _) in zip(others, templates.read((one, {}) for one in others), strict=True):
        if found.get("Enabled") is not False:
            yield QUEUE_HAS_OTHER_CONSUMER.problem(mapping=mapping.node.path, path=queue.node.path)
