"""Rules about the numbers of the consumer: its timeout, attempts, batches and threads."""

import math
from collections.abc import Iterator
from dataclasses import fields

from cdk_intake_ledger.validation.limits import MANAGED_MEMORY, MEMORY
from cdk_intake_ledger.validation.plan import (
    FUNCTION_MARGIN,
    HOUR,
    MAX_ATTEMPTS,
    MINUTE,
    PROCESSOR_MARGIN,
    UNCONVERTED,
    Plan,
    number_text,
)
from cdk_intake_ledger.validation.plan_check import Check, between, compare, whole
from cdk_intake_ledger.validation.registry import Problem, Subject
from intake_ledger.protocol import HOLD_SHARE, MAX_BURST_SECONDS, MAX_RATE, MIN_RATE, MOST_PER_CALL

SUBJECT = Subject("The consumer's numbers")

NEEDED_AT_SYNTHESIS = SUBJECT.error(
    "needed-at-synthesis",
    inputs=(
        "processing_timeout",
        "clock_skew",
        "max_batching_window",
        "max_per_call",
        "audit_interval",
        "deadline",
        "alarm_after",
        "quiet_for",
        "target_age",
    ),
    what="{name} is a token",
    why="its value is needed at synthesis, because other numbers are calculated from it",
    fix="Pass a plain number",
)

DURATION_UNIT = SUBJECT.error(
    "duration-unit",
    inputs=("each duration",),
    what="{name} is a token in another unit than seconds",
    why="the CDK cannot convert a token",
    fix="Pass Duration.seconds() of it",
)

_BURST_ALONE = SUBJECT.error(
    "max-burst-alone",
    inputs=("max_burst", "max_rate"),
    what="max_burst is {max_burst} and max_rate is not set",
    why="only starts that are limited are saved",
    fix="Set max_rate, or omit max_burst",
)

_WHOLE_SECONDS = SUBJECT.error(
    "whole-seconds",
    inputs=(
        "processing_timeout",
        "clock_skew",
        "min_backoff",
        "max_backoff",
        "max_wait",
        "max_batching_window",
        "settle_time",
        "look_back",
        "execution_timeout",
        "longest_task",
    ),
    what="{name} is {value}",
    why="it must be a whole number of seconds",
    fix="Round it",
)

_WHOLE_MINUTES = SUBJECT.error(
    "whole-minutes",
    inputs=("audit_interval",),
    what="{name} is {value}",
    why="it must be a whole number of minutes, as EventBridge Scheduler needs",
    fix="Round it",
)


_MEMORY_RANGE = SUBJECT.error(
    "memory-size-range",
    inputs=("memory_size",),
    what="memory_size is {value}",
    why="it must be {least} to {most}, in MiB, the range of Lambda, or of its Managed Instances",
    fix="Set a value in this range",
)


def _memory(plan: Plan) -> tuple[int, int]:
    """The smallest and the largest memory of the consumer's function, in MiB."""
    return MANAGED_MEMORY if plan.managed_instances else MEMORY


_EVENT_SOURCE = "the range of an SQS event source of Lambda"
_PROVISIONED = "the range of provisioned mode for an SQS event source of Lambda"
_HIDING = "because SQS hides a message for 12 hours at most"

CHECKS: tuple[Check, ...] = (
    *whole(_WHOLE_SECONDS, 1),
    *whole(_WHOLE_MINUTES, MINUTE),
    compare(
        SUBJECT,
        "processing-timeout-range",
        "processing_timeout",
        broken=lambda plan: not 1 <= plan.processing_timeout <= plan.longest_processing_timeout,
        times=lambda plan: {
            "value": plan.processing_timeout,
            "most": plan.longest_processing_timeout,
            "limit": plan.longest_processing_timeout + FUNCTION_MARGIN,
        },
        what="processing_timeout is {value}",
        why=(
            "it must be 1 second to {most}, because Lambda stops a function after {limit} and the ledger needs "
            f"{FUNCTION_MARGIN} seconds"
        ),
        fix="Set a value in this range, or see docs/long-work.md for longer work",
    ),
    compare(
        SUBJECT,
        "processor-ends-before-consumer",
        "processor_timeout",
        "processing_timeout",
        broken=lambda plan: plan.processing_timeout < plan.processor_timeout + PROCESSOR_MARGIN,
        times=lambda plan: {
            "processing_timeout": plan.processing_timeout,
            "processor_timeout": plan.processor_timeout,
            "least": plan.processor_timeout + PROCESSOR_MARGIN,
        },
        what="processing_timeout is {processing_timeout} and the processor's function may run for {processor_timeout}",
        why="the function could still run when the consumer stops waiting for it",
        fix="Set a processing_timeout of at least {least}, or give the function a shorter timeout",
    ),
    between(SUBJECT, "clock_skew", 1, HOUR, "the largest difference between the clocks of two workers"),
    between(
        SUBJECT,
        "max_attempts",
        2,
        MAX_ATTEMPTS,
        "because another message of the batch can waste one attempt, and receives of the queue are limited",
        show=number_text,
    ),
    between(SUBJECT, "min_backoff", 1, 12 * HOUR, _HIDING),
    between(SUBJECT, "max_backoff", 1, 12 * HOUR, _HIDING),
    compare(
        SUBJECT,
        "backoff-order",
        "min_backoff",
        "max_backoff",
        broken=lambda plan: plan.min_backoff > plan.max_backoff,
        times=lambda plan: {"min_backoff": plan.min_backoff, "max_backoff": plan.max_backoff},
        what="min_backoff is {min_backoff} and max_backoff is {max_backoff}",
        why="the delay grows from min_backoff to max_backoff",
        fix="Raise max_backoff, or lower min_backoff",
    ),
    compare(
        SUBJECT,
        "max-wait-minimum",
        "max_wait",
        broken=lambda plan: plan.max_wait < MINUTE,
        times=lambda plan: {"max_wait": plan.max_wait},
        what="max_wait is {max_wait}",
        why="a message waits for at least 1 minute",
        fix="Set max_wait to at least 1 minute",
    ),
    compare(
        SUBJECT,
        "max-wait-within-retention",
        "max_wait",
        "queue_retention",
        broken=lambda plan: plan.keeps_order and plan.max_wait > HOLD_SHARE * plan.queue_retention,
        times=lambda plan: {
            "max_wait": plan.max_wait,
            "retention": plan.queue_retention,
            "most": HOLD_SHARE * plan.queue_retention,
        },
        what="max_wait is {max_wait} and the queue's retention is {retention}",
        why="the source would delete a message that still waits, and its order forbids copies",
        fix="Set max_wait to at most {most}, or give the queue a longer retention",
    ),
    between(SUBJECT, "batch_size", 1, 10_000, _EVENT_SOURCE, show=number_text),
    between(SUBJECT, "max_batching_window", 0, 5 * MINUTE, _EVENT_SOURCE),
    compare(
        SUBJECT,
        "batching-window-needed",
        "batch_size",
        "max_batching_window",
        broken=lambda plan: plan.batch_size > 10 and plan.max_batching_window < 1,
        numbers=("batch_size",),
        what="batch_size is {batch_size} without a max_batching_window",
        why="Lambda needs a batching window for more than 10 messages",
        fix="Set max_batching_window to at least 1 second, or batch_size to at most 10",
    ),
    between(SUBJECT, "max_concurrency", 2, 1_000, _EVENT_SOURCE, show=number_text),
    compare(
        SUBJECT,
        "reserved-concurrency-minimum",
        "reserved_concurrency",
        broken=lambda plan: plan.reserved_concurrency < 1,
        numbers=("reserved_concurrency",),
        what="reserved_concurrency is {reserved_concurrency}",
        why="it must be at least 1, because 0 stops the function",
        fix="Set at least 1, or omit it",
    ),
    compare(
        SUBJECT,
        "max-concurrency-within-reserved",
        "max_concurrency",
        "reserved_concurrency",
        broken=lambda plan: plan.max_concurrency > plan.reserved_concurrency,
        numbers=("max_concurrency", "reserved_concurrency"),
        what="max_concurrency is {max_concurrency} and reserved_concurrency is {reserved_concurrency}",
        why="Lambda would throttle the further invocations, and each one uses a receive of its messages",
        fix="Raise reserved_concurrency, or lower max_concurrency",
    ),
    between(SUBJECT, "min_pollers", 2, 200, _PROVISIONED, show=number_text),
    between(SUBJECT, "max_pollers", 2, 10_000, _PROVISIONED, show=number_text),
    compare(
        SUBJECT,
        "pollers-ordered",
        "min_pollers",
        "max_pollers",
        broken=lambda plan: plan.min_pollers > plan.max_pollers,
        numbers=("min_pollers", "max_pollers"),
        what="min_pollers is {min_pollers} and max_pollers is {max_pollers}",
        why="the minimum cannot exceed the maximum",
        fix="Raise max_pollers, or lower min_pollers",
    ),
    *(
        compare(
            SUBJECT,
            f"{name.replace('_', '-')}-without-max-concurrency",
            name,
            "max_concurrency",
            broken=lambda plan: plan.max_concurrency > 0,
            numbers=("max_concurrency",),
            what=f"{name} is set and max_concurrency is {{max_concurrency}}",
            why="provisioned mode excludes a maximum concurrency of the event source",
            fix="Omit max_concurrency, and limit max_pollers or reserved_concurrency",
        )
        for name in ("min_pollers", "max_pollers")
    ),
    compare(
        SUBJECT,
        "threads-minimum",
        "threads",
        broken=lambda plan: plan.threads < 1,
        numbers=("threads",),
        what="threads is {threads}",
        why="it must be at least 1, which processes one record after the other",
        fix="Set threads to at least 1",
    ),
    compare(
        SUBJECT,
        "threads-within-batch",
        "threads",
        "batch_size",
        broken=lambda plan: plan.threads > max(plan.batch_size, 1),
        numbers=("threads", "batch_size"),
        what="threads is {threads} and batch_size is {batch_size}",
        why="a consumer cannot process more records at the same time than a batch has",
        fix="Lower threads, or raise batch_size",
    ),
    compare(
        SUBJECT,
        "max-rate-range",
        "max_rate",
        broken=lambda plan: not MIN_RATE <= plan.max_rate <= MAX_RATE,
        numbers=("max_rate",),
        what="max_rate is {max_rate}",
        why=f"it must be 1/3600 to {MAX_RATE} starts a second: one item of DynamoDB, which has 1,000 writes a second, "
        "counts all starts, and a start whose message waited takes more than two",
        fix="Lower max_rate, or omit it and limit max_concurrency",
    ),
    compare(
        SUBJECT,
        "max-burst-range",
        "max_burst",
        "max_rate",
        broken=lambda plan: not 1 <= plan.max_burst <= max(2, plan.max_rate * MAX_BURST_SECONDS),
        numbers=("max_burst", "max_rate"),
        what="max_burst is {max_burst} and max_rate is {max_rate}",
        why="it must be 1 to the starts of an hour",
        fix="Set a value in this range, or omit max_burst",
    ),
    Check(
        _BURST_ALONE,
        ("max_burst",),
        lambda plan: math.isnan(plan.max_rate) and plan.max_burst > 0,
        lambda plan: {"max_burst": number_text(plan.max_burst)},
    ),
    compare(
        SUBJECT,
        "commit-together-without-threads",
        "commit_together",
        "threads",
        broken=lambda plan: plan.commit_together and plan.threads > 1,
        numbers=("threads",),
        what="commit_together is on and threads is {threads}",
        why="changes that are committed together are processed one after the other",
        fix="Omit one of the two",
    ),
    between(
        SUBJECT,
        "max_per_call",
        1,
        MOST_PER_CALL,
        "so that claims and commits fit into the function's timeout with the call",
        show=number_text,
    ),
    compare(
        SUBJECT,
        "max-per-call-within-batch",
        "max_per_call",
        "batch_size",
        broken=lambda plan: plan.max_per_call > max(plan.batch_size, 1),
        numbers=("max_per_call", "batch_size"),
        what="max_per_call is {max_per_call} and batch_size is {batch_size}",
        why="a call cannot have more changes than a batch has messages",
        fix="Lower max_per_call, or raise batch_size",
    ),
    compare(
        SUBJECT,
        "max-per-call-without-threads",
        "max_per_call",
        "threads",
        broken=lambda plan: plan.max_per_call > 1 and plan.threads > 1,
        numbers=("max_per_call", "threads"),
        what="max_per_call is {max_per_call} and threads is {threads}",
        why="the changes of a call are processed at the same time already",
        fix="Omit one of the two",
    ),
    compare(
        SUBJECT,
        "max-per-call-without-commit-together",
        "max_per_call",
        "commit_together",
        broken=lambda plan: plan.max_per_call > 1 and plan.commit_together,
        numbers=("max_per_call",),
        what="max_per_call is {max_per_call} and commit_together is on",
        why="the commits of a call are written together already",
        fix="Omit commit_together",
    ),
    compare(
        SUBJECT,
        "max-per-call-without-order",
        "max_per_call",
        "keeps_order",
        broken=lambda plan: plan.max_per_call > 1 and plan.keeps_order,
        numbers=("max_per_call",),
        what="max_per_call is {max_per_call} and the source is a FIFO queue or a stream",
        why="a message starts there only after the earlier ones of its group or key, and a call has several at once",
        fix="Omit max_per_call, or use the source sqs or event_bridge",
    ),
    Check(
        _MEMORY_RANGE,
        ("memory_size",),
        lambda plan: not _memory(plan)[0] <= plan.memory_size <= _memory(plan)[1],
        lambda plan: dict(
            zip(("value", "least", "most"), map(number_text, (plan.memory_size, *_memory(plan))), strict=True)
        ),
    ),
)


def unknown_numbers(plan: Plan) -> Iterator[Problem]:
    """Find tokens among the numbers that other numbers are calculated from, and tokens in another unit than seconds."""
    needed = NEEDED_AT_SYNTHESIS.inputs
    for name in needed:
        if math.isnan(getattr(plan, name, 0)):
            yield NEEDED_AT_SYNTHESIS.problem(name=name)
    for name in (one.name for one in fields(plan) if one.name not in needed):
        if getattr(plan, name) is UNCONVERTED:
            yield DURATION_UNIT.problem(name=name)
