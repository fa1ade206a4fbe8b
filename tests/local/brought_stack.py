"""Pipelines from what a team has: one key, queues, a table for two, a network, logs, a topic, a nested stack."""

from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from cdk_intake_ledger import IntakeLedger, IntakePipeline, IntakeQueue, Ordering, Processor

DESTROY = cdk.RemovalPolicy.DESTROY
PIPELINES = ("Everything", "Sharing", "Nested")


class BroughtStack(cdk.Stack):
    """`Everything` is brought; `Sharing` uses its ledger, on a bucket without versions; `Nested` is a stack deeper."""

    def __init__(self, scope: Construct, id: str, *, code: Path) -> None:
        super().__init__(scope, id)
        self._code = code
        self._key = kms.Key(self, "Key", removal_policy=DESTROY)
        self._effects = dynamodb.Table(
            self,
            "Effects",
            partition_key=dynamodb.Attribute(name="place", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            removal_policy=DESTROY,
        )
        ledger = IntakeLedger(self, "Ledger", table=self._table())
        self._pipeline(
            self,
            "Everything",
            bucket=s3.Bucket(self, "Theirs", versioned=True, encryption_key=self._key, removal_policy=DESTROY),
            filters=[s3.NotificationKeyFilter(prefix="in/", suffix=".bin")],
            deletes=True,
            queue=self._queue(),
            ledger=ledger,
            vpc=ec2.Vpc(self, "Vpc", max_azs=1, nat_gateways=0, restrict_default_security_group=False),
            vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED),
            log_group=logs.LogGroup(self, "Log", removal_policy=DESTROY),
            alarm_actions=[actions.SnsAction(sns.Topic(self, "Pager"))],
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
            processor=Processor.from_asset(
                self._code, entrypoint="recording:process", environment={"EFFECTS_TABLE": self._effects.table_name}
            ),
            processing_timeout=cdk.Duration.seconds(4),
            removal_policy=DESTROY,
            **options,
        )
        # A grant on the table itself would make the parent depend on the nested stack, and that on its parent.
        made.grant_principal.add_to_principal_policy(
            iam.PolicyStatement(actions=["dynamodb:PutItem"], resources=[self._effects.table_arn])
        )
        cdk.CfnOutput(self, f"{id}Bucket", value=made.bucket.bucket_name)
        cdk.CfnOutput(self, f"{id}Function", value=made.consumer_function.function_name)

    def _queue(self) -> IntakeQueue:
        dead = sqs.Queue(self, "Dead", retention_period=cdk.Duration.days(14), encryption_master_key=self._key)
        live = sqs.Queue(
            self,
            "Live",
            visibility_timeout=cdk.Duration.minutes(5),
            dead_letter_queue=sqs.DeadLetterQueue(queue=dead, max_receive_count=100),
            encryption_master_key=self._key,
        )
        return IntakeQueue(self, "Queue", queue=live, dead_letter_queue=dead)

    def _table(self) -> dynamodb.Table:
        table = dynamodb.Table(
            self,
            "Rows",
            partition_key=dynamodb.Attribute(name="pk", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.STRING),
            time_to_live_attribute="expires_at",
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            encryption_key=self._key,
            removal_policy=DESTROY,
        )
        table.add_global_secondary_index(
            index_name="attention",
            partition_key=dynamodb.Attribute(name="attention", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="updated_at", type=dynamodb.AttributeType.NUMBER),
        )
        return table
