"""Both sides of the boundary of each rule about numbers."""

from dataclasses import replace
from typing import Any, cast

import pytest

from cdk_intake_ledger import RetryOptions
from cdk_intake_ledger.checks.plan import Plan, function_timeout
from cdk_intake_ledger.checks.plan_check import Check
from cdk_intake_ledger.checks.spans import DAY, HOUR, MINUTE, UNKNOWN, span
from cdk_intake_ledger.kinds.objects.pipeline_checks import CHECKS, plan_problems

PLAN = Plan(
    processing_timeout=60,
    clock_skew=120,
    max_attempts=12,
    min_backoff=15,
    max_backoff=1_800,
    batch_size=10,
    max_batching_window=0,
    max_concurrency=UNKNOWN,
    threads=1,
    commit_together=False,
    visibility_timeout=UNKNOWN,
    queue_retention=4 * DAY,
    dead_letter_retention=14 * DAY,
    ledger_retention=35 * DAY,
    audit_interval=DAY,
    settle_time=HOUR,
    look_back=14 * DAY,
    audit_budget=10_000,
    memory_size=512,
)

# Changes of the plan, a number, a value that just passes, a value that just fails, the rule and a text of its message.
BOUNDARIES: list[tuple[dict[str, Any], str, Any, Any, str, str]] = [
    (
        {},
        "processing_timeout",
        1,
        0,
        "processing-timeout-range",
        "processing_timeout is 0 seconds: it must be 1 second to 890 seconds",
    ),
    ({}, "processing_timeout", 890, 891, "processing-timeout-range", "processing_timeout is 891 seconds"),
    (
        {},
        "processing_timeout",
        60,
        60.5,
        "whole-seconds",
        "processing_timeout is 60.5 seconds: it must be a whole number of seconds",
    ),
    (
        {},
        "processor_timeout",
        50,
        51,
        "processor-ends-before-consumer",
        "Set a processing_timeout of at least 61 seconds, or give the function a shorter",
    ),
    ({}, "clock_skew", 1, 0, "clock-skew-range", "clock_skew is 0 seconds: it must be 1 second to 1 hour"),
    ({}, "clock_skew", HOUR, HOUR + 1, "clock-skew-range", "clock_skew is 3,601 seconds"),
    ({}, "max_attempts", 2, 1, "max-attempts-range", "max_attempts is 1: it must be 2 to 50"),
    ({}, "max_attempts", 50, 51, "max-attempts-range", "max_attempts is 51"),
    ({}, "min_backoff", 1, 0, "min-backoff-range", "min_backoff is 0 seconds"),
    ({}, "min_backoff", 1_800, 1_801, "backoff-order", "min_backoff is 1,801 seconds and max_backoff is 30 minutes"),
    (
        {"max_attempts": 2},
        "max_backoff",
        12 * HOUR,
        12 * HOUR + 1,
        "max-backoff-range",
        "max_backoff is 43,201 seconds",
    ),
    ({}, "max_wait", MINUTE, 59, "max-wait-minimum", "max_wait is 59 seconds: a message waits for at least 1 minute"),
    (
        {"keeps_order": True},
        "max_wait",
        3 * DAY,
        3 * DAY + 1,
        "max-wait-within-retention",
        "its order forbids copies. Set max_wait to at most 3 days",
    ),
    ({}, "batch_size", 1, 0, "batch-size-range", "batch_size is 0: it must be 1 to 10,000"),
    ({"max_batching_window": 5}, "batch_size", 10_000, 10_001, "batch-size-range", "batch_size is 10,001"),
    ({}, "batch_size", 10, 11, "batching-window-needed", "Set max_batching_window to at least 1 second"),
    (
        {"batch_size": 11},
        "max_batching_window",
        1,
        0,
        "batching-window-needed",
        "batch_size is 11 without a max_batching_window",
    ),
    ({}, "max_batching_window", 300, 301, "max-batching-window-range", "max_batching_window is 301 seconds"),
    ({}, "backfill_rate", 1, 0, "backfill-rate-range", "backfill_rate is 0: it must be 1 to 5,000"),
    ({}, "resubmit_rate", 5_000, 5_001, "resubmit-rate-range", "resubmit_rate is 5,001: it must be 1 to 5,000"),
    ({}, "max_concurrency", 2, 1, "max-concurrency-range", "max_concurrency is 1: it must be 2 to 1,000"),
    ({}, "max_concurrency", 1_000, 1_001, "max-concurrency-range", "max_concurrency is 1,001"),
    (
        {"max_concurrency": 10},
        "reserved_concurrency",
        10,
        9,
        "max-concurrency-within-reserved",
        "max_concurrency is 10 and reserved_concurrency is 9",
    ),
    ({}, "min_pollers", 2, 1, "min-pollers-range", "min_pollers is 1: it must be 2 to 200"),
    ({}, "max_pollers", 10_000, 10_001, "max-pollers-range", "max_pollers is 10,001: it must be 2 to 10,000"),
    ({"max_pollers": 5}, "min_pollers", 5, 6, "pollers-ordered", "min_pollers is 6 and max_pollers is 5"),
    ({"min_pollers": 5}, "max_concurrency", UNKNOWN, 2, "min-pollers-without-max-concurrency", "max_concurrency is 2"),
    ({"max_pollers": 5}, "max_concurrency", UNKNOWN, 2, "max-pollers-without-max-concurrency", "max_concurrency is 2"),
    ({}, "max_rate", 400, 401, "max-rate-range", "max_rate is 401: it must be 1/3600 to 400 starts a second"),
    ({}, "max_rate", 1 / 3_600, 1 / 3_601, "max-rate-range", "limit max_concurrency"),
    ({"max_rate": 2}, "max_burst", 7_200, 7_201, "max-burst-range", "max_burst is 7,201 and max_rate is 2"),
    ({"max_rate": 2}, "max_burst", 1, 0, "max-burst-range", "it must be 1 to the starts of an hour"),
    ({}, "max_burst", UNKNOWN, 2, "max-burst-alone", "max_burst is 2 and max_rate is not set"),
    ({}, "quiet_for", 11 * HOUR, 11 * HOUR + 1, "set-quiet-for", "Use 1 second to 11 hours"),
    ({}, "deadline", MINUTE, MINUTE - 1, "set-deadline", "Use 1 minute to 365 days"),
    ({}, "deadline", 365 * DAY, 365 * DAY + 1, "set-deadline", "the deadline is 31,536,001 seconds"),
    ({"deadline": HOUR}, "alarm_after", HOUR - 1, HOUR, "set-alarm-after", "less than 1 hour, or omit alarm_after"),
    ({"deadline": HOUR}, "alarm_after", MINUTE, MINUTE - 1, "set-alarm-after", "alarm_after is 59 seconds"),
    ({"quiet_for": HOUR}, "deadline", 2 * HOUR, 2 * HOUR - 1, "set-quiet-deadline", "a deadline of at least 2 hours"),
    ({}, "threads", 1, 0, "threads-minimum", "threads is 0: it must be at least 1"),
    ({}, "threads", 10, 11, "threads-within-batch", "threads is 11 and batch_size is 10"),
    (
        {"commit_together": True},
        "threads",
        1,
        2,
        "commit-together-without-threads",
        "commit_together is on and threads is 2",
    ),
    ({"batch_size": 100, "max_batching_window": 1}, "max_per_call", 1, 0, "max-per-call-range", "max_per_call is 0"),
    (
        {"batch_size": 1_000, "max_batching_window": 1},
        "max_per_call",
        100,
        101,
        "max-per-call-range",
        "max_per_call is 101: it must be 1 to 100",
    ),
    ({}, "max_per_call", 10, 11, "max-per-call-within-batch", "max_per_call is 11 and batch_size is 10"),
    ({"threads": 2}, "max_per_call", 1, 2, "max-per-call-without-threads", "max_per_call is 2 and threads is 2"),
    (
        {"commit_together": True},
        "max_per_call",
        1,
        2,
        "max-per-call-without-commit-together",
        "max_per_call is 2 and commit_together is on",
    ),
    (
        {"keeps_order": True},
        "max_per_call",
        1,
        2,
        "max-per-call-without-order",
        "max_per_call is 2 and the source is a FIFO queue or a stream",
    ),
    (
        {"managed_instances": True, "memory_size": 2_048},
        "processing_timeout",
        5_390,
        5_391,
        "processing-timeout-range",
        "processing_timeout is 5,391 seconds: it must be 1 second to 5,390 seconds",
    ),
    ({"managed_instances": True}, "memory_size", 2_048, 2_047, "memory-size-range", "it must be 2,048 to 32,768"),
    ({"managed_instances": True}, "memory_size", 32_768, 32_769, "memory-size-range", "memory_size is 32,769"),
    (
        {"longest_task": 1, "max_attempts": 3},
        "execution_timeout",
        365 * DAY,
        365 * DAY + 1,
        "execution-timeout-range",
        "to 365 days",
    ),
    ({"execution_timeout": 60}, "longest_task", 1, 0, "longest-task-range", "longest_task is 0 seconds"),
    (
        {"execution_timeout": 60, "stop_overtaken": True},
        "longest_task",
        59,
        60,
        "stop-overtaken-before-timeout",
        "longest_task is 1 minute and the timeout of an execution is 1 minute",
    ),
    ({"execution_timeout": 60}, "threads", 1, 2, "executions-without-threads", "threads is 2"),
    ({"audit_interval": DAY}, "execution_retention", 2 * DAY, 2 * DAY - 1, "durable-retention", "at least 2 days"),
    (
        {"execution_timeout": 60},
        "commit_together",
        False,
        True,
        "executions-without-commit-together",
        "Omit commit_together",
    ),
    ({}, "memory_size", 128, 127, "memory-size-range", "memory_size is 127"),
    ({}, "memory_size", 10_240, 10_241, "memory-size-range", "memory_size is 10,241"),
    ({}, "queue_retention", 6 * HOUR, 59, "queue-retention-range", "queue_retention is 59 seconds"),
    (
        {"ledger_retention": 90 * DAY},
        "dead_letter_retention",
        14 * DAY,
        15 * DAY,
        "dead-letter-retention-range",
        "dead_letter_retention is 15 days",
    ),
    (
        {},
        "dead_letter_retention",
        4 * DAY,
        4 * DAY - 1,
        "dead-letter-retention-minimum",
        "the dead-letter queue's retention is 345,599 seconds and the queue's retention is 4 days",
    ),
    # 2 * 60 + 10 seconds and the window.
    (
        {"max_batching_window": 200},
        "visibility_timeout",
        330,
        329,
        "visibility-covers-function",
        "it must be at least 330 seconds (the timeout and",
    ),
    # 2 * 60 + 10 + 800 seconds of lease.
    ({"clock_skew": 800}, "visibility_timeout", 930, 929, "lease-within-visibility", "the lease can last 930 seconds"),
    (
        {"max_attempts": 2},
        "visibility_timeout",
        12 * HOUR,
        12 * HOUR + 1,
        "visibility-within-12-hours",
        "SQS allows 12 hours at most",
    ),
    # Eleven waits of 9,105 seconds together, twelve times a visibility timeout of 280 seconds.
    ({}, "queue_retention", 12_465, 12_464, "attempts-within-retention", "12 attempts can take 12,465 seconds"),
    # Twice 4 days, 14 days, 1 day and 7 days.
    (
        {},
        "ledger_retention",
        30 * DAY,
        30 * DAY - 1,
        "ledger-retention-minimum",
        "a change can come back after 30 days",
    ),
    (
        {"ledger_retention": 90 * DAY},
        "audit_interval",
        MINUTE,
        30,
        "whole-minutes",
        "it must be a whole number of minutes",
    ),
    ({}, "look_back", 35 * DAY, 35 * DAY + 1, "look-back-within-ledger", "the ledger deletes rows after 35 days"),
    (
        {},
        "look_back",
        7 * DAY + HOUR,
        7 * DAY + HOUR - 1,
        "look-back-covers-uploads",
        "Set look_back to at least 169 hours",
    ),
    (
        {"audit_interval": 10 * DAY, "ledger_retention": 90 * DAY},
        "look_back",
        10 * DAY + HOUR,
        10 * DAY + HOUR - 1,
        "look-back-covers-interval",
        "the audit would never compare some objects that arrive between two runs",
    ),
    (
        {"ledger_retention": UNKNOWN, "look_back": UNKNOWN},
        "audit_interval",
        365 * DAY,
        366 * DAY,
        "audit-interval-range",
        "audit_interval is 366 days",
    ),
    ({}, "audit_budget", 1, 0, "audit-budget-range", "audit_budget is 0"),
    ({}, "settle_time", 0, 0.5, "whole-seconds", "settle_time is 0.5 seconds"),
]


@pytest.mark.parametrize(("given", "name", "passes", "fails", "rule", "text"), BOUNDARIES)
def test_each_rule_at_its_boundary(
    given: dict[str, Any], name: str, passes: Any, fails: Any, rule: str, text: str
) -> None:
    """The first value breaks no rule. The second one breaks this rule, and the message names the value."""
    assert list(plan_problems(replace(PLAN, **(given | {name: passes})))) == []
    found = {problem.rule.id: problem for problem in plan_problems(replace(PLAN, **(given | {name: fails})))}
    assert text in found[rule], found


def test_the_defaults_break_no_rule() -> None:
    """A pipeline with a processor and defaults is allowed."""
    assert list(plan_problems(PLAN)) == []


def test_the_plan_has_the_defaults_of_retries() -> None:
    """Twelve attempts, with delays of 15 seconds to 30 minutes."""
    retry = RetryOptions()
    waits = (retry.min_backoff.to_seconds(), retry.max_backoff.to_seconds())
    assert (retry.max_attempts, *waits) == (PLAN.max_attempts, PLAN.min_backoff, PLAN.max_backoff)


@pytest.mark.failure_mode("F23")
def test_the_default_attempts_outlast_an_hour_of_the_downstreams_absence() -> None:
    """Even if jitter halves each delay, an outage of an hour does not use all attempts."""
    waits = [min(PLAN.min_backoff * 2**n, PLAN.max_backoff) for n in range(int(PLAN.max_attempts) - 1)]
    assert sum(waits) / 2 > HOUR


@pytest.mark.failure_mode("F20")
@pytest.mark.parametrize(
    ("processing", "function"), [(1, 12), (60, 130), (300, 610), (444, 898), (445, 900), (446, 900), (890, 900)]
)
def test_a_batch_has_time_for_two_records_that_take_their_whole_time(processing: float, function: float) -> None:
    """Up to Lambda's limit. With less, the rest of a slow batch would return to the queue each time."""
    assert function_timeout(processing) == replace(PLAN, processing_timeout=processing).function_timeout == function
    assert function_timeout(processing) >= processing + 10


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: f"{check.rule.id}-{check.needs[0]}")
def test_a_number_that_is_not_known_is_not_compared(check: Check) -> None:
    """A rule is skipped if one of its numbers is a token."""
    nonsense = replace(PLAN, **cast("dict[str, Any]", dict.fromkeys(PLAN.__dataclass_fields__, -1.5)))
    for name in check.needs:
        unknown: dict[str, Any] = {name: UNKNOWN}
        assert check.problem(nonsense) not in set(plan_problems(replace(nonsense, **unknown)))


def test_every_rule_has_a_boundary_here() -> None:
    """A new rule needs a test of both sides."""
    assert {check.rule.id for check in CHECKS} == {rule for *_, rule, _ in BOUNDARIES}


@pytest.mark.failure_mode("F12")
def test_the_lease_never_outlasts_the_visibility() -> None:
    """For every timeout and skew, SQS delivers a message again after the lease of a dead worker."""
    for timeout in (1, 60, 890):
        for skew in (1, 120, HOUR):
            plan = replace(PLAN, processing_timeout=timeout, clock_skew=skew)
            assert plan.function_timeout < plan.lease <= plan.visibility


@pytest.mark.failure_mode("F126")
def test_a_dead_workers_message_is_handled_again_within_a_minute_of_its_lease() -> None:
    """For every timeout, the queue hides the message no longer. A long batching window adds to it."""
    for timeout, before in ((60, 780), (300, 3_660), (890, 5_400)):
        plan = replace(PLAN, processing_timeout=timeout)
        assert plan.lease <= plan.visibility <= plan.lease + MINUTE
        assert plan.visibility < before
    assert replace(PLAN, max_batching_window=300).visibility == 130 + 300 + 30


@pytest.mark.failure_mode("F67")
def test_a_message_can_reach_the_dead_letter_queue_and_stay() -> None:
    """SQS counts from the time of the first sending, so the dead-letter queue needs a longer retention."""
    assert any("dead-letter" in problem for problem in plan_problems(replace(PLAN, dead_letter_retention=3 * DAY)))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 seconds"),
        (1, "1 second"),
        (90, "90 seconds"),
        (5_400, "90 minutes"),
        (DAY, "1 day"),
        (1.5, "1.5 seconds"),
    ],
)
def test_times_are_shown_as_people_say_them(seconds: float, text: str) -> None:
    """The largest unit without a remainder."""
    assert span(seconds) == text
