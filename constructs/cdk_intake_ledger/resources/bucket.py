"""Creates the pipeline's bucket, and private buckets for its other files."""

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger.validation.nag_suppressions import ACCESS_LOGS, suppress
from cdk_intake_ledger.validation.plan import ABORT_MULTIPART_DAYS, NONCURRENT_EXPIRY_DAYS


def intake_bucket(
    scope: Construct, id: str, *, encryption_key: kms.IKey | None, removal_policy: RemovalPolicy
) -> s3.Bucket:
    """Create a versioned, encrypted, private bucket that refuses requests without TLS.

    Overwritten versions stay readable for 30 days, longer than a message can wait in the queue and the dead-letter
    queue. S3 removes unfinished multipart uploads after seven days, which limits the age of an upload's date.
    CloudFormation does not delete a bucket with objects, so `DESTROY` keeps it.
    """
    made = private_bucket(
        scope,
        id,
        versioned=True,
        encryption_key=encryption_key,
        lifecycle_rule=s3.LifecycleRule(
            abort_incomplete_multipart_upload_after=Duration.days(ABORT_MULTIPART_DAYS),
            noncurrent_version_expiration=Duration.days(NONCURRENT_EXPIRY_DAYS),
        ),
        removal_policy=removal_policy,
    )
    suppress(made, ACCESS_LOGS)
    return made


def private_bucket(
    scope: Construct,
    id: str,
    *,
    versioned: bool | None = None,
    encryption_key: kms.IKey | None,
    lifecycle_rule: s3.LifecycleRule,
    removal_policy: RemovalPolicy,
) -> s3.Bucket:
    """Create an encrypted bucket without public access that refuses requests without TLS."""
    return s3.Bucket(
        scope,
        id,
        versioned=versioned,
        enforce_ssl=True,
        minimum_tls_version=1.2,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        encryption=s3.BucketEncryption.KMS if encryption_key else s3.BucketEncryption.S3_MANAGED,
        encryption_key=encryption_key,
        # One data key for many objects, instead of a call to KMS for each object.
        bucket_key_enabled=True if encryption_key else None,
        lifecycle_rules=[lifecycle_rule],
        removal_policy=removal_policy,
    )
