"""Lambda's entry point of a message intake, and the consumer of an execution environment."""

import os
import time
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from intake_ledger.aws import LambdaContext, ledger_client
from intake_ledger.consumer import make_services
from intake_ledger.keyed import KeyedLedger
from intake_ledger.messages.consumer import MessageConsumer
from intake_ledger.messages.queues import MessageQueues
from intake_ledger.messages.settings import message_settings
from intake_ledger.processor import load_processor

if TYPE_CHECKING:
    from intake_ledger.messages.keyed_message import MessageProcessor


def handler(event: Mapping[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Lambda's entry point: a batch of messages, or the schedule's request for a check of the rows."""
    if "checkRows" in event:
        return _check(context, dry_run=event.get("dryRun") is True)
    return dict(make_consumer().handle(event, context))


def _check(context: LambdaContext, *, dry_run: bool) -> dict[str, Any]:
    from intake_ledger.messages.row_check import RowCheck  # noqa: PLC0415 - most invocations have messages
    from intake_ledger.observability.audit_powertools import publish_report  # noqa: PLC0415 - likewise

    settings, client = message_settings(os.environ).consumer, ledger_client()
    check = RowCheck(
        client,
        table=settings.table,
        pipeline=settings.pipeline,
        bucket=settings.bucket,
        clock=lambda: time.time_ns() // 1_000_000,
    )
    found = check.run(lambda: context.get_remaining_time_in_millis() / 1000, dry_run=dry_run)
    report = found.as_json() | {"dryRun": dry_run}
    publish_report(client, settings, report, counts={} if dry_run else found.counts())
    return report


@cache
def make_consumer() -> MessageConsumer:
    """The consumer that the environment's variables describe, made once per execution environment."""
    settings = message_settings(os.environ)
    services = make_services(settings.consumer, ledger_class=KeyedLedger, queues_class=MessageQueues)
    processor = cast("MessageProcessor", load_processor(settings.consumer.processor))
    return MessageConsumer(settings, services, processor)
