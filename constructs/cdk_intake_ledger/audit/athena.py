"""Makes the tables and the work group with which Athena joins the files of an audit in parts."""

import hashlib
import re
from typing import Any

from aws_cdk import Stack, Token
from aws_cdk import aws_athena as athena
from aws_cdk import aws_glue as glue
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from intake_ledger.protocol.settings import environment_of
from intake_ledger.protocol.settings_audit import JoinSettings

RESULTS = "results/"
"""The prefix of the results of queries."""
_STATE = {"key": "string", "place": "string", "state": "string", "kind": "string", "etag": "string", "size": "bigint"}
TABLES = {
    "listed": _STATE | {"created_at": "bigint", "skipped": "string"},
    "held": _STATE | {"committed": "string", "updated_at": "bigint", "readable": "boolean", "may_be_gone": "boolean"},
}
"""The columns of `intake_ledger.audit.relations.COLUMNS`, in Glue's types."""
PARTITION = "run"
# What Athena does in a bucket with results, for the caller: https://docs.aws.amazon.com/athena/latest/ug/s3-permissions.html.
_BUCKET_ACTIONS = ["s3:GetBucketLocation", "s3:ListBucketMultipartUploads"]
_RESULT_ACTIONS = ["s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
_TABLE_ACTIONS = ["glue:GetDatabase", "glue:GetPartitions", "glue:GetTable"]


class AuditAthena(Construct):
    """A database with the two tables, and a work group whose settings a query cannot change.

    The tables' partitions are the runs, and a query says which run it reads (partition projection, type `injected`). A
    partition is the list of its files, as in S3 Inventory's own tables: so a query reads complete parts alone.
    """

    def __init__(self, scope: Construct, id: str, *, name: str, files: s3.Bucket, scanned_bytes: int) -> None:
        super().__init__(scope, id)
        self._files = files
        self._stack = Stack.of(self)
        self.name = _unique_name(self._stack, name)
        """The name of the database and of the work group."""
        account = self._stack.account
        database = glue.CfnDatabase(
            self,
            "Database",
            catalog_id=account,
            database_input=glue.CfnDatabase.DatabaseInputProperty(
                name=self.name, description=f"Intake ledger, audit of {name}: files of its runs"
            ),
        )
        for relation, columns in TABLES.items():
            glue.CfnTable(
                self,
                relation.title(),
                catalog_id=account,
                database_name=database.ref,
                table_input=self._table(relation, columns),
            )
        key = files.encryption_key
        athena.CfnWorkGroup(
            self,
            "WorkGroup",
            name=self.name,
            description=f"Intake ledger, audit of {name}",
            # Its queries are part of it, and CloudFormation deletes no work group that has any.
            recursive_delete_option=True,
            work_group_configuration=athena.CfnWorkGroup.WorkGroupConfigurationProperty(
                enforce_work_group_configuration=True,
                bytes_scanned_cutoff_per_query=scanned_bytes,
                engine_version=athena.CfnWorkGroup.EngineVersionProperty(
                    selected_engine_version="Athena engine version 3"
                ),
                result_configuration=athena.CfnWorkGroup.ResultConfigurationProperty(
                    output_location=files.s3_url_for_object(RESULTS),
                    expected_bucket_owner=account,
                    encryption_configuration=athena.CfnWorkGroup.EncryptionConfigurationProperty(
                        encryption_option="SSE_KMS" if key else "SSE_S3", kms_key=key.key_arn if key else None
                    ),
                ),
            ),
        )

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the function that asks Athena."""
        return environment_of(JoinSettings, database=self.name, work_group=self.name)

    def allow(self, role: iam.Role) -> None:
        """Let a role run queries in the work group and over the tables. It may use the files already."""
        self._allow(role, ["athena:GetQueryExecution", "athena:StartQueryExecution"], self._arn("athena", "workgroup"))
        # Athena looks at the default database too:
        # https://docs.aws.amazon.com/athena/latest/ug/fine-grained-access-to-glue-resources.html.
        self._allow(role, ["glue:GetDatabase"], self._arn("glue", "database", "default"))
        tables = [self._arn("glue", "table", f"{self.name}/{relation}") for relation in TABLES]
        catalog = self._stack.format_arn(service="glue", resource="catalog")
        self._allow(role, _TABLE_ACTIONS, catalog, self._arn("glue", "database"), *tables)
        self._allow(role, _BUCKET_ACTIONS, self._files.bucket_arn)
        results = self._files.arn_for_objects(f"{RESULTS}*")
        role.add_to_policy(
            iam.PolicyStatement(sid="ResultsByAthenasNames", actions=_RESULT_ACTIONS, resources=[results])
        )

    def _allow(self, role: iam.Role, actions: list[str], *resources: str) -> None:
        role.add_to_policy(iam.PolicyStatement(actions=actions, resources=list(resources)))

    def _arn(self, service: str, resource: str, name: str = "") -> str:
        return self._stack.format_arn(service=service, resource=resource, resource_name=name or self.name)

    def _table(self, relation: str, columns: dict[str, str]) -> Any:
        location = self._files.s3_url_for_object()
        return glue.CfnTable.TableInputProperty(
            name=relation,
            table_type="EXTERNAL_TABLE",
            parameters={
                "EXTERNAL": "TRUE",
                "projection.enabled": "true",
                f"projection.{PARTITION}.type": "injected",
                "storage.location.template": f"{location}/${{{PARTITION}}}/{relation}/",
            },
            partition_keys=[glue.CfnTable.ColumnProperty(name=PARTITION, type="string")],
            storage_descriptor=glue.CfnTable.StorageDescriptorProperty(
                columns=[glue.CfnTable.ColumnProperty(name=name, type=kind) for name, kind in columns.items()],
                location=f"{location}/",
                input_format="org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat",
                output_format="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
                serde_info=glue.CfnTable.SerdeInfoProperty(
                    serialization_library="org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
                ),
            ),
        )


def _unique_name(stack: Stack, name: str) -> str:
    """A name of lower-case letters, digits and underscores, which Athena reads without quotes."""
    place = stack.node.path if Token.is_unresolved(stack.stack_name) else stack.stack_name
    digest = hashlib.sha256(f"{place}/{name}".encode()).hexdigest()[:8]
    return f"intake_ledger_{re.sub('[^a-z0-9]', '_', name.lower())}_{digest}"
