"""The stacks of the example of long work."""

import json

import pytest
from cfnlint.api import ManualArgs, lint  # type: ignore[import-untyped]
from examples.long_work.stack import SHORT, STACK, FargateStack, WordsStack

from tests.synth.build import Json, actions, new_app, only, resources, statements, template_of, variables, warnings
from tests.synth.test_cfn_lint import ACCEPTED, REGIONS


@pytest.fixture(scope="module")
def fargate() -> Json:
    return template_of(FargateStack(new_app(), "Fargate"))


def definition(template: Json) -> Json:
    """The machine's definition, with a text in the place of each reference."""
    text = only(template, "AWS::StepFunctions::StateMachine")["DefinitionString"]["Fn::Join"][1]
    return dict(json.loads("".join(part if isinstance(part, str) else "reference" for part in text)))


def test_the_example_synthesises_without_warnings() -> None:
    stack = WordsStack(new_app(), STACK)
    template = template_of(stack)
    assert [text for text in warnings(stack) if "intake-ledger" in text] == []
    assert variables(template, "TextsConsumer")["INTAKE_EXECUTION_SECONDS"] == "10800"
    assert definition(template)["TimeoutSeconds"] == 10_800


def test_the_short_times_of_the_demonstration_are_valid() -> None:
    template = template_of(WordsStack(new_app(), STACK, **SHORT))
    assert variables(template, "TextsConsumer")["INTAKE_LONGEST_TASK_SECONDS"] == "2"


def test_the_machine_waits_for_the_container(fargate: Json) -> None:
    """`.sync` is RUN_JOB: the state ends with the container."""
    run = definition(fargate)["States"]["Run"]
    assert run["Resource"].endswith(":states:::ecs:runTask.sync")
    assert run["TimeoutSeconds"] == 10_800
    [retry] = run["Retry"]
    assert "ECS.AmazonECSException" in retry["ErrorEquals"]


def test_the_container_gets_the_version_and_the_fence_as_texts(fargate: Json) -> None:
    overrides = definition(fargate)["States"]["Run"]["Parameters"]["Overrides"]["ContainerOverrides"]
    [container] = overrides
    assert {entry["Name"]: entry["Value.$"] for entry in container["Environment"]} == {
        "BUCKET": "$.bucket",
        "KEY": "$.key",
        "VERSION_ID": "$.versionId",
        "FENCE": "$.fenceText",
        "IDEMPOTENCY_KEY": "$.idempotencyKey",
    }


def test_the_output_of_the_machine_is_a_commit(fargate: Json) -> None:
    assert definition(fargate)["States"]["Done"]["Parameters"] == {"commit.$": "$.idempotencyKey"}


def test_the_machine_may_stop_its_container(fargate: Json) -> None:
    allowed = {action for statement in statements(fargate, "Machine") for action in actions(statement)}
    assert allowed >= {"ecs:RunTask", "ecs:StopTask", "ecs:DescribeTasks", "iam:PassRole"}


def test_the_pipeline_learns_of_the_end(fargate: Json) -> None:
    [machine] = resources(fargate, "AWS::StepFunctions::StateMachine")
    rule = only(fargate, "AWS::Events::Rule", "Recordings")
    assert rule["EventPattern"]["detail"]["stateMachineArn"] == [{"Ref": machine}]


@pytest.mark.thorough
@pytest.mark.parametrize("stack", [WordsStack, FargateStack])
def test_cfn_lint_finds_nothing(stack: type[WordsStack | FargateStack]) -> None:
    template = json.dumps(template_of(stack(new_app(), "Example")))
    findings = lint(template, config=ManualArgs(regions=REGIONS))
    ours = [finding for finding in findings if not str(finding.path[1]).startswith("Network")]
    assert [f"{finding.rule.id} {finding.message}" for finding in ours if finding.rule.id not in ACCEPTED] == []
