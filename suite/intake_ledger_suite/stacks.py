"""The two stacks of the suite: `smoke` with each kind of work, and `checks` with the pipelines of the other tests.

`python -m intake_ledger_suite.stacks smoke NAME` synthesizes a stack with this name.
"""

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from aws_cdk import App, CfnOutput, Duration, RemovalPolicy, Stack
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
from constructs import Construct

from cdk_intake_ledger import (
    AuditOptions,
    AuditScale,
    ConcurrencyOptions,
    Delivery,
    Engine,
    FileSets,
    IntakeLedger,
    IntakePipeline,
    MessageIntake,
    MessageSource,
    MonitoringOptions,
    Ordering,
    Processor,
    Reasons,
    RetryOptions,
    SetForm,
)
from cdk_intake_ledger.functions.layer import runtime_layer
from cdk_intake_ledger.kinds.intake import Intake
from intake_ledger.protocol.settings import ConsumerSettings, variable_of

FUNCTIONS = Path(__file__).parent / "functions"
_DESTROY = RemovalPolicy.DESTROY
_SECOND, _SKEW = Duration.seconds(1), Duration.seconds(2)
_RETRY = RetryOptions(max_attempts=4, min_backoff=_SECOND, max_backoff=Duration.seconds(5))
_PATIENT = RetryOptions(max_attempts=50, min_backoff=_SECOND, max_backoff=Duration.seconds(30))
"""For the checks that take permissions away for minutes."""


class _SuiteStack(Stack):
    """A stack with a table of effects. Each resource is deleted with it, when its buckets are empty."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id, description="Tests of cdk-intake-ledger", analytics_reporting=False)
        self._effects = dynamodb.Table(
            self,
            "Effects",
            partition_key=dynamodb.Attribute(name="place", type=dynamodb.AttributeType.STRING),
            sort_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            removal_policy=_DESTROY,
        )
        self._output(Effects=self._effects.table_name)

    def _output(self, **values: str) -> None:
        for name, value in values.items():
            # A construct may have the name.
            CfnOutput(self, f"Out{name}", value=value)

    def _names(self, name: str, intake: Intake) -> None:
        """Output the names of the resources of an intake."""
        queues = {"Queue": intake.queue, "DeadLetters": intake.dead_letter_queue}
        self._output(**{f"{name}{what}": queue.queue_url for what, queue in queues.items()})
        self._output(**{f"{name}Ledger": intake.table.table_name, f"{name}Function": intake.function.function_name})
        if isinstance(intake, IntakePipeline):
            self._output(**{f"{name}Bucket": intake.bucket.bucket_name, f"{name}Name": intake.name})

    def _processor(self, entrypoint: str, **environment: str) -> Processor:
        variables = {"EFFECTS_TABLE": self._effects.table_name, **environment}
        return Processor.from_asset(FUNCTIONS, entrypoint=entrypoint, environment=variables)


class SmokeStack(_SuiteStack):
    """Files, a set of files, messages, and files whose processor is a state machine.

    Attempts and waits are short, so that no test waits for long.
    """

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        limits: dict[str, Any] = {
            "processing_timeout": Duration.seconds(10),
            "retry": RetryOptions(max_attempts=2, min_backoff=_SECOND, max_backoff=_SECOND),
            "removal_policy": _DESTROY,
        }
        orders = MessageIntake(
            self,
            "Orders",
            source=MessageSource.sqs(),
            key="order",
            identity="event",
            processor=self._processor("smoke:process_message"),
            clock_skew=_SKEW,
            **limits,
        )
        limits["concurrency"] = ConcurrencyOptions(clock_skew=_SKEW)
        audit = AuditOptions(settle_time=_SECOND)
        files = IntakePipeline(
            self, "Files", processor=self._processor("smoke:process"), deletes=True, audit=audit, **limits
        )
        form = SetForm.manifest("loads/*/manifest.json")
        loads = FileSets(
            self, "Loads", pipeline=files, form=form, processor=self._processor("smoke:process_set"), **limits
        )
        work = sfn.Pass(self, "Work", parameters={"commit.$": "States.Format('work on {}', $.key)"})
        limit = Duration.minutes(5)
        machine = sfn.StateMachine(
            self, "Machine", definition_body=sfn.DefinitionBody.from_chainable(work), timeout=limit
        )
        elsewhere = Processor.from_state_machine(machine, timeout=limit, longest_task=_SECOND)
        long = IntakePipeline(self, "Long", processor=elsewhere, audit=audit, **limits)
        for intake in (orders, files, loads):
            self._effects.grant(intake, "dynamodb:PutItem")
        for name, one in {"Orders": orders, "Files": files, "Loads": loads, "Long": long}.items():
            self._names(name, one)
        self._output(Audit=files.audit_function.function_name, Machine=machine.state_machine_arn)


class ChecksStack(_SuiteStack):
    """A pipeline or an intake for each way that the checks need."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        self.copying: list[str] = []
        """Logical IDs of the functions whose waits are delayed copies."""
        self._log_group = logs.LogGroup(self, "Log", retention=logs.RetentionDays.ONE_DAY, removal_policy=_DESTROY)
        self._output(Log=self._log_group.log_group_name)
        self._add_files()
        self._add_waits()
        self._add_own_key()
        self._add_messages()
        self._add_durable()
        self._add_audits()

    def _add_files(self) -> None:
        """Pipelines of objects, and a queue for the checks that change the way of the events."""
        self._pipeline("Latest", deletes=True, alarms=["DeadLetters"])
        self._pipeline("Plain")
        # A transaction has other costs.
        self._pipeline("Counted", processor=self._processor("checked:process", PLAIN="yes"))
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
        self._output(Tap=tap.queue_url)

    def _add_waits(self) -> None:
        """Pipelines in which each wait is a delayed copy. The second one's processor may upload to its own bucket."""
        for name in ("Waiting", "Looping"):
            waiting = self._pipeline(name)
            function = waiting.function.node.default_child
            assert isinstance(function, lambda_.CfnFunction)
            self.copying.append(self.get_logical_id(function))
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
        self._output(OperatorRole=operator.role_arn)

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
                processor=self._processor("checked:process_message"),
                clock_skew=_SKEW,
                ledger=ledger,
                **self._common(),
            )
            self._effects.grant(intake, "dynamodb:UpdateItem")
            self._names(name, intake)
        self._output(Stream=stream.stream_name)

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
        self._output(DurableVersion=version.function_arn, DurableTap=tap.queue_url)

    def _add_audits(self) -> None:
        # The engine is compiled for an architecture. Functions of a local AWS run on this machine.
        local = "AWS_ENDPOINT_URL" in os.environ and platform.machine() in ("x86_64", "AMD64")
        architecture = lambda_.Architecture.X86_64 if local else lambda_.Architecture.ARM_64
        for name, engine in {"DuckDb": Engine.DUCKDB, "Athena": Engine.ATHENA}.items():
            scale = AuditScale.shards(2, concurrency=2, architecture=architecture, engine=engine)
            self._pipeline(name, audit=AuditOptions(settle_time=_SECOND, scale=scale))

    def _pipeline(self, name: str, *, alarms: list[str] | None = None, **options: Any) -> IntakePipeline:
        given: dict[str, Any] = {
            "processor": self._processor("checked:process"),
            "concurrency": ConcurrencyOptions(clock_skew=_SKEW),
            "audit": AuditOptions(settle_time=_SECOND),
        }
        made = IntakePipeline(self, name, **(given | self._common(alarms) | options))
        self._effects.grant(made, "dynamodb:GetItem", "dynamodb:UpdateItem")
        self._names(name, made)
        return made

    def _common(self, alarms: list[str] | None = None) -> dict[str, Any]:
        return {
            "processing_timeout": Duration.seconds(5),
            "retry": _RETRY,
            "monitoring": MonitoringOptions(alarms=alarms or [], log_group=self._log_group, reasons=Reasons.FULL),
            "removal_policy": _DESTROY,
        }


def main() -> None:
    """Synthesize one stack."""
    kind, name = sys.argv[1:]
    # CDK's validation of the template takes 7 seconds.
    app = App(analytics_reporting=False, builtin_cloud_formation_validation=False)
    stack = {"smoke": SmokeStack, "checks": ChecksStack}[kind](app, name)
    template = Path(app.synth().get_stack_by_name(name).template_full_path)
    if isinstance(stack, ChecksStack):
        content = json.loads(template.read_text())
        for function in stack.copying:
            # A message that SQS would delete before the end of its wait copies itself. Synthesis refuses an override.
            variables = content["Resources"][function]["Properties"]["Environment"]["Variables"]
            variables[variable_of(ConsumerSettings, "max_hold_seconds")] = "1"
        template.write_text(json.dumps(content))


if __name__ == "__main__":
    main()
