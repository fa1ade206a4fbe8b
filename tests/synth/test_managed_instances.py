"""`capacity_provider`: the consumer's function on Lambda Managed Instances."""

from typing import Any

import pytest
from aws_cdk import Duration, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_lambda as lambda_

from cdk_intake_ledger import FileSets, IntakePipeline, NetworkOptions, Processor, SetForm
from intake_ledger.consumer import managed_instances
from tests.synth.build import PROCESSORS, Json, new_stack, only, processor, refused, template_of, variables


def provider(stack: Stack) -> lambda_.CapacityProvider:
    vpc = ec2.Vpc(stack, "Network", nat_gateways=0)
    group = ec2.SecurityGroup(stack, "Instances", vpc=vpc)
    return lambda_.CapacityProvider(stack, "Provider", subnets=vpc.isolated_subnets, security_groups=[group])


def heavy(stack: Stack, **options: Any) -> IntakePipeline:
    """A pipeline on managed instances whose processor takes up to 89 minutes and 50 seconds."""
    code = processor(capacity_provider=provider(stack), memory_size=4_096, **options)
    return IntakePipeline(stack, "Orders", processor=code, processing_timeout=Duration.seconds(5_390))


@pytest.fixture(scope="module")
def template() -> Json:
    stack = new_stack()
    heavy(stack)
    return template_of(stack)


def test_the_consumer_runs_on_the_capacity_provider_with_one_invocation_at_a_time(template: Json) -> None:
    """The end of a process that hangs ends its environment."""
    config = only(template, "AWS::Lambda::Function", "OrdersConsumer")["CapacityProviderConfig"]
    managed = config["LambdaManagedInstancesCapacityProviderConfig"]
    assert managed["CapacityProviderArn"]["Fn::GetAtt"][0].startswith("Provider")
    assert managed["PerExecutionEnvironmentMaxConcurrency"] == 1


def test_a_processor_may_take_90_minutes_there_without_the_time_of_the_ledger(template: Json) -> None:
    assert only(template, "AWS::Lambda::Function", "OrdersConsumer")["Timeout"] == 5_400
    assert variables(template, "OrdersConsumer")["INTAKE_PROCESSING_TIMEOUT_SECONDS"] == "5390"
    # The message is hidden until half a minute after the lease.
    assert only(template, "AWS::SQS::Queue", "OrdersQueueMessages")["VisibilityTimeout"] == 5_400 + 120 + 30


def test_the_entry_point_ends_an_invocation_that_takes_too_long(template: Json) -> None:
    function = only(template, "AWS::Lambda::Function", "OrdersConsumer")
    assert function["Handler"] == f"{managed_instances.__name__}.handler"


def test_the_audit_stays_on_lambdas_own_capacity(template: Json) -> None:
    assert "CapacityProviderConfig" not in only(template, "AWS::Lambda::Function", "OrdersAudit")


def test_an_image_runs_there_too() -> None:
    stack = new_stack()
    image = Processor.from_image(
        PROCESSORS / "pictures",
        entrypoint="pictures:process",
        architecture=lambda_.Architecture.ARM_64,
        memory_size=8_192,
        capacity_provider=provider(stack),
    )
    IntakePipeline(stack, "Orders", processor=image, processing_timeout=Duration.minutes(45))
    function = only(template_of(stack), "AWS::Lambda::Function", "OrdersConsumer")
    assert function["ImageConfig"]["Command"] == [f"{managed_instances.__name__}.handler"]
    assert "CapacityProviderConfig" in function
    assert function["Timeout"] == 5_400


def test_an_earlier_python_is_refused() -> None:
    with refused("managed-runtime", "'python3.12'"):
        heavy(new_stack(), runtime=lambda_.Runtime.PYTHON_3_12)


def test_a_network_of_the_function_is_refused() -> None:
    stack = new_stack()
    code = processor(capacity_provider=provider(stack), memory_size=4_096)
    vpc = ec2.Vpc(stack, "Other", nat_gateways=0)
    with refused("managed-network", "that of the capacity provider"):
        IntakePipeline(stack, "Orders", processor=code, network=NetworkOptions(vpc=vpc))


def test_sets_of_files_run_there_too() -> None:
    """Their entry point there takes the request of the audit, too."""
    stack = new_stack()
    code = processor(capacity_provider=provider(stack), memory_size=4_096)
    orders = IntakePipeline(stack, "Orders", processor=processor())
    FileSets(stack, "Loads", pipeline=orders, form=SetForm.manifest("loads/*/manifest.json"), processor=code)
    function = only(template_of(stack), "AWS::Lambda::Function", "LoadsConsumer")
    assert function["Handler"] == f"{managed_instances.__name__}.handler"
    assert "CapacityProviderConfig" in function


@pytest.mark.failure_mode("F690")
@pytest.mark.parametrize(
    ("rule", "changed"),
    [
        ("final-capacity", "CapacityProviderConfig.LambdaManagedInstancesCapacityProviderConfig"),
        ("final-command", "ImageConfig.Command"),
    ],
)
def test_another_capacity_or_command_is_refused(rule: str, changed: str) -> None:
    """Invocations would share memory and `/tmp`, or the image would start other code."""
    stack = new_stack()
    image = Processor.from_image(
        PROCESSORS / "pictures",
        entrypoint="pictures:process",
        architecture=lambda_.Architecture.ARM_64,
        memory_size=8_192,
        capacity_provider=provider(stack),
    )
    function = IntakePipeline(stack, "Orders", processor=image).function.node.default_child
    assert isinstance(function, lambda_.CfnFunction)
    function.add_property_deletion_override(changed)
    with refused(rule):
        template_of(stack)
