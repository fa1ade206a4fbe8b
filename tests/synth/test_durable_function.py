"""`Processor.from_durable_function`: a durable Lambda function as the processor."""

from typing import Any

import pytest
from aws_cdk import Duration, Environment, RemovalPolicy, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger import AuditOptions, ConcurrencyOptions, IntakePipeline, Processor
from intake_ledger.protocol.settings import settings_from
from intake_ledger.protocol.settings_durable import DurableSettings
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
    warned,
)
from tests.truth.needs import needs_of
from tests.truth.policies import ACCOUNT, REGION, Template, granted
from tests.truth.recording import Request

ARN = "arn:aws:lambda:eu-central-1:111122223333:function:approve"
DEPLOYED = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:approve"
PLACE = Environment(account="111122223333", region="eu-central-1")
KEEP = lambda_.VersionOptions(removal_policy=RemovalPolicy.RETAIN)


def durable(stack: Stack, **options: Any) -> lambda_.Function:
    """A durable function whose executions may run for two days, and whose versions are kept."""
    settings: dict[str, Any] = {
        "durable_config": lambda_.DurableConfig(execution_timeout=Duration.days(2)),
        "current_version_options": KEEP,
        "timeout": Duration.minutes(2),
    }
    return lambda_.Function(
        stack,
        "Approve",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=lambda_.Code.from_inline("def handler(event, context): return {'commit': None}"),
        **(settings | options),
    )


def orders(stack: Stack, function: lambda_.IFunction, *, days: float = 3, **options: Any) -> IntakePipeline:
    processor = Processor.from_durable_function(function, timeout=Duration.hours(24 * days))
    return IntakePipeline(stack, "Orders", processor=processor, **options)


@pytest.fixture(scope="module")
def template() -> Json:
    stack = new_stack()
    function = durable(stack)
    pipeline = orders(stack, function.current_version)
    # The usual form: it reads the pipeline's bucket, and imports the runtime. It must not make a cycle.
    pipeline.bucket.grant_read(function)
    function.add_layers(pipeline.runtime_layer)
    return template_of(stack)


def of_lambda(template: Json, path: str) -> dict[str, Any]:
    """The resources of the statements about the functions, by their action."""
    return {
        action: statement["Resource"]
        for statement in statements(template, path)
        for action in actions(statement)
        if "DurableExecution" in action or action == "lambda:InvokeFunction"
    }


def test_the_consumer_gets_the_version_and_the_times_of_the_function(template: Json) -> None:
    environment = variables(template, "OrdersConsumer")
    [version] = resources(template, "AWS::Lambda::Version")
    function = only(template, "AWS::Lambda::Function", "OrdersConsumer")["Environment"]["Variables"]
    assert function["INTAKE_DURABLE_FUNCTION"] == {"Ref": version}
    settings = settings_from(DurableSettings, environment | {"INTAKE_DURABLE_FUNCTION": f"{ARN}:3"})
    assert settings.execution_seconds == 3 * 86_400
    assert settings.longest_invocation_seconds == 120
    assert settings.event_age_seconds == 21_600, "Lambda's longest age: no configuration of a version is needed"
    assert "INTAKE_PROCESSOR" not in environment
    assert "INTAKE_STATE_MACHINE" not in environment


def test_the_function_gets_the_layer_of_the_consumer(template: Json) -> None:
    """With it, `ObjectChange.of_execution` can be imported there."""
    [layer] = resources(template, "AWS::Lambda::LayerVersion")
    for name in ("Approve", "OrdersConsumer"):
        function = only(template, "AWS::Lambda::Function", name)
        assert function["Layers"] == [{"Ref": layer}], name


def test_the_audit_gets_the_same_function(template: Json) -> None:
    """It asks about rows whose lease has ended, and starts nothing."""
    assert "INTAKE_DURABLE_FUNCTION" in variables(template, "OrdersAudit")
    assert set(of_lambda(template, "OrdersAuditRole")) == {
        "lambda:GetDurableExecution",
        "lambda:ListDurableExecutionsByFunction",
    }


def test_the_consumer_may_invoke_this_version_and_describe_executions_of_each(template: Json) -> None:
    """Executions of former versions run on after a deployment."""
    [version] = resources(template, "AWS::Lambda::Version")
    [function] = resources(template, "AWS::Lambda::Function", "Approve")
    arn = {"Fn::GetAtt": [function, "Arn"]}
    assert of_lambda(template, "OrdersConsumer") == {
        "lambda:InvokeFunction": {"Ref": version},
        "lambda:GetDurableExecution": {"Fn::Join": ["", [arn, ":*/durable-execution/*"]]},
        "lambda:ListDurableExecutionsByFunction": [arn, {"Ref": version}],
    }


def lambda_request(operation: str, **parameters: str) -> Request:
    return Request("", "", [], "lambda", operation, parameters, 200, "")


FORMER = f"{DEPLOYED}:2/durable-execution/a/b"
INVOKE, LIST, STOP = "Invoke", "ListDurableExecutionsByFunction", "StopDurableExecution"
REQUESTS = [
    # Of the consumer and of the audit.
    ("GetDurableExecution", {"DurableExecutionArn": f"{DEPLOYED}:3/durable-execution/a/b"}, (True, True)),
    ("GetDurableExecution", {"DurableExecutionArn": FORMER}, (True, True)),
    (LIST, {"FunctionName": f"{DEPLOYED}:3"}, (True, True)),
    (LIST, {"FunctionName": DEPLOYED}, (True, True)),
    (INVOKE, {"FunctionName": f"{DEPLOYED}:3"}, (True, False)),
    (INVOKE, {"FunctionName": f"{DEPLOYED}:2"}, (False, False)),
    (INVOKE, {"FunctionName": DEPLOYED}, (False, False)),
    ("GetDurableExecution", {"DurableExecutionArn": FORMER.replace("approve", "approved")}, (False, False)),
    (STOP, {"DurableExecutionArn": FORMER}, (False, False)),
]


@pytest.mark.failure_mode("F410")
@pytest.mark.parametrize(("operation", "parameters", "allowed"), REQUESTS)
def test_iam_allows_each_request_and_no_other(
    template: Json, operation: str, parameters: dict[str, str], allowed: tuple[bool, bool]
) -> None:
    """As IAM evaluates the policies: executions are resources of a version, and lists those of the request."""
    [version] = resources(template, "AWS::Lambda::Version")
    [function] = resources(template, "AWS::Lambda::Function", "Approve")
    deployed = Template("Stack", template, {version: f"{DEPLOYED}:3", function: "approve"})
    names = list(deployed.roles())
    roles = [next(one for one in names if one.startswith(name)) for name in ("OrdersConsumerRole", "OrdersAuditRole")]
    [need] = needs_of(lambda_request(operation, **parameters))
    assert tuple(bool(granted(deployed.statements(role), need)) for role in roles) == allowed


def test_an_alias_of_another_stack_is_taken() -> None:
    app = new_app()
    theirs, ours = Stack(app, "Theirs"), Stack(app, "Ours")
    alias = lambda_.Alias(theirs, "Live", alias_name="live", version=durable(theirs).current_version)
    orders(ours, alias)
    template = template_of(ours)
    assert set(of_lambda(template, "OrdersConsumer")) >= {"lambda:InvokeFunction"}
    assert warned(ours, "durable-unknown") == []


@pytest.mark.parametrize("form", ["version", "function"])
def test_an_imported_version_is_taken_with_bounds_and_a_warning(form: str) -> None:
    """Lambda's limits stand in for the values that synthesis cannot see."""
    stack = new_stack(env=PLACE)
    take = lambda_.Version.from_version_arn if form == "version" else lambda_.Function.from_function_arn
    orders(stack, take(stack, "Imported", f"{ARN}:3"))
    template = template_of(stack)
    settings = settings_from(DurableSettings, variables(template, "OrdersConsumer"))
    assert settings.function == f"{ARN}:3"
    assert settings.longest_invocation_seconds == 900
    assert of_lambda(template, "OrdersConsumer") == {
        "lambda:InvokeFunction": f"{ARN}:3",
        "lambda:GetDurableExecution": f"{ARN}:*/durable-execution/*",
        "lambda:ListDurableExecutionsByFunction": [ARN, f"{ARN}:3"],
    }
    [text] = warned(stack, "durable-unknown")
    assert "Stack/Imported" in text
    assert "3 days" in text


def unqualified(stack: Stack) -> lambda_.IFunction:
    return durable(stack)


def latest(stack: Stack) -> lambda_.IFunction:
    return durable(stack).latest_version


def imported_unqualified(stack: Stack) -> lambda_.IFunction:
    return lambda_.Function.from_function_arn(stack, "Approve", ARN)


@pytest.mark.parametrize("make", [unqualified, latest, imported_unqualified])
def test_a_function_that_is_no_version_is_refused(make: Any) -> None:
    stack = new_stack(env=PLACE)
    with refused("durable-unqualified", "Stack/Approve"):
        orders(stack, make(stack))


def test_a_function_that_is_not_durable_is_refused() -> None:
    stack = new_stack()
    with refused("durable-not-enabled", "Stack/Approve"):
        orders(stack, durable(stack, durable_config=None).current_version)


def test_a_function_on_managed_instances_is_refused() -> None:
    stack = new_stack()
    function = durable(stack)
    resource = function.node.default_child
    assert isinstance(resource, lambda_.CfnFunction)
    resource.capacity_provider_config = lambda_.CfnFunction.CapacityProviderConfigProperty(
        lambda_managed_instances_capacity_provider_config=(
            lambda_.CfnFunction.LambdaManagedInstancesCapacityProviderConfigProperty(capacity_provider_arn="provider")
        )
    )
    with refused("durable-managed", "Stack/Approve"):
        orders(stack, function.current_version)


def test_a_function_of_another_place_is_refused() -> None:
    stack = new_stack(env=Environment(account="111122223333", region="eu-west-1"))
    with refused("execution-environment", "111122223333 eu-central-1 and the consumer is in 111122223333 eu-west-1"):
        orders(stack, lambda_.Function.from_function_arn(stack, "Approve", f"{ARN}:3"))


@pytest.mark.parametrize("by_alias", [False, True])
@pytest.mark.failure_mode("F535")
def test_a_version_that_a_deployment_removes_is_refused(by_alias: bool) -> None:
    """CDK removes the current version by default."""
    stack = new_stack()
    version = durable(stack, current_version_options=None).current_version
    with refused("durable-version-removed", "RETAIN"):
        orders(stack, lambda_.Alias(stack, "Live", alias_name="live", version=version) if by_alias else version)


def test_executions_that_may_run_for_longer_are_refused() -> None:
    stack = new_stack()
    with refused("execution-timeout", "2 days and the processor has a timeout of 1 day"):
        orders(stack, durable(stack).current_version, days=1)


@pytest.mark.failure_mode("F536")
def test_an_outcome_that_lambda_forgets_before_two_audits_is_refused() -> None:
    stack = new_stack()
    config = lambda_.DurableConfig(execution_timeout=Duration.days(2), retention_period=Duration.days(1))
    version = durable(stack, durable_config=config).current_version
    with refused("durable-retention", "at least 2 days"):
        orders(stack, version)
    other = Processor.from_durable_function(version, timeout=Duration.days(3))
    IntakePipeline(stack, "Often", processor=other, audit=AuditOptions(interval=Duration.hours(12)))


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"days": 366}, "execution-timeout-range"),
        ({"concurrency": ConcurrencyOptions(threads=2)}, "executions-without-threads"),
        ({"concurrency": ConcurrencyOptions(commit_together=True)}, "executions-without-commit-together"),
    ],
)
def test_options_that_cannot_work_are_refused(options: Json, rule: str) -> None:
    stack = new_stack()
    with refused(rule, ""):
        orders(stack, durable(stack).current_version, **options)


def test_outputs_of_a_durable_function_are_granted_to_it() -> None:
    stack = new_stack()
    pipeline = orders(stack, durable(stack).current_version)
    with refused("output-elsewhere", "the durable function Stack/Approve/CurrentVersion"):
        pipeline.grant_output(s3.Bucket(stack, "Outputs"), "out/")
