"""The stack of `intake-ledger acceptance`: a pipeline or an intake for each way that the checks need."""

from pathlib import Path
from typing import Any

from aws_cdk import CfnOutput, DefaultStackSynthesizer, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kinesis as kinesis
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from cdk_intake_ledger.functions import Processor, runtime_layer
from cdk_intake_ledger.messages import MessageIntake, MessageSource
from cdk_intake_ledger.options import (
    AuditOptions,
    AuditScale,
    ConcurrencyOptions,
    Delivery,
    Engine,
    MonitoringOptions,
    Ordering,
    Reasons,
    RetryOptions,
)
from cdk_intake_ledger.pipeline import IntakePipeline
from cdk_intake_ledger.resources import IntakeLedger
from cdk_intake_ledger.sets import FileSets, SetForm
from intake_ledger.protocol import ConsumerSettings, variable_of

FUNCTIONS = Path(__file__).parent / "functions"
_DESTROY = RemovalPolicy.DESTROY
_RETRY = RetryOptions(max_attempts=4, min_backoff=Duration.seconds(1), max_backoff=Duration.seconds(5))
_PATIENT = RetryOptions(max_attempts=50, min_backoff=Duration.seconds(1), max_backoff=Duration.seconds(30))
"""For the checks that take permissions away for minutes."""
_SKEW = Duration.seconds(2)


class AcceptanceStack(Stack):
    """The pipelines. Each resource is removed with the stack, when its buckets are empty."""

    def __init__(self, scope: Construct, id: str, *, assets: str, architecture: lambda_.Architecture) -> None:
        """Make the stack.

        Args:
            scope: the app.
            id: the construct's ID. The template does not contain it.
            assets: name of the bucket from which CloudFormation reads the code of the functions.
            architecture: of the functions of the audits in parts, whose engine is compiled.

        """
        super().__init__(
            scope,
            id,
            description="Checks of cdk-intake-ledger. Remove it with intake-ledger acceptance --cleanup",
            analytics_reporting=False,
            synthesizer=DefaultStackSynthesizer(
                file_assets_bucket_name=assets, bucket_prefix="", generate_bootstrap_version_rule=False
            ),
        )
        self._architecture = architecture
        self._effects = dynamodb.Table(
            self,
            "Effects",
            partition_key=dynamodb.Attribute(name="place", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            removal_policy=_DESTROY,
        )
        self._log_group = logs.LogGroup(self, "Log", retention=logs.RetentionDays.ONE_DAY, removal_policy=_DESTROY)
        self._outputs = {"EffectsTable": self._effects.table_name}
        self._add_files()
        self._add_waits()
        self._add_own_key()
        self._add_messages()
        self._add_machine()
        self._add_durable()
        self._add_audits()
        for name, value in self._outputs.items():
            CfnOutput(self, name, value=value)

    def _add_files(self) -> None:
        """Pipelines of objects, a set, and a queue for the checks that change the way of the events."""
        latest = self._pipeline(
            "Latest",
            deletes=True,
            alarms=["DeadLetters"],
        )
        sets = FileSets(
            self,
            "Sets",
            pipeline=latest,
            form=SetForm.manifest("sets/*/manifest.json"),
            processor=self._processor("process_set"),
            **self._common(),
        )
        self._effects.grant(sets, "dynamodb:UpdateItem")
        self._pipeline("Plain")
        # A transaction has other costs.
        self._pipeline("Counted", processor=self._processor(PLAIN="yes"))
        self._pipeline("Every", ordering=Ordering.EVERY_VERSION)
        tap = sqs.Queue(self, "Tap", removal_policy=_DESTROY)
        tap.add_to_resource_policy(
            iam.PolicyStatement(
                actions=["sqs:SendMessage"],
                principals=[iam.ServicePrincipal("s3.amazonaws.com")],
                resources=[tap.queue_arn],
                conditions={"StringEquals": {"aws:SourceAccount": self.account}},
            )
        )
        self._outputs["TapQueueUrl"] = tap.queue_url

    def _add_waits(self) -> None:
        """Pipelines in which each wait is a delayed copy. The second one's processor may upload to its own bucket."""
        hold = variable_of(ConsumerSettings, "max_hold_seconds")
        for name in ("Waiting", "Looping"):
            waiting = self._pipeline(name)
            function = waiting.function.node.default_child
            assert isinstance(function, lambda_.CfnFunction)
            # A message that SQS would delete before the end of its wait copies itself.
            function.add_property_override(f"Environment.Variables.{hold}", "1")
        document = iam.PolicyDocument()
        document.add_statements(
            iam.PolicyStatement(actions=["s3:PutObject"], resources=[waiting.bucket.arn_for_objects("loop/*")])
        )
        role = waiting.function.role
        assert role is not None
        # Not a grant, because synthesis refuses a processor that calls itself.
        iam.CfnPolicy(self, "Loop", policy_name="loop", policy_document=document, roles=[role.role_name])

    def _add_own_key(self) -> None:
        key = kms.Key(self, "Key", removal_policy=_DESTROY, pending_window=Duration.days(7))
        pipeline = self._pipeline("OwnKey", delivery=Delivery.EVENTBRIDGE, encryption_key=key, retry=_PATIENT)
        operator = iam.Role(self, "Operator", assumed_by=iam.AccountRootPrincipal())
        pipeline.grant_operate(operator)
        self._outputs["OperatorRole"] = operator.role_arn

    def _add_messages(self) -> None:
        ledger = IntakeLedger(self, "Ledger", removal_policy=_DESTROY)
        stream = kinesis.Stream(self, "Stream", shard_count=1, removal_policy=_DESTROY)
        for name, source in {"Fifo": MessageSource.fifo(), "Kinesis": MessageSource.kinesis(stream)}.items():
            intake = MessageIntake(
                self,
                name,
                source=source,
                key="key",
                identity="identity",
                processor=self._processor("process_message"),
                clock_skew=_SKEW,
                ledger=ledger,
                **self._common(),
            )
            self._effects.grant(intake, "dynamodb:UpdateItem")
        self._outputs["StreamName"] = stream.stream_name

    def _add_machine(self) -> None:
        task = lambda_.Function(
            self,
            "Task",
            runtime=lambda_.Runtime.PYTHON_3_13,
            handler="checked.task",
            code=lambda_.Code.from_asset(str(FUNCTIONS)),
            # The module imports it.
            layers=[runtime_layer(self)],
            timeout=Duration.seconds(30),
            environment={"EFFECTS_TABLE": self._effects.table_name},
            log_group=self._log_group,
        )
        self._effects.grant(task, "dynamodb:UpdateItem")
        timeout = Duration.minutes(2)
        invoke = tasks.LambdaInvoke(self, "Invoke", lambda_function=task, payload_response_only=True)
        machine = sfn.StateMachine(
            self,
            "Executions",
            definition_body=sfn.DefinitionBody.from_chainable(invoke),
            timeout=timeout,
            removal_policy=_DESTROY,
        )
        processor = Processor.from_state_machine(machine, timeout=timeout, longest_task=Duration.seconds(30))
        self._pipeline("Machine", processor=processor)

    def _add_durable(self) -> None:
        """A durable function behind an alias, its pipeline, and a queue that gets its events."""
        timeout = Duration.minutes(15)
        function = lambda_.Function(
            self,
            "Lasting",
            runtime=lambda_.Runtime.PYTHON_3_13,
            handler="lasting.handler",
            code=lambda_.Code.from_asset(str(FUNCTIONS)),
            layers=[runtime_layer(self)],
            timeout=Duration.seconds(30),
            durable_config=lambda_.DurableConfig(execution_timeout=timeout, retention_period=Duration.days(2)),
            # It is removed with the function.
            current_version_options=lambda_.VersionOptions(removal_policy=RemovalPolicy.RETAIN),
            environment={"EFFECTS_TABLE": self._effects.table_name},
            log_group=self._log_group,
        )
        self._effects.grant(function, "dynamodb:UpdateItem")
        version = function.current_version
        alias = lambda_.Alias(self, "Live", alias_name="live", version=version)
        self._pipeline("Durable", processor=Processor.from_durable_function(alias, timeout=timeout))
        tap = sqs.Queue(self, "DurableTap", removal_policy=_DESTROY)
        pattern = events.EventPattern(
            source=["aws.lambda"],
            detail_type=["Durable Execution Status Change"],
            detail={"durableExecutionArn": events.Match.prefix(function.function_arn)},
        )
        events.Rule(self, "DurableEnds", event_pattern=pattern, targets=[targets.SqsQueue(tap)])
        self._outputs |= {"DurableVersion": version.function_arn, "DurableTapUrl": tap.queue_url}

    def _add_audits(self) -> None:
        for name, engine in {"DuckDb": Engine.DUCKDB, "Athena": Engine.ATHENA}.items():
            scale = AuditScale.shards(2, concurrency=2, architecture=self._architecture, engine=engine)
            self._pipeline(name, audit=AuditOptions(settle_time=Duration.seconds(1), scale=scale))

    def _pipeline(self, name: str, *, alarms: list[str] | None = None, **options: Any) -> IntakePipeline:
        given: dict[str, Any] = {
            "processor": self._processor(),
            "concurrency": ConcurrencyOptions(clock_skew=_SKEW),
            "audit": AuditOptions(settle_time=Duration.seconds(1)),
        }
        made = IntakePipeline(self, name, **(given | self._common(alarms) | options))
        self._effects.grant(made, "dynamodb:GetItem", "dynamodb:UpdateItem")
        return made

    def _common(self, alarms: list[str] | None = None) -> dict[str, Any]:
        return {
            "processing_timeout": Duration.seconds(5),
            "retry": _RETRY,
            "monitoring": MonitoringOptions(alarms=alarms or [], log_group=self._log_group, reasons=Reasons.FULL),
            "removal_policy": _DESTROY,
        }

    def _processor(self, name: str = "process", **environment: str) -> Processor:
        variables = {"EFFECTS_TABLE": self._effects.table_name, **environment}
        return Processor.from_asset(FUNCTIONS, entrypoint=f"checked:{name}", environment=variables)
