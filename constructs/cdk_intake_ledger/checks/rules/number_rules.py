"""Rules about the numbers of the consumer: its timeout, attempts, batches and threads."""

import math
from collections.abc import Iterator
from dataclasses import fields

from cdk_intake_ledger.checks.limits import MANAGED_MEMORY, MEMORY
from cdk_intake_ledger.checks.plan import FUNCTION_MARGIN, MAX_ATTEMPTS, PROCESSOR_MARGIN, Plan
from cdk_intake_ledger.checks.plan_check import Check, between, compare, whole
from cdk_intake_ledger.checks.registry import Problem, Subject
from cdk_intake_ledger.checks.spans import HOUR, MINUTE, NOT_GIVEN, UNCONVERTED, number_text
from intake_ledger.protocol.settings import MOST_PER_CALL

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
        "deadline",
        "alarm_after",
        "quiet_for",
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
    compare(SUBJECT, "processing-timeout-range", "processing_timeout",
            lambda plan: not 1 <= plan.processing_timeout <= plan.longest_processing_timeout,
            "processing_timeout is {processing_timeout}",
            f"it must be 1 second to {{longest_processing_timeout}}, because Lambda stops a function after {{limit}} "
            f"and the ledger needs {FUNCTION_MARGIN} seconds",
            "Set a value in this range, or see docs/long-work.md for longer work",
            limit=lambda plan: plan.longest_processing_timeout + FUNCTION_MARGIN),
    compare(SUBJECT, "processor-ends-before-consumer", "processor_timeout processing_timeout",
            lambda plan: plan.processing_timeout < plan.processor_timeout + PROCESSOR_MARGIN,
            "processing_timeout is {processing_timeout} and the processor's function may run for {processor_timeout}",
            "the function could still run when the consumer stops waiting for it",
            "Set a processing_timeout of at least {least}, or give the function a shorter timeout",
            least=lambda plan: plan.processor_timeout + PROCESSOR_MARGIN),
    between(SUBJECT, "clock_skew", 1, HOUR, "the largest difference between the clocks of two workers"),
    between(SUBJECT, "max_attempts", 2, MAX_ATTEMPTS,
            "because another message of the batch can waste one attempt, and receives of the queue are limited"),
    between(SUBJECT, "min_backoff", 1, 12 * HOUR, _HIDING),
    between(SUBJECT, "max_backoff", 1, 12 * HOUR, _HIDING),
    compare(SUBJECT, "backoff-order", "min_backoff max_backoff", lambda plan: plan.min_backoff > plan.max_backoff,
            "min_backoff is {min_backoff} and max_backoff is {max_backoff}",
            "the delay grows from min_backoff to max_backoff", "Raise max_backoff, or lower min_backoff"),
    compare(SUBJECT, "max-wait-minimum", "max_wait", lambda plan: plan.max_wait < MINUTE, "max_wait is {max_wait}",
            "a message waits for at least 1 minute", "Set max_wait to at least 1 minute"),
    compare(SUBJECT, "max-wait-within-retention", "max_wait queue_retention",
            lambda plan: plan.keeps_order and plan.max_wait > plan.longest_wait,
            "max_wait is {max_wait}, the queue's retention is {queue_retention} and the source keeps a message for "
            "{source_retention}", "the source would delete a message that still waits, and its order forbids copies",
            "Set max_wait to at most {longest_wait}, or lengthen the shorter retention"),
    between(SUBJECT, "batch_size", 1, 10_000, _EVENT_SOURCE),
    between(SUBJECT, "max_batching_window", 0, 5 * MINUTE, _EVENT_SOURCE),
    compare(SUBJECT, "batching-window-needed", "batch_size max_batching_window",
            lambda plan: plan.batch_size > 10 and plan.max_batching_window < 1,
            "batch_size is {batch_size} without a max_batching_window",
            "Lambda needs a batching window for more than 10 messages",
            "Set max_batching_window to at least 1 second, or batch_size to at most 10"),
    between(SUBJECT, "max_concurrency", 2, 1_000, _EVENT_SOURCE),
    compare(SUBJECT, "max-concurrency-within-reserved", "max_concurrency reserved_concurrency",
            lambda plan: plan.max_concurrency > plan.reserved_concurrency,
            "max_concurrency is {max_concurrency} and reserved_concurrency is {reserved_concurrency}",
            "Lambda would throttle the further invocations, and each one uses a receive of its messages",
            "Raise reserved_concurrency, or lower max_concurrency"),
    between(SUBJECT, "min_pollers", 2, 200, _PROVISIONED),
    between(SUBJECT, "max_pollers", 2, 10_000, _PROVISIONED),
    compare(SUBJECT, "pollers-ordered", "min_pollers max_pollers", lambda plan: plan.min_pollers > plan.max_pollers,
            "min_pollers is {min_pollers} and max_pollers is {max_pollers}", "the minimum cannot exceed the maximum",
            "Raise max_pollers, or lower min_pollers"),
    *(
        compare(SUBJECT, f"{name.replace('_', '-')}-without-max-concurrency", f"{name} max_concurrency",
                lambda plan: plan.max_concurrency > 0, f"{name} is set and max_concurrency is {{max_concurrency}}",
                "provisioned mode excludes a maximum concurrency of the event source",
                "Omit max_concurrency, and limit max_pollers or reserved_concurrency")
        for name in ("min_pollers", "max_pollers")
    ),
    compare(SUBJECT, "threads-minimum", "threads", lambda plan: plan.threads < 1, "threads is {threads}",
            "it must be at least 1, which processes one record after the other", "Set threads to at least 1"),
    compare(SUBJECT, "threads-within-batch", "threads batch_size", lambda plan: plan.threads > max(plan.batch_size, 1),
            "threads is {threads} and batch_size is {batch_size}",
            "a consumer cannot process more records at the same time than a batch has",
            "Lower threads, or raise batch_size"),
    compare(SUBJECT, "commit-together-without-threads", "commit_together threads",
            lambda plan: plan.commit_together and plan.threads > 1, "commit_together is on and threads is {threads}",
            "changes that are committed together are processed one after the other", "Omit one of the two"),
    between(SUBJECT, "max_per_call", 1, MOST_PER_CALL,
            "so that claims and commits fit into the function's timeout with the call"),
    compare(SUBJECT, "max-per-call-within-batch", "max_per_call batch_size",
            lambda plan: plan.max_per_call > max(plan.batch_size, 1),
            "max_per_call is {max_per_call} and batch_size is {batch_size}",
            "a call cannot have more changes than a batch has messages", "Lower max_per_call, or raise batch_size"),
    compare(SUBJECT, "max-per-call-without-threads", "max_per_call threads",
            lambda plan: plan.max_per_call > 1 and plan.threads > 1,
            "max_per_call is {max_per_call} and threads is {threads}",
            "the changes of a call are processed at the same time already", "Omit one of the two"),
    compare(SUBJECT, "max-per-call-without-commit-together", "max_per_call commit_together",
            lambda plan: plan.max_per_call > 1 and plan.commit_together,
            "max_per_call is {max_per_call} and commit_together is on",
            "the commits of a call are written together already", "Omit commit_together"),
    compare(SUBJECT, "max-per-call-without-order", "max_per_call keeps_order",
            lambda plan: plan.max_per_call > 1 and plan.keeps_order,
            "max_per_call is {max_per_call} and the source is a FIFO queue or a stream",
            "a message starts there only after the earlier ones of its group or key, and a call has several at once",
            "Omit max_per_call, or use the source sqs or event_bridge"),
    Check(
        _MEMORY_RANGE,
        ("memory_size",),
        lambda plan: not _memory(plan)[0] <= plan.memory_size <= _memory(plan)[1],
        lambda plan: dict(
            zip(("value", "least", "most"), map(number_text, (plan.memory_size, *_memory(plan))), strict=True)
        ),
    ),
)  # fmt: skip


def unknown_numbers(plan: Plan) -> Iterator[Problem]:
    """Find tokens among the numbers that other numbers are calculated from, and tokens in another unit than seconds."""
    needed = NEEDED_AT_SYNTHESIS.inputs
    for name in needed:
        if math.isnan(number := getattr(plan, name, 0)) and number is not NOT_GIVEN:
            yield NEEDED_AT_SYNTHESIS.problem(name=name)
    for name in (one.name for one in fields(plan) if one.name not in needed):
        if getattr(plan, name) is UNCONVERTED:
            yield DURATION_UNIT.problem(name=name)
