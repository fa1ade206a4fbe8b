"""A Lambda function that exists already, in any language, as the processor."""

from typing import Any

import pytest
from aws_cdk import Duration, Stack
from aws_cdk import aws_lambda as lambda_

from cdk_intake_ledger import IntakePipeline, Processor
from tests.synth.build import (
    Json,
    actions,
    new_app,
    new_stack,
    only,
    refused,
    resources,
    statements,
    template_of,
    variables,
)


def node(stack: Stack, **options: Any) -> lambda_.Function:
    return lambda_.Function(
        stack,
        "Node",
        runtime=lambda_.Runtime.NODEJS_22_X,
        handler="index.handler",
        code=lambda_.Code.from_inline("exports.handler = async () => ({ commit: null });"),
        **options,
    )


@pytest.fixture(scope="module")
def template() -> Json:
    stack = new_stack()
    IntakePipeline(stack, "Orders", processor=Processor.from_function(node(stack)))
    return template_of(stack)


def test_the_consumer_may_invoke_this_function_and_no_other(template: Json) -> None:
    """Not its other versions, either."""
    (function,) = resources(template, "AWS::Lambda::Function", "Node")
    [statement] = [
        candidate
        for candidate in statements(template, "OrdersConsumer")
        if "lambda:InvokeFunction" in actions(candidate)
    ]
    assert statement["Resource"] == {"Fn::GetAtt": [function, "Arn"]}
    assert actions(statement) == ["lambda:InvokeFunction"]
    variables = only(template, "AWS::Lambda::Function", "OrdersConsumer")["Environment"]["Variables"]
    assert variables["INTAKE_PROCESSOR_FUNCTION"] == {"Fn::GetAtt": [function, "Arn"]}
    assert "INTAKE_PROCESSOR" not in variables


def test_the_consumer_needs_no_code_of_the_team(template: Json) -> None:
    """All of it is in the layer."""
    consumer = only(template, "AWS::Lambda::Function", "OrdersConsumer")
    assert consumer["Code"] == {"ZipFile": "from intake_ledger.consumer import handler\n"}
    assert (consumer["Handler"], consumer["Runtime"]) == ("index.handler", "python3.13")


def test_an_alias_is_invoked_as_such() -> None:
    """Its deployments shift traffic; the permission is on the alias."""
    stack = new_stack()
    alias = lambda_.Alias(stack, "Live", alias_name="live", version=node(stack).current_version)
    IntakePipeline(stack, "Orders", processor=Processor.from_function(alias))
    template = template_of(stack)
    [statement] = [
        candidate
        for candidate in statements(template, "OrdersConsumer")
        if "lambda:InvokeFunction" in actions(candidate)
    ]
    [name] = resources(template, "AWS::Lambda::Alias")
    assert statement["Resource"] == {"Ref": name}
    assert variables(template, "OrdersConsumer")["INTAKE_PROCESSOR_FUNCTION"] == "reference"


@pytest.mark.parametrize("kind", ["function", "version", "alias"])
def test_a_function_that_outlives_the_consumer_is_refused(kind: str) -> None:
    """It would still run, and write, when the next attempt begins."""
    stack = new_stack()
    function: Any = node(stack, timeout=Duration.seconds(51))
    if kind != "function":
        function = function.current_version
    if kind == "alias":
        function = lambda_.Alias(stack, "Live", alias_name="live", version=function)
    processor = Processor.from_function(function)
    with refused("processor-ends-before-consumer", "Set a processing_timeout of at least 61 seconds"):
        IntakePipeline(stack, "Orders", processor=processor)
    IntakePipeline(stack, "Longer", processor=processor, processing_timeout=Duration.seconds(61))


def test_a_function_of_unknown_timeout_is_taken() -> None:
    """An imported one, or one whose timeout is a token; Lambda's default is three seconds."""
    app = new_app()
    stack = Stack(app, "Stack")
    arn = "arn:aws:lambda:eu-central-1:111122223333:function:orders"
    IntakePipeline(
        stack, "Imported", processor=Processor.from_function(lambda_.Function.from_function_arn(stack, "Theirs", arn))
    )
    IntakePipeline(
        stack, "Default", processor=Processor.from_function(node(stack)), processing_timeout=Duration.seconds(13)
    )
    with refused("processor-ends-before-consumer", "at least 13 seconds"):
        IntakePipeline(
            stack,
            "Short",
            processor=Processor.from_function(stack.node.find_child("Node")),  # type: ignore[arg-type]
            processing_timeout=Duration.seconds(12),
        )
