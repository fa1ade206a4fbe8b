"""The construct of a Fargate service that handles the queue of a pipeline, an intake of messages or sets of files.

The Lambda function gets no messages then.
"""

from aws_cdk import CfnResource, Duration
from aws_cdk import aws_applicationautoscaling as scaling
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from cdk_intake_ledger.checks.arguments.checking import check_arguments
from cdk_intake_ledger.checks.final_check import check_final_template
from cdk_intake_ledger.checks.final_template import expect
from cdk_intake_ledger.checks.nag_suppressions import INLINE_POLICIES, WORKER_VARIABLES, suppress
from cdk_intake_ledger.checks.reporting import refuse
from cdk_intake_ledger.checks.rules.worker_rules import worker_problems
from cdk_intake_ledger.kinds.intake import Intake
from cdk_intake_ledger.kinds.objects.pipeline_plan import seconds_of, unknown_times
from intake_ledger.protocol.settings import ConsumerSettings, environment_of, variable_of

STOP_TIMEOUT = Duration.seconds(120)
"""The longest time that Fargate gives a container after SIGTERM (Amazon ECS, `stopTimeout`)."""


@check_arguments
class IntakeWorkers(Construct):
    """Containers that run `python -m intake_ledger.worker` on the queue of a pipeline, of an intake of messages or of
    sets of files, as many as the queue needs.

    The Lambda function gets no more messages. It stays deployed. To return to it, remove this construct. The workers
    write to the log group of the `MonitoringOptions`, or to a new one.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        intake: Intake,
        cluster: ecs.ICluster,
        image: ecs.ContainerImage,
        processing_timeout: Duration | None = None,
        cpu: int = 512,
        memory_limit_mib: int = 1024,
        min_tasks: int = 1,
        max_tasks: int = 10,
        target_age: Duration | None = None,
    ) -> None:
        """Make a service.

        Args:
            scope: the stack, or a construct in it.
            id: the construct's id.
            intake: the pipeline, intake or sets whose queue the workers handle. The processor has to be in the image,
                under the name of the `entrypoint`. For an existing function or state machine, the image needs the
                runtime only. The messages of an intake have to come from a queue or from EventBridge.
            cluster: the ECS cluster. Its VPC needs endpoints or a NAT gateway for S3, SQS, DynamoDB and CloudWatch
                Logs.
            image: the container image. Its command has to be `python -m intake_ledger.worker`.
            processing_timeout: the processor's time for one object, message or set, up to 11 hours; that of the
                `intake` when omitted. At least 10 seconds more than the timeout of an existing function.
            cpu: CPU units of a task, in Fargate's steps; 512 when omitted.
            memory_limit_mib: memory of a task in MiB, as Fargate combines it with `cpu`; 1,024 when omitted.
            min_tasks: the smallest number of tasks; 1 when omitted. With 0, no task runs while the queue is empty.
            max_tasks: the largest number of tasks; 10 when omitted.
            target_age: the age of the oldest message above which tasks are added; 5 minutes when omitted.

        Raises:
            IntakeConfigurationError: An option is out of its range, or the messages come from a stream.

        """
        super().__init__(scope, id)
        age = target_age or Duration.minutes(5)
        refuse(self.node.path, [*unknown_times(processing_timeout=processing_timeout, target_age=age)])
        seconds = processing_timeout.to_seconds() if processing_timeout else None
        self._intake = intake
        consumer = intake._consumer  # noqa: SLF001 - not public, since it is a part of the pipeline
        refuse(
            self.node.path,
            list(
                worker_problems(
                    seconds,
                    tasks=(min_tasks, max_tasks),
                    target_age=age.to_seconds(),
                    function_timeout=seconds_of(consumer.processor.function_timeout),
                    stream=consumer.stream,
                )
            ),
        )
        # The audit compares the deployed mapping with this setting.
        _resource(consumer.source, lambda_.CfnEventSourceMapping).enabled = False
        consumer.has_workers = True
        expect(consumer, "mapping", consumer.source, {"Enabled": False})
        # The command tells workers from a function that takes no messages.
        consumer.function.add_environment(variable_of(ConsumerSettings, "has_workers"), "true")
        environment = dict(consumer.environment)
        if seconds is not None:
            environment |= environment_of(ConsumerSettings, processing_timeout_seconds=int(seconds))
            intake.monitoring._attempts_take(Duration.seconds(int(seconds)))  # noqa: SLF001 - as the consumer
        assert consumer.role.assume_role_policy is not None  # the construct made the role
        consumer.role.assume_role_policy.add_statements(
            iam.PolicyStatement(
                actions=["sts:AssumeRole"], principals=[iam.ServicePrincipal("ecs-tasks.amazonaws.com")]
            )
        )
        task = ecs.FargateTaskDefinition(
            self, "Task", cpu=cpu, memory_limit_mib=memory_limit_mib, task_role=consumer.role
        )
        task.add_container(
            "Worker",
            image=image,
            environment=environment,
            stop_timeout=STOP_TIMEOUT,
            logging=ecs.LogDrivers.aws_logs(
                stream_prefix="worker",
                log_group=consumer.networking.log_group_of(self, "Log", removal_policy=None),
            ),
        )
        container = {
            "Environment": [{"Name": name, "Value": value} for name, value in environment.items()],
            "StopTimeout": STOP_TIMEOUT.to_seconds(),
        }
        wanted = {"ContainerDefinitions": [container], "TaskRoleArn": consumer.role.role_arn}
        expect(self, "task", task, wanted | {"ContainerDefinitions.0.ReadonlyRootFilesystem": False})
        check_final_template(self)
        suppress(task, WORKER_VARIABLES)
        suppress(task.obtain_execution_role(), INLINE_POLICIES)
        self._service = ecs.FargateService(
            self,
            "Service",
            cluster=cluster,
            task_definition=task,
            circuit_breaker=ecs.DeploymentCircuitBreaker(rollback=True),
            min_healthy_percent=100,
        )
        tasks = self._service.auto_scale_task_count(min_capacity=min_tasks, max_capacity=max_tasks)
        tasks.scale_on_metric(
            "Age",
            metric=_age_of_waiting(intake.queue),
            scaling_steps=[
                scaling.ScalingInterval(upper=0, change=-1),
                scaling.ScalingInterval(lower=age.to_seconds(), change=1),
                scaling.ScalingInterval(lower=4 * age.to_seconds(), change=3),
            ],
            adjustment_type=scaling.AdjustmentType.CHANGE_IN_CAPACITY,
        )

    @property
    def intake(self) -> Intake:
        """The pipeline, intake or sets whose queue the workers handle. It has all other members."""
        return self._intake

    @property
    def service(self) -> ecs.FargateService:
        """The service of the workers."""
        return self._service


def _age_of_waiting(queue: sqs.IQueue) -> cloudwatch.MathExpression:
    """Seconds for which a message has waited. 1 while messages are in work only, and 0 for an empty queue.

    CloudWatch's age counts messages in work too. By it alone, one record that takes hours would add tasks in vain. A
    task is removed only if no message is in work, since it might be the task that has it.
    """
    minute = Duration.minutes(1)
    return cloudwatch.MathExpression(
        expression="IF(waiting > 0, MAX([age, 1]), IF(working > 0, 1, 0))",
        label="age of waiting messages",
        period=minute,
        using_metrics={
            "age": queue.metric_approximate_age_of_oldest_message(period=minute),
            "waiting": queue.metric_approximate_number_of_messages_visible(period=minute),
            "working": queue.metric_approximate_number_of_messages_not_visible(period=minute),
        },
    )


def _resource[Resource: CfnResource](construct: Construct, kind: type[Resource]) -> Resource:
    resource = construct.node.default_child
    assert isinstance(resource, kind), construct.node.path
    return resource
