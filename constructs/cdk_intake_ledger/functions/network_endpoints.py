"""Warns about functions in isolated subnets that cannot reach the services they call."""

import json
from collections.abc import Iterator, Sequence

from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from cdk_intake_ledger.checks.final_template import FinalTemplates, at_synthesis
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
    if network is None or not isinstance(vpc := network.vpc, ec2.Vpc):
        return

    def look(templates: FinalTemplates) -> tuple[()]:
        # There are no errors, because endpoints can also be made outside of the app.
        if _is_isolated(vpc, network.vpc_subnets or ec2.SubnetSelection()):
            names = [*_endpoint_names(scope, vpc, templates)]
            missing = [one for one in dict.fromkeys(services) if not any(f'.{one}"' in name for name in names)]
            if missing:
                warn(scope, NETWORK_WITHOUT_ENDPOINTS, vpc=vpc.node.path, services=", ".join(missing))
        return ()

    at_synthesis(scope, look)


def _is_isolated(vpc: ec2.Vpc, options: ec2.SubnetSelection) -> bool:
    isolated = {subnet.node.path for subnet in vpc.isolated_subnets}
    chosen = vpc.select_subnets(
        availability_zones=options.availability_zones,
        one_per_az=options.one_per_az,
        subnet_filters=options.subnet_filters,
        subnet_group_name=options.subnet_group_name,
        subnets=options.subnets,
        subnet_type=options.subnet_type,
    )
    return {subnet.node.path for subnet in chosen.subnets} <= isolated


def _endpoint_names(scope: Construct, vpc: ec2.Vpc, templates: FinalTemplates) -> Iterator[str]:
    """The services of the VPC's endpoints as JSON: "com.amazonaws.eu-west-1.s3", or an intrinsic function."""
    stacks = {stack.node.path: stack for stack in (Stack.of(vpc), Stack.of(scope))}
    elements = [element for stack in stacks.values() for element in stack.node.find_all()]
    endpoints = [(one, {"vpc": vpc.vpc_id}) for one in elements if isinstance(one, ec2.CfnVPCEndpoint)]
    for found, wanted in templates.read(endpoints):
        if found.get("VpcId") == wanted["vpc"]:
            yield json.dumps(found.get("ServiceName"))
