"""The lists of the parts of sets, for a processor in another Lambda function or in a state machine.

The list of a set with many parts is longer than the input of an execution, so the request names an object with it. This
object is in a bucket for such lists only. A prefix of the pipeline's bucket would not do: a pipeline without filters
would process each list as an upload, and with filters, each new filter could begin to.
"""

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger.bucket import private_bucket
from cdk_intake_ledger.checks.nag_suppressions import FILE_ACCESS_LOGS, FILE_COPIES, suppress

PREFIX = "parts/"
KEPT_DAYS = 30
"""SQS keeps a message for at most 14 days, and then a dead letter for as long. No attempt that names a list comes
later. Each attempt on a set that has not changed stores the list again."""


def part_lists(
    scope: Construct, id: str, *, encryption_key: kms.IKey | None, removal_policy: RemovalPolicy
) -> s3.Bucket:
    """Make the bucket. It has no versions: the list of a version of a set has one content."""
    made = private_bucket(
        scope,
        id,
        encryption_key=encryption_key,
        lifecycle_rule=s3.LifecycleRule(expiration=Duration.days(KEPT_DAYS)),
        removal_policy=removal_policy,
    )
    suppress(made, FILE_ACCESS_LOGS, FILE_COPIES)
    return made


def place_of(bucket: s3.IBucket) -> str:
    """The place of the lists, as the runtime reads it."""
    return f"{bucket.bucket_name}/{PREFIX}"


def allow_storing(role: iam.Role, bucket: s3.IBucket) -> None:
    """Let the consumer of the sets store lists. It has the queue's key already, which is that of the bucket."""
    objects = bucket.arn_for_objects(f"{PREFIX}*")
    role.add_to_policy(
        iam.PolicyStatement(sid="ListsOfPartsByVersionOfTheSet", actions=["s3:PutObject"], resources=[objects])
    )
