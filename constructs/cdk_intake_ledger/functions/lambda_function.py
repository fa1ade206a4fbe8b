"""What the pipeline's two functions have in common: place, role, log group, the settings that both read."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from aws_cdk import CfnResource, Duration, RemovalPolicy, Size, Stack, Tokenization
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from constructs import Construct, IConstruct

from cdk_intake_ledger.delivery.key_filters import KeyFilter, read_patterns
from cdk_intake_ledger.functions.runtime_layer import TESTED_RUNTIME
from cdk_intake_ledger.monitoring.metrics import METRICS_NAMESPACE
from cdk_intake_ledger.options.options import Delivery, NetworkOptions, Ordering
from cdk_intake_ledger.resources.ledger_table import IntakeLedger
from cdk_intake_ledger.resources.queue import IntakeQueue
from cdk_intake_ledger.validation.nag_suppressions import (
    INTERFACES,
    OBJECTS,
    RUNTIME,
    TRACING,
    Suppression,
    Wildcards,
    suppress,
)

# What a function in a VPC does to have a network interface there; EC2 knows no resources for the describing ones.
INTERFACE_ACTIONS = (
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
)

BUCKET_KEY_ACTIONS = ("kms:Decrypt",)
QUEUE_KEY_ACTIONS = ("kms:Decrypt", "kms:GenerateDataKey")
# What DynamoDB asks for, less the creation of grants: that is for whoever makes the table.
TABLE_KEY_ACTIONS = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)


@dataclass(frozen=True, kw_only=True)
class FunctionNetworking:
    """Layer, network and logs of the functions."""

    layer: lambda_.ILayerVersion
    network: NetworkOptions | None
    log_group: logs.ILogGroup | None
    """None if each function has its own."""
    removal_policy: RemovalPolicy


@dataclass(frozen=True, kw_only=True)
class PipelineResources:
    """The resources of one pipeline, and the settings that its functions share."""

    name: str
    """The pipeline's name, unique among those that share a ledger."""
    bucket: s3.IBucket
    bucket_is_own: bool
    """Whether the pipeline made it."""
    bucket_owner: str | None
    """The account that must own the bucket; `None` where it is not known."""
    delivery: Delivery
    queue: IntakeQueue
    ledger: IntakeLedger
    retention: Duration
    """For how long a settled row is remembered that expires."""
    ordering: Ordering
    deletes: bool
    clock_skew: Duration
    filters: Sequence[KeyFilter]
    stack: Stack
    """The pipeline's own."""
    wildcards: Wildcards
    """Resources with an asterisk that the roles' policies may have."""
    existing: Mapping[str, IConstruct]
    """Resources that the pipeline did not make: `bucket`, `queue`, `dead`, `table` and `key`."""

    @cached_property
    def environment(self) -> dict[str, str]:
        """The variables that both functions read."""
        owner = {"INTAKE_BUCKET_OWNER": self.bucket_owner} if self.bucket_owner else {}
        filters = [dict(item.parts()) for item in self.filters]
        # A removal needs the row that it removes: with it, rows live as long as their objects.
        keeps_rows = self.deletes or self.ledger.retention is None
        return owner | {
            "INTAKE_PIPELINE_NAME": self.name,
            "INTAKE_BUCKET_NAME": self.bucket.bucket_name,
            "INTAKE_TABLE_NAME": self.table.table_name,
            "INTAKE_QUEUE_URL": self.queue.queue.queue_url,
            "INTAKE_ORDERING": self.ordering.value,
            "INTAKE_DELETES": "true" if self.deletes else "false",
            "INTAKE_RETENTION_SECONDS": in_seconds(self.retention),
            "INTAKE_KEEP_ROWS": "true" if keeps_rows else "false",
            # What was in a bucket before the pipeline is none of its losses; its own bucket was empty.
            "INTAKE_SKIP_EXISTING": "false" if self.bucket_is_own else "true",
            # A filter that matches every key is none.
            "INTAKE_KEY_FILTERS": self.stack.to_json_string(filters if all(filters) else []),
            "INTAKE_CLOCK_SKEW_SECONDS": in_seconds(self.clock_skew),
            "POWERTOOLS_SERVICE_NAME": self.name,
            "POWERTOOLS_METRICS_NAMESPACE": METRICS_NAMESPACE,
            "POWERTOOLS_LOG_LEVEL": "INFO",
        }

    @cached_property
    def dead_letter_arn(self) -> str:
        """The ARN of the dead-letter queue."""
        return self.queue.dead_letter_queue.queue_arn

    @cached_property
    def dead_letter_url(self) -> str:
        """The URL of the dead-letter queue."""
        return self.queue.dead_letter_queue.queue_url

    @property
    def table(self) -> dynamodb.ITable:
        """The ledger's table."""
        return self.ledger.table

    def allow(self, role: iam.Role, *, bucket: Sequence[str], table: Sequence[str], queue: Sequence[str]) -> None:
        """Give a role exactly these actions, reading of the objects that the filters let through, and the keys behind
        all of it.
        """
        objects = [self.bucket.arn_for_objects(pattern) for pattern in read_patterns(self.filters)]
        _grant(role, bucket, self.bucket.bucket_arn)
        # What has an asterisk says why in its name, for whoever reads nothing but the template.
        role.add_to_policy(
            iam.PolicyStatement(
                sid="ObjectsThatTheFiltersLetThrough",
                actions=["s3:GetObject", "s3:GetObjectVersion"],
                resources=objects,
            )
        )
        _grant(role, table, self.table.table_arn)
        _grant(role, queue, self.queue.queue.queue_arn)
        for one in objects:
            self.wildcards.suppress(role, one, OBJECTS)
        keys = (
            (self.bucket.encryption_key, BUCKET_KEY_ACTIONS),
            (self.queue.encryption_key, QUEUE_KEY_ACTIONS),
            (self.ledger.encryption_key, TABLE_KEY_ACTIONS),
        )
        for key, key_actions in _merged(keys):
            key.grant(role, *sorted(key_actions))


def existing_resources(
    bucket: s3.IBucket | None, queue: IntakeQueue | None, ledger: IntakeLedger | None, key: kms.IKey | None
) -> dict[str, IConstruct]:
    """The resources that a pipeline did not make. The key is the queue's, or the pipeline's `encryption_key`."""
    resources = {
        "bucket": bucket,
        "queue": queue and queue.queue,
        "dead": queue and queue.dead_letter_queue,
        "table": ledger and ledger.table,
        "key": queue.encryption_key if queue else key,
    }
    return {name: resource for name, resource in resources.items() if resource is not None}


def _grant(role: iam.Role, actions: Sequence[str], resource: str) -> None:
    iam.Grant.add_to_principal(grantee=role, actions=list(actions), resource_arns=[resource])


def _merged(pairs: Iterable[tuple[kms.IKey | None, Iterable[str]]]) -> Iterable[tuple[kms.IKey, set[str]]]:
    """One entry for each key, since the same one may be behind all three."""
    merged: dict[str, tuple[kms.IKey, set[str]]] = {}
    for key, actions in pairs:
        if key is not None:
            merged.setdefault(key.node.path, (key, set()))[1].update(actions)
    return merged.values()


def intake_function(
    scope: Construct,
    *,
    networking: FunctionNetworking,
    description: str,
    code: lambda_.Code | lambda_.DockerImageCode,
    handler: str,
    runtime: lambda_.Runtime,
    architecture: lambda_.Architecture,
    memory_size: int,
    ephemeral_storage: Size | None = None,
    timeout: Duration,
    environment: Mapping[str, str],
    suppression: Suppression,
    layers: Sequence[lambda_.ILayerVersion] = (),
) -> tuple[lambda_.Function, iam.Role]:
    """A function with a role of its own, which may write to its log group and do nothing else yet."""
    log_group = networking.log_group or logs.LogGroup(
        scope, "Logs", retention=logs.RetentionDays.TWO_MONTHS, removal_policy=networking.removal_policy
    )
    role = iam.Role(scope, "Role", description=description, assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    log_group.grant_write(role)
    network = networking.network
    if network:
        # Not among what is granted to the role, so that accepting this asterisk accepts no other one. A function waits
        # for all of its role.
        interfaces = iam.PolicyStatement(
            sid="NetworkInterfacesHaveNoNameBeforehand", actions=list(INTERFACE_ACTIONS), resources=["*"]
        )
        suppress(iam.Policy(role, "Network", statements=[interfaces], roles=[role]), INTERFACES, of="[Resource::*]")
    common: dict[str, Any] = {
        "description": description,
        "architecture": architecture,
        "memory_size": memory_size,
        "ephemeral_storage_size": ephemeral_storage,
        "timeout": timeout,
        "environment": dict(environment),
        "role": role,
        "log_group": log_group,
        "vpc": network and network.vpc,
        "vpc_subnets": network and network.vpc_subnets,
        "security_groups": list(network.security_groups) if network and network.security_groups else None,
    }
    if isinstance(code, lambda_.DockerImageCode):
        image = lambda_.DockerImageFunction(scope, "Function", code=code, **common)
        # An image may have another command: nothing else works here.
        resource = image.node.default_child
        assert isinstance(resource, CfnResource), scope.node.path
        resource.add_property_override("ImageConfig.Command", [handler])
        suppress(image, TRACING, suppression)
        return image, role
    function = lambda_.Function(
        scope,
        "Function",
        code=code,
        handler=handler,
        runtime=runtime,
        # Lambda unpacks layers in this order, so nothing of the team's replaces a file of ours.
        layers=[*layers, networking.layer],
        **common,
    )
    tested = runtime is TESTED_RUNTIME or runtime.name == TESTED_RUNTIME.name
    suppress(function, TRACING, *((RUNTIME,) if tested else ()), suppression)
    return function, role


def in_seconds(duration: Duration) -> str:
    """A duration as an environment variable; a token stays one."""
    return in_text(duration.to_seconds())


def in_text(number: float) -> str:
    """A number as an environment variable; a token stays one."""
    # A token is a negative number, far below any that is meant.
    return f"{number:.15g}" if number >= 0 else Tokenization.stringify_number(number)
