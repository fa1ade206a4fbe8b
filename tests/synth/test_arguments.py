"""Types of arguments: `wrong_arguments.txt` is the table of wrong ones, each with its message."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import jsii
import pytest
from aws_cdk import CfnParameter, Duration, RemovalPolicy, Stack, Token
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn

import cdk_intake_ledger
from cdk_intake_ledger import (
    AuditScale,
    ConcurrencyOptions,
    FileSets,
    IntakeConfigurationError,
    IntakeLedger,
    IntakePipeline,
    IntakeQueue,
    IntakeWorkers,
    MessageIntake,
    MessageSource,
    MonitoringOptions,
    Processor,
    SetForm,
)
from cdk_intake_ledger.checks.arguments.annotations import accepts
from tests.synth.build import new_stack, processor, rules_in

TABLE = (Path(__file__).parent / "wrong_arguments.txt").read_text(encoding="utf-8")
CASES = [tuple(map(str.strip, case.split("\n"))) for case in TABLE.strip().split("\n\n")[1:]]
"""Each case: the call with the wrong argument, and the message."""

CALLS: Mapping[str, tuple[Callable[..., Any], Mapping[str, Any]]] = {
    "IntakePipeline": (IntakePipeline, {"id": "Orders", "processor": None}),
    "MessageIntake": (MessageIntake, {"id": "Orders", "source": None, "key": "k", "identity": "i", "processor": None}),
    "FileSets": (FileSets, {"id": "Loads", "pipeline": None, "form": None, "processor": None}),
    "IntakeWorkers": (IntakeWorkers, {"id": "Workers", "intake": None, "cluster": None, "image": None}),
    "IntakeQueue": (IntakeQueue, {"id": "Queue"}),
    "IntakeLedger": (IntakeLedger, {"id": "Ledger"}),
    "Processor.from_asset": (Processor.from_asset, {"path": "orders", "entrypoint": "orders:process"}),
    "Processor.from_code": (Processor.from_code, {"code": None, "entrypoint": "orders:process"}),
    "Processor.from_image": (Processor.from_image, {"image": "orders", "entrypoint": "o:p", "architecture": None}),
    "AuditScale.inventory": (AuditScale.inventory, {"bucket": None, "id": "all"}),
    "NetworkOptions": (cdk_intake_ledger.NetworkOptions, {"vpc": None}),
    "SetForm.manifest": (SetForm.manifest, {"pattern": "loads/*/manifest.json"}),
    "SetForm.quiet_prefix": (SetForm.quiet_prefix, {"pattern": "drops/*/"}),
    "Processor.from_state_machine": (Processor.from_state_machine, {"machine": None}),
    "Processor.from_durable_function": (Processor.from_durable_function, {"function": None}),
    "pipeline.grant_output": (IntakePipeline.grant_output, {"bucket": None, "prefix": "grey/"}),
    "pipeline.grant_put": (IntakePipeline.grant_put, {}),
}
"""Calls that need more than the wrong argument. None stands for a right value."""


class Values:
    """The values that the table names."""

    def __init__(self) -> None:
        """Make them in one stack."""
        stack = new_stack()
        code = lambda_.Code.from_inline("def handler(event, context): ...")
        self.queue = sqs.Queue(stack, "Jobs")
        self.topic = sns.Topic(stack, "Alerts")
        self.bucket = s3.Bucket(stack, "Files", versioned=True)
        self.vpc = ec2.Vpc(stack, "Vpc")
        self.table = dynamodb.Table(
            stack, "Rows", partition_key=dynamodb.Attribute(name="key", type=dynamodb.AttributeType.STRING)
        )
        self.function = lambda_.Function(
            stack, "Function", runtime=lambda_.Runtime.PYTHON_3_12, handler="index.handler", code=code
        )
        self.machine = sfn.StateMachine(
            stack, "Machine", definition_body=sfn.DefinitionBody.from_chainable(sfn.Pass(stack, "Pass"))
        )
        self.right = {
            "scope": new_stack(),
            "processor": processor(),
            "bucket": self.bucket,
            "vpc": self.vpc,
            "code": code,
            "architecture": lambda_.Architecture.ARM_64,
            "source": MessageSource.sqs(),
            "form": SetForm.marker("exports/*/_SUCCESS"),
            "machine": self.machine,
            "pipeline": IntakePipeline(stack, "Pipeline", processor=processor()),
        }
        self.right["intake"] = self.right["pipeline"]
        self.names = {
            **vars(cdk_intake_ledger),
            **{name: getattr(cdk_intake_ledger, name) for name in cdk_intake_ledger.__all__},
            "s3": s3,
            "Duration": Duration,
            "timedelta": timedelta,
            "queue": self.queue,
            "topic": self.topic,
            "table": self.table,
            "bucket": self.bucket,
            "function": self.function,
            "machine": self.machine,
            "pipeline": self.right["pipeline"],
        }


@pytest.fixture(scope="module")
def values() -> Values:
    return Values()


def refused(call: str, values: Values) -> IntakeConfigurationError:
    """The error of a call that the table has, such as `RetryOptions(max_attempts="12")`."""
    name, _, argument = call.removesuffix(")").partition("(")
    function, required = CALLS.get(name) or (eval(name, dict(values.names)), {})
    wrong = eval(f"dict({argument})", dict(values.names))
    options = {one: values.right.get(one) if value is None else value for one, value in required.items()}
    if "id" in required and name != "AuditScale.inventory":
        options["scope"] = values.right["scope"]
    if name.startswith("pipeline."):
        options["self"] = values.right["pipeline"]
    with pytest.raises(IntakeConfigurationError) as caught:
        function(**(options | wrong))
    return caught.value


@pytest.mark.parametrize(("call", "message"), CASES, ids=[case[0] for case in CASES])
def test_a_wrong_argument_is_refused_with_value_and_fix(call: str, message: str, values: Values) -> None:
    error = refused(call, values)

    [problem] = [one for one in error.problems if one.startswith(message.split(" is ", 1)[0])]
    assert problem == f"{message} [intake-ledger:argument-type]"
    assert rules_in(problem) == ["argument-type"]


def test_the_table_has_a_hundred_wrong_arguments() -> None:
    assert len({call for call, _ in CASES}) == len(CASES) >= 100


def test_all_wrong_arguments_of_a_call_are_reported_at_once_with_the_path() -> None:
    with pytest.raises(IntakeConfigurationError) as caught:
        IntakePipeline(new_stack(), "Orders", processor=processor(), bucket="in", ordering=1)  # type: ignore[arg-type]

    assert caught.value.path == "Stack/Orders"
    assert [problem.split(" is ")[0] for problem in caught.value.problems] == ["bucket", "ordering"]


def test_a_wrong_argument_of_a_method_names_construct_and_method(values: Values) -> None:
    assert refused("pipeline.grant_output(bucket='results')", values).path == "Stack/Pipeline.grant_output"
    assert refused("RetryOptions(max_attempts='12')", values).path == "RetryOptions"


def test_a_refused_construct_is_not_in_the_tree() -> None:
    stack = new_stack()
    with pytest.raises(IntakeConfigurationError):
        IntakePipeline(stack, "Orders", processor=processor(), deletes="no")  # type: ignore[arg-type]
    assert stack.node.try_find_child("Orders") is None


def test_each_public_class_checks_its_arguments() -> None:
    """Enums, the error and the common base are the only classes without arguments of the user."""
    unchecked = {
        name
        for name in cdk_intake_ledger.__all__
        if not hasattr(getattr(cdk_intake_ledger, name).__init__, "__wrapped__")
    }
    enums = {"Delivery", "Engine", "Existing", "ManifestFormat", "Ordering", "Reasons"}
    assert unchecked == {"Intake", "IntakeConfigurationError", *enums}
    assert hasattr(Processor.from_asset, "__wrapped__")
    assert hasattr(IntakePipeline.grant_put, "__wrapped__")
    assert hasattr(IntakePipeline.metric, "__wrapped__")


@pytest.mark.parametrize(
    ("given", "option"), [(timedelta(minutes=2), "clock_skew"), (timedelta(milliseconds=1500), "max_batching_window")]
)
def test_a_timedelta_is_a_duration(given: timedelta, option: str) -> None:
    options: dict[str, Any] = {option: given}
    duration = getattr(ConcurrencyOptions(**options), option)
    assert duration.to_milliseconds() == given // timedelta(milliseconds=1)


def test_a_name_is_the_member_of_an_enum(values: Values) -> None:
    pipeline = IntakePipeline(
        new_stack(),
        "Orders",
        processor=processor(),
        ordering="every_version",  # type: ignore[arg-type]
        delivery="EVENTBRIDGE",  # type: ignore[arg-type]
        removal_policy="destroy",  # type: ignore[arg-type]
    )
    assert isinstance(pipeline, IntakePipeline)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (int, Token.as_number(Token.as_any(5))),
        (str, Token.as_string(Token.as_any("x"))),
        (Duration | None, None),
        (RemovalPolicy, RemovalPolicy.DESTROY),
        (float, 5),
    ],
)
def test_right_values_and_tokens_are_accepted(annotation: Any, value: object) -> None:
    assert accepts(annotation, value)


def test_a_parameter_of_the_stack_is_a_number() -> None:
    number = CfnParameter(new_stack(), "Threads", type="Number").value_as_number
    assert ConcurrencyOptions(max_concurrency=number).max_concurrency == number  # type: ignore[arg-type]


def test_an_interface_of_cdk_is_its_members() -> None:
    """A user's own class needs the members only, as for CDK."""

    @jsii.implements(cloudwatch.IAlarmAction)
    class Page:
        def bind(self, scope: Any, alarm: Any) -> cloudwatch.AlarmActionConfig:
            return cloudwatch.AlarmActionConfig(alarm_action_arn="arn:aws:sns:eu-west-1:123456789012:page")

    assert MonitoringOptions(alarm_actions=[Page()]).alarm_actions
    assert not accepts(cloudwatch.IAlarmAction, object())
    assert not accepts(cloudwatch.IAlarmAction, Page)


def test_an_imported_construct_is_accepted() -> None:
    stack: Stack = new_stack()
    bucket = s3.Bucket.from_bucket_name(stack, "Existing", "the-bucket")
    assert accepts(s3.IBucket, bucket)
    assert not accepts(s3.IBucket, sqs.Queue.from_queue_arn(stack, "Q", "arn:aws:sqs:eu-west-1:123456789012:jobs"))
