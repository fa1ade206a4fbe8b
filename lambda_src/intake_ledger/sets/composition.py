"""The entry point of the function of sets of files, and the consumer of an execution environment."""

import os
from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from intake_ledger.aws import Bucket, LambdaContext, ledger_client
from intake_ledger.consumer import Consumer, Services, make_services
from intake_ledger.ledger import Ledger, LedgerOptions, LedgerTable
from intake_ledger.processor import load_processor
from intake_ledger.processor.file_set import SetProcessor
from intake_ledger.set_members import Membership
from intake_ledger.sets.call import SetCall
from intake_ledger.sets.set_ledger import SetLedger, as_set_ledger
from intake_ledger.sets.settings import SetSettings, set_settings
from intake_ledger.sets.waiting import SetTelemetry, WaitingSets


def handler(event: Mapping[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Lambda's entry point: a batch of messages, or the schedule's request for an audit."""
    if "auditSets" in event:
        return _audit(context, dry_run=event.get("dryRun") is True)
    return make_consumer().handle(event, context)


def _audit(context: LambdaContext, *, dry_run: bool) -> dict[str, Any]:
    from intake_ledger.observability.audit_powertools import publish_ages, publish_report  # noqa: PLC0415 - few need it
    from intake_ledger.sets.audit import SetAudit  # noqa: PLC0415 - likewise

    settings, services = _services()
    consumer, client = settings.consumer, ledger_client()
    audit = SetAudit(settings, services, WaitingSets(client, consumer.table))
    seconds = lambda: context.get_remaining_time_in_millis() / 1000  # noqa: E731
    found = audit.run(seconds, dry_run=dry_run, publish=publish_ages)
    report = found.as_json()
    publish_report(client, consumer, report, counts=found.counts())
    return report


@cache
def _services() -> tuple[SetSettings, Services]:
    settings = set_settings(os.environ)

    def ledger(table: LedgerTable, bucket: Bucket, options: LedgerOptions, **others: Any) -> Ledger:
        return SetLedger(table, bucket, options, settings=settings, **others)

    return settings, make_services(settings.consumer, ledger_class=ledger, telemetry_class=SetTelemetry)


@cache
def make_consumer() -> Consumer:
    """The consumer that the environment's variables describe, made once per execution environment."""
    settings, services = _services()
    membership = Membership(ledger_client(), settings.consumer.table, settings.consumer.bucket)
    processor = cast("SetProcessor", load_processor(settings.consumer.processor))
    return set_consumer(services, processor, settings=settings, membership=membership)


def set_consumer(
    services: Services, processor: SetProcessor, *, settings: SetSettings, membership: Membership, **options: Any
) -> Consumer:
    """The consumer of sets.

    Args:
        services: its services, with a `SetLedger`.
        processor: a processor of sets.
        settings: the settings of the sets.
        membership: records the parts of manifests.
        options: further arguments of `Consumer`.

    """
    reader = as_set_ledger(services.ledger).reader
    call = SetCall(services, processor, settings=settings, reader=reader, membership=membership)
    return Consumer(services, cast("Any", processor), call=call, **options)
