"""The numbers of a pipeline's options, as the plan that synthesis checks."""

import math
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from aws_cdk import Duration, Token

from cdk_intake_ledger.checks.plan import (
    DEAD_LETTER_RETENTION_DAYS,
    LEDGER_RETENTION_DAYS,
    MAX_RECEIVES,
    QUEUE_RETENTION_DAYS,
    Plan,
)
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.rules.number_rules import NEEDED_AT_SYNTHESIS
from cdk_intake_ledger.checks.spans import DAY, UNCONVERTED, UNKNOWN
from cdk_intake_ledger.functions.processor import Processor
from cdk_intake_ledger.ledger_table import IntakeLedger
from cdk_intake_ledger.options.durations import to_seconds
from cdk_intake_ledger.options.options import AuditOptions, ConcurrencyOptions, RetryOptions
from cdk_intake_ledger.queue import IntakeQueue

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


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
    numbers = named(concurrency, retry, audit)
    if concurrency.max_batching_window is None:
        numbers["max_batching_window"] = 0
    return Plan(
        **numbers,
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
        ledger_retention=seconds_of(ledger.retention) if ledger else LEDGER_RETENTION_DAYS * DAY,
        audit_interval=seconds_of(audit.interval),
        audit_budget=number_of(audit.budget),
    )


def named(*groups: "DataclassInstance") -> dict[str, Any]:
    """The numbers of a plan that are options of these groups, by their common name."""
    names = {one.name for one in fields(Plan)}
    return {
        one.name: _number(getattr(group, one.name)) for group in groups for one in fields(group) if one.name in names
    }


def _number(value: Duration | float | None) -> float:
    return seconds_of(value) if isinstance(value, Duration) else number_of(value)


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
