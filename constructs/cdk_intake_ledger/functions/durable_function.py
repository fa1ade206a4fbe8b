"""A durable Lambda function as the processor: its times, and the permissions to start and describe its executions."""

from collections.abc import Iterator
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.delivery.pipeline_resources import in_seconds, in_text
from cdk_intake_ledger.functions.durable_checks import DurableConfiguration, durable_problems, unqualified_arn
from cdk_intake_ledger.functions.executions import Executions
from cdk_intake_ledger.queue import IntakeQueue
from intake_ledger.protocol.settings import environment_of
from intake_ledger.protocol.settings_durable import DurableSettings

LONGEST_EVENT_AGE = 6 * 3_600
"""Seconds for which Lambda queues an asynchronous invocation at most (developer guide, "Asynchronous invocation").

The construct sets no shorter age. It would belong to a version, and a deployment would remove it with the version of
before, while events of that version are queued.
"""


@dataclass(frozen=True, kw_only=True)
class DurableExecutions(Executions):
    """The executions of a version or an alias of a durable function."""

    function: lambda_.IFunction
    services = ("lambda",)

    @property
    def _configuration(self) -> DurableConfiguration:
        return DurableConfiguration.of(self.function)

    @property
    def longest_task(self) -> Duration:
        """The timeout of one invocation. Lambda lets the present one end when an execution is stopped."""
        return self._configuration.invocation_timeout

    @property
    def retention(self) -> Duration | None:
        """The function's own."""
        return self._configuration.retention if self._configuration.known else None

    @property
    def place(self) -> str:
        """Its path."""
        return f"the durable function {self.function.node.path}"

    @property
    def settings(self) -> dict[str, str]:
        """See `Executions`."""
        return environment_of(
            DurableSettings,
            function=self.function.function_arn,
            execution_seconds=in_seconds(self.timeout),
            longest_invocation_seconds=in_seconds(self.longest_task),
            event_age_seconds=in_text(LONGEST_EVENT_AGE),
            stop_overtaken=self.stop_overtaken or None,
        )

    def problems(self, scope: Construct) -> Iterator[Problem]:
        """See `Executions`."""
        return durable_problems(scope, self.function, self.timeout)

    def allow(self, scope: Construct, role: iam.Role) -> None:
        """Let a consumer invoke this version or alias, and describe, or stop, the executions of each version."""
        self.allow_looking(scope, role)
        role.add_to_policy(
            iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[self.function.function_arn])
        )
        if self.stop_overtaken:
            role.add_to_policy(
                iam.PolicyStatement(actions=["lambda:StopDurableExecution"], resources=[self._execution_arns])
            )

    def allow_looking(self, scope: Construct, role: iam.Role) -> None:  # noqa: ARG002 - see `Executions`
        """Allow a role to describe the executions of each version, and to find one by its name.

        The executions of former versions run on after a deployment. Lambda checks GetDurableExecution against the ARN
        of the execution, and ListDurableExecutionsByFunction against the ARN of the request.
        """
        unqualified, executions = unqualified_arn(self.function), self._execution_arns
        for statement in (
            iam.PolicyStatement(
                sid="DurableExecutions", actions=["lambda:GetDurableExecution"], resources=[executions]
            ),
            iam.PolicyStatement(
                actions=["lambda:ListDurableExecutionsByFunction"],
                resources=[unqualified, self.function.function_arn],
            ),
        ):
            role.add_to_policy(statement)

    @property
    def _execution_arns(self) -> str:
        """The executions of each version."""
        return f"{unqualified_arn(self.function)}:*/durable-execution/*"

    def send_ends(self, scope: Construct, queue: IntakeQueue, name: str) -> None:
        """Send nothing: the event of a durable execution has no input, which would name the row. Polls find its end."""
