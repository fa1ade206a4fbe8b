"""The members that pipelines and sets share, and permissions that a pipeline gives to others."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from aws_cdk import Resource
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger.checks.arguments.checking import check_arguments
from cdk_intake_ledger.checks.nag_suppressions import INLINE_POLICIES, READERS, suppress, suppress_wildcards
from cdk_intake_ledger.consumer_function import IntakeConsumer
from cdk_intake_ledger.delivery.bucket_notifications import in_stack_of
from cdk_intake_ledger.delivery.key_filters import KeyPattern, read_patterns
from cdk_intake_ledger.kinds.intake import Intake
from cdk_intake_ledger.outputs.grant import OutputGrants
from cdk_intake_ledger.resources.key_access import (
    BUCKET_READ_KEY_ACTIONS,
    BUCKET_WRITE_KEY_ACTIONS,
    grant_key,
    imported_alias,
)

if TYPE_CHECKING:
    from constructs import Construct


@check_arguments
class FileIntake(Intake, OutputGrants):
    """The base of `IntakePipeline` and `FileSets`: work whose content is in a bucket."""

    _bucket: s3.IBucket
    _consumer: IntakeConsumer

    @property
    def bucket(self) -> s3.IBucket:
        """The bucket where files arrive."""
        return self._bucket

    def grant_read_ledger(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow a principal to read rows, to list rows that need review, and to list the bucket's versions.

        Args:
            grantee: gets the reading actions on the table and its index, use of the table's key for them, and the
                listing of the bucket's versions: names, sizes and dates, but no content.

        Returns:
            the grant.

        """
        return super().grant_read_ledger(grantee).combine(self._grant_list(grantee, "s3:ListBucketVersions"))

    def grant_reprocess(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow a principal to request that objects or sets are processed again, by key or by prefix.

        Args:
            grantee: may send to the queue, use its key, and list the bucket. A request names a key only. The pipeline
                asks S3 for the object's state, so a request cannot invent one. It may also write records of operations
                into the ledger's table, and no rows, and lines into the consumer's log group.

        Returns:
            the grant.

        """
        listing = self._grant_list(grantee, "s3:ListBucket", "s3:ListBucketVersions")
        sending = self._with_queue_key(grantee, self._grant_requests(grantee))
        return sending.combine(listing).combine(self._grant_record(grantee))

    def grant_operate(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow a principal to read the ledger, redrive, reprocess, dismiss, and retry at once.

        Args:
            grantee: gets `grant_read_ledger`, `grant_redrive` and `grant_reprocess`. It may also update items of the
                bucket's objects and the marks of the circuit breaker and of a pause in the ledger's table, and send to
                the dead-letter queue. It can change rows: give it to people whom you trust with the ledger.

        Returns:
            the grant.

        """
        grant = super().grant_operate(grantee).combine(self.grant_reprocess(grantee))
        return grant.combine(self._queue.dead_letter_queue.grant(grantee, "sqs:SendMessage"))

    def _place_of_rows(self) -> str:
        return self._bucket.bucket_name

    def _grant_list(self, grantee: iam.IGrantable, *actions: str) -> iam.Grant:
        return iam.Grant.add_to_principal(
            grantee=grantee, actions=list(actions), resource_arns=[self._bucket.bucket_arn]
        )


@check_arguments
class PipelineGrants(FileIntake):
    """`grant_*` for one pipeline."""

    _filters: Sequence[KeyPattern]

    def grant_read(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow a principal to read the objects below the prefixes of the pipeline's filters, in all versions.

        The permission of a role of another stack, such as a function's, is a policy in the pipeline's stack. The grants
        of the bucket would change the role's stack, and both stacks would depend on each other if the pipeline uses
        that stack too, as with `Processor.from_function`.

        Args:
            grantee: a role, a function, or another grantee. A principal of another account also needs this permission
                in its own account, and permission for the bucket's key if it has one.

        Returns:
            the grant.

        """
        reader, new = self._in_own_stack(grantee)
        objects = [self._bucket.arn_for_objects(pattern) for pattern in read_patterns(self._filters)]
        grant = iam.Grant.add_to_principal_or_resource(
            grantee=reader,
            actions=["s3:GetObject", "s3:GetObjectVersion"],
            resource=self._bucket,
            resource_arns=objects,
        )
        # Without it, S3 answers 403 for a removed object, as for a forbidden one.
        listing = iam.Grant.add_to_principal_or_resource(
            grantee=reader,
            actions=["s3:ListBucket"],
            resource=self._bucket,
            resource_arns=[self._bucket.bucket_arn],
        )
        grant = grant.combine(listing)
        if self._bucket.encryption_key is not None:
            grant = grant.combine(grant_key(self._bucket.encryption_key, reader, *BUCKET_READ_KEY_ACTIONS))
        if new is not None:
            policy = cast("iam.Policy", new.node.find_child("Policy"))
            suppress_wildcards(policy, READERS)
            suppress(policy, INLINE_POLICIES)
        return grant

    def _in_own_stack(self, grantee: iam.IGrantable) -> tuple[iam.IGrantable, iam.IRole | None]:
        """A role of another stack of the app, whose policy is in the pipeline's stack. Other grantees as they are.

        Returns:
            the grantee, and the same if this call has made it.

        """
        role, pipeline = grantee.grant_principal, cast("Construct", self)
        if not isinstance(role, iam.Role) or not Resource.is_owned_resource(role) or in_stack_of(role, pipeline):
            return grantee, None
        name = f"Reader{role.node.addr}"
        if (known := pipeline.node.try_find_child(name)) is not None:
            return cast("iam.IRole", known), None
        reader = iam.Role.from_role_name(pipeline, name, role.role_name)
        return reader, reader

    def grant_put(self, grantee: iam.IGrantable) -> iam.Grant:
        """Allow a principal to upload objects whose keys pass the pipeline's filters.

        Args:
            grantee: a role, a user, or another grantee. A principal of another account also needs this permission in
                its own account, and permission for the bucket's key if it has one.

        Returns:
            the grant.

        """
        first, *rest = (self._bucket.grant_put(grantee, item.iam_pattern()) for item in self._filters)
        for grant in rest:
            first = first.combine(grant)
        key = self._bucket.encryption_key
        if key is not None and imported_alias(key) is not None:
            # CDK's own grant may lack the key of an imported alias.
            first = first.combine(grant_key(key, grantee, *BUCKET_WRITE_KEY_ACTIONS))
        return first
