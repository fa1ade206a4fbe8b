"""Rules about an existing queue and its dead-letter queue."""

from cdk_intake_ledger.validation.limits import AWS_MANAGED_KEY, MIN_MESSAGE_BYTES
from cdk_intake_ledger.validation.registry import Subject

SUBJECT = Subject("Queues")

QUEUE_PAIR = SUBJECT.error(
    "queue-pair",
    inputs=("queue", "dead_letter_queue"),
    what="{path} has only one of queue and dead_letter_queue",
    why="the pipeline needs both",
    fix="Pass both, or a queue that was created with a dead_letter_queue",
)
OPTION_OF_EXISTING_QUEUE = SUBJECT.error(
    "option-of-existing-queue",
    inputs=("visibility_timeout", "retention", "dead_letter_retention", "encryption_key"),
    what="{name} is set for an existing queue of this app",
    why="it belongs to the queue",
    fix="Set it where the queue is created, and omit it here",
)
QUEUE_IN_USE = SUBJECT.error(
    "queue-in-use",
    inputs=("queue",),
    what="the queue {path} already belongs to {owner}",
    why="two consumers would take each other's messages",
    fix="Give each pipeline its own queue",
)
QUEUE_HAS_OTHER_CONSUMER = SUBJECT.error(
    "queue-has-other-consumer",
    inputs=("queue",),
    what="the event source mapping {mapping} also takes messages of {path}",
    why="those messages never reach the ledger",
    fix="Give that function another queue, or remove the mapping",
)
DEAD_LETTER_QUEUE_IN_USE = SUBJECT.error(
    "dead-letter-queue-in-use",
    inputs=("dead_letter_queue",),
    what="the dead-letter queue {path} already belongs to {owner}",
    why="a redrive would send messages of one pipeline to the other",
    fix="Give each pipeline its own dead-letter queue",
)
DEAD_LETTER_QUEUE_IS_QUEUE = SUBJECT.error(
    "dead-letter-queue-is-queue",
    inputs=("queue", "dead_letter_queue"),
    what="{path} is both queue and dead_letter_queue",
    why="a rejected message would be delivered again at once, without end",
    fix="Pass another dead_letter_queue",
)
FIFO_QUEUE = SUBJECT.error(
    "fifo-queue",
    inputs=("queue", "dead_letter_queue"),
    what="{path} is a FIFO queue",
    why="S3 cannot send to it, and the ledger decides the order",
    fix="Pass a standard queue",
)
QUEUE_MESSAGE_SIZE = SUBJECT.error(
    "queue-message-size",
    inputs=("queue",),
    what="{path} takes messages of at most {size:,} bytes",
    why="an event can be larger",
    fix=f"Allow at least {MIN_MESSAGE_BYTES:,} bytes",
)
DEAD_LETTER_QUEUE_MESSAGE_SIZE = SUBJECT.error(
    "dead-letter-queue-message-size",
    inputs=("dead_letter_queue",),
    what="{path} takes messages of at most {size:,} bytes, and its queue of {least:,}",
    why="it refuses the copy of a longer message, which then stays in the queue and is never rejected",
    fix="Allow at least {least:,} bytes in the dead-letter queue, or no more in the queue",
)
QUEUE_AWS_MANAGED_KEY = SUBJECT.error(
    "queue-aws-managed-key",
    inputs=("queue",),
    what=f"{{path}} is encrypted by {AWS_MANAGED_KEY}",
    why="no policy lets S3 or EventBridge use this key",
    fix="Use a customer managed key, or SQS's own encryption (QueueEncryption.SQS_MANAGED)",
)
QUEUE_MAX_RECEIVES = SUBJECT.error(
    "queue-max-receives",
    inputs=("queue", "retry"),
    what="{path} gives a message up after {receives} receives and a change has {attempts:g} attempts",
    why="a key that is busy also uses receives",
    fix="Set maxReceiveCount to at least {least:g}, or remove the redrive policy, because the ledger counts attempts",
)
QUEUE_REDRIVE_DIFFERS = SUBJECT.error(
    "queue-redrive-differs",
    inputs=("queue", "dead_letter_queue"),
    what="{path} gives messages up to {target}, and dead_letter_queue is {other}",
    why="the alarms and the redrives of the pipeline do not see a message that SQS moves to the first one",
    fix="Omit dead_letter_queue, or pass the queue that the redrive policy names",
)
QUEUE_VISIBILITY_UNKNOWN = SUBJECT.warning(
    "queue-visibility-unknown",
    inputs=("queue", "visibility_timeout"),
    what="the visibility timeout of {path} cannot be seen at synthesis",
    why="if it is shorter than {least}, SQS delivers a message again while a worker processes it",
    fix="Pass its value as visibility_timeout",
)
QUEUE_POLICY_UNKNOWN = SUBJECT.warning(
    "queue-policy-unknown",
    inputs=("queue",),
    what="the queue {path} is imported, so CDK cannot extend its policy",
    why="without this statement no event arrives, and S3 refuses the notification",
    fix="Add the statement: {statement}",
)
