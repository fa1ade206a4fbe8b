"""The entry point of the function of sets of files, and the consumer of an execution environment."""

import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, cast

from intake_ledger.aws import Bucket, LambdaContext, ledger_client
from intake_ledger.consumer import Consumer, Services, make_services
from intake_ledger.ledger import Ledger, LedgerOptions, LedgerTable
from intake_ledger.processor import load_processor
from intake_ledger.processor.file_set import SetProcessor
from intake_ledger.set_members import Membership
from intake_ledger.sets.call import SetCall
from intake_ledger.sets.reader import SetReader
from intake_ledger.sets.settings import SetSettings, set_settings


class SetLedger(Ledger):
    """A ledger whose states are those of sets."""

    def __init__(
        self,
        table: LedgerTable,
        bucket: Bucket,
        options: LedgerOptions,
        *,
        settings: SetSettings,
        clock: Callable[[], int],
        **others: Any,
    ) -> None:
        """Take the arguments of `Ledger`, and the settings of the sets."""
        self.reader = SetReader(table, bucket, settings, clock)
        super().__init__(table, self.reader, options, clock=clock, **others)


def handler(event: Mapping[str, Any], context: LambdaContext) -> dict[str, list[dict[str, str]]]:
    """Lambda's entry point."""
    return make_consumer().handle(event, context)


@cache
def make_consumer() -> Consumer:
    """The consumer that the environment's variables describe, made once per execution environment."""
    settings = set_settings(os.environ)

    def ledger(table: LedgerTable, bucket: Bucket, options: LedgerOptions, **others: Any) -> Ledger:
        return SetLedger(table, bucket, options, settings=settings, **others)

    services = make_services(settings.consumer, ledger_class=ledger)
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
    ledger = services.ledger
    if not isinstance(ledger, SetLedger):
        raise TypeError("a consumer of sets needs a SetLedger")
    call = SetCall(services, processor, settings=settings, reader=ledger.reader, membership=membership)
    return Consumer(services, cast("Any", processor), call=call, **options)
