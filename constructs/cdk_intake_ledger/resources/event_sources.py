"""Finds other consumers of a queue."""

from collections.abc import Iterator

from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs

from cdk_intake_ledger.validation.queue_rules import QUEUE_HAS_OTHER_CONSUMER
from cdk_intake_ledger.validation.registry import Problem


def other_consumer_problems(queue: sqs.IQueue, own: lambda_.EventSourceMapping) -> Iterator[Problem]:
    """Find event source mappings of other functions of the app on a queue (F128).

    Args:
        queue: the queue.
        own: the mapping of the intake's own consumer.

    """
    own_mapping = f"{own.node.path}/Resource"
    for construct in own.node.root.node.find_all():
        if not isinstance(construct, lambda_.CfnEventSourceMapping) or construct.enabled is False:
            continue
        if construct.event_source_arn == queue.queue_arn and construct.node.path != own_mapping:
            yield QUEUE_HAS_OTHER_CONSUMER.problem(mapping=construct.node.path, path=queue.node.path)
