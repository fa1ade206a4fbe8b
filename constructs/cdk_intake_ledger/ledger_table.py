"""The DynamoDB table of the ledger."""

from collections.abc import Iterator, Sequence
from typing import Any

from aws_cdk import Duration, RemovalPolicy, Resource
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger.checks.arguments.checking import check_arguments
from cdk_intake_ledger.checks.final_template import expect
from cdk_intake_ledger.checks.plan import LEDGER_RETENTION_DAYS
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.reporting import warn
from cdk_intake_ledger.checks.rules.final_rules import KEPT, NONE, ON_DEMAND_WRITES
from cdk_intake_ledger.checks.rules.ledger_rules import (
    KEY_OF_EXISTING_TABLE,
    OUTCOME_NO_STREAM,
    OUTCOME_SECOND_READER,
    OUTCOME_STREAM_VIEW,
    TABLE_UNKNOWN,
)
from cdk_intake_ledger.resources.cloudformation import properties_of
from cdk_intake_ledger.resources.fixed_names import FixedIds, ledger_name_problems
from cdk_intake_ledger.resources.key_access import TABLE_KEY_ACTIONS, TABLE_READ_KEY_ACTIONS, grant_key
from intake_ledger.protocol.row import REVIEW_INDEX, operations_partition
from intake_ledger.protocol.settings import variable_of
from intake_ledger.protocol.settings_audit import AuditSettings

DEFAULT_RETENTION = Duration.days(LEDGER_RETENTION_DAYS)
PARTITION_KEY, SORT_KEY, EXPIRY = "pk", "sk", "expires_at"
REVIEW_TIME = "updated_at"
_BOTH_IMAGES = "NEW_AND_OLD_IMAGES"


@check_arguments
class IntakeLedger(Construct):
    """An on-demand table with time to live, point-in-time recovery and deletion protection.

    Several pipelines can share a ledger, also across stacks. Each pipeline has separate rows.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        ledger_name: str | None = None,
        table: dynamodb.ITable | None = None,
        retention: Duration | None = DEFAULT_RETENTION,
        encryption_key: kms.IKey | kms.Key | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN,
    ) -> None:
        """Create the table, or use an existing one.

        Args:
            scope: the stack, or a construct in it.
            id: the construct's ID. Without a `ledger_name`, another ID or another place in the construct tree replaces
                the table by a new and empty table.
            ledger_name: fixes the table's logical ID, so that the construct can be renamed and moved within its stack:
                1 to 64 letters, digits, `-` and `_`, with a letter first. When omitted, the logical ID follows from
                `id` and the place in the construct tree.
            table: an existing table for this ledger only. Its keys are the strings `pk` and `sk`, its time to live is
                `expires_at`, and its index `needs_review` has all attributes and the keys `needs_review` (a string) and
                `updated_at` (a number). A table is created when omitted.
            retention: the time for which the ledger keeps a settled row, in whole seconds; 35 days when omitted, the
                longest path of a message through the queue, the dead-letter queue and back. With `None`, the row of an
                object lives as long as the object. Rows of removed objects then expire after 35 days, or later if queue
                and audit need them. A pipeline with `deletes` always keeps the rows of objects. Failed and rejected
                rows stay until they are settled. A pipeline refuses less than its queue and audit need. docs/cost.md
                has the cost of rows.
            encryption_key: encrypts a new table; DynamoDB's key when omitted. The pipeline refuses it for an existing
                table.
            removal_policy: of a new table; `RETAIN` when omitted. `DESTROY` also turns off deletion protection.

        """
        super().__init__(scope, id)
        self._pipelines: list[tuple[str, str, lambda_.Function | None]] = []
        self._stream_reader: str | None = None
        self._retention = retention
        self._is_existing, self._is_protected = table is not None, removal_policy != RemovalPolicy.DESTROY
        self._is_retained = removal_policy == RemovalPolicy.RETAIN
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
        # Without a key, the encryption is set below: then a property injector may give an organisation's key.
        encryption: dict[str, Any] = (
            {"encryption": dynamodb.TableEncryption.CUSTOMER_MANAGED, "encryption_key": encryption_key}
            if encryption_key
            else {}
        )
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
            deletion_protection=self._is_protected,
            **encryption,
            removal_policy=removal_policy,
        )
        resource = made.node.default_child
        if isinstance(resource, dynamodb.CfnTable) and resource.sse_specification is None:
            resource.sse_specification = dynamodb.CfnTable.SSESpecificationProperty(sse_enabled=False)
        self._encryption_key = made.encryption_key
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
        """The DynamoDB table."""
        return self._table

    @property
    def retention(self) -> Duration | None:
        """The retention of settled rows. None if the row of an object lives as long as the object."""
        return self._retention

    @property
    def encryption_key(self) -> kms.IKey | None:
        """The customer managed key of the table, or None."""
        return self._encryption_key

    def share(self, name: str, bucket: s3.IBucket, audit: lambda_.Function | None) -> None:
        """Give the audits of pipelines with the same bucket the names of each other, and of their sets. The constructs
        of pipelines and sets call this method.

        Without these names, an audit would take rows of another pipeline for rows of a former name.

        Args:
            name: the name of the pipeline or of the sets. A second call for a name changes nothing.
            bucket: its bucket.
            audit: the function of the pipeline's audit. None for sets, whose audit looks for no former names.

        """
        place = bucket.node.path
        if all(name != known for known, *_ in self._pipelines):
            self._pipelines.append((name, place, audit))
        together = [(name_, function) for name_, path, function in self._pipelines if path == place]
        for own, function in together if len(together) > 1 else ():
            others = sorted(other for other, _ in together if other != own)
            if function is not None:
                function.add_environment(variable_of(AuditSettings, "other_pipelines"), ",".join(others))

    def problems(self) -> Iterator[Problem]:
        """Find reasons why a pipeline cannot use this ledger. The pipeline reports them with all others."""
        yield from self._name_problems
        if self._key_beside_table:
            yield KEY_OF_EXISTING_TABLE.problem()

    def attach_to(self, intake: Construct) -> None:
        """Record what the table must have in the template. Each intake calls this method.

        Args:
            intake: the construct whose validation compares it.

        """
        types = {PARTITION_KEY: "S", SORT_KEY: "S", REVIEW_INDEX: "S", REVIEW_TIME: "N"}
        index = {"IndexName": REVIEW_INDEX, "KeySchema": _schema(REVIEW_INDEX, REVIEW_TIME)}
        key = self._encryption_key
        wanted: dict[str, Any] = {
            "KeySchema": _schema(PARTITION_KEY, SORT_KEY),
            "AttributeDefinitions": [{"AttributeName": name, "AttributeType": one} for name, one in types.items()],
            "TimeToLiveSpecification": {"AttributeName": EXPIRY, "Enabled": True},
            "GlobalSecondaryIndexes": [index | {"Projection": {"ProjectionType": "ALL"}}],
            "SSESpecification.KMSMasterKeyId": key.key_arn if key else NONE,
        }
        if not self._is_existing:
            wanted |= {
                "PointInTimeRecoverySpecification.PointInTimeRecoveryEnabled": True,
                "BillingMode": "PAY_PER_REQUEST",
                "OnDemandThroughput.MaxWriteRequestUnits": ON_DEMAND_WRITES,
            }
            if self._is_protected:
                wanted["DeletionProtectionEnabled"] = True
            if self._is_retained:
                wanted["DeletionPolicy"] = KEPT
        expect(intake, "table", self._table, wanted)

    def grant_read(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal read rows and list rows that need review, of all pipelines that share the table.

        Args:
            grantee: gets actions that read the table and its index, and the use of the table's key to decrypt.

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
        return self._with_key(grantee, grant, TABLE_READ_KEY_ACTIONS)

    def grant_record(self, grantee: iam.IGrantable, name: str) -> iam.Grant:
        """Let a principal write who did what, and the lock of redrives. It cannot write rows.

        Args:
            grantee: may write and delete items with one partition key, and use the table's key.
            name: name of the pipeline.

        """
        grant = iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem"],
            resource_arns=[self._table.table_arn],
            conditions={"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [operations_partition(name)]}},
        )
        return self._with_key(grantee, grant, TABLE_KEY_ACTIONS)

    def open_stream(self, reader: Construct) -> tuple[str | None, list[Problem]]:
        """Let the table have a stream with old and new images, for one reader.

        Args:
            reader: the construct that reads it. DynamoDB throttles more than two readers, and one may be the owner's.

        Returns:
            the stream's ARN, and reasons why it cannot be read. Then the ARN is None.

        """
        if self._stream_reader is not None:
            return None, [OUTCOME_SECOND_READER.problem(path=self._stream_reader)]
        self._stream_reader = reader.node.path
        resource, path = _resource_of(self._table), self._table.node.path
        if resource is None:
            arn = self._table.table_stream_arn
            return (arn, []) if arn else (None, [OUTCOME_NO_STREAM.problem(path=path)])
        view = properties_of(resource).get("streamSpecification", {}).get("streamViewType")
        if view not in (None, _BOTH_IMAGES):
            return None, [OUTCOME_STREAM_VIEW.problem(path=path, view=view, both=_BOTH_IMAGES)]
        expect(reader, "table", self._table, {"StreamSpecification.StreamViewType": _BOTH_IMAGES})
        resource.stream_specification = dynamodb.CfnTable.StreamSpecificationProperty(stream_view_type=_BOTH_IMAGES)
        return resource.attr_stream_arn, []

    def grant_stream(self, role: iam.IRole, stream_arn: str) -> None:
        """Let a role read the table's stream.

        Args:
            role: gets the reading actions and the use of the table's key to decrypt.
            stream_arn: of `open_stream`.

        """
        actions = [f"dynamodb:{name}" for name in ("DescribeStream", "GetRecords", "GetShardIterator")]
        grant = iam.Grant.add_to_principal(grantee=role, actions=actions, resource_arns=[stream_arn])
        self._with_key(role, grant, TABLE_READ_KEY_ACTIONS)

    def grant_update(self, grantee: iam.IGrantable, *, rows: str, marks: str) -> iam.Grant:
        """Let a principal update rows, and write the marks of a pipeline.

        Args:
            grantee: may update existing and new items with these partition keys, and use the table's key. It cannot
                delete or replace rows.
            rows: the pattern of the partition keys of rows.
            marks: the partition key of the marks of the circuit breaker and of a pause.

        """
        update = iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["dynamodb:UpdateItem"],
            resource_arns=[self._table.table_arn],
            conditions={"ForAllValues:StringLike": {"dynamodb:LeadingKeys": [rows, marks]}},
        )
        write = iam.Grant.add_to_principal(
            grantee=grantee,
            actions=["dynamodb:DeleteItem", "dynamodb:PutItem"],
            resource_arns=[self._table.table_arn],
            conditions={"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [marks]}},
        )
        return self._with_key(grantee, update.combine(write), TABLE_KEY_ACTIONS)

    def _with_key(self, grantee: iam.IGrantable, grant: iam.Grant, actions: Sequence[str]) -> iam.Grant:
        key = self._encryption_key
        return grant.combine(grant_key(key, grantee, *actions)) if key else grant


def _resource_of(table: dynamodb.ITable) -> dynamodb.CfnTable | None:
    """The resource of a table of this app, or None for an imported table."""
    resource = table.node.default_child
    return resource if isinstance(resource, dynamodb.CfnTable) and Resource.is_owned_resource(table) else None


def _schema(partition_key: str, sort_key: str) -> list[dict[str, str]]:
    return [{"AttributeName": partition_key, "KeyType": "HASH"}, {"AttributeName": sort_key, "KeyType": "RANGE"}]
