"""The settings of the consumer and the services that its parts share."""

from collections.abc import Callable
from dataclasses import dataclass

from intake_ledger.aws import Bucket, Queues
from intake_ledger.consumer.host import IN_LAMBDA, Host
from intake_ledger.ledger import Ledger
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
