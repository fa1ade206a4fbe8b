"""What a consumer runs on: AWS's clients, the time, random numbers and its log. The testing kit has its own."""

import random
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import botocore

from intake_ledger.aws.clients import POOL, bucket_client, ledger_client, make_client
from intake_ledger.ledger.row_history import RowHistory, RowHistoryRecord
from intake_ledger.processor.object_change import load_processor
from intake_ledger.protocol.settings import ConsumerSettings, entrypoint_of

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client

    from intake_ledger.ledger.dynamodb_table import LedgerTable
    from intake_ledger.observability.powertools import PowertoolsTelemetry
    from intake_ledger.observability.telemetry import Telemetry


class Platform:
    """AWS, for a Lambda function or a worker."""

    clock: Callable[[], int] = staticmethod(lambda: time.time_ns() // 1_000_000)
    """Gives epoch milliseconds."""
    sleep: Callable[[float], object] = staticmethod(time.sleep)
    """Waits for a number of seconds."""
    jitter: Callable[[], float] = staticmethod(random.SystemRandom().random)
    """Gives a random number from 0 to 1."""
    new_owner: Callable[[], str] = staticmethod(lambda: secrets.token_hex(8))
    """Gives a name for a claim, which no other claim has."""

    def dynamodb(self, pool: int = POOL) -> "DynamoDBClient":
        """Make the client of the ledger's table, with this number of connections."""
        return ledger_client(pool)

    def s3(self, pool: int = POOL) -> "S3Client":
        """Make the client that reads the bucket."""
        return bucket_client(pool)

    def outputs(self, s3: "Callable[[], S3Client]") -> "Callable[[], S3Client]":
        """The maker of the client that writes outputs: that of the bucket's client."""
        return s3

    def client(self, service: str, pool: int = POOL, **options: Any) -> Any:
        """Make a client of another service; see `make_client`."""
        return make_client(service, pool, **options)

    def botocore_release(self) -> str:
        """The release of botocore whose clients these are."""
        return botocore.__version__

    def processor(self, settings: ConsumerSettings) -> Callable[[Any], Any]:
        """The processor in this process. Raises SettingsError if the settings name none."""
        return load_processor(entrypoint_of(settings))

    def telemetry(self, kind: "type[PowertoolsTelemetry]", settings: ConsumerSettings) -> "Telemetry":
        """Make the telemetry of this kind."""
        return kind(settings.reasons)

    def row_history(self, settings: ConsumerSettings, table: "LedgerTable") -> RowHistory:
        """Make the row history of an execution environment that starts."""
        return RowHistoryRecord(settings, table, self.clock)
