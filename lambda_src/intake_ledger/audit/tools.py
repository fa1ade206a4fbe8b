"""The clients and settings that the steps of an audit share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from intake_ledger.audit.budget import Budget
from intake_ledger.audit.diff import Window
from intake_ledger.audit.look import Look
from intake_ledger.audit.runs import AuditRuns
from intake_ledger.aws.bucket import Bucket
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.settings_audit import AuditSettings

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

    from intake_ledger.audit.executing import IsExecuting


@dataclass(frozen=True, slots=True)
class Judgement:
    """The limits of a run at one moment."""

    window: Window
    resubmit: bool
    """True if the run may send messages."""
    held: str
    """The reason why something is not judged or not sent. Empty if there is none."""
    waiting: int = 0
    """Messages in the queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Clients and settings of an invocation."""

    settings: AuditSettings
    s3: "S3Client"
    sqs: "SQSClient"
    dynamodb: "DynamoDBClient"
    clock: Callable[[], int]
    """Gives epoch milliseconds."""
    judge: Callable[[int, bool], Judgement]
    """Takes the time of the pipeline's first run in epoch milliseconds, and True for a backfill."""
    delivery: Callable[[], list[str]]
    """Checks the delivery, and returns its problems."""
    scratch: str
    """The bucket of the run's files."""
    heads: int
    """Parallel requests to S3 in a look."""
    sleep: Callable[[float], None]
    is_executing: "IsExecuting | None" = None
    """See `Look`."""

    def look(self, budget: Budget | None, *, backfill: bool) -> Look:
        """A look with these clients. Without a budget it sends nothing."""
        return Look(
            self.settings,
            LedgerTable(self.dynamodb, self.settings.table),
            self.bucket(),
            sqs=self.sqs,
            clock=self.clock,
            budget=budget,
            heads=self.heads,
            backfill=backfill,
            is_executing=self.is_executing,
        )

    def bucket(self) -> Bucket:
        """The pipeline's bucket."""
        return Bucket(lambda: self.s3, self.settings.bucket, self.settings.bucket_owner)

    def runs(self, owner: str) -> AuditRuns:
        """The item of the pipeline's runs, with the lease owner `owner`."""
        return AuditRuns(self.dynamodb, self.settings, clock=self.clock, owner=owner)
