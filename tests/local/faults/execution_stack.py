"""The pipeline of the fault runs whose processor is a state machine."""

from collections.abc import Mapping
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from cdk_intake_ledger import ConcurrencyOptions, IntakePipeline, MonitoringOptions, Processor, RetryOptions
from tests.local.faults.copies import wait_as_copies

NAME = "Executions"
ATTEMPTS = 2
LIMIT = cdk.Duration.minutes(15)
PROCESSORS = Path(__file__).resolve().parents[1] / "processors"


def add_executions(stack: cdk.Stack, *, downstream: str, proxy: str) -> None:
    """Add the pipeline, whose consumer sends its requests through the proxy, and its outputs."""
    scope = Construct(stack, NAME)
    task = lambda_.Function(
        scope,
        "Task",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="executing.handler",
        code=lambda_.Code.from_inline((PROCESSORS / "executing.py").read_text()),
        timeout=cdk.Duration.minutes(14),
        environment={"DOWNSTREAM_URL": downstream},
    )
    deliver = tasks.LambdaInvoke(
        scope, "Deliver", lambda_function=task, payload_response_only=True, retry_on_service_exceptions=False
    )
    machine = sfn.StateMachine(
        scope, "Machine", definition_body=sfn.DefinitionBody.from_chainable(deliver), timeout=LIMIT
    )
    processor = Processor.from_state_machine(machine, timeout=LIMIT, longest_task=cdk.Duration.seconds(2))
    pipeline = pipeline_of_executions(scope, processor, proxy=proxy, service="SFN")
    pipeline.bucket.grant_read(task)
    [rule] = [one for one in scope.node.find_all() if one.node.path.endswith("/Ended")]
    assert isinstance(rule, cdk.CfnResource)
    output(stack, NAME, pipeline, {"Machine": machine.state_machine_arn, "Rule": rule.ref})


def pipeline_of_executions(scope: Construct, processor: Processor, *, proxy: str, service: str) -> IntakePipeline:
    """A pipeline with short times, whose consumer sends its requests about rows, objects and executions to the proxy.

    Args:
        scope: its ID is the name of the pipeline.
        processor: runs elsewhere.
        proxy: the address.
        service: that has the executions, as in the variables `AWS_ENDPOINT_URL_...`.

    """
    pipeline = IntakePipeline(
        scope,
        "Pipeline",
        processor=processor,
        processing_timeout=cdk.Duration.seconds(4),
        concurrency=ConcurrencyOptions(max_concurrency=2, clock_skew=cdk.Duration.seconds(1)),
        retry=RetryOptions(
            max_attempts=ATTEMPTS, min_backoff=cdk.Duration.seconds(1), max_backoff=cdk.Duration.seconds(2)
        ),
        removal_policy=cdk.RemovalPolicy.DESTROY,
        monitoring=MonitoringOptions(alarms=[]),
    )
    wait_as_copies(scope.node.id, pipeline.function)
    consumer = pipeline.function.node.default_child
    assert isinstance(consumer, lambda_.CfnFunction)
    for one in ("DYNAMODB", "S3", service):
        consumer.add_property_override(f"Environment.Variables.AWS_ENDPOINT_URL_{one}", proxy)
    # The judge reads what each write left.
    _table(pipeline).add_property_override("StreamSpecification", {"StreamViewType": "NEW_IMAGE"})
    return pipeline


def output(stack: cdk.Stack, name: str, pipeline: IntakePipeline, others: Mapping[str, str]) -> None:
    """Add the outputs that a line reads, and the others."""
    for what, value in {
        "Bucket": pipeline.bucket.bucket_name,
        "QueueUrl": pipeline.queue.queue_url,
        "DeadLetterQueueUrl": pipeline.dead_letter_queue.queue_url,
        "Table": pipeline.table.table_name,
        "Function": pipeline.function.function_name,
        "Stream": _table(pipeline).attr_stream_arn,
        **others,
    }.items():
        cdk.CfnOutput(stack, f"{name}{what}", value=value)


def _table(pipeline: IntakePipeline) -> dynamodb.CfnTable:
    table = pipeline.table.node.default_child
    assert isinstance(table, dynamodb.CfnTable)
    return table
