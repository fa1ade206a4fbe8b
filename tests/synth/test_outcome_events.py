"""`OutcomeEvents`: the function that sends outcomes to EventBridge."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from aws_cdk import Aws, Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets

from cdk_intake_ledger import IntakeLedger, IntakePipeline, MessageIntake, MessageSource, OutcomeEvents
from intake_ledger import outcome_events
from intake_ledger.contract import ALARMS, MESSAGES, OBJECTS, OUTCOME_BUS, OUTCOME_DETAILS, OUTCOME_INTAKES, Source
from intake_ledger.protocol.row import Row, Status
from tests.synth.build import (
    Json,
    actions,
    new_stack,
    only,
    processor,
    refused,
    statements,
    template_of,
    variables,
    warnings,
)


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
    assert alarm["AlarmDescription"] == row.description(alarm["AlarmDescription"].split(":")[0], "", "Stack")


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


def pattern(**fields: Any) -> events.EventPattern:
    return events.EventPattern(**({"source": ["intake-ledger"]} | fields))


def receive(stack: Stack, patterns: list[Any]) -> None:
    """Intakes that take outcomes from a bus that gets those of all."""
    bus, shared = events.EventBus(stack, "Bus"), IntakeLedger(stack, "Ledger")
    intakes: list[Any] = [IntakePipeline(stack, "Orders", processor=processor(), ledger=shared)]
    for one, wanted in zip(["Notes", "Bills"], patterns, strict=False):
        intakes.append(
            MessageIntake(
                stack,
                one,
                name=one,
                source=MessageSource.event_bridge(wanted, event_bus=bus),
                key="detail.key",
                identity="detail.id",
                processor=processor(),
                ledger=shared,
            )
        )
    OutcomeEvents(stack, "Outcomes", intakes=intakes, event_bus=bus)


LOOP, MAY_LOOP = "outcome-events-loop", "outcome-events-may-loop"
DETAIL_TYPES = ["Intake Committed"]
OF_NOTES = pattern(detail={"pipeline": ["Notes"]})
OF_BILLS = pattern(detail={"pipeline": [{"prefix": "Bil"}]}, detail_type=DETAIL_TYPES)


@pytest.mark.failure_mode("F671")
@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        ([pattern()], "error: Stack/Notes → Stack/Notes"),
        ([pattern(detail_type=DETAIL_TYPES)], "error: Stack/Notes → Stack/Notes"),
        ([OF_BILLS, OF_NOTES], "error: Stack/Notes → Stack/Bills → Stack/Notes"),
        ([pattern(detail={"pipeline": events.Match.anything_but("Orders")})], "error: Stack/Notes → Stack/Notes"),
        ([pattern(detail={"bucket": ["inbox"]})], "warning: Stack/Notes → Stack/Notes"),
        ([pattern(detail={"pipeline": [Aws.STACK_NAME]})], "warning: Stack/Notes → Stack/Notes"),
        ([pattern(detail_type=["Intake Rejected"])], "warning: Stack/Notes → Stack/Notes"),
        ([events.EventPattern(account=[Aws.ACCOUNT_ID])], "warning: Stack/Notes → Stack/Notes"),
        ([pattern(detail={"pipeline": ["Orders"]})], ""),
        ([pattern(detail={"pipeline": events.Match.anything_but("Notes")})], ""),
        ([pattern(detail={"pipeline": ["Orders", "Bills"]}), pattern(detail={"pipeline": ["Orders"]})], ""),
        ([pattern(detail={"cents": [{"exists": True}]})], ""),
        ([events.EventPattern(source=["shop"])], ""),
    ],
)
def test_outcomes_that_come_back_as_messages_are_found(patterns: list[Any], found: str) -> None:
    """It is an error if they certainly do, and a warning if a value decides that comes later."""
    stack = new_stack()
    receive(stack, patterns)
    assert loops(stack) == found


@pytest.mark.failure_mode("F671")
def test_a_loop_through_a_rule_and_a_queue_of_the_app_is_found() -> None:
    """Its rule is made after the construct. Another bus, or a rule that is off, makes no loop."""
    for bus_is_ours, enabled in ((True, True), (True, False), (False, True)):
        stack = new_stack()
        intakes = both(stack)
        bus = events.EventBus(stack, "Bus")
        OutcomeEvents(stack, "Outcomes", intakes=intakes, event_bus=bus)
        target = targets.SqsQueue(intakes[1].queue)
        rule_bus = bus if bus_is_ours else None
        events.Rule(stack, "R", event_bus=rule_bus, event_pattern=pattern(), targets=[target], enabled=enabled)
        assert loops(stack) == ("error: Stack/Shop → Stack/Shop" if bus_is_ours and enabled else "")


@pytest.mark.failure_mode("F671")
def test_the_check_knows_each_field_of_an_event() -> None:
    """A field that it does not know would be absent to it, so a pattern with the field would make no loop."""
    full = Row(Status.PROCESSED, 3, version_id="v", etag="e", size=1, committed_fence=3, committed_at=1)
    full = replace(full, commit_id="4", processor_version="a1", reason="no amount", reason_code="unprocessable")
    for row in (full, replace(full, status=Status.REJECTED)):
        event = outcome_events.outcome_of("inbox/a", "Orders@latest", None, row, {"Orders": OBJECTS})
        assert event is not None
        assert set(json.loads(event["Detail"])) == set(OUTCOME_DETAILS[event["DetailType"]])


def loops(stack: Stack) -> str:
    """The loop that synthesis refuses or warns of."""
    try:
        template_of(stack)
    except RuntimeError as error:
        [first, *_] = re.findall(rf"outcomes come back as messages: ([^:]+):.*{LOOP}", str(error))
        return f"error: {first}"
    told = [one for one in warnings(stack) if MAY_LOOP in one]
    return f"warning: {told[0].split(': ')[1]}" if told else ""
