"""`Processor.from_state_machine`: a state machine as the processor."""

import json
from typing import Any

import pytest
from aws_cdk import Duration, Environment, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks

from cdk_intake_ledger import ConcurrencyOptions, IntakePipeline, Processor
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
    template_with,
    variables,
    warned,
)

ARN = "arn:aws:states:eu-central-1:111122223333:stateMachine:transcribe"


def machine(stack: Stack, **options: Any) -> sfn.StateMachine:
    """A machine whose task reads the object, with a timeout of 3 hours."""
    function = lambda_.Function(
        stack,
        "Task",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=lambda_.Code.from_inline("def handler(event, context): return {'commit': None}"),
    )
    work = tasks.LambdaInvoke(stack, "Work", lambda_function=function, payload_response_only=True)
    settings: dict[str, Any] = {
        "definition_body": sfn.DefinitionBody.from_chainable(work),
        "timeout": Duration.hours(3),
    }
    return sfn.StateMachine(stack, "Machine", **(settings | options))


def orders(stack: Stack, *, times: Json | None = None, **options: Any) -> IntakePipeline:
    return IntakePipeline(
        stack, "Orders", processor=Processor.from_state_machine(machine(stack), **(times or {})), **options
    )


@pytest.mark.failure_mode("F254")
def test_refused_starts_have_an_alarm(template: Json) -> None:
    """A pipeline without a state machine does not have it."""
    alarm = only(template, "AWS::CloudWatch::Alarm", "OrdersMonitoringStartRefused")
    assert (alarm["MetricName"], alarm["DatapointsToAlarm"], alarm["EvaluationPeriods"]) == ("StartRefused", 2, 12)


@pytest.fixture(scope="module")
def template() -> Json:
    stack = new_stack()
    pipeline = orders(stack)
    # The usual form: a task reads the pipeline's bucket. It must not make a cycle.
    task = stack.node.find_child("Task")
    assert isinstance(task, lambda_.Function)
    pipeline.bucket.grant_read(task)
    return template_of(stack)


def of_states(template: Json) -> dict[str, Json]:
    """The consumer's statements about Step Functions, by their action."""
    return {
        action: statement
        for statement in statements(template, "OrdersConsumer")
        for action in actions(statement)
        if action.startswith("states:")
    }


def test_the_consumer_gets_the_machine_and_the_default_times(template: Json) -> None:
    environment = variables(template, "OrdersConsumer")
    assert environment["INTAKE_STATE_MACHINE"] == "reference"
    assert environment["INTAKE_EXECUTION_SECONDS"] == "21600"
    assert environment["INTAKE_LONGEST_TASK_SECONDS"] == "21600"
    assert "INTAKE_PROCESSOR" not in environment


def test_times_of_the_team_are_passed_on() -> None:
    stack = new_stack()
    orders(stack, times={"timeout": Duration.hours(4), "longest_task": Duration.minutes(20)})
    environment = variables(template_of(stack), "OrdersConsumer")
    assert environment["INTAKE_EXECUTION_SECONDS"] == "14400"
    assert environment["INTAKE_LONGEST_TASK_SECONDS"] == "1200"


def test_the_consumer_may_start_this_machine_and_describe_its_executions_only(template: Json) -> None:
    found = of_states(template)
    assert set(found) == {"states:StartExecution", "states:DescribeExecution", "states:RedriveExecution"}
    [name] = resources(template, "AWS::StepFunctions::StateMachine")
    assert found["states:StartExecution"]["Resource"] == {"Ref": name}
    executions = json.dumps(found["states:DescribeExecution"]["Resource"])
    assert ":execution:" in executions
    assert f'{{"Fn::Select": [6, {{"Fn::Split": [":", {{"Ref": "{name}"}}]}}]}}' in executions
    assert executions.endswith('":*"]]}')


def test_the_consumer_may_never_redrive_an_execution(template: Json) -> None:
    """Also with further grants."""
    found = of_states(template)
    assert found["states:RedriveExecution"]["Effect"] == "Deny"
    assert found["states:RedriveExecution"]["Resource"] == found["states:DescribeExecution"]["Resource"]


def test_each_end_of_an_execution_of_this_machine_reaches_the_queue(template: Json) -> None:
    rule = only(template, "AWS::Events::Rule")
    [machine_name] = resources(template, "AWS::StepFunctions::StateMachine")
    assert rule["EventPattern"] == {
        "source": ["aws.states"],
        "detail-type": ["Step Functions Execution Status Change"],
        "detail": {
            "status": ["SUCCEEDED", "FAILED", "TIMED_OUT", "ABORTED"],
            "stateMachineArn": [{"Ref": machine_name}],
        },
    }
    [target] = rule["Targets"]
    queue = only(template, "AWS::Lambda::EventSourceMapping")["EventSourceArn"]["Fn::GetAtt"][0]
    assert target["Arn"]["Fn::GetAtt"][0] == queue
    dead = template["Resources"][queue]["Properties"]["RedrivePolicy"]["deadLetterTargetArn"]["Fn::GetAtt"][0]
    assert target["DeadLetterConfig"]["Arn"]["Fn::GetAtt"][0] == dead


def test_rules_of_this_account_may_send_to_both_queues(template: Json) -> None:
    """The rule's own ARN would make a cycle through the machine and its task."""
    sent = [
        statement
        for statement in statements(template, "OrdersQueue", "AWS::SQS::QueuePolicy")
        if statement.get("Principal") == {"Service": "events.amazonaws.com"}
    ]
    assert len(sent) == 2
    for statement in sent:
        assert actions(statement) == ["sqs:SendMessage"]
        assert statement["Condition"]["StringEquals"] == {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
        assert statement["Condition"]["ArnLike"]["aws:SourceArn"]["Fn::Join"][1][-1] == ":rule/*"


def test_a_pipeline_without_a_machine_has_none_of_it() -> None:
    template = template_with()
    assert not of_states(template)
    assert not resources(template, "AWS::Events::Rule")


def test_a_machine_of_another_stack_is_taken() -> None:
    app = new_app()
    theirs, ours = Stack(app, "Theirs"), Stack(app, "Ours")
    IntakePipeline(ours, "Orders", processor=Processor.from_state_machine(machine(theirs)))
    assert set(of_states(template_of(ours))) >= {"states:StartExecution"}


def test_an_imported_machine_is_taken() -> None:
    stack = new_stack(env=Environment(account="111122223333", region="eu-central-1"))
    imported = sfn.StateMachine.from_state_machine_arn(stack, "Machine", ARN)
    IntakePipeline(stack, "Orders", processor=Processor.from_state_machine(imported))
    template = template_of(stack)
    assert variables(template, "OrdersConsumer")["INTAKE_STATE_MACHINE"] == ARN
    assert "transcribe:*" in json.dumps(of_states(template)["states:DescribeExecution"]["Resource"])


@pytest.mark.parametrize("environment", [("111122223333", "eu-west-1"), ("444455556666", "eu-central-1")])
def test_a_machine_of_another_place_is_refused(environment: tuple[str, str]) -> None:
    """Its events would reach another bus."""
    account, region = environment
    stack = new_stack(env=Environment(account=account, region=region))
    imported = sfn.StateMachine.from_state_machine_arn(stack, "Machine", ARN)
    with refused("execution-environment", f"111122223333 eu-central-1 and the consumer is in {account} {region}"):
        IntakePipeline(stack, "Orders", processor=Processor.from_state_machine(imported))


def test_an_alias_of_a_machine_is_refused() -> None:
    stack = new_stack()
    imported = sfn.StateMachine.from_state_machine_arn(stack, "Machine", f"{ARN}:live")
    with refused("machine-version", "transcribe:live"):
        IntakePipeline(stack, "Orders", processor=Processor.from_state_machine(imported))


def test_an_express_machine_is_refused() -> None:
    stack = new_stack()
    express = machine(stack, state_machine_type=sfn.StateMachineType.EXPRESS, timeout=Duration.minutes(4))
    with refused("machine-express", "Stack/Machine"):
        IntakePipeline(stack, "Orders", processor=Processor.from_state_machine(express))


def test_a_machine_that_may_run_for_longer_is_refused() -> None:
    stack = new_stack()
    with refused("execution-timeout", "3 hours and the processor has a timeout of 2 hours"):
        orders(stack, times={"timeout": Duration.hours(2)})


def test_a_machine_without_a_timeout_gets_a_warning() -> None:
    stack = new_stack()
    IntakePipeline(stack, "Orders", processor=Processor.from_state_machine(machine(stack, timeout=None)))
    template_of(stack)
    [text] = warned(stack, "machine-without-timeout")
    assert "Set its timeout to at most 6 hours" in text


def test_a_machine_with_a_timeout_gets_no_warning() -> None:
    stack = new_stack()
    orders(stack)
    template_of(stack)
    assert warned(stack, "machine-without-timeout") == []


@pytest.mark.parametrize(
    ("times", "options", "rule", "text"),
    [
        ({"timeout": Duration.days(366)}, {}, "execution-timeout-range", "366 days"),
        ({"longest_task": Duration.days(366)}, {}, "longest-task-range", "366 days"),
        ({"longest_task": Duration.seconds(0)}, {}, "longest-task-range", "0 seconds"),
        ({"timeout": Duration.millis(10_800_500)}, {}, "whole-seconds", "execution_timeout is 10,800.5 seconds"),
        (
            {},
            {"concurrency": ConcurrencyOptions(threads=2)},
            "executions-without-threads",
            "threads is 2",
        ),
        (
            {},
            {"concurrency": ConcurrencyOptions(commit_together=True)},
            "executions-without-commit-together",
            "Omit commit_together",
        ),
    ],
)
def test_times_and_options_that_cannot_work_are_refused(times: Json, options: Json, rule: str, text: str) -> None:
    with refused(rule, text):
        orders(new_stack(), times=times, **options)


def test_an_execution_may_run_for_longer_than_the_queue_keeps_a_message() -> None:
    """F332: its message copies itself before its end."""
    orders(new_stack(), times={"timeout": Duration.days(30)})


def test_outputs_of_a_machine_are_granted_to_its_tasks() -> None:
    stack = new_stack()
    pipeline = orders(stack)
    with refused("output-elsewhere", "Stack/Machine"):
        pipeline.grant_output(s3.Bucket(stack, "Outputs"), "out/")
