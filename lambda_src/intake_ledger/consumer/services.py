"""The settings of the consumer and the services that its parts share."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from intake_ledger.aws import Bucket, Queues
from intake_ledger.consumer.host import IN_LAMBDA, Host
from intake_ledger.ledger import Ledger, LedgerTable
from intake_ledger.observability import Telemetry
from intake_ledger.protocol import ConsumerSettings

if TYPE_CHECKING:
    from intake_ledger.requests import StoppedOperations


@dataclass(frozen=True, slots=True)
class Services:
    """The settings of the consumer and the services that its parts share."""

    settings: ConsumerSettings
    ledger: Ledger
    bucket: Bucket
    queues: Queues
    telemetry: Telemetry
    clock: Callable[[], int]
    """The time in epoch milliseconds."""
    jitter: Callable[[], float]
    """A random number from 0 to 1."""
    host: Host = IN_LAMBDA
    """Where the consumer runs."""
    is_stopped: Callable[[str], bool] = lambda _: False
    """True if the operation with this ID was stopped. It may raise the errors of DynamoDB."""


def stops(table: LedgerTable, pipeline: str, clock: Callable[[], int]) -> Callable[[str], bool]:
    """Tell whether an operation of the pipeline was stopped; see `Services.is_stopped`."""

    @cache
    def known() -> "StoppedOperations":
        from intake_ledger.requests import StoppedOperations  # noqa: PLC0415 - few messages are of an operation

        return StoppedOperations(table, pipeline, clock)

    def is_stopped(request_id: str) -> bool:
        return known().has(request_id)

    return is_stopped
