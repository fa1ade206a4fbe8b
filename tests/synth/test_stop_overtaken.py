"""`stop_overtaken`: the permission to stop executions, and the constructs that refuse it."""

from contextlib import nullcontext
from typing import Any

import pytest
from aws_cdk import Duration, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn

from cdk_intake_ledger import IntakePipeline, Ordering, Processor
from intake_ledger.protocol.settings import settings_from
from intake_ledger.protocol.settings_durable import DurableSettings
from intake_ledger.protocol.settings_executions import execution_settings
from tests.synth.build import Json, new_stack, refused, statements, template_of, variables
from tests.synth.test_cells import FUNCTION, MACHINE, PLACE, make, text

LONGEST_TASK = Duration.minutes(10)


def of_machine(stack: Stack, **options: Any) -> Processor:
    machine = sfn.StateMachine.from_state_machine_arn(stack, "Machine", MACHINE)
    given: dict[str, Any] = {"longest_task": LONGEST_TASK, "stop_overtaken": True}
    return Processor.from_state_machine(machine, **given | options)


def of_function(stack: Stack) -> Processor:
    version = lambda_.Version.from_version_arn(stack, "Version", f"{FUNCTION}:3")
    return Processor.from_durable_function(version, timeout=Duration.days(3), stop_overtaken=True)


@pytest.fixture(scope="module")
def template() -> Json:
    stack = new_stack(env=PLACE)
    IntakePipeline(stack, "Machines", processor=of_machine(stack))
    IntakePipeline(stack, "Functions", processor=of_function(stack))
    return template_of(stack)


def stops(template: Json, role: str) -> dict[str, str]:
    """The executions that a role may stop, by the action."""
    return {
        action: text(one["Resource"]).replace("arn:reference:", "arn:aws:")
        for one in statements(template, role)
        for action in ([one["Action"]] if isinstance(one["Action"], str) else one["Action"])
        if "Stop" in action
    }


def test_the_consumer_may_stop_the_executions_of_its_processor(template: Json) -> None:
    """The audit stops none."""
    of_machines = {"states:StopExecution": MACHINE.replace("stateMachine", "execution") + ":*"}
    assert stops(template, "MachinesConsumer") == of_machines
    assert stops(template, "FunctionsConsumer") == {"lambda:StopDurableExecution": f"{FUNCTION}:*/durable-execution/*"}
    assert stops(template, "MachinesAudit") == stops(template, "FunctionsAudit") == {}


def test_the_consumer_reads_the_option(template: Json) -> None:
    assert execution_settings(variables(template, "MachinesConsumer")).stop_overtaken
    assert settings_from(DurableSettings, variables(template, "FunctionsConsumer")).stop_overtaken


@pytest.mark.parametrize("processor", [of_machine, of_function])
@pytest.mark.parametrize(
    ("kind", "options", "place"),
    [
        ("Objects", {"ordering": Ordering.EVERY_VERSION}, "a pipeline with the ordering EVERY_VERSION"),
        ("Messages", {}, "an intake of messages"),
        ("Sets", {}, "for sets of files"),
    ],
)
def test_it_is_refused_where_no_version_is_overtaken(processor: Any, kind: str, options: Json, place: str) -> None:
    stack = new_stack(env=PLACE)
    with refused("stop-overtaken", f"stop_overtaken is on, and Stack/Intake is {place}"):
        make(stack, kind, "Intake", processor(stack), **options)


def test_a_stop_that_lets_the_newer_version_begin_no_earlier_is_refused() -> None:
    """`longest_task` is the timeout when it is omitted."""
    stack = new_stack(env=PLACE)
    with refused("stop-overtaken-before-timeout", "longest_task is 6 hours and the timeout of an execution is 6 hours"):
        make(stack, "Objects", "Intake", of_machine(stack, longest_task=None))


@pytest.mark.parametrize(("hours", "works"), [(2, True), (1, False)])
def test_the_timeout_of_the_machine_counts_if_it_is_shorter(hours: int, *, works: bool) -> None:
    stack = new_stack(env=PLACE)
    pause = sfn.Wait(stack, "Pause", time=sfn.WaitTime.duration(Duration.minutes(5)))
    machine = sfn.StateMachine(
        stack,
        "Machine",
        definition_body=sfn.DefinitionBody.from_chainable(pause),
        timeout=Duration.hours(hours),
    )
    given = Processor.from_state_machine(machine, longest_task=Duration.hours(1), stop_overtaken=True)
    text = "longest_task is 1 hour and the timeout of an execution is 1 hour"
    with nullcontext() if works else refused("stop-overtaken-before-timeout", text):
        make(stack, "Objects", "Intake", given)
