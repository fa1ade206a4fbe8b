"""A bucket of another account: what its owner must allow, since synthesis cannot change it."""

import json
from collections.abc import Iterable, Sequence

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger.checks.reporting import warn
from cdk_intake_ledger.checks.rules.bucket_rules import BUCKET_OF_OTHER_ACCOUNT, EVENTS_OF_OTHER_ACCOUNT
from cdk_intake_ledger.delivery.key_filters import KeyPattern, read_patterns
from cdk_intake_ledger.delivery.queue_access import statement_text
from cdk_intake_ledger.options.options import Delivery
from cdk_intake_ledger.resources.cloudformation import accounts_of

BUCKET_ACTIONS = [
    "s3:GetBucketNotification",
    "s3:GetBucketVersioning",
    "s3:GetLifecycleConfiguration",
    "s3:ListBucket",
    "s3:ListBucketVersions",
]
"""The actions of the consumer and the audit on the bucket."""
OBJECT_ACTIONS = ["s3:GetObject", "s3:GetObjectVersion"]
NOTIFY = "s3:PutBucketNotification"
"""CDK's custom resource writes the notification from the pipeline's account."""


def warn_of_other_account(
    scope: Construct,
    bucket: s3.IBucket,
    delivery: Delivery,
    filters: Sequence[KeyPattern],
    object_actions: Iterable[str],
) -> None:
    """Show the statements that an imported bucket of another account needs.

    S3 asks both accounts. It sends notifications to a queue of another account if the queue's policy names the bucket's
    account. Events for EventBridge go to the event bus of the bucket's account only
    (https://docs.aws.amazon.com/AmazonS3/latest/userguide/EventBridge.html).

    Args:
        scope: the pipeline, which gets the warnings.
        bucket: the bucket.
        delivery: how its events are delivered.
        filters: the pipeline's.
        object_actions: what options need besides reading.

    """
    if (accounts := accounts_of(bucket, scope)) is None:
        return
    ours = iam.AccountPrincipal(accounts["ours"])
    actions = [*BUCKET_ACTIONS, NOTIFY] if delivery is Delivery.S3 else BUCKET_ACTIONS
    objects = [bucket.arn_for_objects(pattern) for pattern in read_patterns(filters)]
    statements = (
        iam.PolicyStatement(principals=[ours], actions=actions, resources=[bucket.bucket_arn]),
        iam.PolicyStatement(principals=[ours], actions=sorted({*OBJECT_ACTIONS, *object_actions}), resources=objects),
    )
    text = f"[{', '.join(statement_text(scope, statement) for statement in statements)}]"
    warn(scope, BUCKET_OF_OTHER_ACCOUNT, bucket=bucket.node.path, statements=text, **accounts)
    if delivery is Delivery.EVENTBRIDGE:
        bus = Stack.of(scope).format_arn(service="events", resource="event-bus", resource_name="default")
        statement = iam.PolicyStatement(
            sid="EventsOfTheBucketOfAnotherAccount",
            principals=[iam.AccountPrincipal(accounts["theirs"])],
            actions=["events:PutEvents"],
            resources=[bus],
        )
        pattern = json.dumps({"source": ["aws.s3"], "detail": {"bucket": {"name": [_name(bucket)]}}})
        warn(
            scope,
            EVENTS_OF_OTHER_ACCOUNT,
            bucket=bucket.node.path,
            pattern=pattern,
            statement=statement_text(scope, statement),
            **accounts,
        )


def _name(bucket: s3.IBucket) -> str:
    return str(Stack.of(bucket).resolve(bucket.bucket_name))
