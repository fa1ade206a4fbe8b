"""The numbers of one pipeline that synthesis compares, and the limits and defaults that they are compared with."""

import math
from dataclasses import dataclass

from cdk_intake_ledger.checks.rules.max_rate import StartNumbers
from cdk_intake_ledger.checks.spans import DAY, NOT_GIVEN, UNKNOWN
from intake_ledger.protocol.row import lease_length
from intake_ledger.protocol.settings import HOLD_SHARE, last_try_seconds

FUNCTION_MARGIN = 10
"""Seconds of the consumer beyond its processing timeouts, for the ledger and for messages that it returns."""

PROCESSOR_MARGIN = 10
"""Seconds that Lambda may take to initialise a function, beyond the function's own timeout."""

MAX_FUNCTION_TIMEOUT = 900
"""Lambda's own limit, in seconds."""

MAX_MANAGED_TIMEOUT = 5_400
"""The same on Lambda Managed Instances, for event source mappings of SQS (Lambda API reference, `CreateFunction`)."""

ABORT_MULTIPART_DAYS = 7
"""Days after which S3 removes an unfinished multipart upload. A finished upload can have a date that is as old."""

NONCURRENT_EXPIRY_DAYS = 30
"""Days for which a bucket of the pipeline keeps an overwritten version."""

QUEUE_RETENTION_DAYS = 4
"""Days for which a new queue keeps a message by default. It is also SQS's default."""

DEAD_LETTER_RETENTION_DAYS = 14
"""The same for a dead-letter queue: the maximum of SQS."""

LEDGER_RETENTION_DAYS = 35
"""Days for which the ledger keeps a settled row by default: the longest path of a message through both queues."""

MAX_RECEIVES = 1_000
"""maxReceiveCount of a new queue, SQS's maximum. The ledger counts attempts, so this is only a second limit. While the
downstream fails, each message is received about once a minute, and less often after some hours
(`intake_ledger.consumer.circuit_breaker`). If each worker dies before it can count an attempt, the message still
reaches the dead-letter queue within the queue's retention of four days."""

IMPORTED_RECEIVES = 300
"""The assumed maxReceiveCount of an imported queue. Synthesis cannot see it."""

RETURN_MARGIN = 30
"""Seconds by which the visibility timeout exceeds the lease. Lambda receives a message before the lease begins."""

MAX_ATTEMPTS = 50
"""The highest number of attempts. Busy keys and other messages of a batch use receives of the queue too."""


@dataclass(frozen=True, kw_only=True)
class Plan(StartNumbers):
    """The numbers of one pipeline: times in seconds, and `plan_check.COUNTS`."""

    processing_timeout: float
    clock_skew: float
    max_attempts: float
    min_backoff: float
    max_backoff: float
    max_wait: float = UNKNOWN
    """Unknown if it follows from the queue's retention."""
    batch_size: float
    max_batching_window: float
    max_concurrency: float
    threads: float
    commit_together: bool
    max_per_call: float = 1
    """The most changes in one call of the processor."""
    visibility_timeout: float
    """The value of an existing queue. Unknown if the pipeline sets it."""
    queue_retention: float
    dead_letter_retention: float
    ledger_retention: float
    """Unknown if rows live as long as their objects."""
    audit_interval: float
    settle_time: float
    look_back: float
    audit_budget: float
    resubmit_rate: float = UNKNOWN
    backfill_rate: float = UNKNOWN
    memory_size: float
    processor_timeout: float = UNKNOWN
    """The timeout of a function that is the processor. Unknown for an imported function and for other processors."""
    managed_instances: bool = False
    """True if the consumer's function runs on Lambda Managed Instances."""
    execution_timeout: float = UNKNOWN
    """The limit of an execution, if executions do the work. Unknown for other processors."""
    longest_task: float = UNKNOWN
    """The time for which a task may outlive its execution. Unknown for other processors."""
    stop_overtaken: bool = False
    """True if a newer version stops an execution."""
    execution_retention: float = UNKNOWN
    """The time for which a durable function keeps an execution that has ended. Unknown for other processors."""
    reserved_concurrency: float = UNKNOWN
    """Unknown if it is not set; likewise the pollers."""
    min_pollers: float = UNKNOWN
    max_pollers: float = UNKNOWN
    max_receives: float = UNKNOWN
    """MaxReceiveCount of the queue."""
    keeps_order: bool = False
    """True for a FIFO queue or a stream. Their messages cannot wait as copies, so the retention bounds each wait."""

    stream_retention: float = NOT_GIVEN
    """The time for which a stream keeps a record, if the messages are records."""
    deadline: float = NOT_GIVEN
    """The time for which a set waits for its parts."""
    alarm_after: float = NOT_GIVEN
    """The wait of a set after which an alarm reports it."""
    quiet_for: float = NOT_GIVEN
    """The time without an upload after which a folder is complete."""

    @property
    def function_timeout(self) -> float:
        """The timeout of the consumer's function."""
        return function_timeout(self.processing_timeout, managed=self.managed_instances)

    @property
    def longest_processing_timeout(self) -> float:
        """The longest processing timeout that leaves time for the ledger."""
        return (MAX_MANAGED_TIMEOUT if self.managed_instances else MAX_FUNCTION_TIMEOUT) - FUNCTION_MARGIN

    @property
    def lease(self) -> float:
        """The longest time for which a claim excludes other attempts."""
        return lease_length(self.function_timeout, self.clock_skew)

    @property
    def least_visibility(self) -> float:
        """The visibility timeout of a new queue.

        SQS delivers the message of a dead worker again half a minute after its lease. It must not do so while the
        lease or the worker lasts. Lambda requires one function timeout and recommends six. With less than six, SQS can
        deliver a batch twice that Lambda throttles for long. The ledger detects that.
        """
        return max(self.lease, self.function_timeout + self.max_batching_window) + RETURN_MARGIN

    @property
    def visibility(self) -> float:
        """The queue's visibility timeout."""
        return self.least_visibility if math.isnan(self.visibility_timeout) else self.visibility_timeout

    @property
    def source_retention(self) -> float:
        """The time for which the source keeps a message: the stream, or the queue."""
        return self.queue_retention if math.isnan(self.stream_retention) else self.stream_retention

    @property
    def longest_wait(self) -> float:
        """The longest wait of a message that cannot wait as copies. Redriven records of a stream are in the queue."""
        return HOLD_SHARE * min(self.queue_retention, self.source_retention)

    @property
    def last_try(self) -> float:
        """The age of a message at which its last attempt begins at the latest."""
        return last_try_seconds(HOLD_SHARE * self.source_retention)

    @property
    def least_ledger_retention(self) -> float:
        """The longest path of a change: queue, dead-letter queue, queue, and an audit after the longest upload."""
        return 2 * self.queue_retention + self.dead_letter_retention + self.audit_interval + ABORT_MULTIPART_DAYS * DAY

    @property
    def remembered(self) -> float:
        """The retention of settled rows that expire, if no retention is set."""
        wanted = (LEDGER_RETENTION_DAYS * DAY, self.least_ledger_retention, self.look_back)
        return max(seconds for seconds in wanted if not math.isnan(seconds))

    @property
    def retry_time(self) -> float:
        """The longest time until a message has used all attempts, if each worker dies."""
        return self.backoff_time + self.max_attempts * self.visibility

    @property
    def backoff_time(self) -> float:
        """The sum of the waits between all attempts."""
        return sum(
            min(self.min_backoff * 2.0**n, self.max_backoff)
            for n in range(int(min(self.max_attempts, MAX_ATTEMPTS)) - 1)
        )


def function_timeout(processing_timeout: float, *, managed: bool = False) -> float:
    """The timeout of the consumer's function: one processing timeout to start records, and one for the last record.

    With less, a slow processor would have time for one record of a batch. The other messages would return to the queue.

    Args:
        processing_timeout: the limit for one record, in seconds.
        managed: whether the function runs on Lambda Managed Instances.

    Returns:
        seconds, at most 900, or 5,400 on Lambda Managed Instances.

    """
    most = MAX_MANAGED_TIMEOUT if managed else MAX_FUNCTION_TIMEOUT
    return min(2 * processing_timeout + FUNCTION_MARGIN, most)
