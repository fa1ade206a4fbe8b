"""Checks all options of a message intake before it makes a resource."""

import math
from collections.abc import Iterator
from dataclasses import replace

from aws_cdk import Duration
from constructs import Construct

from cdk_intake_ledger.checks.limits import MAX_STREAM_BATCH
from cdk_intake_ledger.checks.plan import Plan
from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.rules import message_rules
from cdk_intake_ledger.checks.rules.message_rules import (
    MESSAGE_BATCH,
    MESSAGE_CAPACITY_PROVIDER,
    MESSAGE_DEAD_LETTER_QUEUE,
    MESSAGE_EXECUTIONS,
    MESSAGE_LEDGER_RETENTION,
    MESSAGE_QUEUE_KIND,
    MESSAGE_QUEUE_OPTION,
    MESSAGE_STREAM_SCALING,
    MESSAGE_TABLE_STREAM,
)
from cdk_intake_ledger.checks.rules.number_rules import DURATION_UNIT, unknown_numbers
from cdk_intake_ledger.checks.spans import DAY, NOT_GIVEN, UNCONVERTED, UNKNOWN, number_text, span
from cdk_intake_ledger.functions.executions import Executions
from cdk_intake_ledger.functions.processor import Processor
from cdk_intake_ledger.kinds.messages.expressions import expression_problems
from cdk_intake_ledger.kinds.messages.message_source import MessageSource
from cdk_intake_ledger.kinds.objects.pipeline_checks import CHECKS, plan_problems, processor_problems, stop_problems
from cdk_intake_ledger.kinds.objects.pipeline_plan import number_of, plan_of, seconds_of
from cdk_intake_ledger.ledger_table import IntakeLedger
from cdk_intake_ledger.options.options import AuditOptions, ConcurrencyOptions, RetryOptions
from cdk_intake_ledger.queue import IntakeQueue
from cdk_intake_ledger.resources.fixed_names import pipeline_name_problems
from intake_ledger.messages.settings import MessageSourceType

MAX_FIFO_BATCH = 10


def message_plan(
    source: MessageSource,
    *,
    processor: Processor,
    processing_timeout: Duration,
    concurrency: ConcurrencyOptions,
    retry: RetryOptions,
    queue: IntakeQueue | None,
) -> Plan:
    """The numbers that these options give. `_retention_problems` compares the ledger's retention."""
    plan = plan_of(
        processor=processor,
        processing_timeout=processing_timeout,
        concurrency=concurrency,
        retry=retry,
        audit=AuditOptions(),
        queue=queue,
        ledger=None,
    )
    return replace(
        plan,
        ledger_retention=UNKNOWN,
        keeps_order=source.is_stream or source.kind is MessageSourceType.FIFO,
        stream_retention=_stream_retention(source) if source.is_stream else NOT_GIVEN,
    )


def message_problems(
    scope: Construct,
    source: MessageSource,
    *,
    name: str | None,
    expressions: dict[str, str],
    processor: Processor,
    plan: Plan,
    queue: IntakeQueue | None,
    ledger: IntakeLedger | None,
) -> list[Problem]:
    """Reasons why an intake of messages cannot work."""
    table = ledger.table if ledger else None
    return [
        *(pipeline_name_problems(scope, name, table) if name is not None else ()),
        *expression_problems(source, expressions),
        *_queue_problems(source),
        *_source_problems(source),
        *(queue.problems(for_events=False) if queue else ()),
        *(ledger.problems() if ledger else ()),
        *processor_problems(scope, processor),
        *processor.argument_problems("KeyedMessage"),
        *stop_problems(scope, processor, "an intake of messages"),
        *(_order_problems(source, processor.executions) if processor.executions else ()),
        *([MESSAGE_CAPACITY_PROVIDER.problem()] if processor.capacity_provider is not None else ()),
        *unknown_numbers(plan),
        *number_problems(plan, ledger),
    ]


def _queue_problems(source: MessageSource) -> Iterator[Problem]:
    existing, fifo = source.existing, source.kind is MessageSourceType.FIFO
    if existing.queue is None:
        for option in ("dead_letter_queue", "visibility_timeout"):
            if getattr(existing, option) is not None:
                yield MESSAGE_QUEUE_OPTION.problem(name=option)
    if existing.queue is not None and existing.dead_letters is None:
        yield MESSAGE_DEAD_LETTER_QUEUE.problem(path=existing.queue.node.path)
    for queue in filter(None, (existing.queue, existing.dead_letters)):
        if queue.fifo != fifo:
            found, wanted = ("standard", "FIFO") if fifo else ("FIFO", "standard")
            other = "sqs" if fifo else "fifo"
            yield MESSAGE_QUEUE_KIND.problem(
                path=queue.node.path, found=found, wanted=wanted, source=source.kind.value, fix=other
            )


def _source_problems(source: MessageSource) -> Iterator[Problem]:
    size, fifo = number_of(source.batch_size), source.kind is MessageSourceType.FIFO
    most = MAX_FIFO_BATCH if fifo else MAX_STREAM_BATCH
    if (fifo or source.is_stream) and not (math.isnan(size) or 1 <= size <= most):
        yield MESSAGE_BATCH.problem(source=source.kind.value, size=number_text(size), most=number_text(most))
    if source.table is not None and source.stream_arn is None:
        yield MESSAGE_TABLE_STREAM.problem(path=source.table.node.path)
    for name in ("max_concurrency", "min_pollers", "max_pollers") if source.is_stream else ():
        if (value := getattr(source, name)) is not None:
            yield MESSAGE_STREAM_SCALING.problem(name=name, value=number_text(value))


def _order_problems(source: MessageSource, executions: Executions) -> Iterator[Problem]:
    """Executions behind a source that holds later messages back until the earlier one has ended."""
    if source.kind is MessageSourceType.FIFO or source.is_stream:
        behind = "shard" if source.is_stream else "message group"
        yield MESSAGE_EXECUTIONS.problem(processor=executions.place, source=source.kind.value, behind=behind)


def remembered(plan: Plan) -> float:
    """The retention of settled rows, in seconds, if the ledger has none."""
    return max(plan.remembered, _longest_path(plan))


def _stream_retention(source: MessageSource) -> float:
    """The retention of a stream in seconds. An imported stream has at least a day."""
    resource = source.stream.node.default_child if source.stream is not None else None
    hours = getattr(resource, "retention_period_hours", None)
    return max(hours * 3_600, DAY) if isinstance(hours, int | float) else DAY


def _longest_path(plan: Plan) -> float:
    """The longest time after which a message can come back: stream, queue, dead-letter queue and queue again."""
    stream = 0 if math.isnan(plan.stream_retention) else plan.stream_retention
    return 2 * plan.queue_retention + plan.dead_letter_retention + stream


def number_problems(plan: Plan, ledger: IntakeLedger | None) -> Iterator[Problem]:
    """Compare the numbers of a plan, and the times of the source, the queue and the ledger."""
    yield from plan_problems(plan, (*CHECKS, *message_rules.CHECKS))
    if ledger is not None:
        yield from _retention_problems(plan, ledger)


def _retention_problems(plan: Plan, ledger: IntakeLedger) -> Iterator[Problem]:
    retention, least = seconds_of(ledger.retention), _longest_path(plan)
    if retention is UNCONVERTED:
        yield DURATION_UNIT.problem(name="ledger_retention")
    if math.isnan(retention) or math.isnan(least) or retention >= least:
        return
    parts = [f"twice the queue's {span(plan.queue_retention)}"]
    parts += [f"the dead-letter queue's {span(plan.dead_letter_retention)}"]
    parts += [] if math.isnan(plan.stream_retention) else [f"the stream's {span(plan.stream_retention)}"]
    yield MESSAGE_LEDGER_RETENTION.problem(retention=span(retention), least=span(least), of=" and ".join(parts))
