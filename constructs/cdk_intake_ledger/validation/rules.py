"""What synthesis refuses, as one table: every rule compares plain numbers, and names them and the way out.

A number that CDK will know only at deployment (a token), or that was not given, is NaN in the plan, and a rule that
needs it is skipped.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from cdk_intake_ledger.validation.plan import (
    ABORT_MULTIPART_DAYS,
    DAY,
    HOLD_SHARE,
    HOUR,
    MAX_ATTEMPTS,
    MINUTE,
    PROCESSOR_MARGIN,
    Plan,
    span,
)


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
        ("threads",),
        lambda p: p.threads < 1,
        lambda p: f"threads is {_count(p.threads)}: it must be at least 1, one record after the other",
    ),
    Rule(
        ("threads", "batch_size"),
        lambda p: p.threads > max(p.batch_size, 1),
        lambda p: (
            f"threads is {_count(p.threads)} and batch_size {_count(p.batch_size)}: no more records than a batch has "
            "can be processed at the same time, lower threads or raise batch_size"
        ),
    ),
    Rule(
        ("threads",),
        lambda p: p.commit_together and p.threads > 1,
        lambda p: (
            f"commit_together is on and threads is {_count(p.threads)}: changes that are committed together are "
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
