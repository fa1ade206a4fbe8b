"""Warns about functions in isolated subnets that cannot reach the services they call."""

import json
from collections.abc import Iterator, Sequence

import jsii
from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from constructs import Construct, IValidation

from cdk_intake_ledger.checks.final_template import FinalTemplates
from cdk_intake_ledger.checks.reporting import warn
from cdk_intake_ledger.checks.rules.key_network_rules import NETWORK_WITHOUT_ENDPOINTS
from cdk_intake_ledger.options.options import NetworkOptions

OF_MESSAGES = ("dynamodb", "sqs")
"""Services that the consumer of messages calls."""
OF_OBJECTS = (*OF_MESSAGES, "s3", "monitoring", "lambda")
"""Services of a pipeline. The audit reads metrics and its functions' settings."""


def warn_without_endpoints(scope: Construct, network: NetworkOptions | None, services: Sequence[str]) -> None:
    """Compare the endpoints of the VPC with the services, when the app is complete.

    Args:
        scope: the consumer.
        network: its VPC. A VPC of another app is not compared, because its endpoints cannot be seen.
        services: the ends of their endpoints' names. Some may be there twice.

    """
    if network is not None and isinstance(network.vpc, ec2.Vpc):
        once = tuple(dict.fromkeys(services))
        scope.node.add_validation(_EndpointValidation(scope, network.vpc, network.vpc_subnets, once))


@jsii.implements(IValidation)
class _EndpointValidation:
    def __init__(
        self, scope: Construct, vpc: ec2.Vpc, subnets: ec2.SubnetSelection | None, services: Sequence[str]
    ) -> None:
        self._scope = scope
        self._vpc = vpc
        self._subnets = subnets
        self._services = services

    def validate(self) -> list[str]:
        """Add the warning. There are no errors, because endpoints can also be made outside of the app."""
        if self._is_isolated():
            names = [*self._endpoint_names()]
            if missing := [one for one in self._services if not any(f'.{one}"' in name for name in names)]:
                warn(self._scope, NETWORK_WITHOUT_ENDPOINTS, vpc=self._vpc.node.path, services=", ".join(missing))
        return []

    def _is_isolated(self) -> bool:
        isolated = {subnet.node.path for subnet in self._vpc.isolated_subnets}
        options = self._subnets or ec2.SubnetSelection()
        chosen = self._vpc.select_subnets(
            availability_zones=options.availability_zones,
            one_per_az=options.one_per_az,
            subnet_filters=options.subnet_filters,
            subnet_group_name=options.subnet_group_name,
            subnets=options.subnets,
            subnet_type=options.subnet_type,
        )
        return {subnet.node.path for subnet in chosen.subnets} <= isolated

    def _endpoint_names(self) -> Iterator[str]:
        """The services of the VPC's endpoints as JSON: "com.amazonaws.eu-west-1.s3", or an intrinsic function."""
        stacks = {stack.node.path: stack for stack in (Stack.of(self._vpc), Stack.of(self._scope))}
        elements = [element for stack in stacks.values() for element in stack.node.find_all()]
        endpoints = [(one, {"vpc": self._vpc.vpc_id}) for one in elements if isinstance(one, ec2.CfnVPCEndpoint)]
        for found, wanted in FinalTemplates(self, self._scope).read(endpoints):
            if found.get("VpcId") == wanted["vpc"]:
                yield json.dumps(found.get("ServiceName"))
