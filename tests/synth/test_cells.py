"""Each kind of work (objects, messages, sets) x each processor (here, another function, a state machine, a durable
function) x each host.

One stack has all of them, and the runtime reads the variables that synthesis gives to each.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import Duration, Environment, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn

from cdk_intake_ledger import (
    FileSets,
    IntakePipeline,
    IntakeWorkers,
    MessageSource,
    MonitoringOptions,
    Processor,
    SetForm,
)
from intake_ledger.consumer.composition import make_parts, make_runner
from intake_ledger.worker.worker import make_worker
from tests.synth.build import (
    Json,
    actions,
    new_app,
    new_stack,
    only,
    processor,
    refused,
    resources,
    statements,
    template_of,
)
from tests.synth.message_stack import changes_table, messages, record_stream

MACHINE = "arn:aws:states:eu-central-1:111122223333:stateMachine:Work"
FUNCTION = "arn:aws:lambda:eu-central-1:111122223333:function:work"
PLACE = Environment(account="111122223333", region="eu-central-1")
KINDS = ("Objects", "Messages", "Sets")
RUNNERS = ("Inline", "Remote", "Later", "Durable")
EXECUTIONS = ("Later", "Durable")
FORM = SetForm.manifest("loads/*/manifest.json")
CELLS = [(kind, runner) for kind in KINDS for runner in RUNNERS]


def processors(stack: Stack) -> dict[str, Processor]:
    """A processor for each runner."""
    machine = sfn.StateMachine.from_state_machine_arn(stack, "Machine", MACHINE)
    return {
        "Inline": processor(),
        "Remote": Processor.from_function(lambda_.Function.from_function_arn(stack, "Function", FUNCTION)),
        "Later": Processor.from_state_machine(machine, timeout=Duration.hours(2)),
        "Durable": Processor.from_durable_function(
            lambda_.Version.from_version_arn(stack, "Version", f"{FUNCTION}:3"), timeout=Duration.days(3)
        ),
    }


def make(stack: Stack, kind: str, name: str, given: Processor, **options: Any) -> Any:
    """The construct of this kind."""
    if kind == "Messages":
        return messages(stack, name, options.pop("source", MessageSource.sqs()), processor=given, **options)
    if kind == "Objects":
        return IntakePipeline(stack, name, processor=given, **options)
    parts = IntakePipeline(stack, f"Parts{name}", processor=processor())
    return FileSets(stack, name, pipeline=parts, form=FORM, processor=given, **options)


def workers_of(stack: Stack, made: Any, name: str = "Workers", **options: Any) -> IntakeWorkers:
    """Workers of a construct, in the cluster of the stack."""
    cluster = stack.node.try_find_child("Cluster")
    if not isinstance(cluster, ecs.Cluster):
        cluster = ecs.Cluster(stack, "Cluster", vpc=ec2.Vpc(stack, "Network", nat_gateways=0))
    image = ecs.ContainerImage.from_registry("example/orders")
    return IntakeWorkers(stack, name, intake=made, cluster=cluster, image=image, **options)


@pytest.fixture(scope="module")
def template() -> Json:
    stack = new_stack(env=PLACE)
    made: dict[tuple[str, str], Any] = {}
    for runner, given in processors(stack).items():
        # All alarms of all cells are more resources than a stack may have.
        alarms = MonitoringOptions(alarms=["StartRefused" if runner in EXECUTIONS else "DeadLetters"])
        options: dict[str, Any] = {"processor": given, "monitoring": alarms}
        made["Objects", runner] = IntakePipeline(stack, f"Objects{runner}", **options)
        made["Sets", runner] = FileSets(stack, f"Sets{runner}", pipeline=made["Objects", runner], form=FORM, **options)
        made["Messages", runner] = messages(stack, f"Messages{runner}", MessageSource.sqs(), **options)
    role = iam.Role(stack, "Task", assumed_by=iam.ServicePrincipal("ecs-tasks.amazonaws.com"))
    made["Sets", "Later"].grant_read(role)
    for (kind, runner), one in made.items():
        workers_of(stack, one, f"Workers{kind}{runner}")
    return template_of(stack)


def text(value: Any) -> str:
    """A value of a template, with `reference` for each reference."""
    if isinstance(value, dict) and "Fn::Join" in value:
        return "".join(text(part) for part in value["Fn::Join"][1])
    return value if isinstance(value, str) else "reference"


def environment(template: Json, cell: str, host: str) -> dict[str, str]:
    """The variables of the function or of the task."""
    if host == "Lambda":
        found = only(template, "AWS::Lambda::Function", f"{cell}Consumer")["Environment"]["Variables"]
    else:
        [container] = only(template, "AWS::ECS::TaskDefinition", f"Workers{cell}Task")["ContainerDefinitions"]
        found = {entry["Name"]: entry["Value"] for entry in container["Environment"]}
    return {name: text(value) for name, value in found.items()}


@pytest.mark.parametrize("host", ["Lambda", "Worker"])
@pytest.mark.parametrize(("kind", "runner"), CELLS)
def test_the_runtime_makes_each_cell_from_the_variables(
    template: Json, monkeypatch: pytest.MonkeyPatch, kind: str, runner: str, host: str
) -> None:
    """Lambda's entry point and the worker read the same variables."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    given = environment(template, kind + runner, host)
    if runner == "Inline":
        given["INTAKE_PROCESSOR"] = "json:dumps"  # the processor of the tests is not installed here
    parts = make_parts(given)
    assert type(parts.kind).__name__ == kind
    assert type(make_runner(given, parts.services)).__name__ == {"Durable": "Later"}.get(runner, runner)
    if host == "Worker":
        make_worker(given)


@pytest.mark.parametrize(("kind", "runner"), CELLS)
def test_the_function_has_the_one_entry_point(template: Json, kind: str, runner: str) -> None:
    """An inline module imports it from the layer."""
    function = only(template, "AWS::Lambda::Function", f"{kind}{runner}Consumer")
    handler = {"Inline": "intake_ledger.consumer.handler"}.get(runner, "index.handler")
    assert function["Handler"] == handler
    if runner != "Inline":
        assert function["Code"] == {"ZipFile": "from intake_ledger.consumer import handler\n"}
        assert "INTAKE_PROCESSOR_VERSION" not in function["Environment"]["Variables"]


@pytest.mark.parametrize(("kind", "runner"), CELLS)
def test_the_role_may_use_its_processor_and_no_other(template: Json, kind: str, runner: str) -> None:
    expected = {
        "Inline": {},
        "Remote": {("Allow", "lambda:InvokeFunction"): FUNCTION},
        "Later": {
            ("Allow", "states:DescribeExecution"): MACHINE.replace("stateMachine", "execution") + ":*",
            ("Allow", "states:StartExecution"): MACHINE,
            ("Deny", "states:RedriveExecution"): MACHINE.replace("stateMachine", "execution") + ":*",
        },
        "Durable": {
            # Executions of each version, and no other action on them.
            ("Allow", "lambda:GetDurableExecution"): f"{FUNCTION}:*/durable-execution/*",
            # By its name, an execution is found with the function's ARN only.
            ("Allow", "lambda:ListDurableExecutionsByFunction"): [FUNCTION, f"{FUNCTION}:3"],
            ("Allow", "lambda:InvokeFunction"): f"{FUNCTION}:3",
        },
    }[runner]
    found = {
        (one["Effect"], action): (
            resource
            if isinstance(resource := one["Resource"], list)
            else text(resource).replace("arn:reference:", "arn:aws:")
        )
        for one in statements(template, f"{kind}{runner}Consumer")
        for action in actions(one)
        if action.startswith(("lambda:", "states:")) and action != "lambda:ListEventSourceMappings"
    }
    assert found == expected


@pytest.mark.parametrize(("kind", "runner"), CELLS)
def test_the_ends_of_executions_wake_objects_and_sets(template: Json, kind: str, runner: str) -> None:
    """A message stays in the queue and asks. Its queue takes nothing but messages. The event of a durable execution has
    no input, which would name the row.
    """
    rules = resources(template, "AWS::Events::Rule", f"{kind}{runner}Consumer")
    assert len(rules) == (runner == "Later" and kind != "Messages")
    for rule in rules.values():
        [target] = rule["Properties"]["Targets"]
        assert target["Arn"]["Fn::GetAtt"][0].startswith(f"{kind}{runner}Queue")


@pytest.mark.parametrize(("kind", "runner"), CELLS)
def test_refused_starts_have_an_alarm_in_each_kind(template: Json, kind: str, runner: str) -> None:
    alarms = resources(template, "AWS::CloudWatch::Alarm", f"{kind}{runner}MonitoringStartRefused")
    assert len(alarms) == (runner in EXECUTIONS)


@pytest.mark.parametrize("runner", RUNNERS)
def test_lists_of_parts_are_in_a_separate_bucket(template: Json, runner: str) -> None:
    """A pipeline without filters would process a list in its bucket as an upload."""
    buckets = resources(template, "AWS::S3::Bucket", f"Sets{runner}PartLists")
    assert len(buckets) == (runner != "Inline")
    function = only(template, "AWS::Lambda::Function", f"Sets{runner}Consumer")["Environment"]["Variables"]
    assert ("INTAKE_PART_LISTS" in function) == (runner != "Inline")
    stored = [one for one in statements(template, f"Sets{runner}Consumer") if "s3:PutObject" in actions(one)]
    for name, bucket in buckets.items():
        assert function["INTAKE_PART_LISTS"] == {"Fn::Join": ["", [{"Ref": name}, "/parts/"]]}
        [rule] = bucket["Properties"]["LifecycleConfiguration"]["Rules"]
        assert rule["ExpirationInDays"] == 30
        [one] = stored
        assert one["Resource"] == {"Fn::Join": ["", [{"Fn::GetAtt": [name, "Arn"]}, "/parts/*"]]}
    assert len(stored) == len(buckets)


def test_a_task_may_read_the_lists_and_the_parts(template: Json) -> None:
    granted = [
        resource
        for one in statements(template, "Task")
        if "s3:GetObject" in actions(one)
        for resource in (one["Resource"] if isinstance(one["Resource"], list) else [one["Resource"]])
    ]
    names = sorted(resource["Fn::Join"][1][0]["Fn::GetAtt"][0] for resource in granted)
    assert [
        name.startswith(begin) for name, begin in zip(names, ("ObjectsLaterBucket", "SetsLaterPartLists"), strict=True)
    ]


@pytest.mark.parametrize(("kind", "runner"), CELLS)
def test_workers_have_the_queue_and_the_role_of_their_construct(template: Json, kind: str, runner: str) -> None:
    mapping = only(template, "AWS::Lambda::EventSourceMapping", f"{kind}{runner}Consumer")
    assert mapping["Enabled"] is False
    task = only(template, "AWS::ECS::TaskDefinition", f"Workers{kind}{runner}Task")
    assert task["TaskRoleArn"]["Fn::GetAtt"][0].startswith(f"{kind}{runner}ConsumerRole")
    assert (
        only(template, "AWS::Lambda::Function", f"{kind}{runner}Consumer")["Environment"]["Variables"]["INTAKE_WORKERS"]
        == "true"
    )


SOURCES: dict[str, Callable[[Stack], MessageSource]] = {
    "fifo": lambda _: MessageSource.fifo(),
    "kinesis": lambda stack: MessageSource.kinesis(record_stream(stack)),
    "dynamodb": lambda stack: MessageSource.dynamodb(changes_table(stack)),
}


@pytest.mark.parametrize("runner", EXECUTIONS)
@pytest.mark.parametrize(("source", "behind"), [("fifo", "message group"), ("kinesis", "shard"), ("dynamodb", "shard")])
def test_no_group_and_no_shard_waits_for_hours(source: str, behind: str, runner: str) -> None:
    stack = new_stack(env=PLACE)
    with refused("message-executions", f"the source is {source}: all later messages of the {behind} would wait"):
        make(stack, "Messages", "Shop", processors(stack)[runner], source=SOURCES[source](stack))


@pytest.mark.parametrize("source", ["kinesis", "dynamodb"])
def test_workers_do_not_read_streams(source: str) -> None:
    stack = new_stack()
    made = make(stack, "Messages", "Shop", processor(), source=SOURCES[source](stack))
    with refused("worker-stream", f"a {source} stream"):
        workers_of(stack, made)


def test_workers_read_fifo_queues() -> None:
    stack = new_stack()
    workers_of(stack, make(stack, "Messages", "Shop", processor(), source=MessageSource.fifo()))


def slow(stack: Stack) -> Processor:
    """A function that runs for longer than a consumer waits for it."""
    function = lambda_.Function(
        stack,
        "Slow",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=lambda_.Code.from_inline("def handler(event, context): return {'commit': None}"),
        timeout=Duration.seconds(51),
    )
    return Processor.from_function(function)


def machine(stack: Stack, *, kind: sfn.StateMachineType = sfn.StateMachineType.STANDARD, **times: Any) -> Processor:
    """A state machine of the app."""
    work = sfn.DefinitionBody.from_chainable(sfn.Pass(stack, "Pass"))
    made = sfn.StateMachine(stack, "Made", definition_body=work, timeout=Duration.minutes(4), state_machine_type=kind)
    return Processor.from_state_machine(made, **times)


def durable(stack: Stack, *, timeout: Duration | None = None, keep: bool = True) -> Processor:
    """A version of a durable function of the app, whose executions may run for three days."""
    function = lambda_.Function(
        stack,
        "Durable",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=lambda_.Code.from_inline("def handler(event, context): return {'commit': None}"),
        durable_config=lambda_.DurableConfig(execution_timeout=Duration.days(3)),
        current_version_options=lambda_.VersionOptions(removal_policy=RemovalPolicy.RETAIN if keep else None),
    )
    return Processor.from_durable_function(function.current_version, timeout=timeout or Duration.days(3))


MISTAKES: list[tuple[str, str, Callable[[Stack], Processor]]] = [
    ("processor-ends-before-consumer", "at least 61 seconds", slow),
    ("machine-express", "Stack/Made", lambda stack: machine(stack, kind=sfn.StateMachineType.EXPRESS)),
    ("execution-timeout", "4 minutes", lambda stack: machine(stack, timeout=Duration.minutes(3))),
    ("execution-timeout-range", "366 days", lambda stack: machine(stack, timeout=Duration.days(366))),
    ("execution-timeout-range", "366 days", lambda stack: durable(stack, timeout=Duration.days(366))),
    (
        "execution-timeout",
        "3 days and the processor has a timeout of 2 days",
        lambda stack: durable(stack, timeout=Duration.days(2)),
    ),
    ("durable-version-removed", "Stack/Durable/CurrentVersion", lambda stack: durable(stack, keep=False)),
]
"""Rule, text and processor, for each kind of work."""


@pytest.mark.parametrize("kind", ["Messages", "Sets"])
@pytest.mark.parametrize(("rule", "value", "given"), MISTAKES)
def test_processors_that_cannot_work_are_refused_in_each_kind(
    kind: str, rule: str, value: str, given: Callable[[Stack], Processor]
) -> None:
    """The pipeline's own tests are in test_state_machine.py, test_durable_function.py and test_from_function.py."""
    stack = new_stack()
    with refused(rule, value):
        make(stack, kind, "Work", given(stack))


def test_workers_wait_for_as_long_as_the_function_runs() -> None:
    stack = new_stack()
    made = make(stack, "Objects", "Orders", slow(stack), processing_timeout=Duration.seconds(90))
    with refused("worker-ends-after-function", "60 seconds|1 minute"):
        workers_of(stack, made, processing_timeout=Duration.seconds(60))
    workers_of(stack, made, "Longer", processing_timeout=Duration.seconds(61))


def test_lists_have_the_key_of_the_queue() -> None:
    """The role of the sets may use it already. A reader gets it."""
    stack = new_stack()
    key = kms.Key(stack, "Key")
    orders = IntakePipeline(stack, "Orders", processor=processor(), encryption_key=key)
    loads = FileSets(stack, "Loads", pipeline=orders, form=FORM, processor=processors(stack)["Remote"])
    assert loads.part_lists is not None
    assert loads.part_lists.encryption_key is key
    role = iam.Role(stack, "Reader", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    granted = loads.grant_read(role).principal_statements
    assert [one.actions for one in granted].count(["kms:Decrypt"]) == 2


def test_sets_and_their_function_of_another_stack_do_not_depend_on_each_other() -> None:
    app = new_app()
    theirs, ours = Stack(app, "Theirs"), Stack(app, "Ours")
    given = slow(theirs)
    loads = make(ours, "Sets", "Loads", given, processing_timeout=Duration.seconds(61))
    assert given.function is not None
    loads.grant_read(given.function)
    found = [one for one in statements(template_of(ours), "PartsLoadsReader") if "s3:GetObject" in actions(one)]
    assert {name for one in found for name in re.findall("LoadsPartLists|PartsLoadsBucket", json.dumps(one))} == {
        "LoadsPartLists",
        "PartsLoadsBucket",
    }
