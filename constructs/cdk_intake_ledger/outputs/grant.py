"""Lets the processor write outputs below a prefix of a bucket."""

from aws_cdk import Resource
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger.checks.arguments.checking import check_arguments
from cdk_intake_ledger.checks.reporting import refuse, warn
from cdk_intake_ledger.checks.rules.output_rules import (
    OUTPUT_BUCKET_POLICY,
    OUTPUT_ELSEWHERE,
    OUTPUT_LIFECYCLE_UNKNOWN,
    REJECTS_AFTER_WORKERS,
    REJECTS_TWICE,
)
from cdk_intake_ledger.consumer_function import IntakeConsumer
from cdk_intake_ledger.delivery.bucket_validation import OUTPUT_SID
from cdk_intake_ledger.delivery.key_filters import KeyPattern, key_text_problems, warn_about_key_text
from cdk_intake_ledger.delivery.queue_access import statement_text
from cdk_intake_ledger.outputs.lifecycle import add_lifecycle_rules, lifecycle_text
from cdk_intake_ledger.outputs.places import HasPlaces
from cdk_intake_ledger.resources.cloudformation import accounts_of
from cdk_intake_ledger.resources.key_access import BUCKET_WRITE_KEY_ACTIONS, grant_key
from intake_ledger.protocol.settings import ConsumerSettings, variable_of

BUCKET_ACTIONS = ("s3:ListBucket",)
"""Without it, S3 answers 403 for an output that does not exist yet, as it does for a forbidden one."""
OBJECT_ACTIONS = ("s3:AbortMultipartUpload", "s3:GetObject", "s3:PutObject", "s3:PutObjectTagging")
"""HeadObject needs `s3:GetObject`. Each request of a multipart upload needs `s3:PutObject`. Tombstones have a tag."""
"""A multipart upload decrypts the parts that it has."""


@check_arguments
class OutputGrants(HasPlaces):
    """`grant_output` for one pipeline."""

    _consumer: IntakeConsumer

    def grant_output(self, bucket: s3.IBucket, prefix: str) -> iam.Grant:
        """Allow the processor to write outputs with `change.output(bucket, key)`, for keys that begin with a prefix.

        The consumer's role gets the permission, also for the bucket's encryption key. If the bucket is an `s3.Bucket`
        of the app, it gets lifecycle rules for this prefix, which remove tombstones of removed outputs and unfinished
        uploads after a day. For other buckets, a warning has the rules. Pass the bucket's name to the processor in
        `environment`.

        Synthesis refuses a prefix that overlaps, in the same bucket, a prefix of a pipeline's filters or of the outputs
        of another pipeline of the app, in any order of construction.

        Args:
            bucket: the bucket of the outputs, which may be the pipeline's own.
            prefix: the beginning of their keys, such as `grey/`; an empty text allows all keys of the bucket.

        Returns:
            the grant.

        Raises:
            IntakeConfigurationError: the processor is an existing function or state machine, which writes with its own
                role, or the prefix is a URI or has an asterisk.

        """
        return self._grant_output(bucket, prefix)

    def _grant_output(self, bucket: s3.IBucket, prefix: str, *, rejects: bool = False) -> iam.Grant:
        role, elsewhere = self._consumer.role, self._consumer.processor.elsewhere
        if elsewhere is not None:
            refuse(self.node.path, [OUTPUT_ELSEWHERE.problem(processor=elsewhere.place)])
        refuse(self.node.path, [*key_text_problems("the output prefix", prefix)])
        grant = iam.Grant.add_to_principal(
            grantee=role, actions=list(BUCKET_ACTIONS), resource_arns=[bucket.bucket_arn]
        )
        number = self._places.add(bucket, prefix, rejects=rejects)
        if not number:
            return grant
        warn_about_key_text(self, "the output prefix", prefix)
        objects = bucket.arn_for_objects(KeyPattern(prefix).iam_pattern())
        statement = iam.PolicyStatement(actions=list(OBJECT_ACTIONS), resources=[objects])
        # The name of a statement is unique in its policy. It explains the asterisk to a reader of the template.
        statement.sid = OUTPUT_SID if number == 1 else f"{OUTPUT_SID}{number}"
        role.add_to_policy(statement)
        if bucket.encryption_key is not None:
            grant = grant.combine(grant_key(bucket.encryption_key, role, *BUCKET_WRITE_KEY_ACTIONS))
        if isinstance(bucket, s3.Bucket) and Resource.is_owned_resource(bucket):
            add_lifecycle_rules(bucket, prefix)
        else:
            warn(self, OUTPUT_LIFECYCLE_UNKNOWN, bucket=bucket.node.path, rules=lifecycle_text(prefix))
        _warn_of_other_account(self, bucket, objects)
        return grant

    def keep_rejects(self, bucket: s3.IBucket, prefix: str) -> iam.Grant:
        """Keep the rows that `on_error` of `csv_rows` and `json_lines` rejects, as outputs below a prefix of a bucket.

        It has the permissions, the lifecycle rules and the checks of `grant_output`. The function gets the place in its
        environment, and so do `IntakeWorkers` that are made later.

        Args:
            bucket: the bucket of the rejected rows, which may be the pipeline's own.
            prefix: the beginning of their keys, such as `rejects/`. The key of the object, or of the set, follows it,
                and `.rejects.jsonl`.

        Returns:
            the grant.

        Raises:
            IntakeConfigurationError: As for `grant_output`. It was called before, the prefix overlaps one of
                `grant_output`, or `IntakeWorkers` were made before.

        """
        consumer, name = self._consumer, variable_of(ConsumerSettings, "rejects")
        if name in consumer.environment:
            refuse(self.node.path, [REJECTS_TWICE.problem(place=consumer.environment[name])])
        if consumer.has_workers:
            refuse(self.node.path, [REJECTS_AFTER_WORKERS.problem()])
        grant = self._grant_output(bucket, prefix, rejects=True)
        consumer.environment[name] = f"{bucket.bucket_name}/{prefix}"
        consumer.function.add_environment(name, consumer.environment[name])
        return grant


def _warn_of_other_account(scope: Construct, bucket: s3.IBucket, objects: str) -> None:
    """Show the statements of a bucket policy, which S3 also requires if the bucket is in another account."""
    if (accounts := accounts_of(bucket, scope)) is None:
        return
    principal = iam.AccountPrincipal(accounts["ours"])
    statements = (
        iam.PolicyStatement(principals=[principal], actions=list(actions), resources=[resource])
        for actions, resource in ((BUCKET_ACTIONS, bucket.bucket_arn), (OBJECT_ACTIONS, objects))
    )
    text = f"[{', '.join(statement_text(scope, statement) for statement in statements)}]"
    warn(scope, OUTPUT_BUCKET_POLICY, bucket=bucket.node.path, statements=text, **accounts)
