"""Connects the bucket of a pipeline to its queue."""

from constructs import Construct

from cdk_intake_ledger.checks.final_template import at_synthesis
from cdk_intake_ledger.checks.reporting import warn
from cdk_intake_ledger.checks.rules.bucket_rules import BUCKET_LIFECYCLE_UNKNOWN
from cdk_intake_ledger.checks.spans import span
from cdk_intake_ledger.consumer_function import IntakeConsumer
from cdk_intake_ledger.delivery.bucket_notifications import EVENTS, has_cdk_notifications
from cdk_intake_ledger.delivery.bucket_validation import BucketCheck
from cdk_intake_ledger.delivery.event_delivery import add_notifications
from cdk_intake_ledger.delivery.imported_buckets import register_import
from cdk_intake_ledger.delivery.key_filters import warn_about_filters
from cdk_intake_ledger.delivery.pipeline_resources import PipelineResources
from cdk_intake_ledger.functions.network_endpoints import OF_OBJECTS, warn_without_endpoints
from cdk_intake_ledger.options.options import Delivery


def connect_bucket(
    scope: Construct, resources: PipelineResources, consumer: IntakeConsumer, *, message_life: float
) -> None:
    """Deliver the bucket's events to the queue. At synthesis, check that the rest of the app does not prevent it.

    Args:
        scope: the pipeline.
        resources: the pipeline's bucket, queue, filters and delivery.
        consumer: the function behind the queue.
        message_life: the longest time from an event to the deletion of its message, in seconds.

    """
    warn_about_filters(scope, resources.filters, directory_markers=resources.directory_markers)
    warn_without_endpoints(scope, consumer.networking.network, (*OF_OBJECTS, *consumer.processor.services))
    if resources.bucket_resource is None and resources.delivery is Delivery.S3:
        register_import(resources.bucket, scope, resources.filters)
    events = EVENTS | {event: name for extra in resources.extras for event, name in extra.events.items()}
    add_notifications(scope, resources, events)
    if resources.bucket_resource is None:
        warn(scope, BUCKET_LIFECYCLE_UNKNOWN, bucket=resources.bucket.node.path, message_life=span(message_life))
    check = BucketCheck(
        scope=scope,
        resources=resources,
        had_notifications=has_cdk_notifications(resources.bucket),
        events=[*events.values()],
        message_life=message_life,
        role=consumer.role,
        source=consumer.source,
    )
    at_synthesis(scope, check.problems)
