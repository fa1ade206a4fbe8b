"""Two stacks to copy. The machine of `WordsStack` calls a Lambda function. That of `FargateStack` runs a container.

`python -m examples.long_work.stack` synthesises `WordsStack`, with the CDK context `withoutLedger` `ByHandStack`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_notifications as notifications
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from examples.by_hand import ByHand

from cdk_intake_ledger import AuditOptions, ConcurrencyOptions, IntakePipeline, Processor, RetryOptions

if TYPE_CHECKING:
    from constructs import Construct

FUNCTIONS = Path(__file__).parent / "functions"
STACK = "LongWork"
THROTTLED = ["ECS.AmazonECSException", "ECS.ServerException", "ThrottlingException"]
"""Errors of ECS that pass, such as a lack of capacity."""


class WordsStack(cdk.Stack):
    """A pipeline around a state machine with one task. `options` are those of `IntakePipeline`."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        timeout: cdk.Duration | None = None,
        longest_task: cdk.Duration | None = None,
        work: cdk.Duration | None = None,
        **options: Any,
    ) -> None:
        super().__init__(scope, id)
        results = _results(self)
        seconds = (work or cdk.Duration.seconds(1)).to_seconds()
        task = lambda_.Function(
            self,
            "CountWords",
            runtime=lambda_.Runtime.PYTHON_3_13,
            handler="count_words.handler",
            code=lambda_.Code.from_asset(str(FUNCTIONS)),
            timeout=cdk.Duration.seconds(30),
            environment={"RESULTS_TABLE": results.table_name, "WORK_SECONDS": str(seconds)},
        )
        results.grant_write_data(task)
        # The output of the task is the output of the execution: {"commit": "12 words"}.
        count = tasks.LambdaInvoke(
            self, "Count", lambda_function=task, payload_response_only=True, retry_on_service_exceptions=True
        )
        limit = timeout or cdk.Duration.hours(3)
        self.machine = sfn.StateMachine(
            self, "Machine", definition_body=sfn.DefinitionBody.from_chainable(count), timeout=limit
        )
        self.pipeline = IntakePipeline(
            self,
            "Texts",
            processor=Processor.from_state_machine(
                self.machine, timeout=limit, longest_task=longest_task or cdk.Duration.minutes(1)
            ),
            **options,
        )
        self.pipeline.bucket.grant_read(task)
        for name, value in {
            "Bucket": self.pipeline.bucket.bucket_name,
            "Function": self.pipeline.function.function_name,
            "QueueUrl": self.pipeline.queue.queue_url,
            "DeadLetterQueueUrl": self.pipeline.dead_letter_queue.queue_url,
            "AuditFunction": self.pipeline.audit_function.function_name,
            "LedgerTable": self.pipeline.table.table_name,
            "ResultsTable": results.table_name,
            "MachineArn": self.machine.state_machine_arn,
        }.items():
            cdk.CfnOutput(self, name, value=value)


class ByHandStack(cdk.Stack):
    """A hand-written consumer that starts the same work. Its machine repeats a task that fails."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        results = _results(self)
        task = lambda_.Function(
            self,
            "CountWords",
            runtime=lambda_.Runtime.PYTHON_3_13,
            handler="by_hand.count_words",
            code=lambda_.Code.from_asset(str(FUNCTIONS)),
            timeout=cdk.Duration.seconds(30),
            environment={"RESULTS_TABLE": results.table_name, "WORK_SECONDS": "1"},
        )
        results.grant_write_data(task)
        count = tasks.LambdaInvoke(
            self,
            "Count",
            lambda_function=task,
            payload=sfn.TaskInput.from_object({"change.$": "$", "attempt.$": "States.MathAdd($$.State.RetryCount, 1)"}),
            payload_response_only=True,
        )
        count.add_retry(errors=["States.ALL"], max_attempts=2, interval=cdk.Duration.seconds(1))
        machine = sfn.StateMachine(self, "Machine", definition_body=sfn.DefinitionBody.from_chainable(count))
        starter = ByHand(
            self,
            "ByHand",
            code=FUNCTIONS,
            handler="by_hand.start",
            environment={"MACHINE_ARN": machine.state_machine_arn},
            timeout=cdk.Duration.seconds(3),
        )
        machine.grant_start_execution(starter.function)
        texts = s3.Bucket(self, "Texts", versioned=True, removal_policy=cdk.RemovalPolicy.DESTROY)
        texts.grant_read(task)
        texts.add_event_notification(s3.EventType.OBJECT_CREATED, notifications.SqsDestination(starter.queue))
        for name, value in {
            "Bucket": texts.bucket_name,
            "ResultsTable": results.table_name,
            "MachineArn": machine.state_machine_arn,
        }.items():
            cdk.CfnOutput(self, name, value=value)


class FargateStack(cdk.Stack):
    """A pipeline around a state machine that runs a container for each attempt, for up to 3 hours."""

    def __init__(self, scope: Construct, id: str) -> None:
        super().__init__(scope, id)
        vpc = ec2.Vpc(self, "Network", max_azs=2, nat_gateways=1)
        cluster = ecs.Cluster(self, "Cluster", vpc=vpc)
        task = ecs.FargateTaskDefinition(self, "Task", cpu=2_048, memory_limit_mib=8_192)
        container = task.add_container(
            "Job",
            image=ecs.ContainerImage.from_registry("example/job"),
            logging=ecs.LogDrivers.aws_logs(stream_prefix="job"),
        )
        run = tasks.EcsRunTask(
            self,
            "Run",
            # The state ends when the container has ended. With another exit code than 0, it fails.
            integration_pattern=sfn.IntegrationPattern.RUN_JOB,
            cluster=cluster,
            task_definition=task,
            launch_target=tasks.EcsFargateLaunchTarget(platform_version=ecs.FargatePlatformVersion.LATEST),
            task_timeout=sfn.Timeout.duration(cdk.Duration.hours(3)),
            container_overrides=[
                tasks.ContainerOverride(container_definition=container, environment=list(_variables()))
            ],
            result_path=sfn.JsonPath.DISCARD,
        )
        run.add_retry(errors=THROTTLED, max_attempts=5, interval=cdk.Duration.seconds(10), backoff_rate=2)
        # A container returns no output. The idempotency key names its effect.
        done = sfn.Pass(self, "Done", parameters={"commit": sfn.JsonPath.string_at("$.idempotencyKey")})
        machine = sfn.StateMachine(
            self,
            "Machine",
            definition_body=sfn.DefinitionBody.from_chainable(run.next(done)),
            timeout=cdk.Duration.hours(4),
        )
        pipeline = IntakePipeline(
            self,
            "Recordings",
            # Step Functions stops the container when it aborts. The container has two minutes to end.
            processor=Processor.from_state_machine(
                machine, timeout=cdk.Duration.hours(4), longest_task=cdk.Duration.minutes(10)
            ),
        )
        pipeline.bucket.grant_read(task.task_role)


def _results(stack: cdk.Stack) -> dynamodb.Table:
    return dynamodb.Table(
        stack,
        "Results",
        partition_key=dynamodb.Attribute(name="key", type=dynamodb.AttributeType.STRING),
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        removal_policy=cdk.RemovalPolicy.DESTROY,
    )


def _variables() -> tuple[tasks.TaskEnvironmentVariable, ...]:
    """The container's input. A fence is longer than the numbers that `States.Format` writes without an exponent."""
    names = {
        "BUCKET": "$.bucket",
        "KEY": "$.key",
        "VERSION_ID": "$.versionId",
        "FENCE": "$.fenceText",
        "IDEMPOTENCY_KEY": "$.idempotencyKey",
    }
    return tuple(
        tasks.TaskEnvironmentVariable(name=name, value=sfn.JsonPath.string_at(path)) for name, path in names.items()
    )


SHORT: dict[str, Any] = {
    "timeout": cdk.Duration.minutes(2),
    "longest_task": cdk.Duration.seconds(2),
    "processing_timeout": cdk.Duration.seconds(4),
    "concurrency": ConcurrencyOptions(clock_skew=cdk.Duration.seconds(1)),
    "retry": RetryOptions(max_attempts=3, min_backoff=cdk.Duration.seconds(1), max_backoff=cdk.Duration.seconds(2)),
    "audit": AuditOptions(settle_time=cdk.Duration.seconds(1)),
    "removal_policy": cdk.RemovalPolicy.DESTROY,
}
"""Short times for the local AWS."""


def main() -> None:
    """Synthesise the stack of the demonstration."""
    app = cdk.App()
    if app.node.try_get_context("withoutLedger") is None:
        WordsStack(app, STACK, **SHORT)
    else:
        ByHandStack(app, STACK)
    app.synth()


if __name__ == "__main__":
    main()
