"""`IntakeWorkers`: a Fargate service on the queue of a pipeline."""

import json
from typing import Any

import pytest
from aws_cdk import App, Duration, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs

from cdk_intake_ledger import IntakeConfigurationError, IntakePipeline, IntakeWorkers
from tests.synth.build import (
    Json,
    later,
    new_app,
    new_stack,
    only,
    processor,
    refused,
    resources,
    rules_in,
    template_of,
)


def with_workers(app: App | None = None, **options: Any) -> Stack:
    """A stack with a pipeline and its workers."""
    stack = new_stack(app=app)
    pipeline = IntakePipeline(stack, "Orders", processor=processor(environment={"REGION_OF_ORDERS": "EU"}))
    cluster = ecs.Cluster(stack, "Cluster", vpc=ec2.Vpc(stack, "Network", nat_gateways=1))
    image = ecs.ContainerImage.from_registry("example/orders")
    IntakeWorkers(stack, "Workers", intake=pipeline, cluster=cluster, image=image, **options)
    return stack


@pytest.fixture(scope="module")
def template() -> Json:
    return template_of(with_workers(processing_timeout=Duration.hours(2), max_tasks=7))


def test_the_function_gets_no_more_messages(template: Json) -> None:
    assert only(template, "AWS::Lambda::EventSourceMapping")["Enabled"] is False


@pytest.mark.failure_mode("F497")
def test_workers_know_the_place_of_rejected_rows() -> None:
    """They have a copy of the variables, so the place is named before."""
    stack = with_workers()
    pipeline = stack.node.find_child("Orders")
    assert isinstance(pipeline, IntakePipeline)
    with refused("rejects-after-workers"):
        pipeline.keep_rejects(pipeline.bucket, "rejects/")


@pytest.mark.failure_mode("F470")
def test_workers_may_hold_claims_for_longer_without_an_alarm(template: Json) -> None:
    """Two hours and the alarm's hour. A threshold of the options stays."""
    assert only(template, "AWS::CloudWatch::Alarm", "OrdersMonitoringOldestClaim")["Threshold"] > 3 * 3_600_000


def test_the_audit_expects_the_disabled_mapping(template: Json) -> None:
    audit = only(template, "AWS::Lambda::Function", "OrdersAudit")["Environment"]["Variables"]["INTAKE_DEPLOYED"]
    assert json.loads("".join(part for part in audit["Fn::Join"][1] if isinstance(part, str)))["enabled"] is False


def test_a_task_has_the_variables_of_the_function_and_its_own_time(template: Json) -> None:
    function = only(template, "AWS::Lambda::Function", "OrdersConsumer")["Environment"]["Variables"]
    [container] = only(template, "AWS::ECS::TaskDefinition")["ContainerDefinitions"]
    task = {entry["Name"]: entry["Value"] for entry in container["Environment"]}
    # The command reads the marker from the function.
    assert function.pop("INTAKE_WORKERS") == "true"
    # The image of the task is other code than that of the function.
    del function["INTAKE_PROCESSOR_VERSION"]
    assert task == function | {"INTAKE_PROCESSING_TIMEOUT_SECONDS": "7200"}
    assert task["REGION_OF_ORDERS"] == "EU"
    assert task["INTAKE_PROCESSOR"] == "orders:process"


def test_a_task_has_the_role_of_the_pipeline(template: Json) -> None:
    role = only(template, "AWS::ECS::TaskDefinition")["TaskRoleArn"]["Fn::GetAtt"][0]
    assert role.startswith("OrdersConsumer")
    trusted = template["Resources"][role]["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    assert [one["Principal"]["Service"] for one in trusted] == ["lambda.amazonaws.com", "ecs-tasks.amazonaws.com"]


def test_a_task_may_finish_its_record_for_as_long_as_fargate_allows(template: Json) -> None:
    [container] = only(template, "AWS::ECS::TaskDefinition")["ContainerDefinitions"]
    assert container["StopTimeout"] == 120


def test_the_number_of_tasks_follows_the_age_of_the_oldest_message(template: Json) -> None:
    target = only(template, "AWS::ApplicationAutoScaling::ScalableTarget")
    assert (target["MinCapacity"], target["MaxCapacity"]) == (1, 7)
    alarms = resources(template, "AWS::CloudWatch::Alarm", "Workers").values()
    thresholds = {(one["Properties"]["ComparisonOperator"], one["Properties"]["Threshold"]) for one in alarms}
    assert thresholds == {("LessThanOrEqualToThreshold", 0), ("GreaterThanOrEqualToThreshold", 300)}
    queries = [query for one in alarms for query in one["Properties"]["Metrics"]]
    metrics = {query["MetricStat"]["Metric"]["MetricName"] for query in queries if "MetricStat" in query}
    assert metrics == {
        "ApproximateAgeOfOldestMessage",
        "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesVisible",
    }


def test_a_task_is_removed_only_when_no_message_is_in_work(template: Json) -> None:
    alarms = resources(template, "AWS::CloudWatch::Alarm", "Workers").values()
    expressions = {
        query["Expression"] for one in alarms for query in one["Properties"]["Metrics"] if "Expression" in query
    }
    assert expressions == {"IF(waiting > 0, MAX([age, 1]), IF(working > 0, 1, 0))"}


@pytest.mark.parametrize(
    ("options", "rule", "value"),
    [
        ({"processing_timeout": Duration.hours(12)}, "worker-processing-timeout", "12 hours"),
        ({"min_tasks": 5, "max_tasks": 2}, "worker-tasks", "min_tasks is 5 and max_tasks is 2"),
        ({"min_tasks": 0, "max_tasks": 0}, "worker-tasks", "max_tasks is 0"),
        ({"target_age": Duration.seconds(5)}, "worker-target-age", "5 seconds"),
    ],
)
def test_an_option_that_cannot_work_is_refused(options: dict[str, Any], rule: str, value: str) -> None:
    with refused(rule, value):
        with_workers(new_app(), **options)


def test_times_of_the_deployment_are_refused() -> None:
    """The alarms and the timeout of the tasks follow from them."""
    hours = Duration.hours(later())
    with pytest.raises(IntakeConfigurationError) as caught:
        with_workers(processing_timeout=hours, target_age=hours)
    assert rules_in(str(caught.value)) == ["needed-at-synthesis"] * 2
