"""Options of the right type that cannot work, or probably do not mean what they say."""

from typing import Any

import pytest
from aws_cdk import Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Template

from cdk_intake_ledger import (
    Delivery,
    IntakeConfigurationError,
    IntakePipeline,
    MessageIntake,
    MessageSource,
    NetworkOptions,
    Ordering,
    Processor,
)
from cdk_intake_ledger.testing import LocalPipeline
from tests.synth.build import new_app, new_stack, processor, rules_in, warned

IRELAND = Environment(account="123456789012", region="eu-west-1")


def refusal(stack: Stack, name: str = "Orders", **options: Any) -> list[str]:
    with pytest.raises(IntakeConfigurationError) as caught:
        IntakePipeline(stack, name, processor=processor(), **options)
    return rules_in(str(caught.value))


@pytest.mark.parametrize("prefix", ["s3://bucket/in/", "s3a://bucket/in/", "arn:aws:s3:::bucket/in/"])
def test_a_uri_is_no_prefix(prefix: str) -> None:
    with pytest.raises(IntakeConfigurationError, match="Write 'in/'") as caught:
        IntakePipeline(new_stack(), "Orders", processor=processor(), filters=[s3.NotificationKeyFilter(prefix=prefix)])
    assert rules_in(str(caught.value)) == ["key-is-uri"]


@pytest.mark.parametrize(("prefix", "count"), [("/in/", 1), ("in/", 0)])
def test_a_prefix_that_begins_with_a_slash_is_warned_about(prefix: str, count: int) -> None:
    stack = new_stack()
    IntakePipeline(stack, "Orders", processor=processor(), filters=[s3.NotificationKeyFilter(prefix=prefix)])
    Template.from_stack(stack)
    texts = warned(stack, "key-begins-with-slash")
    assert [text for text in texts if "Write 'in/'" in text] == texts[:count]
    assert len(texts) == count


def test_an_imported_bucket_of_another_region_is_refused() -> None:
    stack = new_stack(env=IRELAND)
    there = s3.Bucket.from_bucket_attributes(stack, "There", bucket_name="the-files", region="us-east-1")
    assert refusal(stack, bucket=there) == ["bucket-in-same-environment"]
    here = s3.Bucket.from_bucket_attributes(stack, "Here", bucket_name="the-files", region="eu-west-1")
    IntakePipeline(stack, "Right", processor=processor(), bucket=here)


def test_a_key_of_another_region_is_refused() -> None:
    stack = new_stack(env=IRELAND)
    arn = "arn:aws:kms:{}:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    there = kms.Key.from_key_arn(stack, "There", arn.format("us-east-1"))
    assert refusal(stack, encryption_key=there) == ["key-in-same-region"]
    here = kms.Key.from_key_arn(stack, "Here", arn.format("eu-west-1"))
    IntakePipeline(stack, "Right", processor=processor(), encryption_key=here)


def test_two_imports_of_a_bucket_in_one_stack_are_refused() -> None:
    stack = new_stack()
    first, second = (s3.Bucket.from_bucket_name(stack, name, "the-files") for name in ("First", "Second"))
    filters = [[s3.NotificationKeyFilter(prefix=prefix)] for prefix in ("a/", "b/")]
    IntakePipeline(stack, "A", processor=processor(), bucket=first, filters=filters[0])
    assert refusal(stack, "B", bucket=second, filters=filters[1]) == ["bucket-imported-twice"]
    # One import for both is the way out, and EventBridge does not write notifications.
    IntakePipeline(stack, "C", processor=processor(), bucket=first, filters=filters[1])
    IntakePipeline(stack, "D", processor=processor(), bucket=second, delivery=Delivery.EVENTBRIDGE)


def test_overlapping_filters_of_two_stacks_on_an_imported_bucket_are_refused() -> None:
    app = new_app()
    stacks = [new_stack(name, app) for name in ("One", "Two")]
    buckets = [s3.Bucket.from_bucket_name(stack, "Files", "the-files") for stack in stacks]
    for stack, bucket, prefix in zip(stacks, buckets, ("a/", "b/"), strict=True):
        filters = [s3.NotificationKeyFilter(prefix=prefix)]
        IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket, filters=filters)
    overlapping = [s3.NotificationKeyFilter(prefix="a/x/")]
    third = new_stack("Three", app)
    bucket = s3.Bucket.from_bucket_name(third, "Files", "the-files")
    assert refusal(third, bucket=bucket, filters=overlapping) == ["notifications-overlap"]


def test_every_version_of_a_bucket_without_versions_is_refused() -> None:
    stack = new_stack()
    bucket = s3.Bucket(stack, "Files")
    IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket, ordering=Ordering.EVERY_VERSION)
    with pytest.raises(Exception, match="bucket-must-be-versioned"):
        Template.from_stack(stack)


def isolated(stack: Stack) -> ec2.Vpc:
    subnets = [ec2.SubnetConfiguration(name="inner", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)]
    return ec2.Vpc(stack, "Vpc", nat_gateways=0, subnet_configuration=subnets)


def test_isolated_subnets_without_endpoints_are_warned_about() -> None:
    stack = new_stack()
    vpc = isolated(stack)
    IntakePipeline(stack, "Orders", processor=processor(), network=NetworkOptions(vpc=vpc))
    vpc.add_gateway_endpoint("S3", service=ec2.GatewayVpcEndpointAwsService.S3)
    vpc.add_interface_endpoint("Sqs", service=ec2.InterfaceVpcEndpointAwsService.SQS)

    Template.from_stack(stack)
    [warning] = warned(stack, "network-without-endpoints")
    assert "Stack/Vpc, which has no endpoint for dynamodb, monitoring, lambda" in warning


def test_isolated_subnets_with_endpoints_are_right() -> None:
    stack = new_stack()
    vpc = isolated(stack)
    network = NetworkOptions(vpc=vpc)
    source = MessageSource.sqs()
    MessageIntake(stack, "Orders", source=source, key="k", identity="i", processor=processor(), network=network)
    vpc.add_gateway_endpoint("DynamoDb", service=ec2.GatewayVpcEndpointAwsService.DYNAMODB)
    vpc.add_interface_endpoint("Sqs", service=ec2.InterfaceVpcEndpointAwsService.SQS)

    Template.from_stack(stack)
    assert not warned(stack, "network-without-endpoints")


def test_a_vpc_with_a_nat_gateway_needs_no_endpoints() -> None:
    stack = new_stack()
    IntakePipeline(stack, "Orders", processor=processor(), network=NetworkOptions(vpc=ec2.Vpc(stack, "Vpc")))

    Template.from_stack(stack)
    assert not warned(stack, "network-without-endpoints")


@pytest.mark.failure_mode("F214")
@pytest.mark.parametrize(
    ("given", "why"),
    [
        (processor, r"processor is the Processor of '.*:.*': .* Pass it: from "),
        (lambda: Processor, "processor is the class Processor: pass a function"),
    ],
)
def test_the_constructs_processor_is_no_function_to_test(given: Any, why: str) -> None:
    """tests/unit/kit/test_local_pipeline.py has the other mistakes."""
    with pytest.raises(TypeError, match=why):
        LocalPipeline(given())
