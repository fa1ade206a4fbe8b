"""The table that decides what may be processed."""

from collections.abc import Iterator
from typing import Any

from aws_cdk import Annotations, Duration, RemovalPolicy, Resource
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from cdk_intake_ledger.resources import properties_of
from cdk_intake_ledger.rules import LEDGER_RETENTION_DAYS
from cdk_intake_ledger.topics import TOPIC

PARTITION_KEY, SORT_KEY, EXPIRY = "pk", "sk", "expires_at"
ATTENTION_INDEX = "attention"
"""Holds failed and rejected rows alone: nothing else has the attribute that it is made of."""
ATTENTION_TIME = "updated_at"


class IntakeLedger(Construct):
    """A table on demand with time to live, point-in-time recovery and protection from deletion.

    Several pipelines may share one, within one stack or beyond; each has rows of its own.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        table: dynamodb.ITable | None = None,
        retention: Duration | None = None,
        encryption_key: kms.IKey | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        """Make the table.

        Args:
            scope: the stack, or a construct in it, that it belongs to.
            id: its name there; changing it replaces the table by a new and empty one.
            table: one of the team's, which holds nothing else; its keys are texts, `pk` and `sk`, its time to live
                is `expires_at`, and its index `attention` has all attributes and the keys `attention` (a text) and
                `updated_at` (a number). When omitted, one is made.
            retention: for how long a settled row is remembered, in whole seconds; 35 days when omitted, which covers a
                message's longest way through the queue, the dead-letter queue and back. Failed and rejected rows stay
                until they are settled. A pipeline refuses less than its own queue and audit need.
            encryption_key: encrypts the table that is made; DynamoDB's own key when omitted. Of a `table` that is
                brought it is refused, with everything else, by the pipeline.
            removal_policy: of the table that is made; kept when omitted. `DESTROY` also switches the protection from
                deletion off.

        """
        super().__init__(scope, id)
        self._retention = retention or Duration.days(LEDGER_RETENTION_DAYS)
        self._brought = table is not None
        self._key_beside_table = table is not None and encryption_key is not None
        if table is not None:
            self._table = table
            self._encryption_key = table.encryption_key
            if _resource_of(table) is None:
                Annotations.of(self).add_warning_v2(
                    f"{TOPIC}:tableUnknown",
                    f"keys, time to live and index of {table.node.path} cannot be seen at synthesis: it needs the keys "
                    f"{PARTITION_KEY} and {SORT_KEY} (texts), time to live by {EXPIRY}, and the index "
                    f"{ATTENTION_INDEX} by {ATTENTION_INDEX} (a text) and {ATTENTION_TIME} (a number)",
                )
            return
        self._encryption_key = encryption_key
        made = dynamodb.Table(
            self,
            "Table",
            partition_key=dynamodb.Attribute(name=PARTITION_KEY, type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name=SORT_KEY, type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            time_to_live_attribute=EXPIRY,
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
        made.add_global_secondary_index(
            index_name=ATTENTION_INDEX,
            partition_key=dynamodb.Attribute(name=ATTENTION_INDEX, type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name=ATTENTION_TIME, type=dynamodb.AttributeType.NUMBER),
            projection_type=dynamodb.ProjectionType.ALL,
        )
        self._table = made

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

    def problems(self) -> Iterator[str]:
        """What keeps a table of the team's own from being a ledger; the pipeline reports it with everything else."""
        if self._key_beside_table:
            yield "encryption_key belongs to the table that was brought: set it there, and leave it out here"
        resource = _resource_of(self._table) if self._brought else None
        if resource is None:
            return
        found, path = properties_of(resource), self._table.node.path
        types = {one["attributeName"]: one["attributeType"] for one in found.get("attributeDefinitions", ())}
        if _keys(found, types) != [(PARTITION_KEY, "S"), (SORT_KEY, "S")]:
            yield f"{path} has other keys than {PARTITION_KEY} and {SORT_KEY}, both texts: rows are found by those"
        expiry = found.get("timeToLiveSpecification", {})
        if (expiry.get("attributeName"), expiry.get("enabled")) != (EXPIRY, True):
            yield f"{path} has no time to live by {EXPIRY}: settled rows would stay for ever, set it to that"
        indexes = {one["indexName"]: one for one in found.get("globalSecondaryIndexes", ())}
        index = indexes.get(ATTENTION_INDEX, {})
        whole = index.get("projection", {}).get("projectionType") == "ALL"
        if not whole or _keys(index, types) != [(ATTENTION_INDEX, "S"), (ATTENTION_TIME, "N")]:
            yield (
                f"{path} has no index {ATTENTION_INDEX} with all attributes, by {ATTENTION_INDEX} (a text) and "
                f"{ATTENTION_TIME} (a number): failed and rejected rows are listed by it, add it"
            )

    def grant_read(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal look rows up and list those that need attention: of all pipelines that share the table.

        Args:
            grantee: gets reading actions on the table and its index, and the use of the table's key for it.

        """
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


def _resource_of(table: dynamodb.ITable) -> dynamodb.CfnTable | None:
    """The resource behind a table of this app; `None` for an imported one."""
    resource = table.node.default_child
    return resource if isinstance(resource, dynamodb.CfnTable) and Resource.is_owned_resource(table) else None


def _keys(holder: dict[str, Any], types: dict[str, str]) -> list[tuple[str, str]]:
    """Name and type of a table's or an index's keys, the partition key first."""
    keys = sorted(holder.get("keySchema", ()), key=lambda one: str(one["keyType"]))
    return [(one["attributeName"], types.get(one["attributeName"], "")) for one in keys]
