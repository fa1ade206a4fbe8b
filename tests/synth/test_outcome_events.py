"""`OutcomeEvents`: the function that sends outcomes to EventBridge."""

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events

from cdk_intake_ledger import IntakeLedger, IntakePipeline, MessageIntake, MessageSource, OutcomeEvents
from intake_ledger.contract import ALARMS, MESSAGES, OBJECTS, OUTCOME_BUS, OUTCOME_INTAKES, Source
from tests.synth.build import Json, actions, new_stack, only, processor, refused, statements, template_of, variables


def both(stack: Stack, **ledger: Any) -> list[Any]:
    """A pipeline and an intake of messages on one ledger."""
    shared = IntakeLedger(stack, "Ledger", **ledger)
    orders = IntakePipeline(stack, "Orders", processor=processor(), ledger=shared)
    events_of_shop = MessageIntake(
        stack,
        "Shop",
        source=MessageSource.sqs(),
        key="order",
        identity="id",
        processor=processor(),
        ledger=shared,
    )
    return [orders, events_of_shop]


@pytest.fixture(scope="module")
def template() -> Json:
    stack = new_stack()
    bus = events.EventBus(stack, "Bus")
    OutcomeEvents(stack, "Outcomes", intakes=both(stack), event_bus=bus, late_after=Duration.hours(2))
    return template_of(stack)


def test_the_function_knows_each_intake_and_reads_both_images(template: Json) -> None:
    found = variables(template, "Outcomes")
    assert {OUTCOME_INTAKES, OUTCOME_BUS} <= set(found)
    kinds = json.loads(found[OUTCOME_INTAKES])
    assert sorted(kinds.values()) == [MESSAGES, OBJECTS]
    assert only(template, "AWS::DynamoDB::Table")["StreamSpecification"] == {"StreamViewType": "NEW_AND_OLD_IMAGES"}
    mapping = only(template, "AWS::Lambda::EventSourceMapping", "Outcomes")
    assert mapping["StartingPosition"] == "TRIM_HORIZON"
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    # Neither a number of retries nor an age ends the repetition of a batch.
    assert not {"MaximumRetryAttempts", "MaximumRecordAgeInSeconds"} & set(mapping)
    alarm = only(template, "AWS::CloudWatch::Alarm", "OutcomesLate")
    [row] = [one for one in ALARMS if one.source is Source.OUTCOMES]
    assert alarm["Threshold"] == 2 * 3_600_000
    assert (alarm["MetricName"], alarm["Statistic"], alarm["Period"]) == (row.metric, row.statistic, row.period)
    assert (alarm["EvaluationPeriods"], alarm["TreatMissingData"]) == (row.periods, row.no_data)
    assert alarm["AlarmDescription"].endswith(f": {row.meaning} ({row.runbook})")
    assert (Path(__file__).parents[2] / row.runbook).is_file()


def test_it_may_read_the_stream_and_send_to_the_bus_only(template: Json) -> None:
    allowed = {action for one in statements(template, "Outcomes") for action in actions(one)}
    assert allowed - {"logs:CreateLogStream", "logs:PutLogEvents"} == {
        "dynamodb:DescribeStream",
        "dynamodb:GetRecords",
        "dynamodb:GetShardIterator",
        "dynamodb:ListStreams",
        "events:PutEvents",
    }


def imported(stack: Stack) -> list[Any]:
    table = dynamodb.Table.from_table_name(stack, "Theirs", "theirs")
    return both(stack, table=table)


def with_keys_only(stack: Stack) -> list[Any]:
    key = {name: dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING) for name in ("pk", "sk")}
    table = dynamodb.Table(
        stack,
        "T",
        partition_key=key["pk"],
        sort_key=key["sk"],
        time_to_live_attribute="expires_at",
        stream=dynamodb.StreamViewType.KEYS_ONLY,
    )
    table.add_global_secondary_index(
        index_name="needs_review",
        partition_key=dynamodb.Attribute(name="needs_review", type=dynamodb.AttributeType.STRING),
        sort_key=dynamodb.Attribute(name="updated_at", type=dynamodb.AttributeType.NUMBER),
    )
    return both(stack, table=table)


def twice(stack: Stack) -> list[Any]:
    intakes = both(stack)
    OutcomeEvents(stack, "First", intakes=intakes[:1])
    return intakes[1:]


def of_two_ledgers(stack: Stack) -> list[Any]:
    return [*both(stack), IntakePipeline(stack, "Other", processor=processor())]


@pytest.mark.parametrize(
    ("intakes", "rule"),
    [
        (lambda _: [], "outcome-events-of-nothing"),
        (imported, "outcome-events-without-stream"),
        (with_keys_only, "outcome-events-stream-view"),
        (twice, "outcome-events-twice"),
        (of_two_ledgers, "outcome-events-of-several-ledgers"),
    ],
)
def test_intakes_whose_events_would_be_lost_are_refused(intakes: Any, rule: str) -> None:
    stack = new_stack()
    found = intakes(stack)
    with refused(rule):
        OutcomeEvents(stack, "Outcomes", intakes=found)


def test_an_alarm_after_the_stream_has_ended_is_refused() -> None:
    stack = new_stack()
    found = both(stack)
    with refused("outcome-events-late-after", "late_after is 1 day"):
        OutcomeEvents(stack, "Outcomes", intakes=found, late_after=Duration.hours(24))
