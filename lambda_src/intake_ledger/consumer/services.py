"""The settings of the consumer and the services that its parts share."""

from collections.abc import Callable
from dataclasses import dataclass

from intake_ledger.aws import Bucket, Queues
from intake_ledger.consumer.host import IN_LAMBDA, Host
from intake_ledger.ledger import Ledger, LedgerTable
from intake_ledger.observability import Telemetry
from intake_ledger.protocol import ConsumerSettings


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
    """True if the operation with this ID was stopped. It reads, and may raise the errors of DynamoDB; see
    `Batch.is_stopped`."""
    take_start: Callable[[bool], int | None] | None = None
    """Takes a start at the rate of the pipeline; see `Starts.take`. None: the rate has no limit."""


def starts(
    settings: ConsumerSettings, table: LedgerTable, clock: Callable[[], int], jitter: Callable[[], float]
) -> Callable[[bool], int | None] | None:
    """Takes starts at the rate of the settings; see `Services.take_start`."""
    if settings.max_rate is None:
        return None
    from intake_ledger.ledger import Starts  # noqa: PLC0415 - most pipelines have no rate
    from intake_ledger.protocol import Rate  # noqa: PLC0415 - as above

    given = Starts(table, settings.pipeline, Rate(settings.max_rate, settings.max_burst), clock=clock, jitter=jitter)
    return lambda in_line: given.take(in_line=in_line)


def stops(table: LedgerTable, pipeline: str) -> Callable[[str], bool]:
    """Tell whether an operation of the pipeline was stopped; see `Services.is_stopped`."""

    def is_stopped(request_id: str) -> bool:
        from intake_ledger.requests import read_stop  # noqa: PLC0415 - few messages are of an operation

        return read_stop(table, pipeline, request_id) is not None

    return is_stopped
