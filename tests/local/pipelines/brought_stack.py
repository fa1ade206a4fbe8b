"""Pipelines on existing resources: one key, queues, a shared table, a network, logs, a topic, a nested stack."""

from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from constructs import Construct

from cdk_intake_ledger import IntakeLedger, IntakePipeline, MonitoringOptions, NetworkOptions, Ordering
from tests.local.recorded import effects_table, recording
from tests.synth.matrix import queues, table

DESTROY = cdk.RemovalPolicy.DESTROY
PIPELINES = ("Everything", "Sharing", "Nested")


class BroughtStack(cdk.Stack):
    """`Everything` is brought; `Sharing` uses its ledger, on a bucket without versions; `Nested` is a stack deeper."""

    def __init__(self, scope: Construct, id: str, *, code: Path) -> None:
        super().__init__(scope, id)
        self._code = code
        self._key = kms.Key(self, "Key", removal_policy=DESTROY)
        self._effects = effects_table(self)
        ledger = IntakeLedger(self, "Ledger", table=table(self, encryption_key=self._key, removal_policy=DESTROY))
        self._pipeline(
            self,
            "Everything",
            bucket=s3.Bucket(self, "Theirs", versioned=True, encryption_key=self._key, removal_policy=DESTROY),
            filters=[s3.NotificationKeyFilter(prefix="in/", suffix=".bin")],
            deletes=True,
            queue=queues(self, encryption_master_key=self._key),
            ledger=ledger,
            network=NetworkOptions(
                vpc=ec2.Vpc(self, "Vpc", max_azs=1, nat_gateways=0, restrict_default_security_group=False),
                vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED),
            ),
            monitoring=MonitoringOptions(
                log_group=logs.LogGroup(self, "Log", removal_policy=DESTROY),
                alarm_actions=[actions.SnsAction(sns.Topic(self, "Pager"))],
            ),
        )
        self._pipeline(self, "Sharing", bucket=s3.Bucket(self, "Unversioned", removal_policy=DESTROY), ledger=ledger)
        nested = cdk.NestedStack(self, "Deeper")
        self._pipeline(nested, "Nested", encryption_key=self._key, ordering=Ordering.EVERY_VERSION)
        cdk.CfnOutput(self, "EffectsTable", value=self._effects.table_name)
        cdk.CfnOutput(self, "LedgerTable", value=ledger.table.table_name)

    def _pipeline(self, scope: Construct, id: str, **options: Any) -> None:
        made = IntakePipeline(
            scope,
            id,
            processor=recording(self._code, self._effects),
            processing_timeout=cdk.Duration.seconds(20),
            removal_policy=DESTROY,
            **options,
        )
        # A grant on the table itself would make the parent depend on the nested stack, and that on its parent.
        made.grant_principal.add_to_principal_policy(
            iam.PolicyStatement(actions=["dynamodb:PutItem"], resources=[self._effects.table_arn])
        )
        cdk.CfnOutput(self, f"{id}Bucket", value=made.bucket.bucket_name)
        cdk.CfnOutput(self, f"{id}Function", value=made.function.function_name)
