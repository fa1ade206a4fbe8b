"""The numbers of a pipeline's options, as the plan that synthesis checks."""

import math
from collections.abc import Iterator

from aws_cdk import Duration, Token

from cdk_intake_ledger.checks.plan import (
    DAY,
    DEAD_LETTER_RETENTION_DAYS,
    LEDGER_RETENTION_DAYS,
    MAX_RECEIVES,
    QUEUE_RETENTION_DAYS,
    UNCONVERTED,
    UNKNOWN,
    Plan,
)
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.rules.number_rules import NEEDED_AT_SYNTHESIS
from cdk_intake_ledger.functions.processor import Processor
from cdk_intake_ledger.ledger_table import IntakeLedger
from cdk_intake_ledger.options.durations import to_seconds
from cdk_intake_ledger.options.options import AuditOptions, ConcurrencyOptions, RetryOptions
from cdk_intake_ledger.queue import IntakeQueue


def plan_of(
    *,
    processor: Processor,
    processing_timeout: Duration,
    concurrency: ConcurrencyOptions,
    retry: RetryOptions,
    audit: AuditOptions,
    queue: IntakeQueue | None,
    ledger: IntakeLedger | None,
) -> Plan:
    """The numbers that these options give. A token is `UNKNOWN`."""
    executions = processor.executions
    return Plan(
        memory_size=number_of(processor.memory_size),
        max_per_call=number_of(processor.max_per_call),
        processor_timeout=seconds_of(processor.function_timeout),
        managed_instances=processor.capacity_provider is not None,
        execution_timeout=seconds_of(executions.timeout if executions else None),
        longest_task=seconds_of(executions.longest_task if executions else None),
        stop_overtaken=executions is not None and executions.stop_overtaken,
        execution_retention=seconds_of(executions.retention if executions else None),
        visibility_timeout=seconds_of(queue.visibility_timeout if queue else None),
        queue_retention=seconds_of(queue.retention) if queue else QUEUE_RETENTION_DAYS * DAY,
        dead_letter_retention=(seconds_of(queue.dead_letter_retention) if queue else DEAD_LETTER_RETENTION_DAYS * DAY),
        max_receives=queue.max_receives if queue else MAX_RECEIVES,
        processing_timeout=seconds_of(processing_timeout),
        clock_skew=seconds_of(concurrency.clock_skew),
        max_attempts=number_of(retry.max_attempts),
        min_backoff=seconds_of(retry.min_backoff),
        max_backoff=seconds_of(retry.max_backoff),
        max_wait=seconds_of(retry.max_wait),
        batch_size=number_of(concurrency.batch_size),
        max_batching_window=seconds_of(concurrency.max_batching_window) if concurrency.max_batching_window else 0,
        max_concurrency=number_of(concurrency.max_concurrency),
        reserved_concurrency=number_of(concurrency.reserved_concurrency),
        min_pollers=number_of(concurrency.min_pollers),
        max_pollers=number_of(concurrency.max_pollers),
        threads=number_of(concurrency.threads),
        commit_together=concurrency.commit_together,
        max_rate=number_of(concurrency.max_rate),
        max_burst=number_of(concurrency.max_burst),
        ledger_retention=seconds_of(ledger.retention) if ledger else LEDGER_RETENTION_DAYS * DAY,
        audit_interval=seconds_of(audit.interval),
        settle_time=seconds_of(audit.settle_time),
        look_back=seconds_of(audit.look_back),
        audit_budget=number_of(audit.budget),
        resubmit_rate=number_of(audit.resubmit_rate),
        backfill_rate=number_of(audit.backfill_rate),
    )


def seconds_of(duration: Duration | None) -> float:
    """The seconds of a duration; `UNKNOWN` if it is None or a token, and `UNCONVERTED` for one of another unit."""
    if duration is None:
        return UNKNOWN
    try:
        seconds = to_seconds(duration)
    except RuntimeError:
        return UNCONVERTED
    # A token of seconds is a negative number, and no duration is negative.
    return UNKNOWN if seconds < 0 else float(seconds)


def unknown_times(**durations: Duration | None) -> Iterator[Problem]:
    """Find tokens among durations that are needed at synthesis, and not a part of a plan."""
    for name, duration in durations.items():
        if duration is not None and math.isnan(seconds_of(duration)):
            yield NEEDED_AT_SYNTHESIS.problem(name=name)


def number_of(value: float | None) -> float:
    """A number; `UNKNOWN` if it is None or a token."""
    # A token is a negative number. Ask the CDK about negative numbers only: each question is a call of its process.
    return UNKNOWN if value is None or (value < 0 and Token.is_unresolved(value)) else value
