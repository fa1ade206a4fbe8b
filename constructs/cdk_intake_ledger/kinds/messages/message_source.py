"""The sources of a message intake: queues, streams and rules of EventBridge."""

from dataclasses import dataclass

from aws_cdk import Duration, aws_dynamodb, aws_events, aws_kinesis, aws_sqs
from aws_cdk import aws_lambda as lambda_

from cdk_intake_ledger.checks.arguments.checking import check_arguments
from cdk_intake_ledger.resources.existing_queue import dead_letter_queue_of
from intake_ledger.messages.settings import MessageSourceType


@dataclass(frozen=True, kw_only=True)
class QueueOptions:
    """An existing queue. All of them are None if the intake makes the queue."""

    queue: aws_sqs.IQueue | None = None
    dead_letter_queue: aws_sqs.IQueue | None = None
    visibility_timeout: Duration | None = None

    @property
    def dead_letters(self) -> aws_sqs.IQueue | None:
        """The dead-letter queue: the option, or that of a queue of this app."""
        return self.dead_letter_queue or dead_letter_queue_of(self.queue)


@check_arguments
@dataclass(frozen=True, kw_only=True)
class MessageSource:
    """Where the messages of an intake come from. Make it with `sqs`, `fifo`, `kinesis`, `dynamodb` or `event_bridge`.

    docs/messages.md has the order of messages that each source keeps.
    """

    kind: MessageSourceType
    """Queue, stream or rule."""
    batch_size: int
    """The maximum number of messages in one invocation."""
    max_batching_window: Duration | None = None
    """The time for which Lambda collects messages for a batch. It does not wait when omitted."""
    max_concurrency: int | None = None
    """The maximum number of concurrent invocations for a queue. No limit when omitted."""
    min_pollers: int | None = None
    """The smallest number of pollers of a queue in provisioned mode. The default mode when omitted."""
    max_pollers: int | None = None
    """The largest number of pollers of a queue in provisioned mode. The default mode when omitted."""
    existing: QueueOptions = QueueOptions()
    """An existing queue. The intake makes one when omitted."""
    unwrap_sns: bool = False
    """Whether a notification of SNS is replaced by the message in it. It stays as it is when omitted."""
    stream: aws_kinesis.IStream | None = None
    """The stream of Kinesis. None when omitted."""
    table: aws_dynamodb.ITable | None = None
    """The table whose stream is read. None when omitted."""
    parallelization_factor: int = 1
    """The number of batches of a shard that are processed at the same time. 1 when omitted."""
    starting_position: lambda_.StartingPosition = lambda_.StartingPosition.TRIM_HORIZON
    """Where a new intake begins to read a stream. At the oldest record when omitted."""
    event_pattern: aws_events.EventPattern | None = None
    """The pattern of the rule. None when omitted."""
    event_bus: aws_events.IEventBus | None = None
    """The bus of the rule. The account's default bus when omitted."""

    @classmethod
    def sqs(
        cls,
        queue: aws_sqs.IQueue | None = None,
        *,
        dead_letter_queue: aws_sqs.IQueue | None = None,
        visibility_timeout: Duration | None = None,
        batch_size: int = 10,
        max_batching_window: Duration | None = None,
        max_concurrency: int | None = None,
        min_pollers: int | None = None,
        max_pollers: int | None = None,
        unwrap_sns: bool = False,
    ) -> "MessageSource":
        """Take the messages of a standard queue. Messages of a key have no order.

        Args:
            queue: your queue, without another consumer; a new queue when omitted.
            dead_letter_queue: your dead-letter queue, for this intake only; that of `queue` when omitted.
            visibility_timeout: the visibility timeout of an imported queue, so that it can be checked; that of a queue
                of this app when omitted.
            batch_size: the maximum number of messages in one invocation, 1 to 10,000; 10 when omitted. More than 10
                need a `max_batching_window`.
            max_batching_window: the time for which Lambda collects messages for a batch, up to 5 minutes; it does not
                wait when omitted.
            max_concurrency: the maximum number of concurrent invocations, 2 to 1,000; no limit when omitted.
            min_pollers: the smallest number of pollers of provisioned mode, 2 to 200. When omitted with `max_pollers`,
                it is 2, and when both are omitted, the default mode polls. Provisioned mode excludes `max_concurrency`.
            max_pollers: the largest number of pollers of provisioned mode, 2 to 10,000. When omitted with
                `min_pollers`, it is 200.
            unwrap_sns: whether a notification of SNS without raw message delivery is replaced by the message in it, for
                the expressions and the processor. It stays as it is when omitted. Other messages never change.

        """
        return cls(
            kind=MessageSourceType.SQS,
            existing=QueueOptions(
                queue=queue, dead_letter_queue=dead_letter_queue, visibility_timeout=visibility_timeout
            ),
            batch_size=batch_size,
            max_batching_window=max_batching_window,
            max_concurrency=max_concurrency,
            min_pollers=min_pollers,
            max_pollers=max_pollers,
            unwrap_sns=unwrap_sns,
        )

    @classmethod
    def fifo(
        cls,
        queue: aws_sqs.IQueue | None = None,
        *,
        dead_letter_queue: aws_sqs.IQueue | None = None,
        visibility_timeout: Duration | None = None,
        batch_size: int = 10,
        max_concurrency: int | None = None,
        min_pollers: int | None = None,
        max_pollers: int | None = None,
        unwrap_sns: bool = False,
    ) -> "MessageSource":
        """Take the messages of a FIFO queue. Messages of a group are in order, and a failed one holds the next ones
        back.

        Use the key as the message group ID. The queue needs no content-based deduplication, since the ledger knows the
        identities.

        Args:
            queue: your FIFO queue, without another consumer; a new queue when omitted.
            dead_letter_queue: your FIFO dead-letter queue, for this intake only; that of `queue` when omitted.
            visibility_timeout: as for `sqs`, also when omitted.
            batch_size: the maximum number of messages in one invocation, 1 to 10; 10 when omitted.
            max_concurrency: as for `sqs`; no limit when omitted.
            min_pollers: as for `sqs`; the default mode when omitted.
            max_pollers: as for `sqs`; the default mode when omitted.
            unwrap_sns: as for `sqs`; a notification of SNS stays as it is when omitted.

        """
        return cls(
            kind=MessageSourceType.FIFO,
            existing=QueueOptions(
                queue=queue, dead_letter_queue=dead_letter_queue, visibility_timeout=visibility_timeout
            ),
            batch_size=batch_size,
            max_concurrency=max_concurrency,
            min_pollers=min_pollers,
            max_pollers=max_pollers,
            unwrap_sns=unwrap_sns,
        )

    @classmethod
    def kinesis(
        cls,
        stream: aws_kinesis.IStream,
        *,
        batch_size: int = 100,
        max_batching_window: Duration | None = None,
        parallelization_factor: int = 1,
        starting_position: lambda_.StartingPosition = lambda_.StartingPosition.TRIM_HORIZON,
    ) -> "MessageSource":
        """Read the records of a Kinesis stream. Records of a key are in order if the key is their partition key.

        A failed record holds its shard back until it succeeds or is rejected.

        Args:
            stream: the stream. Other consumers may read it too.
            batch_size: the maximum number of records in one invocation, 1 to 10,000; 100 when omitted.
            max_batching_window: as for `sqs`; Lambda does not wait when omitted.
            parallelization_factor: the number of batches of a shard that are processed at the same time, 1 to 10; 1
                when omitted. Lambda keeps the order of each partition key.
            starting_position: where a new intake begins; at the oldest record, `TRIM_HORIZON`, when omitted.

        """
        return cls(
            kind=MessageSourceType.KINESIS,
            stream=stream,
            batch_size=batch_size,
            max_batching_window=max_batching_window,
            parallelization_factor=parallelization_factor,
            starting_position=starting_position,
        )

    @classmethod
    def dynamodb(
        cls,
        table: aws_dynamodb.ITable,
        *,
        batch_size: int = 100,
        max_batching_window: Duration | None = None,
        parallelization_factor: int = 1,
        starting_position: lambda_.StartingPosition = lambda_.StartingPosition.TRIM_HORIZON,
    ) -> "MessageSource":
        """Read the changes of a table. Changes of an item are in order. The message is the record of the stream.

        Args:
            table: a table with a stream. A stream has at most two readers.
            batch_size: as for `kinesis`; 100 when omitted.
            max_batching_window: as for `sqs`; Lambda does not wait when omitted.
            parallelization_factor: as for `kinesis`; 1 when omitted. Lambda keeps the order of each item.
            starting_position: as for `kinesis`; at the oldest record when omitted.

        """
        return cls(
            kind=MessageSourceType.DYNAMODB,
            table=table,
            batch_size=batch_size,
            max_batching_window=max_batching_window,
            parallelization_factor=parallelization_factor,
            starting_position=starting_position,
        )

    @classmethod
    def event_bridge(
        cls,
        event_pattern: aws_events.EventPattern,
        *,
        event_bus: aws_events.IEventBus | None = None,
        batch_size: int = 10,
        max_batching_window: Duration | None = None,
        max_concurrency: int | None = None,
        min_pollers: int | None = None,
        max_pollers: int | None = None,
    ) -> "MessageSource":
        """Take the events of a bus by a new rule and a new queue. Events have no order. The message is the event.

        Args:
            event_pattern: which events.
            event_bus: the bus; the account's default bus when omitted.
            batch_size: as for `sqs`; 10 when omitted.
            max_batching_window: as for `sqs`; Lambda does not wait when omitted.
            max_concurrency: as for `sqs`; no limit when omitted.
            min_pollers: as for `sqs`; the default mode when omitted.
            max_pollers: as for `sqs`; the default mode when omitted.

        """
        return cls(
            kind=MessageSourceType.EVENTBRIDGE,
            event_pattern=event_pattern,
            event_bus=event_bus,
            batch_size=batch_size,
            max_batching_window=max_batching_window,
            max_concurrency=max_concurrency,
            min_pollers=min_pollers,
            max_pollers=max_pollers,
        )

    @property
    def is_stream(self) -> bool:
        """True if the messages are records of a stream."""
        return self.kind.is_stream

    @property
    def stream_arn(self) -> str | None:
        """The ARN of the stream; None for other sources, and for a table without a stream."""
        if self.stream is not None:
            return self.stream.stream_arn
        return self.table.table_stream_arn if self.table is not None else None
