"""A pipeline whose audit runs in parts, on a bucket that was full before."""

import platform
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger import AuditOptions, AuditScale, IntakePipeline
from tests.local.recorded import effects_table, recording

# The local AWS runs functions on this machine, and DuckDB's wheel is for one kind of machine.
HERE = lambda_.Architecture.ARM_64 if platform.machine() in ("arm64", "aarch64") else lambda_.Architecture.X86_64


class PartsStack(cdk.Stack):
    """Its processor records effects as the others do."""

    def __init__(self, scope: Construct, id: str, *, code: Path) -> None:
        super().__init__(scope, id)
        destroy = cdk.RemovalPolicy.DESTROY
        bucket = s3.Bucket(self, "Full", versioned=True, removal_policy=destroy)
        effects = effects_table(self)
        made = IntakePipeline(
            self,
            "Pipeline",
            processor=recording(code, effects),
            bucket=bucket,
            deletes=True,
            processing_timeout=cdk.Duration.seconds(20),
            audit=AuditOptions(
                settle_time=cdk.Duration.seconds(1),
                budget=1_000,
                scale=AuditScale.shards(4, concurrency=2, architecture=HERE),
            ),
            removal_policy=destroy,
        )
        effects.grant(made, "dynamodb:PutItem")
        assert made.audit_state_machine is not None
        files = made.node.find_child("Audit").node.find_child("Join").node.find_child("Files")
        assert isinstance(files, s3.Bucket)
        for name, value in {
            "Bucket": bucket.bucket_name,
            "Files": files.bucket_name,
            "Function": made.function.function_name,
            "EffectsTable": effects.table_name,
            "LedgerTable": made.table.table_name,
            "Machine": made.audit_state_machine.state_machine_arn,
            "QueueUrl": made.queue.queue_url,
        }.items():
            cdk.CfnOutput(self, name, value=value)
