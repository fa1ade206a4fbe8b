"""The settings of the consumer and the services that its parts share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from intake_ledger.aws import Bucket, Queues, bucket_client
from intake_ledger.ledger import Ledger
from intake_ledger.observability import Telemetry
from intake_ledger.protocol import ConsumerSettings

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


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
    output_client: "Callable[[], S3Client]" = bucket_client
    """Gives the client that writes outputs. Each attempt calls it at its first output."""
