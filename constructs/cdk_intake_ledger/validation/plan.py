"""The numbers of one pipeline that synthesis compares, and the limits and defaults that they are compared with.

A number is NaN if CDK will know it only at deployment (a token), or if it was not given.
"""

import math
from dataclasses import dataclass

from intake_ledger.protocol import lease_length

UNKNOWN = math.nan
"""In place of a number that is a token, or was left out."""

MINUTE, HOUR, DAY = 60, 3_600, 86_400

FUNCTION_MARGIN = 10
"""Seconds that the consumer has beyond its processing timeouts, for the ledger and for handing back the rest."""

PROCESSOR_MARGIN = 10
"""Seconds that Lambda may take to initialise a function, beyond the function's own timeout."""

MAX_FUNCTION_TIMEOUT = 900
"""Lambda's own limit, in seconds."""

ABORT_MULTIPART_DAYS = 7
"""An unfinished multipart upload is removed after so many days; a finished one may carry a date as old as that."""

NONCURRENT_EXPIRY_DAYS = 30
"""How long an overwritten version of the pipeline's own bucket can still be read."""

QUEUE_RETENTION_DAYS = 4
"""How long a queue that is made keeps a message, unless the team says so; SQS's own default."""

DEAD_LETTER_RETENTION_DAYS = 14
"""The same of a dead-letter queue; the most that SQS has."""

LEDGER_RETENTION_DAYS = 35
"""How long a settled row is remembered, unless the team chooses: a message's longest way through both queues."""

MAX_RECEIVES = 1_000
"""The queue's own limit, and SQS's highest. It is a backstop only: the retry budget is the ledger's. While the
downstream is out each message is received about once a minute, and more rarely after some hours
(`intake_ledger.consumer.circuit_breaker`). A message on which every worker dies before it can count an attempt still
reaches the dead-letter queue within four days, the queue's retention, with the default timeouts."""

IMPORTED_RECEIVES = 300
"""The limit that is assumed of an imported queue, which synthesis cannot see."""

HOLD_SHARE = 0.75
"""Of the queue's retention: the longest time for which a message waits for a downstream that is out. The rest is for a
last attempt at each of them, so that each is dead-lettered with its reason and none is dropped by SQS."""

RETURN_MARGIN = 30
"""Seconds by which the queue hides a message longer than a lease lasts, since Lambda receives it before it begins."""

MAX_ATTEMPTS = 50
"""What the queue's own limit leaves room for, since busy keys and neighbours cost receives as well."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The numbers of one pipeline: times in seconds."""

    processing_timeout: float
    clock_skew: float
    max_attempts: float
    min_backoff: float
    max_backoff: float
    max_wait: float = UNKNOWN
    """Unknown where it follows from the queue's retention."""
    batch_size: float
    max_batching_window: float
    max_concurrency: float
    threads: float
    commit_together: bool
    visibility_timeout: float
    """As the team's own queue was given it; unknown where the pipeline chooses it."""
    queue_retention: float
    dead_letter_retention: float
    ledger_retention: float
    """Unknown where rows live as long as their objects."""
    audit_interval: float
    settle_time: float
    look_back: float
    audit_budget: float
    resubmit_rate: float = UNKNOWN
    backfill_rate: float = UNKNOWN
    memory_size: float
    processor_timeout: float = UNKNOWN
    """Of an existing function that is the processor; unknown where it is imported, or the processor is none."""

    @property
    def function_timeout(self) -> float:
        """How long the consumer may run."""
        return function_timeout(self.processing_timeout)

    @property
    def lease(self) -> float:
        """The longest time for which a claim excludes others."""
        return lease_length(self.function_timeout, self.clock_skew)

    @property
    def least_visibility(self) -> float:
        """What the pipeline's own queue has, so that the message of a dead worker is handled again half a minute after
        its lease. A message must not come back while that lease still runs, nor while its worker lives. Lambda
        recommends six function timeouts, and demands one: with less than six, a batch that Lambda throttles for long is
        received twice, which the ledger notices.
        """
        return max(self.lease, self.function_timeout + self.max_batching_window) + RETURN_MARGIN

    @property
    def visibility(self) -> float:
        """What the queue will have."""
        return self.least_visibility if math.isnan(self.visibility_timeout) else self.visibility_timeout

    @property
    def least_ledger_retention(self) -> float:
        """The longest way of a change: queue, dead-letter queue, queue again, and an audit after the longest upload."""
        return 2 * self.queue_retention + self.dead_letter_retention + self.audit_interval + ABORT_MULTIPART_DAYS * DAY

    @property
    def remembered(self) -> float:
        """How long a settled row is remembered that expires, where the team names no retention."""
        wanted = (LEDGER_RETENTION_DAYS * DAY, self.least_ledger_retention, self.look_back)
        return max(seconds for seconds in wanted if not math.isnan(seconds))

    @property
    def retry_time(self) -> float:
        """How long a message can be on its way until its budget is used up, when every worker dies."""
        waits = (
            min(self.min_backoff * 2.0**n, self.max_backoff)
            for n in range(int(min(self.max_attempts, MAX_ATTEMPTS)) - 1)
        )
        return sum(waits) + self.max_attempts * self.visibility


def function_timeout(processing_timeout: float) -> float:
    """How long the consumer may run: one processing timeout in which it starts records, and one for the last of them.

    With less, a slow processor would have time for one record of a batch, and the rest would come back for nothing.
    """
    return min(2 * processing_timeout + FUNCTION_MARGIN, MAX_FUNCTION_TIMEOUT)


def span(seconds: float) -> str:
    """A time as people say it: `90 minutes`."""
    for unit, size in (("day", DAY), ("hour", HOUR), ("minute", MINUTE)):
        if seconds and seconds % size == 0:
            return _counted(seconds / size, unit)
    return _counted(seconds, "second")


def number_text(number: float) -> str:
    """Write a number with separators: `10,000`."""
    return f"{number:,.10g}"


def _counted(number: float, unit: str) -> str:
    return f"{number_text(number)} {unit}{'' if number == 1 else 's'}"
