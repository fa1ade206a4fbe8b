"""Rules about an existing queue and its dead-letter queue."""

from cdk_intake_ledger.checks.registry import Subject

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
