"""The table that decides what may be processed."""

from collections.abc import Iterator
from typing import Any

from aws_cdk import Duration, RemovalPolicy, Resource
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger.resources.cloudformation import properties_of
from cdk_intake_ledger.resources.fixed_names import FixedIds, ledger_name_problems
from cdk_intake_ledger.validation.ledger_rules import (
    KEY_OF_EXISTING_TABLE,
    TABLE_INDEX,
    TABLE_KEYS,
    TABLE_TIME_TO_LIVE,
    TABLE_UNKNOWN,
)
from cdk_intake_ledger.validation.plan import LEDGER_RETENTION_DAYS
from cdk_intake_ledger.validation.registry import Problem
from cdk_intake_ledger.validation.reporting import warn

DEFAULT_RETENTION = Duration.days(LEDGER_RETENTION_DAYS)
PARTITION_KEY, SORT_KEY, EXPIRY = "pk", "sk", "expires_at"
REVIEW_INDEX = "needs_review"
"""Holds failed and rejected rows alone: nothing else has the attribute that it is made of."""
REVIEW_TIME = "updated_at"


class IntakeLedger(Construct):
    """A table on demand with time to live, point-in-time recovery and protection from deletion.

    Several pipelines may share one, within one stack or beyond; each has rows of its own.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        ledger_name: str | None = None,
        table: dynamodb.ITable | None = None,
        retention: Duration | None = DEFAULT_RETENTION,
        encryption_key: kms.IKey | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        """Make the table.

        Args:
            scope: the stack, or a construct in it, that it belongs to.
            id: its name there. Without a `ledger_name`, another id or another place replaces the table by a new and
                empty one.
            ledger_name: fixes the table's logical id, so that the construct may be renamed and moved within its stack:
                1 to 64 letters, digits, `-` and `_`, a letter first. The logical id follows from `id` and place when
                omitted.
            table: one of the team's, which holds nothing else; its keys are texts, `pk` and `sk`, its time to live
                is `expires_at`, and its index `needs_review` has all attributes and the keys `needs_review` (a text)
                and `updated_at` (a number). When omitted, one is made.
            retention: for how long a settled row is remembered, in whole seconds; 35 days when omitted, which covers a
                message's longest way through the queue, the dead-letter queue and back. With `None`, the row of an
                object lives as long as the object, and only the rows of removed objects expire, after 35 days or as
                long as queue and audit need. A pipeline with `deletes` keeps the rows of objects in any case. Failed
                and rejected rows stay until they are settled. A pipeline refuses less than its own queue and audit
                need. docs/cost.md says what kept rows cost.
            encryption_key: encrypts the table that is made; DynamoDB's own key when omitted. Of a `table` that is
                brought it is refused, with everything else, by the pipeline.
            removal_policy: of the table that is made; kept when omitted. `DESTROY` also switches the protection from
                deletion off.

        """
        super().__init__(scope, id)
        self._pipelines: list[tuple[str, str, lambda_.Function]] = []
        self._retention = retention
        self._is_existing = table is not None
        self._key_beside_table = table is not None and encryption_key is not None
        self._name_problems = list(ledger_name_problems(self, ledger_name)) if ledger_name is not None else []
        if table is not None:
            self._table = table
            self._encryption_key = table.encryption_key
            if _resource_of(table) is None:
                warn(
                    self,
                    TABLE_UNKNOWN,
                    path=table.node.path,
                    partition_key=PARTITION_KEY,
                    sort_key=SORT_KEY,
                    attribute=EXPIRY,
                    index=REVIEW_INDEX,
                    time=REVIEW_TIME,
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
            index_name=REVIEW_INDEX,
            partition_key=dynamodb.Attribute(name=REVIEW_INDEX, type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name=REVIEW_TIME, type=dynamodb.AttributeType.NUMBER),
            projection_type=dynamodb.ProjectionType.ALL,
        )
        self._table = made
        if ledger_name is not None and not self._name_problems:
            FixedIds(ledger_name).fix(self, "IntakeLedger")

    @property
    def table(self) -> dynamodb.ITable:
        """The table itself."""
        return self._table

    @property
    def retention(self) -> Duration | None:
        """For how long a settled row is remembered; `None` when the row of an object lives as long as the object."""
        return self._retention

    @property
    def encryption_key(self) -> kms.IKey | None:
        """The table's key, if it has one of the team's."""
        return self._encryption_key

    def share(self, name: str, bucket: s3.IBucket, audit: lambda_.Function) -> None:
        """Tell the audits of pipelines with the same bucket of each other; a pipeline calls this itself.

        Args:
            name: the pipeline's.
            bucket: where its files arrive.
            audit: its audit's function, which would take rows under another name for those of a former name.

        """
        self._pipelines.append((name, bucket.node.path, audit))
        together = [(name_, function) for name_, path, function in self._pipelines if path == bucket.node.path]
        for own, function in together if len(together) > 1 else ():
            others = sorted(other for other, _ in together if other != own)
            function.add_environment("INTAKE_OTHER_PIPELINES", ",".join(others))

    def problems(self) -> Iterator[Problem]:
        """What keeps this from being a ledger; the pipeline reports it with everything else."""
        yield from self._name_problems
        if self._key_beside_table:
            yield KEY_OF_EXISTING_TABLE.problem()
        resource = _resource_of(self._table) if self._is_existing else None
        if resource is None:
            return
        found, path = properties_of(resource), self._table.node.path
        types = {one["attributeName"]: one["attributeType"] for one in found.get("attributeDefinitions", ())}
        if _keys(found, types) != [(PARTITION_KEY, "S"), (SORT_KEY, "S")]:
            yield TABLE_KEYS.problem(path=path, partition_key=PARTITION_KEY, sort_key=SORT_KEY)
        expiry = found.get("timeToLiveSpecification", {})
        if (expiry.get("attributeName"), expiry.get("enabled")) != (EXPIRY, True):
            yield TABLE_TIME_TO_LIVE.problem(path=path, attribute=EXPIRY)
        indexes = {one["indexName"]: one for one in found.get("globalSecondaryIndexes", ())}
        index = indexes.get(REVIEW_INDEX, {})
        whole = index.get("projection", {}).get("projectionType") == "ALL"
        if not whole or _keys(index, types) != [(REVIEW_INDEX, "S"), (REVIEW_TIME, "N")]:
            yield TABLE_INDEX.problem(path=path, index=REVIEW_INDEX, time=REVIEW_TIME)

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
            resource_arns=[self._table.table_arn, f"{self._table.table_arn}/index/{REVIEW_INDEX}"],
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
