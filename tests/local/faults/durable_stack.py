"""The pipeline of the fault runs whose processor is a durable function."""

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from constructs import Construct

from cdk_intake_ledger import Processor
from tests.local.faults.execution_stack import LIMIT, PROCESSORS, output, pipeline_of_executions

NAME = "Durable"
INVOCATION_SECONDS = 15
"""The timeout of an invocation. A successor of a stopped execution waits for it."""


def add_durable(stack: cdk.Stack, *, downstream: str, proxy: str) -> None:
    """Add the pipeline, whose consumer sends its requests through the proxy, and its outputs."""
    scope = Construct(stack, NAME)
    outputs = s3.Bucket(scope, "Outputs", removal_policy=cdk.RemovalPolicy.DESTROY)
    function = lambda_.Function(
        scope,
        "Work",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="resuming.handler",
        code=lambda_.Code.from_inline((PROCESSORS / "resuming.py").read_text()),
        timeout=cdk.Duration.seconds(INVOCATION_SECONDS),
        durable_config=lambda_.DurableConfig(execution_timeout=LIMIT),
        current_version_options=lambda_.VersionOptions(removal_policy=cdk.RemovalPolicy.RETAIN),
        environment={"DOWNSTREAM_URL": downstream, "OUTPUTS": outputs.bucket_name},
    )
    processor = Processor.from_durable_function(function.current_version, timeout=LIMIT, stop_overtaken=True)
    pipeline = pipeline_of_executions(scope, processor, proxy=proxy, service="LAMBDA")
    deployed = function.node.default_child
    assert isinstance(deployed, lambda_.CfnFunction)
    # The local AWS would run the executions itself. The proxy does, and invokes a plain function.
    deployed.add_property_deletion_override("DurableConfig")
    function.add_layers(pipeline.runtime_layer)
    pipeline.grant_read(function)
    outputs.grant_read_write(function)
    output(stack, NAME, pipeline, {"Work": function.function_name, "Outputs": outputs.bucket_name})
