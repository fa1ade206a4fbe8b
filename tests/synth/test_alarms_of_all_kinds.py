"""Pipelines of files, intakes of messages and sets of files have the same alarms of a consumer and of an audit."""

from typing import Any

import pytest
from aws_cdk import Stack

from cdk_intake_ledger import FileSets, IntakePipeline, MessageSource, SetForm
from tests.synth.build import Json, new_stack, processor, resources, template_of
from tests.synth.message_stack import messages, record_stream

METRICS = {
    "BreakerOpen", "Retries", "LapsedLeases", "Rejected", "Fenced", "WaitedTooLong", "AuditFindings", "AuditRuns",
}  # fmt: skip
"""Metrics of a problem that only a person ends, or whose absence is one."""
KINDS = ("Orders", "Loads", "Shop")
HOURS = {"Orders": 24, "Loads": 1, "Shop": 6}
"""The time between two audits."""


@pytest.fixture(scope="module")
def stack() -> Stack:
    stack = new_stack("Kinds")
    pipeline = IntakePipeline(stack, "Orders", processor=processor())
    FileSets(stack, "Loads", pipeline=pipeline, form=SetForm.manifest("in/*/manifest.json"), processor=processor())
    messages(stack, "Shop", MessageSource.kinesis(record_stream(stack)))
    return stack


def alarms(stack: Stack, kind: str) -> dict[str, Json]:
    """The properties of the alarms of a construct, by metric."""
    found: dict[str, Any] = {}
    for name, resource in resources(template_of(stack), "AWS::CloudWatch::Alarm").items():
        if name.startswith(kind):
            found[resource["Properties"]["MetricName"]] = resource["Properties"]
    return found


@pytest.mark.failure_mode("F243")
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_the_alarms_of_a_consumer(stack: Stack, kind: str) -> None:
    """`FileSets` had none for an open circuit breaker, for retries and for dead workers."""
    found = alarms(stack, kind)
    assert set(found) >= METRICS | {"Errors", "Throttles", "ApproximateNumberOfMessagesVisible"}
    assert (found["BreakerOpen"]["Period"], found["BreakerOpen"]["DatapointsToAlarm"]) == (3_600, 2)


@pytest.mark.failure_mode("F244")
@pytest.mark.parametrize("kind", KINDS)
def test_an_audit_that_does_not_run_is_watched_in_each_kind(stack: Stack, kind: str) -> None:
    """After two intervals without a run."""
    alarm = alarms(stack, kind)["AuditRuns"]
    assert (alarm["ComparisonOperator"], alarm["TreatMissingData"]) == ("LessThanThreshold", "breaching")
    assert alarm["Period"] * alarm["EvaluationPeriods"] == 2 * HOURS[kind] * 3_600
