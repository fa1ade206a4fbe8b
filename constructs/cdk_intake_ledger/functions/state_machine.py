"""A state machine as the processor: its times, the permissions to start it, and the events of its executions."""

from collections.abc import Iterator
from dataclasses import dataclass

from aws_cdk import Arn, ArnComponents, ArnFormat, Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.delivery.pipeline_resources import in_seconds
from cdk_intake_ledger.delivery.queue_access import allow_rule, rule_target
from cdk_intake_ledger.functions.executions import Executions
from cdk_intake_ledger.functions.machine_checks import machine_problems
from cdk_intake_ledger.queue import IntakeQueue
from intake_ledger.protocol.settings import environment_of
from intake_ledger.protocol.settings_executions import ExecutionSettings

ENDED = ["SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"]
"""The states in which an execution has ended."""


@dataclass(frozen=True, kw_only=True)
class MachineExecutions(Executions):
    """The executions of a state machine."""

    machine: sfn.IStateMachine
    task_timeout: Duration
    """The time for which a task may outlive an execution that was aborted or timed out."""
    services = ("states",)

    @property
    def longest_task(self) -> Duration:
        """The option."""
        return self.task_timeout

    @property
    def place(self) -> str:
        """Its path."""
        return f"the state machine {self.machine.node.path}"

    def problems(self, scope: Construct) -> Iterator[Problem]:
        """See `Executions`."""
        stops_after = self.task_timeout if self.stop_overtaken else None
        return machine_problems(scope, self.machine, self.timeout, stops_after=stops_after)

    @property
    def settings(self) -> dict[str, str]:
        """Environment variables that tell the consumer which state machine to start."""
        return environment_of(
            ExecutionSettings,
            machine=self.machine.state_machine_arn,
            execution_seconds=in_seconds(self.timeout),
            longest_task_seconds=in_seconds(self.longest_task),
            stop_overtaken=self.stop_overtaken or None,
        )

    def allow(self, scope: Construct, role: iam.Role) -> None:
        """See `Executions`."""
        self.allow_looking(scope, role)
        for statement in (
            iam.PolicyStatement(actions=["states:StartExecution"], resources=[self.machine.state_machine_arn]),
            # A redrive would continue an execution whose row another attempt has by then.
            iam.PolicyStatement(
                sid="NoRedriveOfExecutions",
                effect=iam.Effect.DENY,
                actions=["states:RedriveExecution"],
                resources=[self._execution_arns(scope)],
            ),
        ):
            role.add_to_policy(statement)
        if self.stop_overtaken:
            role.add_to_policy(
                iam.PolicyStatement(actions=["states:StopExecution"], resources=[self._execution_arns(scope)])
            )

    def allow_looking(self, scope: Construct, role: iam.Role) -> None:
        """Allow a role to describe the executions of the machine."""
        executions = self._execution_arns(scope)
        role.add_to_policy(
            iam.PolicyStatement(
                sid="ExecutionsOfTheMachine", actions=["states:DescribeExecution"], resources=[executions]
            )
        )

    def _execution_arns(self, scope: Construct) -> str:
        machine = Arn.split(self.machine.state_machine_arn, ArnFormat.COLON_RESOURCE_NAME)
        return Arn.format(
            ArnComponents(
                service="states",
                resource="execution",
                resource_name=f"{machine.resource_name}:*",
                arn_format=ArnFormat.COLON_RESOURCE_NAME,
            ),
            Stack.of(scope),
        )

    def send_ends(self, scope: Construct, queue: IntakeQueue, name: str) -> None:
        """Send the ends of executions to a queue. Their events have the input, which names the row."""
        events.CfnRule(
            scope,
            "Ended",
            description=f"Intake ledger, ended executions for {name}",
            event_pattern={
                "source": ["aws.states"],
                "detail-type": ["Step Functions Execution Status Change"],
                "detail": {"status": ENDED, "stateMachineArn": [self.machine.state_machine_arn]},
            },
            targets=[rule_target(queue)],
        )
        # The ARN of this rule would make a cycle: the bucket depends on the queue's policy, the rule depends on the
        # machine, and the machine's tasks depend on the bucket that they read.
        allow_rule(scope, queue, None)
