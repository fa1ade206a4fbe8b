"""What synthesis refuses, as one table: every rule compares plain numbers, and names them and the way out.

A number that CDK will know only at deployment (a token), or that was not given, is NaN in the plan, and a rule that
needs it is skipped.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

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
    concurrency: float
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
        return self.function_timeout + self.clock_skew

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


class Rule(NamedTuple):
    """One line of the table."""

    needs: tuple[str, ...]
    """The plan's numbers that must be known for the rule to say anything."""
    broken: Callable[[Plan], bool]
    problem: Callable[[Plan], str]


def problems(plan: Plan) -> Iterator[str]:
    """Every rule that the plan breaks, in the order of the table."""
    for rule in RULES:
        known = not any(math.isnan(getattr(plan, name)) for name in rule.needs)
        if known and rule.broken(plan):
            yield rule.problem(plan)


def span(seconds: float) -> str:
    """A time as people say it: `90 minutes`."""
    for unit, size in (("day", DAY), ("hour", HOUR), ("minute", MINUTE)):
        if seconds and seconds % size == 0:
            return _counted(seconds / size, unit)
    return _counted(seconds, "second")


def _counted(number: float, unit: str) -> str:
    return f"{number:,.10g} {unit}{'' if number == 1 else 's'}"


def _between(name: str, least: float, most: float, fix: str, show: Callable[[float], str] = span) -> Rule:
    return Rule(
        needs=(name,),
        broken=lambda plan: not least <= getattr(plan, name) <= most,
        problem=lambda plan: f"{name} is {show(getattr(plan, name))}: it must be {show(least)} to {show(most)}, {fix}",
    )


def _count(number: float) -> str:
    return f"{number:,.10g}"


def _whole(name: str, unit: float = 1) -> Rule:
    kind = "seconds" if unit == 1 else "minutes"
    return Rule(
        needs=(name,),
        broken=lambda plan: getattr(plan, name) % unit != 0,
        problem=lambda plan: f"{name} is {span(getattr(plan, name))}: it must be a whole number of {kind}, round it",
    )


TIMES = (
    "processing_timeout",
    "clock_skew",
    "min_backoff",
    "max_backoff",
    "max_wait",
    "max_batching_window",
    "settle_time",
    "look_back",
)

RULES: tuple[Rule, ...] = (
    *(_whole(name) for name in TIMES),
    _whole("audit_interval", MINUTE),
    _between("processing_timeout", 1, 890, "since Lambda ends a function after 900 seconds and the ledger needs 10"),
    Rule(
        ("processor_timeout", "processing_timeout"),
        lambda p: p.processing_timeout < p.processor_timeout + PROCESSOR_MARGIN,
        lambda p: (
            f"processing_timeout is {span(p.processing_timeout)} and the processor's function has a timeout of "
            f"{span(p.processor_timeout)}: it would still run when the consumer gives it up, give a processing_timeout "
            f"of at least {span(p.processor_timeout + PROCESSOR_MARGIN)}, or the function a shorter one"
        ),
    ),
    _between("clock_skew", 1, HOUR, "the most that two workers' clocks can differ"),
    _between(
        "max_attempts",
        2,
        MAX_ATTEMPTS,
        "since one try may be wasted by a batch that a neighbour brought down",
        _count,
    ),
    _between("min_backoff", 1, 12 * HOUR, "the longest that SQS can hide a message"),
    _between("max_backoff", 1, 12 * HOUR, "the longest that SQS can hide a message"),
    Rule(
        ("min_backoff", "max_backoff"),
        lambda p: p.min_backoff > p.max_backoff,
        lambda p: (
            f"min_backoff is {span(p.min_backoff)} and max_backoff {span(p.max_backoff)}: raise max_backoff or lower "
            "min_backoff"
        ),
    ),
    Rule(
        ("max_wait",),
        lambda p: p.max_wait < MINUTE,
        lambda p: f"max_wait is {span(p.max_wait)}: give at least 1 minute",
    ),
    Rule(
        ("max_wait", "queue_retention"),
        lambda p: p.max_wait > HOLD_SHARE * p.queue_retention,
        lambda p: (
            f"max_wait is {span(p.max_wait)} and the queue's retention {span(p.queue_retention)}: SQS would drop a "
            f"message that waits, give at most {span(HOLD_SHARE * p.queue_retention)} or a longer retention"
        ),
    ),
    _between("batch_size", 1, 10_000, "the range of an SQS event source", _count),
    _between("max_batching_window", 0, 5 * MINUTE, "the range of an SQS event source"),
    Rule(
        ("batch_size", "max_batching_window"),
        lambda p: p.batch_size > 10 and p.max_batching_window < 1,
        lambda p: (
            f"batch_size is {_count(p.batch_size)} without a max_batching_window: give one of at least 1 second, or a "
            "batch_size of at most 10"
        ),
    ),
    _between("max_concurrency", 2, 1_000, "the range of an SQS event source", _count),
    Rule(
        ("concurrency",),
        lambda p: p.concurrency < 1,
        lambda p: f"concurrency is {_count(p.concurrency)}: it must be at least 1, one record after the other",
    ),
    Rule(
        ("concurrency", "batch_size"),
        lambda p: p.concurrency > max(p.batch_size, 1),
        lambda p: (
            f"concurrency is {_count(p.concurrency)} and batch_size {_count(p.batch_size)}: no more records than a "
            "batch has can be processed at the same time, lower concurrency or raise batch_size"
        ),
    ),
    Rule(
        ("concurrency",),
        lambda p: p.commit_together and p.concurrency > 1,
        lambda p: (
            f"commit_together is on and concurrency is {_count(p.concurrency)}: what is committed together is "
            "processed one after the other, leave one of the two out"
        ),
    ),
    _between("memory_size", 128, 10_240, "in MiB", _count),
    _between("queue_retention", MINUTE, 14 * DAY, "the range of SQS"),
    _between("dead_letter_retention", MINUTE, 14 * DAY, "the range of SQS"),
    Rule(
        ("queue_retention", "dead_letter_retention"),
        lambda p: p.dead_letter_retention < p.queue_retention,
        lambda p: (
            f"the dead-letter queue's retention is {span(p.dead_letter_retention)} and the queue's "
            f"{span(p.queue_retention)}: a message's clock starts when it is first sent, so give the dead-letter "
            f"queue at least {span(p.queue_retention)}"
        ),
    ),
    Rule(
        ("visibility_timeout", "processing_timeout", "max_batching_window"),
        lambda p: p.visibility_timeout < p.function_timeout + p.max_batching_window,
        lambda p: (
            f"the queue's visibility_timeout is {span(p.visibility_timeout)} and the function's timeout "
            f"{span(p.function_timeout)}: it must be at least {span(p.function_timeout + p.max_batching_window)} "
            "(the timeout and the batching window), or leave it out"
        ),
    ),
    Rule(
        ("visibility_timeout", "processing_timeout", "clock_skew"),
        lambda p: p.visibility_timeout < p.lease,
        lambda p: (
            f"the queue's visibility_timeout is {span(p.visibility_timeout)} and the lease can last {span(p.lease)}: "
            f"a message would come back while a dead worker's claim still holds, give at least {span(p.lease)}, or "
            "leave it out"
        ),
    ),
    Rule(
        ("processing_timeout", "clock_skew", "max_batching_window"),
        lambda p: p.visibility > 12 * HOUR,
        lambda p: (
            f"the queue's visibility timeout would be {span(p.visibility)}: SQS allows 12 hours at most, give a lower "
            "one"
        ),
    ),
    Rule(
        (
            "queue_retention",
            "max_attempts",
            "min_backoff",
            "max_backoff",
            "processing_timeout",
            "clock_skew",
            "max_batching_window",
        ),
        lambda p: p.queue_retention < p.retry_time,
        lambda p: (
            f"the queue's retention is {span(p.queue_retention)} and {_count(p.max_attempts)} attempts can take "
            f"{span(p.retry_time)}: SQS would drop the message before its last attempt, give a longer retention, "
            "fewer attempts or a shorter backoff"
        ),
    ),
    Rule(
        ("ledger_retention", "queue_retention", "dead_letter_retention", "audit_interval"),
        lambda p: p.ledger_retention < p.least_ledger_retention,
        lambda p: (
            f"the ledger's retention is {span(p.ledger_retention)}: a change can come back after "
            f"{span(p.least_ledger_retention)} (twice the queue's {span(p.queue_retention)}, the dead-letter queue's "
            f"{span(p.dead_letter_retention)}, the audit's interval of {span(p.audit_interval)} and "
            f"{ABORT_MULTIPART_DAYS} days of multipart upload), give at least that"
        ),
    ),
    _between("resubmit_rate", 1, 5_000, "the number of messages that the audit sends in a second", _count),
    _between("backfill_rate", 1, 5_000, "the number of messages that a backfill sends in a second", _count),
    _between("audit_interval", MINUTE, 365 * DAY, "give a rate that the scheduler knows"),
    Rule(
        ("look_back", "ledger_retention"),
        lambda p: p.look_back > p.ledger_retention,
        lambda p: (
            f"the audit's look_back is {span(p.look_back)} and the ledger forgets after {span(p.ledger_retention)}: "
            "objects whose rows have expired would be taken for lost, look back less or keep rows longer"
        ),
    ),
    Rule(
        ("look_back", "settle_time"),
        lambda p: p.look_back < ABORT_MULTIPART_DAYS * DAY + p.settle_time,
        lambda p: (
            f"the audit's look_back is {span(p.look_back)}: a multipart upload carries the date at which it began, so "
            f"at least {span(ABORT_MULTIPART_DAYS * DAY + p.settle_time)} is needed ({ABORT_MULTIPART_DAYS} days and "
            "the settle time)"
        ),
    ),
    Rule(
        ("look_back", "settle_time", "audit_interval"),
        lambda p: p.look_back < p.audit_interval + p.settle_time,
        lambda p: (
            f"the audit's look_back is {span(p.look_back)} and it runs every {span(p.audit_interval)}: objects "
            f"between two runs would never be looked at, give at least {span(p.audit_interval + p.settle_time)} or a "
            "shorter interval"
        ),
    ),
    _between("audit_budget", 1, 10_000_000, "the number of messages that one run may send", _count),
)
