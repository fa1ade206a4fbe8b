"""What can be seen of CloudFormation resources at synthesis."""

from typing import Any

from aws_cdk import CfnResource, Stack


def properties_of(resource: CfnResource) -> dict[str, Any]:
    """A resource's properties as they stand, resolved; there is no public way to read those that are computed late."""
    properties = Stack.of(resource).resolve(resource._cfn_properties)  # noqa: SLF001
    return properties if isinstance(properties, dict) else {}
