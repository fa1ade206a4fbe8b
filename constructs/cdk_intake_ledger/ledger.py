"""The table that decides what may be processed."""

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

ATTENTION_INDEX = "attention"
"""Holds failed and rejected rows alone: nothing else has the attribute that it is made of."""


class IntakeLedger(Construct):
    """A table on demand with time to live, point-in-time recovery and protection from deletion.

    Several pipelines may share one, within one stack or beyond; each has rows of its own.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        retention: Duration | None = None,
        encryption_key: kms.IKey | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        """Make the table.

        Args:
            scope: where it belongs.
            id: its name there.
            retention: for how long a settled row is remembered; 35 days when omitted. Failed and rejected rows stay
                until they are settled.
            encryption_key: encrypts the table; DynamoDB's own key when omitted.
            removal_policy: kept when omitted. `DESTROY` also switches the protection from deletion off.

        """
        super().__init__(scope, id)
        self._retention = retention or Duration.days(35)
        self._encryption_key = encryption_key
        self._table = dynamodb.Table(
            self,
            "Table",
            partition_key=dynamodb.Attribute(name="pk", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            time_to_live_attribute="expires_at",
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            deletion_protection=removal_policy != RemovalPolicy.DESTROY,
            encryption=dynamodb.TableEncryption.CUSTOMER_MANAGED
            if encryption_key
            else dynamodb.TableEncryption.DEFAULT,
            encryption_key=encryption_key,
            removal_policy=removal_policy,
        )
        self._table.add_global_secondary_index(
            index_name=ATTENTION_INDEX,
            partition_key=dynamodb.Attribute(name="attention", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="updated_at", type=dynamodb.AttributeType.NUMBER),
            projection_type=dynamodb.ProjectionType.ALL,
        )

    @property
    def table(self) -> dynamodb.ITable:
        """The table itself."""
        return self._table

    @property
    def retention(self) -> Duration:
        """For how long a settled row is remembered."""
        return self._retention

    @property
    def encryption_key(self) -> kms.IKey | None:
        """The table's key, if it has one of the team's."""
        return self._encryption_key

    def grant_read(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let `grantee` look rows up and list those that need attention, in this table and its index."""
        grant = iam.Grant.add_to_principal(
            grantee=grantee,
            actions=[
                "dynamodb:BatchGetItem",
                "dynamodb:DescribeTable",
                "dynamodb:GetItem",
                "dynamodb:Query",
                "dynamodb:Scan",
            ],
            resource_arns=[self._table.table_arn, f"{self._table.table_arn}/index/{ATTENTION_INDEX}"],
        )
        if self._encryption_key:
            grant = grant.combine(self._encryption_key.grant(grantee, "kms:Decrypt", "kms:DescribeKey"))
        return grant
