"""Moves rows, messages and dead-letter messages of a former pipeline to its successor. Rows move first, so that each
message finds its row.

Each step can be repeated, and can be interrupted at any point.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from intake_ledger_cli.adopt_rows import RowAdoption, RowAdoptionResult
from intake_ledger_cli.errors import describe_error
from intake_ledger_cli.renaming import Renaming
from intake_ledger_cli.transfer import Transfer, TransferResult

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from intake_ledger_cli.aws import Aws
    from intake_ledger_cli.deployed import DeployedPipeline
    from intake_ledger_cli.former import FormerPipeline
    from intake_ledger_cli.rate_limit import RateLimit

OBJECTS_COUNTED = 10_000
KEYS_NAMED = 20


@dataclass(frozen=True, slots=True)
class OldBucket:
    """A bucket of the former pipeline. Its objects stay there."""

    bucket: str
    objects: int = 0
    more: bool = False
    """True if the bucket has more objects than were counted."""
    keys: tuple[str, ...] = ()
    """The first keys."""
    why: str | None = None
    """Why it could not be listed."""


@dataclass(slots=True)
class AdoptionResult:
    """The document of `adopt`."""

    former: str
    """The former name of the pipeline."""
    pipeline: str
    dry_run: bool
    rows: RowAdoptionResult = field(default_factory=RowAdoptionResult)
    queue: TransferResult | None = None
    """None if the old queue is unknown, or if the successor uses the same queue."""
    dead_letters: TransferResult = field(default_factory=TransferResult)
    old_buckets: list[OldBucket] = field(default_factory=list)
    complete: bool = False
    """True after the last step, if nothing is left for another call."""


class Adoption:
    """One run of the command. `clock` returns epoch milliseconds."""

    def __init__(
        self,
        aws: "Aws",
        deployed: "DeployedPipeline",
        former: "FormerPipeline",
        *,
        rate: "RateLimit",
        clock: Callable[[], int],
        dry_run: bool,
    ) -> None:
        self._aws = aws
        self._deployed = deployed
        self._former = former
        self._renaming = Renaming(former.name, deployed.name, deployed.bucket)
        self._rate = rate
        self._clock = clock
        self._dry_run = dry_run
        self.outcome = AdoptionResult(former.name, deployed.name, dry_run)
        """Valid at any time, also after an interruption."""

    def run(self) -> AdoptionResult:
        """Take all steps.

        Raises:
            ClientError: AWS refuses a request.

        """
        out, former, deployed = self.outcome, self._former, self._deployed
        moving = RowAdoption(
            self._aws.dynamodb,
            former.table,
            deployed.table,
            self._renaming,
            clock=self._clock,
            dry_run=self._dry_run,
        )
        out.rows = moving.outcome
        moving.run()
        transfer = self._transfer(former.dead_letter_url, deployed.dead_letter_url)
        out.dead_letters = transfer.outcome
        transfer.run()
        if former.queue_url is not None and former.queue_url != deployed.queue_url:
            transfer = self._transfer(former.queue_url, deployed.queue_url)
            out.queue = transfer.outcome
            transfer.run()
        named = {*former.buckets, *out.rows.of_other_buckets}
        for queue in (out.queue, out.dead_letters):
            named |= set(queue.of_other_buckets if queue else ())
        out.old_buckets = [_listed(self._aws.s3, name) for name in sorted(named)]
        left = out.rows.held or out.rows.later_format
        out.complete = not left and all(one is None or one.complete for one in (out.queue, out.dead_letters))
        return out

    def _transfer(self, source: str, target: str) -> Transfer:
        return Transfer(self._aws.sqs, source, target, self._renaming, rate=self._rate, dry_run=self._dry_run)


def _listed(client: "S3Client", bucket: str) -> OldBucket:
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    keys = (one["Key"] for page in pages for one in page.get("Contents", ()))
    try:
        found = list(islice(keys, OBJECTS_COUNTED + 1))
    except ClientError as error:
        return OldBucket(bucket, why=describe_error(error))
    return OldBucket(bucket, min(len(found), OBJECTS_COUNTED), len(found) > OBJECTS_COUNTED, tuple(found[:KEYS_NAMED]))
