"""A Lambda function of a pipeline, with its role, log group and network."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import CfnResource, Duration, RemovalPolicy, Size, Stack
from aws_cdk import aws_ecr_assets as ecr_assets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from cdk_intake_ledger.checks.final_template import expect
from cdk_intake_ledger.checks.nag_suppressions import (
    INLINE_POLICIES,
    INTERFACES,
    RUNTIME,
    SEGMENTS,
    TRACING,
    Suppression,
    suppress,
    suppress_wildcards,
)
from cdk_intake_ledger.checks.rules.final_rules import LOG_LEVELS, NONE
from cdk_intake_ledger.functions.layer import TESTED_RUNTIME, runtime_layer
from cdk_intake_ledger.functions.log_encryption import LogEncryption
from cdk_intake_ledger.options.options import MonitoringOptions, NetworkOptions
from intake_ledger.protocol.settings import ConsumerSettings, variable_of
from intake_ledger.protocol.settings_audit import AuditSettings

_VERSION = variable_of(ConsumerSettings, "processor_version")
_MAY_CHANGE = (variable_of(AuditSettings, "deployed"), "POWERTOOLS_LOG_LEVEL")
"""Variables that the final check does not compare: the first one follows from the resources."""
_PROVIDED = "CapacityProviderConfig.LambdaManagedInstancesCapacityProviderConfig"
# A function in a VPC needs these for its network interfaces. EC2 has no resources for the Describe actions.
INTERFACE_ACTIONS = (
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
)


@dataclass(frozen=True, kw_only=True)
class FunctionNetworking:
    """Layer, network and logs of the functions."""

    layer: lambda_.ILayerVersion
    network: NetworkOptions | None
    log_group: logs.ILogGroup | None
    """None if each function has its own."""
    removal_policy: RemovalPolicy
    log_encryption: LogEncryption
    """Encrypts the log groups of functions that have their own."""
    tracing: bool = False
    """True if X-Ray traces the functions."""

    @classmethod
    def of(
        cls,
        scope: Construct,
        network: NetworkOptions | None,
        monitoring: MonitoringOptions,
        *,
        encryption_key: kms.IKey | None,
        removal_policy: RemovalPolicy,
    ) -> "FunctionNetworking":
        """Make the layer, and take the rest from the options.

        Args:
            scope: the pipeline.
            network: the option.
            monitoring: the options.
            encryption_key: the option.
            removal_policy: the option.

        """
        return cls(
            layer=runtime_layer(Stack.of(scope)),
            network=network,
            log_group=monitoring.log_group,
            log_encryption=LogEncryption(scope, encryption_key),
            removal_policy=removal_policy,
            tracing=monitoring.tracing,
        )

    def log_group_of(self, scope: Construct, id: str, *, removal_policy: RemovalPolicy | None) -> logs.ILogGroup:
        """The log group of all functions, or a new one that keeps two months.

        Args:
            scope: the scope of a new log group.
            id: its ID.
            removal_policy: of a new log group; CDK's when None.

        """
        log_group = self.log_group or logs.LogGroup(
            scope,
            id,
            retention=logs.RetentionDays.TWO_MONTHS,
            removal_policy=removal_policy,
            encryption_key=self.log_encryption.key_for(scope),
        )
        expect(scope, "logs", log_group, {"LogGroupClass": "STANDARD"})
        return log_group


@dataclass(frozen=True, kw_only=True)
class FunctionCode:
    """The code of a function, and the runtime and resources that it needs."""

    code: lambda_.Code | lambda_.DockerImageCode
    handler: str
    runtime: lambda_.Runtime
    architecture: lambda_.Architecture
    memory_size: int
    """Mebibytes."""
    ephemeral_storage: Size | None = None
    layers: Sequence[lambda_.ILayerVersion] = ()
    capacity_provider: lambda_.ICapacityProvider | None = None
    """None for Lambda's own capacity."""
    reserved_concurrency: int | None = None
    """None for the account's unreserved concurrency."""


def intake_function(
    scope: Construct,
    code: FunctionCode,
    *,
    networking: FunctionNetworking,
    description: str,
    timeout: Duration,
    environment: Mapping[str, str],
    suppressions: Sequence[Suppression],
    kind: str = "function",
) -> tuple[lambda_.Function, iam.Role]:
    """A function and its new role, which may only write to the log group. `kind` is that of `expect`."""
    log_group = networking.log_group_of(scope, "Logs", removal_policy=networking.removal_policy)
    role = iam.Role(scope, "Role", description=description, assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    suppress(role, INLINE_POLICIES)
    suppress_wildcards(role)
    log_group.grant_write(role)
    network = networking.network
    if network:
        # A separate policy, so that the suppression of this asterisk covers no other one. The function depends on all
        # policies of its role.
        interfaces = iam.PolicyStatement(
            sid="NetworkInterfacesHaveNoNameBeforehand", actions=list(INTERFACE_ACTIONS), resources=["*"]
        )
        policy = iam.Policy(role, "Network", statements=[interfaces], roles=[role])
        suppress(policy, INTERFACES, of="[Resource::*]")
    common: dict[str, Any] = {
        "description": description,
        "architecture": code.architecture,
        "memory_size": code.memory_size,
        "ephemeral_storage_size": code.ephemeral_storage,
        "timeout": timeout,
        "environment": dict(environment),
        "role": role,
        "log_group": log_group,
        "reserved_concurrent_executions": code.reserved_concurrency,
        "vpc": network and network.vpc,
        "vpc_subnets": network and network.vpc_subnets,
        "security_groups": list(network.security_groups) if network and network.security_groups else None,
    }
    wanted: dict[str, Any] = {
        "Timeout": timeout.to_seconds(),
        "MemorySize": code.memory_size,
        "ReservedConcurrentExecutions": 1,
        "Architectures": [code.architecture.name],
        "Environment.Variables": {name: value for name, value in environment.items() if name not in _MAY_CHANGE},
        "Role": role.role_arn,
        "LoggingConfig.LogGroup": log_group.log_group_name,
        "LoggingConfig.ApplicationLogLevel": LOG_LEVELS,
        # The subnets may be others.
        "VpcConfig": {} if network else NONE,
    }
    if code.ephemeral_storage is not None:
        wanted["EphemeralStorage.Size"] = code.ephemeral_storage.to_mebibytes()
    if isinstance(code.code, lambda_.DockerImageCode):
        image = lambda_.DockerImageFunction(scope, "Function", code=code.code, **common)
        # The image may have another command, with which the consumer would not start.
        resource = image.node.default_child
        assert isinstance(resource, CfnResource), scope.node.path
        resource.add_property_override("ImageConfig.Command", [code.handler])
        wanted["ImageConfig.Command"] = [code.handler]
        _finish(image, role, code.capacity_provider, kind, wanted)
        suppress(image, *_trace(image, role, networking), *suppressions)
        return image, role
    function = lambda_.Function(
        scope,
        "Function",
        code=code.code,
        handler=code.handler,
        runtime=code.runtime,
        # Lambda unpacks layers in this order, so the pipeline's files replace files of other layers.
        layers=[*code.layers, networking.layer],
        **common,
    )
    layers = [layer.layer_version_arn for layer in (*code.layers, networking.layer)]
    wanted |= {"Handler": code.handler, "Runtime": code.runtime.name, "Layers": layers}
    _finish(function, role, code.capacity_provider, kind, wanted)
    tested = code.runtime is TESTED_RUNTIME or code.runtime.name == TESTED_RUNTIME.name
    suppress(function, *_trace(function, role, networking), *((RUNTIME,) if tested else ()), *suppressions)
    return function, role


def record_version(function: lambda_.Function, processor_version: str | None, *, own_code: bool = True) -> None:
    """Tell the function the version of the processor's code: the option, or the hash of its asset or inline code.

    The name of other code, such as a parameter of the stack, does not change with the code. Then nothing is told.

    Args:
        function: the consumer's function.
        processor_version: the option of the processor, or None.
        own_code: False if the work is done elsewhere. Then the function's code is not its.

    """
    if processor_version is not None:
        function.add_environment(_VERSION, processor_version)
    if processor_version is not None or not own_code:
        return
    node = function.node
    for name in ("Code", "AssetImage"):
        asset = node.try_find_child(name)
        if isinstance(asset, s3_assets.Asset | ecr_assets.DockerImageAsset):
            function.add_environment(_VERSION, asset.asset_hash)
            return
    resource = node.default_child
    assert isinstance(resource, lambda_.CfnFunction), node.path
    inline = Stack.of(function).resolve(resource.code).get("zipFile")
    if isinstance(inline, str):
        function.add_environment(_VERSION, hashlib.sha256(inline.encode()).hexdigest())


def _trace(function: lambda_.Function, role: iam.Role, networking: FunctionNetworking) -> tuple[Suppression, ...]:
    """Trace a function with X-Ray if the options say so. Return the accepted finding of a function without traces."""
    if not networking.tracing:
        return (TRACING,)
    resource = function.node.default_child
    assert isinstance(resource, lambda_.CfnFunction), function.node.path
    resource.tracing_config = lambda_.CfnFunction.TracingConfigProperty(mode="Active")
    segments = iam.PolicyStatement(
        sid="SegmentsHaveNoResource",
        actions=["xray:PutTelemetryRecords", "xray:PutTraceSegments"],
        resources=["*"],
    )
    # A separate policy, as for the network.
    policy = iam.Policy(role, "Tracing", statements=[segments], roles=[role])
    suppress(policy, SEGMENTS, of="[Resource::*]")
    return ()


def _finish(
    function: lambda_.Function,
    role: iam.Role,
    provider: lambda_.ICapacityProvider | None,
    kind: str,
    wanted: dict[str, Any],
) -> None:
    """Grant the key of a property injector, run the function on the instances of a capacity provider, and record what
    the template must have.

    An execution environment gets one invocation at a time. By default it would have 16 processes for each vCPU, which
    share the memory and `/tmp`. An invocation that does not end could not be stopped without them.
    """
    resource = function.node.default_child
    assert isinstance(resource, lambda_.CfnFunction), function.node.path
    if key := resource.kms_key_arn:
        role.add_to_policy(iam.PolicyStatement(actions=["kms:Decrypt"], resources=[key]))
    expect(role, kind, function, wanted | {"KmsKeyArn": key})
    if provider is None:
        return
    expect(role, kind, function, {_PROVIDED: {"PerExecutionEnvironmentMaxConcurrency": 1}})
    resource.capacity_provider_config = lambda_.CfnFunction.CapacityProviderConfigProperty(
        lambda_managed_instances_capacity_provider_config=(
            lambda_.CfnFunction.LambdaManagedInstancesCapacityProviderConfigProperty(
                capacity_provider_arn=provider.capacity_provider_arn, per_execution_environment_max_concurrency=1
            )
        )
    )
