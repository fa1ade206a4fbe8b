"""Creates the pipeline's bucket, and private buckets for its other files."""

from collections.abc import Iterator
from inspect import signature
from typing import Any, cast

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger.checks.nag_suppressions import ACCESS_LOGS, suppress
from cdk_intake_ledger.checks.plan import ABORT_MULTIPART_DAYS, NONCURRENT_EXPIRY_DAYS
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.reporting import refuse
from cdk_intake_ledger.checks.rules.bucket_rules import (
    BUCKET_PROPS_BESIDE_OPTION,
    BUCKET_PROPS_OF_EXISTING,
    BUCKET_PROPS_REFUSED,
)

EVENT_BRIDGE_ENABLED = "NotificationConfiguration.EventBridgeConfiguration.EventBridgeEnabled"
"""The path of the property in a bucket's resource."""
_OPTIONS_OF_PIPELINE = {
    "encryption": "encryption_key",
    "encryption_key": "encryption_key",
    "removal_policy": "removal_policy",
}
"""Properties that the pipeline's options set, also for its other resources."""


def intake_bucket(
    scope: Construct,
    id: str,
    *,
    props: s3.BucketProps | None,
    encryption_key: kms.IKey | None,
    removal_policy: RemovalPolicy,
) -> s3.Bucket:
    """Create a versioned, encrypted, private bucket that refuses requests without TLS.

    Overwritten versions stay readable for 30 days, longer than a message can wait in the queue and the dead-letter
    queue. S3 removes unfinished multipart uploads after seven days, which limits the age of an upload's date.
    CloudFormation does not delete a bucket with objects, so `DESTROY` keeps it without `auto_delete_objects`.

    Args:
        scope: the pipeline.
        id: the ID of the bucket.
        props: other properties. Their lifecycle rules come beside the two rules of this bucket.
        encryption_key: of the objects; S3's own when None.
        removal_policy: of the bucket.

    """
    given = _given(props)
    # CDK would switch EventBridge on by a Lambda function, which replaces the pipeline's notifications.
    event_bridge = given.pop("event_bridge_enabled", False)
    try:
        made = private_bucket(
            scope,
            id,
            encryption_key=encryption_key,
            lifecycle_rule=s3.LifecycleRule(
                abort_incomplete_multipart_upload_after=Duration.days(ABORT_MULTIPART_DAYS),
                noncurrent_version_expiration=Duration.days(NONCURRENT_EXPIRY_DAYS),
            ),
            removal_policy=removal_policy,
            **{"versioned": True} | given,
        )
    except RuntimeError as error:
        if not given:
            raise
        text = " ".join(str(error).split()).rstrip(".")
        refuse(scope.node.path, [BUCKET_PROPS_REFUSED.problem(error=text)])
        raise
    if event_bridge:
        resource = cast("s3.CfnBucket", made.node.default_child)
        resource.add_property_override(EVENT_BRIDGE_ENABLED, value=True)
    if "server_access_logs_bucket" not in given and "server_access_logs_prefix" not in given:
        suppress(made, ACCESS_LOGS)
    return made


def bucket_props_problems(props: s3.BucketProps | None, bucket: s3.IBucket | None) -> Iterator[Problem]:
    """Reasons why the pipeline's bucket cannot have these properties. The CDK finds others when it makes the bucket.

    Args:
        props: the option `bucket_props`.
        bucket: the option.

    """
    given = _given(props)
    if props is not None and bucket is not None:
        yield BUCKET_PROPS_OF_EXISTING.problem(bucket=bucket.node.path)
    for name, option in _OPTIONS_OF_PIPELINE.items():
        if name in given:
            yield BUCKET_PROPS_BESIDE_OPTION.problem(name=name, option=option)


def _given(props: s3.BucketProps | None) -> dict[str, Any]:
    """The properties that are set."""
    names = list(signature(s3.BucketProps.__init__).parameters)[1:] if props is not None else []
    return {name: value for name in names if (value := getattr(props, name)) is not None}


def private_bucket(
    scope: Construct,
    id: str,
    *,
    encryption_key: kms.IKey | None,
    lifecycle_rule: s3.LifecycleRule,
    removal_policy: RemovalPolicy,
    **given: Any,
) -> s3.Bucket:
    """Create an encrypted bucket without public access that refuses requests without TLS. `given` are properties that
    replace these, and more lifecycle rules.
    """
    lifecycle_rules = [lifecycle_rule, *given.pop("lifecycle_rules", ())]
    props: dict[str, Any] = {
        "enforce_ssl": True,
        "minimum_tls_version": 1.2,
        "block_public_access": s3.BlockPublicAccess.BLOCK_ALL,
        "object_ownership": s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        **(
            {
                "encryption": s3.BucketEncryption.KMS,
                "encryption_key": encryption_key,
                # One data key for many objects, instead of a call to KMS for each object.
                "bucket_key_enabled": True,
            }
            if encryption_key
            else {}
        ),
        "removal_policy": removal_policy,
    }
    made = s3.Bucket(scope, id, lifecycle_rules=lifecycle_rules, **props | given)
    resource = made.node.default_child
    if isinstance(resource, s3.CfnBucket) and resource.bucket_encryption is None:
        by_default = s3.CfnBucket.ServerSideEncryptionByDefaultProperty(sse_algorithm="AES256")
        rule = s3.CfnBucket.ServerSideEncryptionRuleProperty(server_side_encryption_by_default=by_default)
        resource.bucket_encryption = s3.CfnBucket.BucketEncryptionProperty(server_side_encryption_configuration=[rule])
    return made
