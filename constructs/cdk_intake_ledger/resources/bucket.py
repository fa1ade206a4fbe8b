"""Makes the pipeline's bucket, and private buckets for other files of a pipeline."""

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger.validation.nag_suppressions import ACCESS_LOGS, suppress
from cdk_intake_ledger.validation.plan import ABORT_MULTIPART_DAYS, NONCURRENT_EXPIRY_DAYS


def intake_bucket(
    scope: Construct, id: str, *, encryption_key: kms.IKey | None, removal_policy: RemovalPolicy
) -> s3.Bucket:
    """A versioned, encrypted, private bucket that takes nothing but TLS.

    Overwritten versions stay readable for 30 days, longer than a message can travel through queue and dead-letter
    queue. Unfinished multipart uploads are removed after seven days, which is what bounds the age of a finished one's
    date. A bucket that is not empty is kept whatever the removal policy says: CloudFormation does not delete it.
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
    """An encrypted bucket without public access that refuses requests without TLS."""
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
        # One data key for many objects, in place of one call to KMS for each.
        bucket_key_enabled=True if encryption_key else None,
        lifecycle_rules=[lifecycle_rule],
        removal_policy=removal_policy,
    )
