"""The pipeline of the fault runs whose processor is a durable function."""

import atexit
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger import ConcurrencyOptions, IntakePipeline, MonitoringOptions, Processor, RetryOptions
from tests.local.faults.copies import wait_as_copies

NAME = "Durable"
ATTEMPTS = 2
LIMIT = cdk.Duration.minutes(15)
INVOCATION_SECONDS = 15
"""The timeout of an invocation. A successor of a stopped execution waits for it."""
PROCESSORS = Path(__file__).resolve().parents[1] / "processors"
RUNTIME = Path(__file__).resolve().parents[3] / "lambda_src" / "intake_ledger"


def add_durable(stack: cdk.Stack, *, downstream: str, proxy: str) -> None:
    """Add the pipeline, whose consumer sends its requests through the proxy, and its outputs."""
    scope = Construct(stack, NAME)
    outputs = s3.Bucket(scope, "Outputs", removal_policy=cdk.RemovalPolicy.DESTROY)
    function = lambda_.Function(
        scope,
        "Work",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="resuming.handler",
        code=_code(),
        timeout=cdk.Duration.seconds(INVOCATION_SECONDS),
        durable_config=lambda_.DurableConfig(execution_timeout=LIMIT),
        current_version_options=lambda_.VersionOptions(removal_policy=cdk.RemovalPolicy.RETAIN),
        environment={"DOWNSTREAM_URL": downstream, "OUTPUTS": outputs.bucket_name},
    )
    pipeline = IntakePipeline(
        scope,
        "Pipeline",
        processor=Processor.from_durable_function(function.current_version, timeout=LIMIT),
        processing_timeout=cdk.Duration.seconds(4),
        concurrency=ConcurrencyOptions(max_concurrency=2, clock_skew=cdk.Duration.seconds(1)),
        retry=RetryOptions(
            max_attempts=ATTEMPTS, min_backoff=cdk.Duration.seconds(1), max_backoff=cdk.Duration.seconds(2)
        ),
        removal_policy=cdk.RemovalPolicy.DESTROY,
        monitoring=MonitoringOptions(alarms=[]),
    )
    deployed = function.node.default_child
    assert isinstance(deployed, lambda_.CfnFunction)
    # The local AWS would run the executions itself. The proxy does, and invokes a plain function.
    deployed.add_property_deletion_override("DurableConfig")
    pipeline.grant_read(function)
    outputs.grant_read_write(function)
    wait_as_copies(NAME, pipeline.function)
    consumer = pipeline.function.node.default_child
    assert isinstance(consumer, lambda_.CfnFunction)
    for service in ("DYNAMODB", "S3", "LAMBDA"):
        consumer.add_property_override(f"Environment.Variables.AWS_ENDPOINT_URL_{service}", proxy)
    table = pipeline.table.node.default_child
    assert isinstance(table, dynamodb.CfnTable)
    # The judge reads what each write left.
    table.add_property_override("StreamSpecification", {"StreamViewType": "NEW_IMAGE"})
    for what, value in {
        "Bucket": pipeline.bucket.bucket_name,
        "QueueUrl": pipeline.queue.queue_url,
        "DeadLetterQueueUrl": pipeline.dead_letter_queue.queue_url,
        "Table": pipeline.table.table_name,
        "Function": pipeline.function.function_name,
        "Work": function.function_name,
        "Outputs": outputs.bucket_name,
        "Stream": table.attr_stream_arn,
    }.items():
        cdk.CfnOutput(stack, f"{NAME}{what}", value=value)


def _code() -> lambda_.Code:
    """The handler and the package that it imports."""
    folder = TemporaryDirectory()
    atexit.register(folder.cleanup)  # CDK copies it while the app runs
    code = Path(folder.name)
    shutil.copy(PROCESSORS / "resuming.py", code)
    shutil.copytree(RUNTIME, code / RUNTIME.name, ignore=shutil.ignore_patterns("__pycache__"))
    return lambda_.Code.from_asset(folder.name)
