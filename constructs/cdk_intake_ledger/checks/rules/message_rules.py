"""Rules about message intakes."""

import math

from cdk_intake_ledger.checks.plan_check import Check, compare
from cdk_intake_ledger.checks.registry import Subject

SUBJECT = Subject("Message intakes")

MESSAGE_EXPRESSION = SUBJECT.error(
    "message-expression",
    inputs=("key", "identity", "fingerprint"),
    what="{name} is {expression!r}, which is not a JMESPath expression",
    why="{error}",
    fix='Name a field of the message, such as "detail.order_id", with quotation marks around other characters',
)
MESSAGE_FUNCTION = SUBJECT.error(
    "message-function",
    inputs=("key", "identity", "fingerprint"),
    what="{name} calls the function {function}",
    why="{error}",
    fix="Use the functions of JMESPath with their arguments: {functions}",
)
MESSAGE_FIELD = SUBJECT.error(
    "message-field",
    inputs=("key", "identity", "fingerprint", "source"),
    what="{name} is {expression!r}",
    why="no message of this source has the field {field}, so each of them would be a dead letter",
    fix="Name one of {names} there. Your own fields are below {where}",
)
MESSAGE_IDENTITY_CONSTANT = SUBJECT.error(
    "message-identity-constant",
    inputs=("identity",),
    what="identity is {expression!r}, which names no field",
    why="it is the same for each message, so all messages of a key but the first would be duplicates",
    fix='Name the field with the ID that the sender gives to each message, such as "detail.order_id"',
)
MESSAGE_FINGERPRINT_CONSTANT = SUBJECT.error(
    "message-fingerprint-constant",
    inputs=("fingerprint",),
    what="fingerprint is {expression!r}, which names no field",
    why="it is the same for each message, so no copy would differ",
    fix='Name the fields that copies have in common, such as "detail.[amount, currency]"',
)
MESSAGE_FINGERPRINT_SAME = SUBJECT.error(
    "message-fingerprint-same",
    inputs=("fingerprint", "identity", "key"),
    what="fingerprint is {expression!r}, as {name} is",
    why="messages with one key and one identity have the same value, so that it compares nothing",
    fix='Name the fields that copies of a message have in common, such as "[amount, currency]"',
)
MESSAGE_IDENTITY_FALLBACK = SUBJECT.warning(
    "message-identity-fallback",
    inputs=("identity",),
    what="identity is {expression!r}, which has a value without a field",
    why="all messages of a key that lack the fields have that value, and all but the first would be duplicates",
    fix="Remove the value, so that such a message is a dead letter, or acknowledge the warning",
)
MESSAGE_REMOVALS = SUBJECT.warning(
    "message-removals",
    inputs=("key", "identity", "fingerprint", "source"),
    what="{name} is {expression!r}, and records of removals have no dynamodb.NewImage",
    why="each removal and each item that expires (TTL) would be a dead letter",
    fix="Name dynamodb.Keys, or (dynamodb.NewImage || dynamodb.OldImage). If removals need no processing, override "
    '`FilterCriteria` of the mapping Consumer/Stream with the pattern {{"eventName": ["INSERT", "MODIFY"]}}',
)
MESSAGE_RECORD_TOO_LONG = SUBJECT.warning(
    "message-record-too-long",
    inputs=("source",),
    what="a rejected record that is too long for the dead-letter queue has only its place in the stream there",
    why="a redrive cannot process it, the stream keeps it for its retention only, and an on-failure destination of "
    "Lambda does not get it",
    fix="Keep long contents in S3 and put their keys, or acknowledge the warning if the records are shorter than the "
    "limit of the dead-letter queue, 1 MiB as JSON",
)
MESSAGE_IDENTITY_FEW = SUBJECT.error(
    "message-identity-few-values",
    inputs=("identity",),
    what="identity is {expression!r}, which has few values",
    why="a type, a length or a comparison is the same for many messages, so that most of a key would be duplicates",
    fix='Name the field with the ID that the sender gives to each message, such as "detail.order_id"',
)
MESSAGE_QUEUE_OPTION = SUBJECT.error(
    "message-queue-option",
    inputs=("source", "dead_letter_queue", "visibility_timeout"),
    what="the source has {name} without queue",
    why="the intake makes both queues, so that it would have no effect",
    fix="Pass queue too, or omit {name}",
)
MESSAGE_IDENTITY_SHARED = SUBJECT.warning(
    "message-identity-shared",
    inputs=("identity", "source"),
    what="identity is {expression!r}",
    why="different messages of this source have the same value, and all of a key but the first would be duplicates",
    fix="Name the field with the sender's own ID, or {own}, or acknowledge the warning",
)
MESSAGE_IDENTITY_TYPES = SUBJECT.warning(
    "message-identity-types",
    inputs=("identity", "source"),
    what="identity is {expression!r}, and the pattern has {count} detail types",
    why="an order and its cancellation may have the same value, and all events of a key but the first would be "
    "duplicates",
    fix='Name id, or add "detail-type" to the identity, or acknowledge the warning if each event has its own value',
)
MESSAGE_SNS_ENVELOPE = SUBJECT.warning(
    "message-sns-envelope",
    inputs=("source", "key", "identity"),
    what="the subscription {subscription} sends messages of SNS to {path} in an envelope",
    why="the expressions and the processor get the envelope, and each message without their fields is a dead letter",
    fix="Pass unwrap_sns=True to the source, or set raw_message_delivery=True of the subscription",
)
MESSAGE_IDENTITY_IS_KEY = SUBJECT.warning(
    "message-identity-is-key",
    inputs=("key", "identity", "fingerprint"),
    what="key and identity are both {expression!r}",
    why="only the first message of each key is processed, and all later ones are duplicates",
    fix="Name another field as the identity, or acknowledge the warning if each key comes once",
)
MESSAGE_EXECUTIONS = SUBJECT.error(
    "message-executions",
    inputs=("processor", "source"),
    what="the processor is {processor} and the source is {source}",
    why="all later messages of the {behind} would wait for hours, until the execution of the first one has ended",
    fix="Use the source sqs or eventbridge, or a processor that ends in minutes",
)
MESSAGE_CAPACITY_PROVIDER = SUBJECT.error(
    "message-capacity-provider",
    inputs=("processor",),
    what="the processor has a capacity_provider",
    why="the consumer of messages runs on Lambda's own capacity only",
    fix="Omit capacity_provider",
)
MESSAGE_QUEUE_KIND = SUBJECT.error(
    "message-queue-kind",
    inputs=("source",),
    what="{path} is a {found} queue",
    why="queue and dead-letter queue of MessageSource.{source} are {wanted} queues",
    fix="Use MessageSource.{fix}, and a dead-letter queue of the same kind",
)
MESSAGE_DEAD_LETTER_QUEUE = SUBJECT.error(
    "message-dead-letter-queue",
    inputs=("source",),
    what="{path} has no dead-letter queue that synthesis can see",
    why="rejected messages go there, each with its reason",
    fix="Pass dead_letter_queue, or set it where the queue is created",
)
MESSAGE_TABLE_STREAM = SUBJECT.error(
    "message-table-stream",
    inputs=("source",),
    what="the table {path} has no stream",
    why="its changes are read from the stream",
    fix="Set stream (dynamo_stream for TableV2) where the table is created, or import it with table_stream_arn",
)
MESSAGE_BATCH = SUBJECT.error(
    "message-batch",
    inputs=("source",),
    what="batch_size of the source {source} is {size}",
    why="it must be 1 to {most}, the range of Lambda for this source",
    fix="Set a value in this range",
)
MESSAGE_STREAM_SCALING = SUBJECT.error(
    "message-stream-scaling",
    inputs=("source",),
    what="{name} of a stream is {value}",
    why="Lambda has it for queues only, and reads each shard of a stream with parallelization_factor batches",
    fix="Omit it, and set parallelization_factor or the intake's reserved_concurrency",
)
MESSAGE_LEDGER_RETENTION = SUBJECT.error(
    "message-ledger-retention",
    inputs=("ledger", "source"),
    what="the ledger's retention is {retention}",
    why="a message can come back after {least} ({of})",
    fix="Set the ledger's retention to at least {least}",
)

CHECKS: tuple[Check, ...] = (
    # A queue that loses the message before its last attempt is refused for pipelines too.
    compare(SUBJECT, "message-attempts-within-source", "max_attempts min_backoff max_backoff processing_timeout",
            lambda plan: plan.last_try < plan.retry_time
            and (plan.retry_time <= plan.source_retention or not math.isnan(plan.stream_retention)),
            "{max_attempts} attempts can take {retry_time}",
            "the source keeps a message for {source_retention}, and the last attempt begins after {last_try} at the "
            "latest",
            "Set fewer attempts, a shorter backoff or processing_timeout, or give the source a longer retention"),
)  # fmt: skip
