"""Consumers of objects whose processor is a function of the test."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from intake_ledger.aws.clients import bucket_client
from intake_ledger.consumer.consumer import Consumer
from intake_ledger.consumer.services import Services
from intake_ledger.kinds.objects import Objects
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import Ledger, LedgerOptions, StateReader, object_states
from intake_ledger.runners import Runner
from intake_ledger.runners.inline import Inline

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


def object_consumer(
    services: Services,
    processor: Callable[..., Any],
    *,
    sets: Any = None,
    runner: Runner | None = None,
    output_client: "Callable[[], S3Client]" = bucket_client,
    **options: Any,
) -> Consumer:
    """A consumer of objects. `options` are those of `Consumer`."""
    kind = Objects(services.settings, services.bucket, output_client, sets=sets)
    return Consumer(services, kind, runner or Inline(processor), **options)


def object_ledger(table: LedgerTable, bucket: StateReader, options: LedgerOptions, **others: Any) -> Ledger:
    """A ledger of objects. `others` are further arguments of `Ledger`."""
    return Ledger(table, object_states(bucket, options.ordering), options, **others)
