"""Makes the bucket for the files of an audit in parts, and the function that joins them."""

from aws_cdk import Duration, RemovalPolicy, Size, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger.audit.athena import AuditAthena
from cdk_intake_ledger.bucket import private_bucket
from cdk_intake_ledger.bundling.assets import LAYER_FOLDER, wheel_code
from cdk_intake_ledger.bundling.wheels import parse_requirements
from cdk_intake_ledger.checks.nag_suppressions import (
    AUDIT_DEAD_LETTERS,
    CONCURRENCY,
    FILE_ACCESS_LOGS,
    FILE_COPIES,
    suppress,
)
from cdk_intake_ledger.delivery.pipeline_resources import PipelineResources
from cdk_intake_ledger.functions.lambda_function import FunctionCode, FunctionNetworking, intake_function
from cdk_intake_ledger.functions.layer import TESTED_RUNTIME
from cdk_intake_ledger.options.audit_scale import AuditScale, Engine
from cdk_intake_ledger.resources.key_access import BUCKET_WRITE_KEY_ACTIONS, grant_key
from intake_ledger.protocol.settings import environment_of
from intake_ledger.protocol.settings_audit import JoinSettings

DUCKDB = "duckdb==2.0.0"
"""The engine of the join, with which the tests run."""
ORC = ("pyorc==0.12.0", "tzdata==2026.6")
"""Reads inventories in ORC. The library below it asks for a time zone database, which Lambda's runtime may lack."""
TIME_ZONES = f"/opt/{LAYER_FOLDER}/tzdata/zoneinfo"
"""Where Lambda unpacks them."""
KEPT = Duration.days(3)
"""Retention of a run's files. A run takes a day at most."""
DISK = Size.gibibytes(10)
"""The most that Lambda gives: https://docs.aws.amazon.com/lambda/latest/dg/configuration-ephemeral-storage.html. The
files of a run are copied there, and DuckDB spills to it.
"""
FOOTERS_DISK = Size.gibibytes(4)
"""For the metadata of the files, some 30 KB of each million objects."""

_CODE = "from intake_ledger.audit.join.{} import handler\n"
_ATHENA_MEMORY = 1_769
"""MB, one virtual CPU: the function reads ten million candidates at most."""


class AuditJoin(Construct):
    """The bucket of the files, the layer with DuckDB, and the function that joins or lets Athena join."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        networking: FunctionNetworking,
        resources: PipelineResources,
        scale: AuditScale,
        description: str,
    ) -> None:
        super().__init__(scope, id)
        key = resources.ledger.encryption_key
        self._resources = resources
        self.files = self._bucket(key, networking.removal_policy)
        self.environment = environment_of(JoinSettings, files=self.files.bucket_name) | (
            {"TZDIR": TIME_ZONES} if scale.reports else {}
        )
        """The variables of the function that writes the files."""
        self.layer = _duckdb_layer(Stack.of(self), scale)
        self.athena = (
            AuditAthena(self, "Athena", name=resources.name, files=self.files, scanned_bytes=scale.scanned_bytes)
            if scale.engine is Engine.ATHENA
            else None
        )
        self.function, role = intake_function(
            self,
            FunctionCode(
                code=lambda_.Code.from_inline(_CODE.format("athena_parts" if self.athena else "parts")),
                handler="index.handler",
                runtime=TESTED_RUNTIME,
                architecture=scale.architecture,
                memory_size=_ATHENA_MEMORY if self.athena else int(scale.join_memory),
                ephemeral_storage=FOOTERS_DISK if self.athena else DISK,
                layers=[self.layer],
            ),
            networking=networking,
            description=f"{description}: joins what its parts have read",
            timeout=Duration.minutes(15),
            environment=environment_of(JoinSettings, files=self.files.bucket_name)
            | (self.athena.environment if self.athena else {}),
            suppressions=(AUDIT_DEAD_LETTERS, CONCURRENCY),
        )
        self.allow(role)
        if self.athena:
            self.athena.allow(role)

    def allow(self, role: iam.Role) -> None:
        """Let a role read and write the files of runs, and nothing else in their bucket."""
        objects = self.files.arn_for_objects("*")
        role.add_to_policy(iam.PolicyStatement(actions=["s3:ListBucket"], resources=[self.files.bucket_arn]))
        role.add_to_policy(
            iam.PolicyStatement(
                sid="FilesOfRunsByTheirNames", actions=["s3:GetObject", "s3:PutObject"], resources=[objects]
            )
        )
        if self.files.encryption_key is not None:
            grant_key(self.files.encryption_key, role, *BUCKET_WRITE_KEY_ACTIONS)

    def _bucket(self, key: kms.IKey | None, removal_policy: RemovalPolicy) -> s3.Bucket:
        made = private_bucket(
            self,
            "Files",
            encryption_key=key,
            lifecycle_rule=s3.LifecycleRule(expiration=KEPT, abort_incomplete_multipart_upload_after=Duration.days(1)),
            removal_policy=removal_policy,
        )
        suppress(made, FILE_ACCESS_LOGS, FILE_COPIES)
        return made


def _duckdb_layer(stack: Stack, scale: AuditScale) -> lambda_.LayerVersion:
    """The layer with DuckDB. Pipelines of a stack with the same architecture and wheels share it."""
    wheels = [DUCKDB, *(ORC if scale.reports else ())]
    name = f"IntakeLedgerDuckDB-{scale.architecture.name}{'-orc' if scale.reports else ''}"
    found = stack.node.try_find_child(name)
    if isinstance(found, lambda_.LayerVersion):
        return found
    return lambda_.LayerVersion(
        stack,
        name,
        description=f"Intake ledger: {', '.join(wheels)} for the audit in parts",
        code=wheel_code(
            parse_requirements(wheels),
            python=TESTED_RUNTIME.name.removeprefix("python"),
            architecture=scale.architecture.name,
            folder=LAYER_FOLDER,
        ),
        compatible_runtimes=[TESTED_RUNTIME],
        compatible_architectures=[scale.architecture],
    )
