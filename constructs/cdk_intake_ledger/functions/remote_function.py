"""The work that is done outside of the consumer's process, and another function as the processor."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from intake_ledger.protocol.settings import ConsumerSettings, environment_of


class WorkElsewhere(ABC):
    """The place of the work, if the consumer has none of its code: a runner of `intake_ledger.runners`."""

    @property
    @abstractmethod
    def place(self) -> str:
        """The place as messages name it, such as `the state machine Stack/Machine`."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, str]:
        """Environment variables that tell the consumer which runner does the work."""

    @property
    @abstractmethod
    def services(self) -> tuple[str, ...]:
        """The ends of the names of endpoints that the consumer needs in a VPC."""

    @abstractmethod
    def allow(self, scope: Construct, role: iam.Role) -> None:
        """Let a consumer hand its work over.

        Args:
            scope: the consumer.
            role: the consumer's.

        """


@dataclass(frozen=True, kw_only=True)
class RemoteFunction(WorkElsewhere):
    """An existing function that does the work of a consumer."""

    function: lambda_.IFunction
    services = ("lambda",)

    @property
    def place(self) -> str:
        """Its path."""
        return f"the existing function {self.function.node.path}"

    @property
    def settings(self) -> dict[str, str]:
        """The variable that names the function."""
        return environment_of(ConsumerSettings, processor_function=self.function.function_arn)

    def allow(self, scope: Construct, role: iam.Role) -> None:  # noqa: ARG002 - see `WorkElsewhere`
        """Let a consumer invoke the function, and no other."""
        role.add_to_policy(
            iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[self.function.function_arn])
        )
