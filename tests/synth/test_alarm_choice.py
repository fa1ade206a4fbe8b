"""The choice of alarms and their thresholds, and options of the consumer's function and its event source."""

import math
import re

import pytest
from aws_cdk import Stack

from cdk_intake_ledger import (
    ConcurrencyOptions,
    FileSets,
    IntakeConfigurationError,
    IntakePipeline,
    MessageSource,
    MonitoringOptions,
    SetForm,
)
from tests.synth.build import later, new_stack, only, processor, refused, resources, rules_in, statements, template_of
from tests.synth.message_stack import messages


def pipeline_with(stack: Stack, monitoring: MonitoringOptions) -> IntakePipeline:
    return IntakePipeline(stack, "Orders", processor=processor(), monitoring=monitoring)


def test_alarms_are_chosen_omitted_and_given_thresholds() -> None:
    """The dashboard shows the chosen alarms."""
    stack = new_stack()
    options = MonitoringOptions(
        alarms=["DeadLetters", "OldestMessage", "Retries"],
        omit_alarms=["Retries"],
        thresholds={"OldestMessage": 7_200},
    )
    pipeline = pipeline_with(stack, options)
    pipeline.monitoring.dashboard()
    template = template_of(stack)
    assert set(pipeline.alarms) == {"DeadLetters", "OldestMessage"}
    # And the one that the composite of `OldestMessage` reads.
    assert len(resources(template, "AWS::CloudWatch::Alarm")) == 3
    assert only(template, "AWS::CloudWatch::Alarm", "OrdersMonitoringOldest")["Threshold"] == 7_200
    assert only(template, "AWS::CloudWatch::Alarm", "OrdersMonitoringDead")["Threshold"] == 0


def test_a_pipeline_may_have_no_alarms() -> None:
    """CloudWatch would refuse a dashboard with a widget of no alarms."""
    stack = new_stack()
    pipeline_with(stack, MonitoringOptions(alarms=[])).monitoring.dashboard()
    template = template_of(stack)
    assert not resources(template, "AWS::CloudWatch::Alarm")
    assert '"type":"alarm"' not in str(only(template, "AWS::CloudWatch::Dashboard"))


def test_all_names_that_no_alarm_has_are_refused_at_once() -> None:
    """Each once, with the pipeline, the option and the nearest name. Without a near one, all names are listed."""
    options = MonitoringOptions(
        alarms=["DeadLetter", "DeadLetter", "retries", "Rejected"],
        omit_alarms=["oldest-message"],
        thresholds={"ConsumerThrottles": 3, "Latency": 5},
    )
    with pytest.raises(IntakeConfigurationError) as refusal:
        pipeline_with(new_stack(), options)
    text = str(refusal.value)
    assert rules_in(text) == ["alarm-name"] * 5
    assert re.findall(r"(\w+) has '([\w-]+)', which is no alarm here: .* Write '(\w+)', or remove it", text) == [
        ("alarms", "DeadLetter", "DeadLetters"),
        ("alarms", "retries", "Retries"),
        ("omit_alarms", "oldest-message", "OldestMessage"),
        ("thresholds", "ConsumerThrottles", "ConsumerFunctionThrottles"),
    ]
    assert "thresholds has 'Latency'" in text
    assert "Write one of AuditDeliveryProblems, AuditFindings, " in text
    assert refusal.value.path == "Stack/Orders"


@pytest.mark.parametrize("kind", ["sets", "messages"])
def test_each_construct_with_alarms_refuses_names_that_it_does_not_have(kind: str) -> None:
    """Sets and intakes of messages have no alarm `AuditIncomplete`."""
    stack = new_stack()
    monitoring = MonitoringOptions(omit_alarms=["AuditIncomplete"])
    with refused("alarm-name", r"Stack/Others: omit_alarms has 'AuditIncomplete'"):
        if kind == "messages":
            messages(stack, "Others", MessageSource.sqs(), monitoring=monitoring)
        else:
            form = SetForm.manifest("loads/*/manifest.json")
            parts = IntakePipeline(stack, "Parts", processor=processor())
            FileSets(stack, "Others", pipeline=parts, form=form, monitoring=monitoring, processor=processor())


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_a_threshold_that_says_nothing_is_refused(value: float) -> None:
    """It would always be reached, or never. CDK's process would die of NaN."""
    with refused("alarm-threshold", f"the threshold of Retries is {value:g}"):
        pipeline_with(new_stack(), MonitoringOptions(thresholds={"Retries": value}))


def test_a_threshold_may_be_a_token() -> None:
    stack = new_stack()
    """Also in metric math."""
    thresholds = dict.fromkeys(("Rejected", "OldestClaim"), later())
    pipeline_with(stack, MonitoringOptions(thresholds=thresholds))
    template = template_of(stack)
    claim = only(template, "AWS::CloudWatch::Alarm", "OrdersMonitoringOldestClaim")
    assert claim["Threshold"] == only(template, "AWS::CloudWatch::Alarm", "OrdersMonitoringRejected")["Threshold"]
    assert claim["Threshold"] == {"Ref": "Later"}
    text = ["", ["IF(value - ", {"Ref": "Later"}, " < 43200000, value, 0)"]]
    assert claim["Metrics"][0]["Expression"] == {"Fn::Join": text}


@pytest.mark.failure_mode("F204")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "alarms leaves this alarm out: .* or add 'Retries' to alarms"),
        ({"alarms": ["DeadLetters"]}, "alarms leaves this alarm out: .* or add 'Retries' to alarms"),
        ({"omit_alarms": ["Retries"]}, "omit_alarms leaves this alarm out: .* or remove 'Retries' from omit_alarms"),
        ({"alarms": ["Retries"], "omit_alarms": ["Retries"]}, "omit_alarms leaves this alarm out"),
    ],
)
def test_a_threshold_of_an_alarm_that_is_not_chosen_is_refused(options: dict[str, list[str]], message: str) -> None:
    """It would have no effect."""
    with refused("alarm-not-chosen", f"the threshold of Retries is 50, and {message}"):
        pipeline_with(
            new_stack(),
            MonitoringOptions(
                alarms=options.get("alarms"), omit_alarms=options.get("omit_alarms", ()), thresholds={"Retries": 50}
            ),
        )


def test_a_token_is_not_shown_as_a_number() -> None:
    with refused("alarm-not-chosen", "the threshold of Retries is a token, and omit_alarms"):
        pipeline_with(new_stack(), MonitoringOptions(omit_alarms=["Retries"], thresholds={"Retries": later()}))


def test_tracing_reserved_concurrency_and_pollers() -> None:
    """Both functions are traced, by a policy of its own in each role."""
    stack = new_stack()
    IntakePipeline(
        stack,
        "Orders",
        processor=processor(),
        monitoring=MonitoringOptions(tracing=True),
        concurrency=ConcurrencyOptions(reserved_concurrency=20, min_pollers=3, max_pollers=30),
    )
    template = template_of(stack)
    for name in ("OrdersConsumer", "OrdersAudit"):
        assert only(template, "AWS::Lambda::Function", name)["TracingConfig"] == {"Mode": "Active"}
        (segments,) = statements(template, f"{name}RoleTracing")
        assert segments["Action"] == ["xray:PutTelemetryRecords", "xray:PutTraceSegments"]
    assert only(template, "AWS::Lambda::Function", "OrdersConsumer")["ReservedConcurrentExecutions"] == 20
    assert only(template, "AWS::Lambda::EventSourceMapping", "OrdersConsumer")["ProvisionedPollerConfig"] == {
        "MaximumPollers": 30,
        "MinimumPollers": 3,
    }
