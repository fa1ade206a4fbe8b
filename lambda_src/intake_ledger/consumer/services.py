"""The settings of the consumer and the services that its parts share."""

from collections.abc import Callable
from dataclasses import dataclass

from intake_ledger.aws.bucket import Bucket
from intake_ledger.aws.queues import Queues
from intake_ledger.consumer.host import IN_LAMBDA, Host
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.ledger import Ledger
from intake_ledger.observability.telemetry import Telemetry
from intake_ledger.protocol.settings import ConsumerSettings


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
    """True if the operation with this ID was stopped. It reads, and may raise the errors of DynamoDB."""


def stops(table: LedgerTable, pipeline: str) -> Callable[[str], bool]:
    """Tell whether an operation of the pipeline was stopped; see `Services.is_stopped`."""

    def is_stopped(request_id: str) -> bool:
        from intake_ledger.requests.stop import read_stop  # noqa: PLC0415 - few messages are of an operation

        return read_stop(table, pipeline, request_id) is not None

    return is_stopped
