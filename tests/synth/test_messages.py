"""`MessageIntake`: keyed messages of queues, streams and buses."""

import json
from dataclasses import replace
from functools import partial
from typing import Any, cast
from unittest import mock

import pytest
from aws_cdk import Annotations, CfnResource, Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from aws_cdk.assertions import Template
from constructs import Construct

from cdk_intake_ledger import (
    IntakeLedger,
    IntakePipeline,
    IntakeQueue,
    MessageSource,
    RetryOptions,
)
from cdk_intake_ledger.kinds.messages.expressions import expression_problems, warn_about_identity
from intake_ledger.delivery_check.deployed import Deployed
from tests.synth.build import (
    Json,
    actions,
    new_app,
    new_stack,
    only,
    processor,
    refused,
    resources,
    rules_in,
    statements,
    template_of,
    variables,
    warned,
)
from tests.synth.message_stack import PATTERN, changes_table, message_intakes, messages, record_stream

SOURCES = {"Sqs": "sqs", "Fifo": "fifo", "Kinesis": "kinesis", "DynamoDb": "dynamodb", "EventBridge": "eventbridge"}
STREAMS = ("Kinesis", "DynamoDb")
MAPPING = "AWS::Lambda::EventSourceMapping"


@pytest.fixture(scope="module")
def stack() -> Stack:
    return message_intakes(new_app())


@pytest.fixture(scope="module")
def template(stack: Stack) -> Json:
    return template_of(stack)


def standard(stack: Stack, name: str = "Orders", **options: Any) -> sqs.Queue:
    dead = sqs.Queue(stack, f"{name}Dead", retention_period=Duration.days(14), **options)
    return sqs.Queue(
        stack,
        name,
        visibility_timeout=Duration.minutes(10),
        dead_letter_queue=sqs.DeadLetterQueue(queue=dead, max_receive_count=100),
        **options,
    )


@pytest.mark.parametrize(("name", "source"), SOURCES.items())
def test_the_function_knows_its_source_its_key_and_its_identity(template: Json, name: str, source: str) -> None:
    function = only(template, "AWS::Lambda::Function", f"{name}Consumer")
    assert function["Handler"] == "intake_ledger.consumer.handler"
    environment = variables(template, f"{name}Consumer")
    assert environment["INTAKE_MESSAGE_SOURCE"] == source
    prefix = {"DynamoDb": "dynamodb.Keys.", "EventBridge": "detail."}.get(name, "")
    assert environment["INTAKE_MESSAGE_KEY"] == f"{prefix}order_id"
    assert environment["INTAKE_MESSAGE_IDENTITY"].endswith(("event_id", "eventID"))
    assert environment["INTAKE_BUCKET_NAME"] == f"messages:{environment['INTAKE_PIPELINE_NAME']}"


def test_the_runtime_has_every_variable_of_its_consumer(template: Json) -> None:
    """Times follow from the options, as for a pipeline."""
    expected = {
        "INTAKE_ORDERING": "EVERY_VERSION",
        "INTAKE_DELETES": "false",
        "INTAKE_TABLE_NAME": "reference",
        "INTAKE_QUEUE_URL": "reference",
        "INTAKE_DLQ_URL": "reference",
        "INTAKE_PROCESSOR": "orders:process",
        "INTAKE_PROCESSING_TIMEOUT_SECONDS": "60",
        "INTAKE_MAX_ATTEMPTS": "12",
        "INTAKE_MIN_BACKOFF_SECONDS": "15",
        "INTAKE_MAX_BACKOFF_SECONDS": "1800",
        "INTAKE_MAX_WAIT_SECONDS": "259200",
        "INTAKE_MAX_HOLD_SECONDS": "259200",
        "INTAKE_MAX_RECEIVES": "1000",
        "INTAKE_RETENTION_SECONDS": "3024000",
        "INTAKE_CLOCK_SKEW_SECONDS": "120",
        "INTAKE_REASONS": "TYPES",
    }
    assert expected.items() <= variables(template, "SqsConsumer").items()
    assert only(template, "AWS::Lambda::Function", "SqsConsumer")["Timeout"] == 130
    assert only(template, "AWS::SQS::Queue", "SqsQueueMessages")["VisibilityTimeout"] == 280


@pytest.mark.parametrize("name", SOURCES)
def test_a_failed_message_does_not_fail_its_batch(template: Json, name: str) -> None:
    for mapping in resources(template, MAPPING, f"{name}Consumer").values():
        assert mapping["Properties"]["FunctionResponseTypes"] == ["ReportBatchItemFailures"]


@pytest.mark.parametrize("name", STREAMS)
def test_lambda_gives_no_record_of_a_stream_up(template: Json, name: str) -> None:
    """It retries until the ledger has rejected the record, and bisects a batch that ends without an answer."""
    mapping = only(template, MAPPING, f"{name}ConsumerStream")
    assert mapping["BisectBatchOnFunctionError"] is True
    assert mapping["MaximumRetryAttempts"] == -1
    assert "MaximumRecordAgeInSeconds" not in mapping
    assert mapping["StartingPosition"] == "TRIM_HORIZON"
    assert (mapping["BatchSize"], mapping["ParallelizationFactor"]) == (100, 1)


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_has_a_queue_for_redriven_records(template: Json, name: str) -> None:
    """The same function consumes it."""
    queue = resources(template, "AWS::SQS::Queue", f"{name}QueueMessages")
    mapping = only(template, MAPPING, f"{name}ConsumerSource")
    assert mapping["EventSourceArn"]["Fn::GetAtt"][0] in queue
    assert mapping["FunctionName"] == only(template, MAPPING, f"{name}ConsumerStream")["FunctionName"]


@pytest.mark.parametrize("name", SOURCES)
def test_a_queue_and_its_dead_letter_queue_are_of_the_same_kind(template: Json, name: str) -> None:
    """SQS refuses a standard queue as the dead-letter queue of a FIFO queue."""
    queues = resources(template, "AWS::SQS::Queue", f"{name}Queue").values()
    assert [queue["Properties"].get("FifoQueue", False) for queue in queues] == [name == "Fifo"] * 2
    assert all("SqsManagedSseEnabled" in queue["Properties"] for queue in queues)


def test_the_role_has_only_the_actions_of_its_source(template: Json) -> None:
    found = {
        name: {one for statement in statements(template, f"{name}Consumer") for one in actions(statement)}
        for name in SOURCES
    }
    common = found["Sqs"]
    assert not any(one.startswith(("s3:", "kinesis:")) for one in common)
    assert found["Fifo"] == common
    assert found["EventBridge"] - common == {"events:DescribeRule"}
    assert {"kinesis:GetRecords", "kinesis:GetShardIterator"} <= found["Kinesis"] - common
    assert found["DynamoDb"] - common == {
        "dynamodb:DescribeStream",
        "dynamodb:GetRecords",
        "dynamodb:GetShardIterator",
        "dynamodb:ListStreams",
    }


@pytest.mark.failure_mode("F693")
@pytest.mark.parametrize("name", SOURCES)
def test_the_function_is_told_its_sources_and_may_look_at_them_only(template: Json, name: str) -> None:
    """ListEventSourceMappings has no resource. A tick comes each 15 minutes, and checks rows after six hours."""
    function = only(template, "AWS::Lambda::Function", f"{name}Consumer")
    parts = function["Environment"]["Variables"]["INTAKE_DEPLOYED"]["Fn::Join"][1]
    told = Deployed.read("".join(one if isinstance(one, str) else str(one["Fn::GetAtt"][0]) for one in parts))
    assert told.sources["queue"] in resources(template, "AWS::SQS::Queue", f"{name}QueueMessages")
    assert told.stack == "Messages"
    assert bool(told.sources.get("stream")) is (name in STREAMS)
    assert bool(told.rule) is (name == "EventBridge")
    granted = list(statements(template, f"{name}Consumer"))
    every = [one for one in granted if one["Resource"] == "*" and "lambda:" in str(one["Action"])]
    assert [one["Action"] for one in every] == ["lambda:ListEventSourceMappings"]
    rules = [one for one in granted if "events:DescribeRule" in actions(one)]
    arns = [{"Fn::GetAtt": [rule, "Arn"]} for rule in resources(template, "AWS::Events::Rule", name)]
    assert [one["Resource"] for one in rules] == arns
    schedule = only(template, "AWS::Scheduler::Schedule", f"{name}CheckSchedule")
    assert schedule["ScheduleExpression"] == "rate(15 minutes)"
    assert json.loads(schedule["Target"]["Input"]) == {"checkRows": True, "everySeconds": 21_600}


def test_events_of_a_bus_reach_the_queue_and_undelivered_ones_the_dead_letter_queue(template: Json) -> None:
    rule = only(template, "AWS::Events::Rule", "EventBridgeRule")
    assert rule["EventPattern"] == {"source": ["shop"], "detail-type": ["Order placed"]}
    [target] = rule["Targets"]
    queue, dead = (next(iter(resources(template, "AWS::SQS::Queue", f"EventBridgeQueue{end}"))) for end in ("M", "D"))
    assert target["Arn"]["Fn::GetAtt"][0] == queue
    assert target["DeadLetterConfig"]["Arn"]["Fn::GetAtt"][0] == dead
    allowed = [
        statement
        for statement in statements(template, "EventBridgeQueue", "AWS::SQS::QueuePolicy")
        if statement["Principal"] == {"Service": "events.amazonaws.com"}
    ]
    assert len(allowed) == 2
    assert all("aws:SourceArn" in statement["Condition"]["ArnEquals"] for statement in allowed)


def test_a_bus_of_yours() -> None:
    stack = new_stack()
    bus = events.EventBus(stack, "Bus")
    messages(stack, "Orders", MessageSource.event_bridge(PATTERN, event_bus=bus))
    template = template_of(stack)
    assert only(template, "AWS::Events::Rule")["EventBusName"] == {
        "Ref": next(iter(resources(template, "AWS::Events::EventBus")))
    }


def test_a_queue_of_yours_with_its_dead_letter_queue() -> None:
    stack = new_stack()
    orders = standard(stack)
    intake = messages(
        stack, "Intake", MessageSource.sqs(orders, batch_size=50, max_batching_window=Duration.seconds(5))
    )
    template = template_of(stack)
    assert len(resources(template, "AWS::SQS::Queue")) == 2
    assert intake.queue.queue_arn == orders.queue_arn
    assert variables(template, "IntakeConsumer")["INTAKE_MAX_RECEIVES"] == "100"
    mapping = only(template, MAPPING)
    assert (mapping["BatchSize"], mapping["MaximumBatchingWindowInSeconds"]) == (50, 5)


def test_a_fifo_queue_without_content_based_deduplication() -> None:
    """The ledger knows the identities."""
    stack = new_stack()
    messages(stack, "Intake", MessageSource.fifo(standard(stack, fifo=True)))
    assert all(
        "ContentBasedDeduplication" not in queue["Properties"]
        for queue in resources(template_of(stack), "AWS::SQS::Queue").values()
    )


def test_an_imported_queue_warns_about_its_visibility_timeout() -> None:
    stack = new_stack()
    live, dead = (
        sqs.Queue.from_queue_arn(stack, name, f"arn:aws:sqs:eu-central-1:111122223333:{name}")
        for name in ("Live", "Dead")
    )
    messages(stack, "Intake", MessageSource.sqs(live, dead_letter_queue=dead))
    assert len(warned(stack, "queue-visibility-unknown")) == 1


@pytest.mark.failure_mode("F265")
@pytest.mark.parametrize(
    ("options", "raw", "key", "warns"),
    [
        ({}, False, "order", True),
        ({}, True, "order", False),
        ({"unwrap_sns": True}, False, "order", False),
        ({}, False, "TopicArn", False),
    ],
)
@pytest.mark.parametrize("fifo", [False, True])
def test_a_subscription_without_raw_delivery_warns(
    fifo: bool, options: dict[str, Any], raw: bool, key: str, warns: bool
) -> None:
    """Also a subscription that is added after the intake. Expressions on the envelope are meant so."""
    stack = new_stack()
    queue = standard(stack, fifo=True) if fifo else standard(stack)
    source = (MessageSource.fifo if fifo else MessageSource.sqs)(queue, **options)
    identity = "MessageId" if key == "TopicArn" else "event"
    messages(stack, "Intake", source, key=key, identity=identity)
    topic = sns.Topic(stack, "Topic", fifo=fifo or None)
    topic.add_subscription(subscriptions.SqsSubscription(queue, raw_message_delivery=raw))
    unwraps = variables(template_of(stack), "IntakeConsumer").get("INTAKE_MESSAGE_UNWRAP_SNS")
    assert unwraps == ("true" if options else None)
    found = warned(stack, "message-sns-envelope")
    assert len(found) == warns
    assert not warns or "sends messages of SNS to Stack/Orders in an envelope" in found[0]


def test_a_shared_ledger_and_a_pipeline() -> None:
    stack = new_stack()
    ledger = IntakeLedger(stack, "Ledger")
    IntakePipeline(stack, "Files", processor=processor(), ledger=ledger)
    messages(stack, "Intake", MessageSource.sqs(), ledger=ledger)
    assert len(resources(template_of(stack), "AWS::DynamoDB::Table")) == 1


@pytest.mark.failure_mode("F616")
@pytest.mark.parametrize(
    ("key", "identity", "lacking"),
    [
        ("dynamodb.Keys.order", "eventID", 0),
        ("(dynamodb.NewImage || dynamodb.OldImage).order", "eventID", 0),
        ("dynamodb.NewImage.order || dynamodb.Keys.order", "eventID", 0),
        ("dynamodb.NewImage.order", "eventID", 1),
        ("dynamodb.NewImage.order", "join('-', [dynamodb.NewImage.event, eventName])", 2),
        ("dynamodb.Keys.order", "dynamodb.NewImage.event", 1),
    ],
)
def test_an_expression_that_removals_lack_is_a_warning_with_the_filter_that_helps(
    key: str, identity: str, lacking: int
) -> None:
    """The filter is not made by itself: it would drop removals in silence."""
    stack = new_stack()
    name = dynamodb.Attribute(name="order", type=dynamodb.AttributeType.STRING)
    view = dynamodb.StreamViewType.NEW_AND_OLD_IMAGES
    table = dynamodb.Table(stack, "Table", partition_key=name, stream=view)
    intake = messages(stack, "Intake", MessageSource.dynamodb(table), key=key, identity=identity)
    mapping = cast("CfnResource", intake.node.find_child("Consumer").node.find_child("Stream").node.default_child)
    pattern = {"Filters": [{"Pattern": '{"eventName": ["INSERT", "MODIFY"]}'}]}
    mapping.add_property_override("FilterCriteria", pattern)
    found = resources(template_of(stack), "AWS::Lambda::EventSourceMapping").values()
    assert [one["Properties"].get("FilterCriteria") for one in found].count(pattern) == 1
    assert len(warned(stack, "message-removals")) == lacking


@pytest.mark.failure_mode("F683")
def test_a_record_may_be_too_long_for_the_dead_letter_queue() -> None:
    """The warning names the way that remains, and can be acknowledged. A message of a queue always fits."""
    stack = new_stack()
    messages(stack, "Queue", MessageSource.sqs())
    sources = MessageSource.kinesis(record_stream(stack)), MessageSource.dynamodb(changes_table(stack))
    intakes = [messages(stack, f"Stream{number}", source) for number, source in enumerate(sources)]
    Annotations.of(intakes[1]).acknowledge_warning("cdk-intake-ledger:messageRecordTooLong")
    [text] = warned(stack, "message-record-too-long")
    assert "Keep long contents in S3 and put their keys" in text


@pytest.mark.parametrize(("days", "seconds"), [(None, "345600"), (7, "604800")])
def test_the_intake_knows_how_long_its_dead_letters_are_kept(days: int | None, seconds: str) -> None:
    """Later, a copy of a rejected message is no copy of a dead letter. SQS keeps messages for four days by default."""
    stack = new_stack()
    dead = sqs.Queue(stack, "Dead", retention_period=Duration.days(days) if days else None)
    queue = sqs.Queue(
        stack,
        "Queue",
        retention_period=Duration.days(4),
        visibility_timeout=Duration.minutes(40),
        dead_letter_queue=sqs.DeadLetterQueue(queue=dead, max_receive_count=1000),
    )
    messages(stack, "Intake", MessageSource.sqs(queue))
    assert variables(template_of(stack), "IntakeConsumer")["INTAKE_MESSAGE_LETTER_SECONDS"] == seconds


def test_rows_of_messages_expire_also_in_a_ledger_that_keeps_the_rows_of_objects() -> None:
    stack = new_stack()
    ledger = IntakeLedger(stack, "Ledger", retention=None)
    messages(stack, "Intake", MessageSource.sqs(), ledger=ledger)
    assert variables(template_of(stack), "IntakeConsumer")["INTAKE_RETENTION_SECONDS"] == "3024000"


def test_a_name_fixes_the_logical_ids() -> None:
    def ids(place: str) -> set[str]:
        stack = new_stack()
        messages(stack, place, MessageSource.sqs(), name="orders")
        return {name for name in template_of(stack)["Resources"] if not name.startswith("CDK")}

    assert ids("Here") == ids("There")


def test_two_intakes_with_a_name_are_refused() -> None:
    stack = new_stack()
    messages(stack, "One", MessageSource.sqs(), name="orders")
    with refused("name-in-use"):
        messages(stack, "Two", MessageSource.sqs(), name="orders")


def test_your_key_encrypts_queues_and_table() -> None:
    stack = new_stack()
    key = kms.Key(stack, "Key")
    messages(stack, "Intake", MessageSource.event_bridge(PATTERN), encryption_key=key)
    template = template_of(stack)
    assert all("KmsMasterKeyId" in queue["Properties"] for queue in resources(template, "AWS::SQS::Queue").values())
    [granted] = [one for one in statements(template, "IntakeConsumer") if "kms:Decrypt" in actions(one)]
    assert {"kms:GenerateDataKey", "kms:DescribeKey"} <= set(actions(granted))
    services = [one for one in template["Resources"].values() if one["Type"] == "AWS::KMS::Key"]
    assert "events.amazonaws.com" in str(services)


def test_grants() -> None:
    stack = new_stack()
    intake = messages(stack, "Intake", MessageSource.sqs(), encryption_key=kms.Key(stack, "Key"))
    shop, operator = (
        lambda_.Function(
            stack,
            name,
            runtime=lambda_.Runtime.PYTHON_3_13,
            handler="index.handler",
            code=lambda_.Code.from_inline("def handler(event, context): ..."),
        )
        for name in ("Shop", "Operator")
    )
    intake.grant_send(shop)
    intake.grant_redrive(operator)
    intake.grant_read_ledger(operator)
    template = template_of(stack)
    sends = {one for statement in statements(template, "Shop") for one in actions(statement)}
    assert sends == {"sqs:SendMessage", "kms:Decrypt", "kms:GenerateDataKey"}
    operates = {one for statement in statements(template, "Operator") for one in actions(statement)}
    assert {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:SendMessage", "dynamodb:Query", "kms:Decrypt"} <= operates


@pytest.mark.parametrize(("option", "expression"), [("key", "detail.["), ("identity", "a b"), ("key", "")])
def test_an_expression_that_is_not_jmespath_is_refused(option: str, expression: str) -> None:
    with refused("message-expression", f"{option} is "):
        messages(new_stack(), "Intake", MessageSource.sqs(), **{option: expression})


RULE = MessageSource.event_bridge(PATTERN)
TWO_TYPES = MessageSource.event_bridge(
    events.EventPattern(source=["shop"], detail_type=["Order placed", "Order cancelled"])
)
ANY_SOURCE = MessageSource.sqs()


def table_with(view: dynamodb.StreamViewType | None = dynamodb.StreamViewType.NEW_IMAGE, *, v2: bool = False) -> Any:
    """The source of a table with the key `order_id`, which is made in a stack."""
    key = dynamodb.Attribute(name="order_id", type=dynamodb.AttributeType.STRING)
    stack = new_stack()
    if v2:
        return MessageSource.dynamodb(dynamodb.TableV2(stack, "T", partition_key=key, dynamo_stream=view))
    return MessageSource.dynamodb(dynamodb.Table(stack, "T", partition_key=key, stream=view))


def problems_of(source: MessageSource, expression: str, *, option: str = "identity") -> list[str]:
    return [rule for problem in expression_problems(source, {option: expression}) for rule in rules_in(str(problem))]


@pytest.mark.parametrize(
    "expression", ["`1`", "'order_id'", "join('-', [`\"a\"`, 'b'])", "not_null(`1`)", "type('a')", '`{"id": 1}`.id']
)
@pytest.mark.failure_mode("F226")
def test_an_identity_without_a_field_is_refused(expression: str) -> None:
    """It is the same for all messages: all but one would be lost, and nothing would show it."""
    assert problems_of(ANY_SOURCE, expression) == ["message-identity-constant"]
    assert problems_of(ANY_SOURCE, expression, option="key") == []


@pytest.mark.parametrize(
    "expression", ["powertools_json(body).id", "join('-', [a, upper(b)])", "length(a, b)", "join(a)", "a[?nope(b)].c"]
)
def test_a_function_that_jmespath_lacks_is_refused(expression: str) -> None:
    for option in ("key", "identity"):
        assert problems_of(ANY_SOURCE, expression, option=option) == ["message-function"]


@pytest.mark.parametrize(
    ("source", "expression", "field"),
    [
        (RULE, "order_id", "order_id"),
        (RULE, "Detail.order_id", "Detail"),
        (RULE, "join('-', [detail.a, order_id])", "order_id"),
        (RULE, "order_id || body", "order_id"),
        (RULE, "orders[0].id", "orders"),
        (RULE, "@.order_id", "order_id"),
        (table_with, "order_id", "order_id"),
        (table_with, "dynamodb.order_id", "dynamodb.order_id"),
        (table_with, "dynamodb.Keys.customer", "dynamodb.Keys.customer"),
        (table_with, "dynamodb.OldImage.order_id", "dynamodb.OldImage"),
        (partial(table_with, dynamodb.StreamViewType.KEYS_ONLY), "dynamodb.NewImage.x", "dynamodb.NewImage"),
        (partial(table_with, dynamodb.StreamViewType.OLD_IMAGE, v2=True), "dynamodb.NewImage.x", "dynamodb.NewImage"),
    ],
)
@pytest.mark.failure_mode("F226")
def test_a_field_that_no_message_of_the_source_has_is_refused(source: Any, expression: str, field: str) -> None:
    made = source if isinstance(source, MessageSource) else source()
    [problem] = expression_problems(made, {"key": expression})
    assert rules_in(str(problem)) == ["message-field"]
    assert f"has the field {field}," in str(problem)


@pytest.mark.parametrize(
    ("source", "expression"),
    [
        (RULE, "id"),
        (RULE, "detail.order_id"),
        (RULE, "order_id || detail.order_id"),
        (RULE, "not_null(order_id, detail.order_id)"),
        (RULE, "to_string(@)"),
        (RULE, "join('-', [detail.order_id, \"detail-type\"])"),
        (RULE, "detail.orders[?paid].id | [0]"),
        (table_with, "eventID"),
        (table_with, "dynamodb.SequenceNumber"),
        (table_with, "dynamodb.Keys.order_id"),
        (table_with, "dynamodb.NewImage.customer"),
        (ANY_SOURCE, "anything.at.all"),
    ],
)
def test_a_field_that_a_message_may_have_is_accepted(source: Any, expression: str) -> None:
    assert problems_of(source if isinstance(source, MessageSource) else source(), expression) == []


def test_the_table_of_a_stream_is_read_once_for_all_expressions() -> None:
    """Each read is a call of the CDK's process."""
    source = mock.Mock(kind=table_with().kind)
    table = mock.PropertyMock(return_value=None)
    type(source).table = table
    paths = [f"dynamodb.NewImage.f{number}.S" for number in range(20)]
    assert list(expression_problems(source, {"key": f"[{', '.join(paths)}]", "identity": "eventID"})) == []
    assert table.call_count == 1


@pytest.mark.parametrize(
    ("source", "key", "identity", "rule"),
    [
        (RULE, "detail.order_id", "source", "message-identity-shared"),
        (RULE, "detail.order_id", "join('-', [\"detail-type\", time])", "message-identity-shared"),
        (RULE, "detail.order_id", "detail.order_id", "message-identity-is-key"),
        (RULE, "detail.order_id", "id", None),
        (RULE, "detail.order_id", "join('-', [source, detail.id])", None),
        (TWO_TYPES, "detail.article", "detail.order_id", "message-identity-types"),
        (TWO_TYPES, "detail.article", "join('-', [\"detail-type\", detail.order_id])", None),
        (TWO_TYPES, "detail.article", "id", None),
        (TWO_TYPES, "detail.article", "to_string(@)", None),
        (RULE, "detail.article", "detail.order_id", None),
    ],
)
@pytest.mark.failure_mode("F226")
def test_an_identity_that_messages_may_share_is_a_warning(
    source: MessageSource, key: str, identity: str, rule: str | None
) -> None:
    stack = new_stack()
    scope = Construct(stack, "Intake")
    warn_about_identity(scope, source, key=key, identity=identity)
    warnings = [str(entry.data) for entry in scope.node.metadata if entry.type == "aws:cdk:warning"]
    assert [found for one in warnings for found in rules_in(one)] == [rule] * (rule is not None)


@pytest.mark.failure_mode("F226")
@pytest.mark.parametrize(
    ("expression", "few"),
    [
        ("type(id)", True),
        ("length(@)", True),
        ("id == `1`", True),
        ("!id", True),
        ("starts_with(id, 'a')", True),
        ("join('-', [type(id), to_string(length(id))])", True),
        ("join('-', [type(id), id])", False),
        ("keys(@)", False),
        ("orders[?length(id) > `3`].id", False),
        ("@", False),
    ],
)
def test_an_identity_that_has_few_values_is_refused(expression: str, few: bool) -> None:
    assert problems_of(ANY_SOURCE, expression) == ["message-identity-few-values"] * few


@pytest.mark.failure_mode("F226")
@pytest.mark.parametrize(("unwrap_sns", "count"), [(False, 1), (True, 0)])
def test_what_all_notifications_of_a_topic_share_is_a_warning(unwrap_sns: bool, count: int) -> None:
    scope = Construct(new_stack(), "Intake")
    warn_about_identity(scope, MessageSource.sqs(unwrap_sns=unwrap_sns), key="MessageId", identity="TopicArn")
    assert len([entry for entry in scope.node.metadata if entry.type == "aws:cdk:warning"]) == count


def test_the_keys_of_an_item_are_no_identity_of_its_changes() -> None:
    scope = Construct(new_stack(), "Intake")
    warn_about_identity(scope, table_with(), key="dynamodb.Keys.order_id", identity="dynamodb.Keys.order_id")
    assert len([entry for entry in scope.node.metadata if entry.type == "aws:cdk:warning"]) == 2


def test_messages_need_lambdas_own_capacity() -> None:
    stack = new_stack()
    provider = lambda_.CapacityProvider.from_capacity_provider_arn(
        stack, "Capacity", "arn:aws:lambda:eu-central-1:111122223333:capacity-provider:large"
    )
    with refused("message-capacity-provider"):
        messages(stack, "Intake", MessageSource.sqs(), processor=processor(capacity_provider=provider))


@pytest.mark.parametrize(("fifo", "text"), [(True, "is a FIFO queue"), (False, "is a standard queue")])
def test_a_queue_of_the_other_kind_is_refused_with_the_fix(fifo: bool, text: str) -> None:
    stack = new_stack()
    # SQS takes no `false` here.
    options: Any = {"fifo": True} if fifo else {}
    queue = standard(stack, **options)
    make = MessageSource.sqs if fifo else MessageSource.fifo
    with refused("message-queue-kind", f"{text}.*MessageSource.{'fifo' if fifo else 'sqs'},"):
        messages(stack, "Intake", make(queue))


def test_a_queue_without_a_dead_letter_queue_is_refused() -> None:
    stack = new_stack()
    queue = sqs.Queue(stack, "Orders", visibility_timeout=Duration.minutes(10))
    with refused("message-dead-letter-queue"):
        messages(stack, "Intake", MessageSource.sqs(queue))


def test_a_table_without_a_stream_is_refused_with_the_fix() -> None:
    stack = new_stack()
    with refused("message-table-stream", "Stack/Changes has no stream.*Set stream"):
        messages(stack, "Intake", MessageSource.dynamodb(changes_table(stack, stream=False)))


def test_an_imported_table_needs_the_arn_of_its_stream() -> None:
    stack = new_stack()
    with refused("message-table-stream"):
        messages(stack, "Intake", MessageSource.dynamodb(dynamodb.Table.from_table_name(stack, "Their", "orders")))


@pytest.mark.parametrize(
    ("source", "rule"),
    [
        (lambda _: MessageSource.fifo(batch_size=11), "message-batch"),
        (lambda stack: MessageSource.kinesis(record_stream(stack), batch_size=10_001), "message-batch"),
        (lambda _: MessageSource.sqs(batch_size=11), "batching-window-needed"),
        (lambda _: MessageSource.sqs(max_concurrency=1), "max-concurrency-range"),
        (lambda _: MessageSource.fifo(min_pollers=1), "min-pollers-range"),
        (lambda _: MessageSource.event_bridge(PATTERN, max_pollers=10_001), "max-pollers-range"),
        (lambda _: MessageSource.sqs(min_pollers=9, max_pollers=8), "pollers-ordered"),
        (
            lambda _: MessageSource.sqs(max_pollers=8, max_concurrency=8),
            "max-pollers-without-max-concurrency",
        ),
        (
            lambda stack: replace(MessageSource.kinesis(record_stream(stack)), max_pollers=8),
            "message-stream-scaling",
        ),
        (
            lambda stack: replace(MessageSource.dynamodb(changes_table(stack)), max_concurrency=8),
            "message-stream-scaling",
        ),
    ],
)
def test_a_number_out_of_range_is_refused(source: Any, rule: str) -> None:
    stack = new_stack()
    with refused(rule):
        messages(stack, "Intake", source(stack))


def test_concurrency_is_reserved_and_pollers_are_provisioned() -> None:
    """For each kind of queue. A stream's function has reserved concurrency too."""
    stack = new_stack()
    pollers: dict[str, Any] = {"min_pollers": 3, "max_pollers": 30}
    sources = {
        "Sqs": MessageSource.sqs(**pollers),
        "Fifo": MessageSource.fifo(**pollers),
        "Bus": MessageSource.event_bridge(PATTERN, **pollers),
        "Kinesis": MessageSource.kinesis(record_stream(stack)),
    }
    for name, source in sources.items():
        messages(stack, name, source, reserved_concurrency=20)
    template = template_of(stack)
    for name, source in sources.items():
        assert only(template, "AWS::Lambda::Function", name)["ReservedConcurrentExecutions"] == 20
        mapping = only(template, "AWS::Lambda::EventSourceMapping", f"{name}ConsumerSource")
        provisioned = None if source.is_stream else {"MinimumPollers": 3, "MaximumPollers": 30}
        assert mapping.get("ProvisionedPollerConfig") == provisioned


def test_the_reserved_concurrency_of_an_intake_is_enough_for_its_source() -> None:
    with refused("max-concurrency-within-reserved", "max_concurrency is 30 and reserved_concurrency is 20"):
        messages(new_stack(), "Intake", MessageSource.sqs(max_concurrency=30), reserved_concurrency=20)


def test_a_record_waits_no_longer_than_its_stream_keeps_it() -> None:
    """A stream loses its records after its retention, a day here. A queue keeps messages for 14 days."""
    stack = new_stack()
    messages(stack, "Stream", MessageSource.kinesis(record_stream(stack)))
    messages(stack, "Queue", MessageSource.sqs())
    waits = {
        variables["INTAKE_MESSAGE_SOURCE"]: (variables["INTAKE_MAX_HOLD_SECONDS"], variables["INTAKE_MAX_WAIT_SECONDS"])
        for function in Template.from_stack(stack).find_resources("AWS::Lambda::Function").values()
        if "INTAKE_MESSAGE_SOURCE" in (variables := function["Properties"]["Environment"]["Variables"])
    }
    days = 24 * 3600 * 3 // 4
    assert waits["kinesis"][0] == str(days)
    assert int(waits["kinesis"][1]) <= days
    assert int(waits["sqs"][0]) > days


def test_a_wait_that_is_longer_than_the_stream_is_refused() -> None:
    stack = new_stack()
    retry = RetryOptions(max_wait=Duration.hours(20))
    with refused("max-wait-within-retention", "max_wait is 20 hours"):
        messages(stack, "Intake", MessageSource.kinesis(record_stream(stack)), retry=retry)


def test_a_wait_that_is_longer_than_the_queue_of_a_stream_is_refused() -> None:
    """Redriven records are in the queue. A longer retention of the stream, which has seven days, would not help."""
    stack = new_stack()
    stream = record_stream(stack, retention_period=Duration.days(7))
    with refused("max-wait-within-retention", "at most 3 days, or lengthen the shorter retention"):
        messages(stack, "Intake", MessageSource.kinesis(stream), retry=RetryOptions(max_wait=Duration.days(4)))


@pytest.mark.failure_mode("F253")
def test_attempts_that_do_not_fit_into_the_retention_of_their_source_are_refused() -> None:
    """A stream keeps its records for a day, and a queue its messages for four."""
    retry = RetryOptions(max_attempts=12, min_backoff=Duration.minutes(15), max_backoff=Duration.hours(8))
    stack = new_stack()
    with refused("message-attempts-within-source", "12 attempts can take"):
        messages(stack, "Stream", MessageSource.kinesis(record_stream(stack)), retry=retry)
    messages(new_stack(), "Queue", MessageSource.sqs(), retry=retry)
    retry = RetryOptions(max_attempts=12, min_backoff=Duration.hours(8), max_backoff=Duration.minutes(500))
    with refused("message-attempts-within-source", "the source keeps a message for 4 days"):
        messages(new_stack(), "Queue", MessageSource.sqs(), retry=retry)


def test_a_short_visibility_timeout_is_refused() -> None:
    stack = new_stack()
    dead = sqs.Queue(stack, "Dead", retention_period=Duration.days(14))
    short = sqs.Queue(stack, "Short", dead_letter_queue=sqs.DeadLetterQueue(queue=dead, max_receive_count=100))
    with refused("visibility-covers-function", "visibility_timeout is 30 seconds"):
        messages(stack, "Intake", MessageSource.sqs(short))


@pytest.mark.parametrize(("days", "stream_days"), [(20, 0), (25, 7)])
def test_a_ledger_that_forgets_too_early_is_refused(days: int, stream_days: int) -> None:
    """A message can come back after both queues, and after the stream."""
    stack = new_stack()
    ledger = IntakeLedger(stack, "Ledger", retention=Duration.days(days))
    source = (
        MessageSource.kinesis(record_stream(stack, retention_period=Duration.days(stream_days)))
        if stream_days
        else MessageSource.sqs()
    )
    with refused("message-ledger-retention", f"after {22 + stream_days} days"):
        messages(stack, "Intake", source, ledger=ledger)


@pytest.mark.failure_mode("F128")
def test_a_queue_that_another_function_reads_is_refused() -> None:
    stack = new_stack()
    queue = standard(stack)
    messages(stack, "Intake", MessageSource.sqs(queue))
    other = lambda_.Function(
        stack,
        "Other",
        runtime=lambda_.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=lambda_.Code.from_inline("def handler(event, context): ..."),
    )
    lambda_.EventSourceMapping(stack, "Second", target=other, event_source_arn=queue.queue_arn)
    with refused("queue-has-other-consumer", "Second"):
        template_of(stack)


def test_a_queue_belongs_to_one_intake() -> None:
    stack = new_stack()
    queue = standard(stack)
    messages(stack, "One", MessageSource.sqs(queue))
    with refused("queue-in-use"):
        messages(stack, "Two", MessageSource.sqs(queue))


def test_a_pipeline_refuses_a_new_fifo_queue() -> None:
    stack = new_stack()
    with refused("fifo-queue"):
        IntakePipeline(stack, "Files", processor=processor(), queue=IntakeQueue(stack, "Queue", fifo=True))
