"""Combinations of a pipeline with queues, keys and tables."""

from aws_cdk import App, Duration, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as event_sources
from aws_cdk import aws_sqs as sqs

from cdk_intake_ledger import IntakeLedger, IntakeQueue, MessageSource
from tests.synth.combinations.combination import ELSEWHERE, HERE, combination, node_function, two_stacks, versioned
from tests.synth.matrix import bucket, orders, queues, table
from tests.synth.message_stack import messages

KEY_ARN = f"arn:aws:kms:eu-central-1:{HERE.account}:key/1234abcd-12ab-34cd-56ef-1234567890ab"


@combination("S3")
def queue_with_options(app: App) -> None:
    stack = Stack(app, "Stack")
    queue = IntakeQueue(
        stack,
        "Queue",
        visibility_timeout=Duration.hours(1),
        retention=Duration.days(7),
        encryption_key=kms.Key(stack, "K"),
    )
    orders(stack, queue=queue, ledger=IntakeLedger(stack, "Ledger", retention=Duration.days(60)))


@combination("S3")
def queue_with_a_key(app: App) -> None:
    stack = Stack(app, "Stack")
    orders(stack, queue=queues(stack, encryption_master_key=kms.Key(stack, "Key")))


@combination("S3")
def queue_with_its_own_new_key(app: App) -> None:
    stack = Stack(app, "Stack")
    orders(stack, queue=queues(stack, encryption=sqs.QueueEncryption.KMS))


@combination("S3")
def queue_with_a_key_of_a_sibling(app: App) -> None:
    theirs, ours = two_stacks(app)
    orders(ours, queue=queues(ours, encryption_master_key=kms.Key(theirs, "Key")))


@combination("EventBridge")
def queue_and_bucket_of_a_sibling(app: App) -> None:
    theirs, ours = two_stacks(app)
    orders(ours, queue=queues(theirs), bucket=bucket(theirs))


@combination("EventBridge")
def queue_with_a_key_and_event_bridge(app: App) -> None:
    theirs, ours = two_stacks(app)
    key = kms.Key(theirs, "Key")
    orders(ours, queue=queues(ours, encryption_master_key=key), bucket=versioned(theirs, encryption_key=key))


@combination("S3", warned="queue-policy-unknown key-policy-unknown")
def imported_queue_with_a_key(app: App) -> None:
    stack = Stack(app, "Stack", env=HERE)
    live, dead = (
        sqs.Queue.from_queue_attributes(
            stack, name, queue_arn=f"arn:aws:sqs:eu-central-1:{HERE.account}:{name}", key_arn=KEY_ARN
        )
        for name in ("live", "dead")
    )
    queue = IntakeQueue(
        stack,
        "Queue",
        queue=live,
        dead_letter_queue=dead,
        visibility_timeout=Duration.minutes(20),
        retention=Duration.days(4),
        dead_letter_retention=Duration.days(14),
    )
    orders(stack, queue=queue)


@combination("S3")
def key_of_a_sibling(app: App) -> None:
    theirs, ours = two_stacks(app)
    orders(ours, encryption_key=kms.Key(theirs, "Key"))


@combination("S3", consumers=2)
def key_of_two_pipelines(app: App) -> None:
    stack = Stack(app, "Stack")
    key = kms.Key(stack, "Key")
    for name in ("Orders", "Returns"):
        orders(stack, name, encryption_key=key)


@combination("S3")
def key_with_an_alias(app: App) -> None:
    stack = Stack(app, "Stack")
    orders(stack, encryption_key=kms.Key(stack, "Key").add_alias("alias/intake"))


@combination("S3", warned="key-policy-unknown")
def imported_key_of_an_arn(app: App) -> None:
    stack = Stack(app, "Stack", env=HERE)
    orders(stack, encryption_key=kms.Key.from_key_arn(stack, "Key", KEY_ARN))


@combination("S3", warned="key-policy-unknown", contains="kms:ResourceAliases")
def imported_alias(app: App) -> None:
    stack = Stack(app, "Stack", env=HERE)
    orders(stack, encryption_key=kms.Alias.from_alias_name(stack, "Key", "alias/intake"))


@combination(refused="key-in-same-region")
def imported_key_of_another_region(app: App) -> None:
    stack = Stack(app, "Stack", env=ELSEWHERE)
    orders(stack, encryption_key=kms.Key.from_key_arn(stack, "Key", KEY_ARN))


@combination("S3")
def table_of_a_sibling(app: App) -> None:
    theirs, ours = two_stacks(app)
    orders(ours, ledger=IntakeLedger(theirs, "Ledger", table=table(theirs)))


@combination("S3", consumers=2)
def ledger_of_a_sibling_for_two_stacks(app: App) -> None:
    ledger = IntakeLedger(Stack(app, "Theirs"), "Ledger")
    for name in ("Orders", "Returns"):
        orders(Stack(app, name), name, ledger=ledger)


@combination("S3", warned="table-unknown")
def table_of_the_second_version(app: App) -> None:
    stack = Stack(app, "Stack")
    rows = dynamodb.TableV2(
        stack,
        "Rows",
        partition_key=dynamodb.Attribute(name="pk", type=dynamodb.AttributeType.STRING),
        sort_key=dynamodb.Attribute(name="sk", type=dynamodb.AttributeType.STRING),
        time_to_live_attribute="expires_at",
        global_secondary_indexes=[
            dynamodb.GlobalSecondaryIndexPropsV2(
                index_name="needs_review",
                partition_key=dynamodb.Attribute(name="needs_review", type=dynamodb.AttributeType.STRING),
                sort_key=dynamodb.Attribute(name="updated_at", type=dynamodb.AttributeType.NUMBER),
            )
        ],
    )
    orders(stack, ledger=IntakeLedger(stack, "Ledger", table=rows))


@combination("S3")
def ledger_with_a_key_and_a_name(app: App) -> None:
    stack = Stack(app, "Stack")
    ledger = IntakeLedger(stack, "Ledger", ledger_name="all", retention=None, encryption_key=kms.Key(stack, "Key"))
    orders(stack, ledger=ledger, deletes=True)


@combination("S3", consumers=2)
def ledger_of_files_and_messages(app: App) -> None:
    stack = Stack(app, "Stack")
    ledger = IntakeLedger(stack, "Ledger")
    orders(stack, ledger=ledger)
    messages(stack, "Messages", MessageSource.sqs(), ledger=ledger)


@combination(refused="queue-has-other-consumer")
def queue_that_another_function_polls(app: App) -> None:
    stack = Stack(app, "Stack")
    queue = queues(stack)
    node_function(stack).add_event_source(event_sources.SqsEventSource(queue.queue))
    orders(stack, queue=queue)


@combination(refused="queue-has-other-consumer")
def queue_that_another_function_polls_by_a_mapping(app: App) -> None:
    stack = Stack(app, "Stack")
    queue = queues(stack)
    orders(stack, queue=queue)
    lambda_.CfnEventSourceMapping(
        stack, "Mapping", function_name=node_function(stack).function_name, event_source_arn=queue.queue.queue_arn
    )


@combination(refused="queue-has-other-consumer")
def queue_that_a_function_of_a_sibling_polls(app: App) -> None:
    theirs, ours = two_stacks(app)
    queue = queues(theirs)
    orders(ours, queue=queue)
    node_function(theirs).add_event_source(event_sources.SqsEventSource(queue.queue))


@combination(refused="fifo-queue")
def fifo_queue(app: App) -> None:
    stack = Stack(app, "Stack")
    orders(stack, queue=IntakeQueue(stack, "Queue", fifo=True))


@combination(refused="final-queue-key")
def queue_with_the_key_of_aws(app: App) -> None:
    stack = Stack(app, "Stack")
    orders(stack, queue=queues(stack, encryption=sqs.QueueEncryption.KMS_MANAGED))


RESOURCES = [item for item in list(globals().values()) if type(item).__name__ == "Combination"]
