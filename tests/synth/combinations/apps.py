"""Combinations of a pipeline with places in an app, code, networks and settings of the whole app."""

from pathlib import Path
from typing import Any

import jsii
from aws_cdk import (
    App,
    Aspects,
    CliCredentialsStackSynthesizer,
    DefaultStackSynthesizer,
    IAspect,
    LegacyStackSynthesizer,
    NestedStack,
    PermissionsBoundary,
    RemovalPolicies,
    RemovalPolicy,
    Stack,
    Stage,
    Tags,
)
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from constructs import Construct, IConstruct

from cdk_intake_ledger import (
    FileSets,
    IntakeWorkers,
    MonitoringOptions,
    NetworkOptions,
    Processor,
    SetForm,
)
from tests.synth.build import PROCESSORS, processor
from tests.synth.combinations.combination import (
    ELSEWHERE,
    HERE,
    combination,
    node_function,
    prefix,
    topic,
    two_stacks,
    versioned,
)
from tests.synth.matrix import orders

BOUNDARY = f"arn:aws:iam::{HERE.account}:policy/boundary"


@combination("S3")
def agnostic_environment(app: App) -> None:
    orders(Stack(app, "Stack"))


@combination("S3", consumers=2)
def two_regions(app: App) -> None:
    for name, env in {"Here": HERE, "Elsewhere": ELSEWHERE}.items():
        orders(Stack(app, name, env=env))


@combination("S3", flags=True)
def all_feature_flags(app: App) -> None:
    orders(Stack(app, "Stack"))


@combination("CDK", consumers=2, flags=True, warned="bucket-lifecycle-unknown bucket-versioning-unknown")
def all_feature_flags_and_keys(app: App) -> None:
    stack = Stack(app, "Stack", env=HERE)
    key = kms.Key(stack, "Key")
    imported = s3.Bucket.from_bucket_name(stack, "Inbox", "partner-inbox")
    for name in ("Orders", "Returns"):
        orders(stack, name, encryption_key=key, bucket=imported, filters=prefix(f"{name}/"))


@combination("EventBridge", flags=True)
def all_feature_flags_and_siblings(app: App) -> None:
    theirs, ours = two_stacks(app, HERE)
    orders(ours, bucket=versioned(theirs), encryption_key=kms.Key(theirs, "Key"))


@combination("S3", consumers=2)
def two_nested_stacks(app: App) -> None:
    host = Stack(app, "Host")
    for name in ("Orders", "Returns"):
        orders(NestedStack(host, name))


@combination("S3")
def nested_in_a_nested_stack(app: App) -> None:
    orders(NestedStack(NestedStack(Stack(app, "Host"), "Outer"), "Inner"))


@combination("S3")
def nested_with_resources_of_its_parent(app: App) -> None:
    host = Stack(app, "Host")
    key, log_group = kms.Key(host, "Key"), logs.LogGroup(host, "Log")
    monitoring = MonitoringOptions(log_group=log_group, alarm_actions=[actions.SnsAction(topic(host))])
    orders(NestedStack(host, "Nested"), encryption_key=key, monitoring=monitoring)


@combination("S3")
def parent_grants_to_a_nested_pipeline(app: App) -> None:
    host = Stack(app, "Host")
    pipeline = orders(NestedStack(host, "Nested"))
    versioned(host, "Results").grant_read_write(pipeline)
    pipeline.grant_put(node_function(host))


@combination("S3")
def stage(app: App) -> None:
    orders(Stack(Stage(app, "Production", env=HERE), "Intake"))


@combination("S3")
def stage_in_a_stage(app: App) -> None:
    orders(Stack(Stage(Stage(app, "Europe", env=HERE), "Production"), "Intake"))


@combination("S3")
def construct_of_the_team(app: App) -> None:
    orders(Construct(Construct(Stack(app, "Stack"), "Domain"), "Part"))


@combination("S3")
def fixed_name(app: App) -> None:
    orders(Stack(app, "Stack"), name="billing")


@combination("S3", consumers=2)
def fixed_names_with_siblings(app: App) -> None:
    theirs, ours = two_stacks(app)
    key = kms.Key(theirs, "Key")
    for name in ("billing", "returns"):
        orders(ours, name, name=name, encryption_key=key)


@combination("S3")
def permission_boundary(app: App) -> None:
    stack = Stack(app, "Stack", env=HERE)
    orders(stack)
    boundary = iam.ManagedPolicy.from_managed_policy_arn(stack, "Boundary", BOUNDARY)
    iam.PermissionsBoundary.of(stack).apply(boundary)


@combination("S3")
def permission_boundary_of_the_stack(app: App) -> None:
    orders(Stack(app, "Stack", permissions_boundary=PermissionsBoundary.from_name("boundary")))


@combination("S3")
def tags(app: App) -> None:
    stack = Stack(app, "Stack", tags={"team": "billing"})
    orders(stack)
    Tags.of(app).add("cost-center", "42")


@jsii.implements(IAspect)
class _TraceEverything:
    """Turns tracing on for each function, as a team's aspect does."""

    def visit(self, node: IConstruct) -> None:
        if isinstance(node, lambda_.CfnFunction):
            node.tracing_config = lambda_.CfnFunction.TracingConfigProperty(mode="Active")


@combination("S3")
def aspect_over_functions(app: App) -> None:
    orders(Stack(app, "Stack"))
    Aspects.of(app).add(_TraceEverything())


@combination("S3")
def removal_policies_by_aspect(app: App) -> None:
    stack = Stack(app, "Stack")
    orders(stack)
    RemovalPolicies.of(stack).apply(RemovalPolicy.DESTROY)


@combination("S3")
def destroyed_with_the_stack(app: App) -> None:
    orders(Stack(app, "Stack"), removal_policy=RemovalPolicy.DESTROY)


@combination("S3")
def other_bootstrap(app: App) -> None:
    orders(
        Stack(app, "Stack", synthesizer=DefaultStackSynthesizer(qualifier="billing", file_assets_bucket_name="ours"))
    )


@combination("S3")
def synthesizer_of_credentials(app: App) -> None:
    orders(Stack(app, "Stack", synthesizer=CliCredentialsStackSynthesizer()))


@combination("S3")
def legacy_synthesizer(app: App) -> None:
    orders(Stack(app, "Stack", synthesizer=LegacyStackSynthesizer()))


@combination("S3")
def termination_protection_and_description(app: App) -> None:
    orders(Stack(app, "Stack", termination_protection=True, description="Orders", stack_name="orders-of-all"))


@combination("S3", warned="network-without-endpoints")
def isolated_subnets(app: App) -> None:
    stack = Stack(app, "Stack")
    vpc = ec2.Vpc(stack, "Vpc", nat_gateways=0)
    orders(
        stack,
        network=NetworkOptions(vpc=vpc, vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)),
    )


@combination("S3")
def isolated_subnets_with_endpoints(app: App) -> None:
    stack = Stack(app, "Stack")
    vpc = ec2.Vpc(stack, "Vpc", nat_gateways=0)
    for name in ("S3", "DYNAMODB"):
        vpc.add_gateway_endpoint(name, service=getattr(ec2.GatewayVpcEndpointAwsService, name))
    for name in ("SQS", "LAMBDA_", "CLOUDWATCH_MONITORING"):
        vpc.add_interface_endpoint(name, service=getattr(ec2.InterfaceVpcEndpointAwsService, name))
    orders(
        stack,
        network=NetworkOptions(vpc=vpc, vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)),
    )


@combination("S3")
def vpc_of_a_sibling(app: App) -> None:
    theirs, ours = two_stacks(app)
    vpc = ec2.Vpc(theirs, "Vpc")
    group = ec2.SecurityGroup(theirs, "Group", vpc=vpc)
    orders(ours, network=NetworkOptions(vpc=vpc, security_groups=[group]))


@combination("S3")
def imported_vpc(app: App) -> None:
    stack = Stack(app, "Stack", env=HERE)
    vpc = ec2.Vpc.from_vpc_attributes(
        stack,
        "Vpc",
        vpc_id="vpc-12345678",
        availability_zones=["eu-central-1a"],
        private_subnet_ids=["subnet-12345678"],
    )
    orders(stack, network=NetworkOptions(vpc=vpc))


@combination("S3")
def image_of_a_folder(app: App) -> None:
    image = Processor.from_image(
        PROCESSORS / "pictures", entrypoint="pictures:process", architecture=lambda_.Architecture.ARM_64
    )
    orders(Stack(app, "Stack"), processor=image)


@combination("S3")
def image_of_a_repository_of_a_sibling(app: App) -> None:
    theirs, ours = two_stacks(app)
    code = lambda_.DockerImageCode.from_ecr(ecr.Repository(theirs, "Images"), tag_or_digest="1.0")
    image = Processor.from_image(code, entrypoint="pictures:process", architecture=lambda_.Architecture.X86_64)
    orders(ours, processor=image)


@combination("S3")
def function_in_node(app: App) -> None:
    stack = Stack(app, "Stack")
    function = node_function(stack)
    pipeline = orders(stack, processor=Processor.from_function(function))
    pipeline.bucket.grant_read(function)


@combination("S3")
def alias_of_a_function(app: App) -> None:
    stack = Stack(app, "Stack")
    function = node_function(stack)
    alias = lambda_.Alias(stack, "Live", alias_name="live", version=function.current_version)
    orders(stack, processor=Processor.from_function(alias))


@combination("S3")
def function_of_a_sibling(app: App) -> None:
    theirs, ours = two_stacks(app)
    orders(ours, processor=Processor.from_function(node_function(theirs)))


@combination("S3")
def x86_with_layers_and_storage(app: App) -> None:
    stack = Stack(app, "Stack")
    layer = lambda_.LayerVersion(stack, "Layer", code=lambda_.Code.from_asset(str(Path(PROCESSORS, "orders"))))
    code = processor(
        architecture=lambda_.Architecture.X86_64,
        runtime=lambda_.Runtime.PYTHON_3_12,
        layers=[layer],
        ephemeral_storage_size=2_048,
        environment={"MODE": "test"},
    )
    orders(stack, processor=code)


@combination("S3")
def workers_on_fargate(app: App) -> None:
    stack = Stack(app, "Stack")
    pipeline = orders(stack)
    cluster = ecs.Cluster(stack, "Cluster", vpc=ec2.Vpc(stack, "Vpc"))
    IntakeWorkers(
        stack, "Workers", intake=pipeline, cluster=cluster, image=ecs.ContainerImage.from_registry("intake:1")
    )


@combination("S3", consumers=2, warned="set-rows-expire")
def file_sets_in_a_nested_stack(app: App) -> None:
    stack = NestedStack(Stack(app, "Host"), "Nested")
    pipeline = orders(stack)
    FileSets(stack, "Loads", pipeline=pipeline, form=SetForm.marker("loads/*/_SUCCESS"), processor=processor())


@combination("S3")
def alarms_and_logs_of_a_sibling(app: App) -> None:
    theirs, ours = two_stacks(app)
    monitoring: Any = {
        "log_group": logs.LogGroup(theirs, "Log", encryption_key=kms.Key(theirs, "Key")),
        "alarm_actions": [actions.SnsAction(topic(theirs))],
    }
    orders(ours, monitoring=MonitoringOptions(**monitoring)).monitoring.dashboard()


@combination("S3")
def outputs_in_a_bucket_of_a_sibling(app: App) -> None:
    theirs, ours = two_stacks(app)
    results = versioned(theirs, "Results")
    orders(ours, filters=prefix("in/")).grant_output(results, "out/")


APPS = [item for item in list(globals().values()) if type(item).__name__ == "Combination"]
