"""The audit's function, which finds changes that S3 has not reported."""

from aws_cdk import Duration, Size, Stack, Token
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_intake_ledger.audit.deployed_settings import deployed_settings
from cdk_intake_ledger.audit.join import AuditJoin
from cdk_intake_ledger.audit.reports import allow_reports
from cdk_intake_ledger.audit.schedule import schedule
from cdk_intake_ledger.audit.state_machine import AuditMachine
from cdk_intake_ledger.checks.final_template import expect
from cdk_intake_ledger.checks.nag_suppressions import (
    AUDIT_DEAD_LETTERS,
    AUDIT_DESTINATION,
    CONCURRENCY,
    suppress,
)
from cdk_intake_ledger.checks.rules.final_rules import WRITES_OF_A_CHANGE
from cdk_intake_ledger.consumer_function import IntakeConsumer
from cdk_intake_ledger.delivery.other_account import BUCKET_ACTIONS
from cdk_intake_ledger.delivery.pipeline_resources import PipelineResources, in_seconds, in_text
from cdk_intake_ledger.functions.lambda_function import FunctionCode, FunctionNetworking, intake_function
from cdk_intake_ledger.functions.layer import TESTED_RUNTIME
from cdk_intake_ledger.options.durations import to_seconds
from cdk_intake_ledger.options.options import AuditOptions, Delivery, Existing
from cdk_intake_ledger.resources.key_access import grant_key
from intake_ledger.protocol.row import operations_partition
from intake_ledger.protocol.settings import environment_of
from intake_ledger.protocol.settings_audit import AuditSettings

BACKFILL_RATE, RESUBMIT_RATE = 3, 100
"""Messages per second when the options are omitted."""
TICK_MINUTES = 15
"""Minutes between two ticks of the schedule. Each one checks the delivery. docs/audit.md has its requests and price."""

# The code is in the layer. Lambda requires some inline code too.
CODE = "from intake_ledger.audit.function import handler\n"


class IntakeAudit(Construct):
    """The audit with its role, log group and schedule."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        networking: FunctionNetworking,
        resources: PipelineResources,
        options: AuditOptions,
        consumer: IntakeConsumer,
    ) -> None:
        super().__init__(scope, id)
        scale = options.scale
        self._description = f"Intake ledger, audit of {resources.name}"
        join = (
            AuditJoin(
                self, "Join", networking=networking, resources=resources, scale=scale, description=self._description
            )
            if scale.in_parts
            else None
        )
        self.function, self.role = intake_function(
            self,
            FunctionCode(
                code=lambda_.Code.from_inline(CODE),
                handler="index.handler",
                runtime=TESTED_RUNTIME,
                architecture=scale.architecture,
                # A whole virtual CPU: a run costs as much as with less, and takes less time.
                memory_size=1_769,
                # For ten million objects; in parts, for a file before it is stored and a copy of the inventory's.
                ephemeral_storage=Size.gibibytes(4),
                layers=[join.layer] if join else (),
            ),
            networking=networking,
            description=self._description,
            timeout=Duration.minutes(15),
            suppressions=(AUDIT_DEAD_LETTERS, CONCURRENCY),
            environment=resources.environment
            | (consumer.executions.settings if consumer.executions else {})
            | environment_of(
                AuditSettings,
                settle_seconds=in_seconds(options.settle_time),
                look_back_seconds=in_seconds(options.look_back),
                budget=in_text(options.budget),
                delivery=resources.delivery,
                deployed=deployed_settings(resources, consumer),
            ),
        )
        resources.allow(
            self.role,
            bucket=BUCKET_ACTIONS,
            table=[
                "dynamodb:BatchGetItem",
                "dynamodb:DescribeTimeToLive",
                "dynamodb:GetItem",
                "dynamodb:PartiQLInsert",
                "dynamodb:PartiQLUpdate",
                "dynamodb:Query",
                "dynamodb:Scan",
                "dynamodb:UpdateItem",
            ],
            queue=["sqs:GetQueueAttributes", "sqs:SendMessage"],
        )
        # A record of requests is deleted when all of them are served.
        self.role.add_to_policy(
            iam.PolicyStatement(
                actions=["dynamodb:DeleteItem"],
                resources=[resources.table.table_arn],
                conditions={
                    "ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [operations_partition(resources.name)]}
                },
            )
        )
        backfills = options.existing is Existing.BACKFILL
        rate = BACKFILL_RATE if options.backfill_rate is None else options.backfill_rate
        if backfills and not Token.is_unresolved(rate):
            least = int(rate * WRITES_OF_A_CHANGE)
            expect(self, "table", resources.table, {"WarmThroughput.WriteUnitsPerSecond": least})
        resubmit_rate = RESUBMIT_RATE if options.resubmit_rate is None else options.resubmit_rate
        rates = environment_of(
            AuditSettings,
            resubmit_rate=in_text(resubmit_rate) if scale.in_parts else None,
            backfills=backfills or None,
            backfill_rate=in_text(rate) if backfills else None,
        )
        for name, value in (allow_reports(self.role, resources, options) | rates).items():
            self.function.add_environment(name, value)
        # The age of messages, and the mappings of the queue: neither service knows a resource for it.
        unnamed = iam.PolicyStatement(
            sid="MetricsAndMappingsHaveNoResources",
            actions=["cloudwatch:GetMetricStatistics", "lambda:ListEventSourceMappings"],
            resources=["*"],
        )
        self.role.add_to_policy(unnamed)
        self.role.add_to_policy(
            iam.PolicyStatement(
                actions=["lambda:GetFunctionConcurrency", "lambda:GetFunctionConfiguration", "sqs:GetQueueAttributes"],
                resources=[consumer.function.function_arn, resources.dead_letter_arn],
            )
        )
        if consumer.executions is not None:
            # The lease of a row whose execution runs may have ended.
            consumer.executions.allow_looking(self, self.role)
        key, tables = resources.queue.encryption_key, resources.ledger.encryption_key
        if key is not None:
            # A key that is the table's too may be described already.
            shared = tables is not None and tables.node.path == key.node.path
            actions = ("kms:GetKeyPolicy",) if shared else ("kms:DescribeKey", "kms:GetKeyPolicy")
            grant_key(key, self.role, *actions)
        if resources.delivery is not Delivery.S3:
            self._allow_looking_at_rules()
        if resources.delivery is Delivery.EXISTING:
            self._allow_looking_at_topics()
        self.state_machine: sfn.IStateMachine | None = None
        if join is not None:
            for name, value in join.environment.items():
                self.function.add_environment(name, value)
            join.allow(self.role)
            plan = scale.allow_planning(self.role, resources.bucket)
            machine = AuditMachine(
                self,
                "Parts",
                description=f"{self._description}, in parts",
                function=self.function,
                join=join,
                plan=plan,
                scale=scale,
                looks=scale.looks(max(resubmit_rate, rate if backfills else 0)),
            )
            self.state_machine = machine.machine
            self._schedule(options.interval, machine.machine.state_machine_arn, "states:StartExecution")
        else:
            self._schedule(options.interval, self.function.function_arn, "lambda:InvokeFunction")

    def _allow_looking_at_rules(self) -> None:
        # Finding rules by their target and trying a pattern out: EventBridge knows no resource for either.
        finding = ["events:ListRuleNamesByTarget", "events:TestEventPattern"]
        rules = Stack.of(self).format_arn(service="events", resource="rule", resource_name="*")
        for sid, actions, resource in (
            ("RulesByTargetEventBridgeKnowsNoResources", finding, "*"),
            ("RuleByNameWouldTieACircle", ["events:DescribeRule", "events:ListTargetsByRule"], rules),
        ):
            self.role.add_to_policy(iam.PolicyStatement(sid=sid, actions=actions, resources=[resource]))

    def _allow_looking_at_topics(self) -> None:
        topics = Stack.of(self).format_arn(service="sns", resource="*")
        for sid, action, resource in (
            ("SubscriptionSnsKnowsNoResources", "sns:GetSubscriptionAttributes", "*"),
            ("TopicsOfTheBucketThatOthersMade", "sns:ListSubscriptionsByTopic", topics),
        ):
            self.role.add_to_policy(iam.PolicyStatement(sid=sid, actions=[action], resources=[resource]))

    def _schedule(self, interval: Duration, target: str, action: str) -> None:
        seconds = int(to_seconds(interval))
        schedule(
            self,
            "Schedule",
            description=self._description,
            minutes=min(seconds // 60, TICK_MINUTES),
            target=target,
            action=action,
            content={"everySeconds": seconds},
        )
        # Lambda's own repetition of an asynchronous call that failed, for the same reason.
        self.function.configure_async_invoke(retry_attempts=0)
        suppress(self.function.node.find_child("EventInvokeConfig"), AUDIT_DESTINATION)
