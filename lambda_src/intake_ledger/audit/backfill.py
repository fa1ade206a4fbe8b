"""What was in the bucket before the pipeline, sent to it once and slowly, where a team wants that.

One pass through the listing: each object of before that has no row gets a message. How far the pass has come is an item
in the ledger's table; what a death repeats is at most a page, and the consumer processes nothing of it twice.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import batched
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from intake_ledger import rows
from intake_ledger.audit.listing import Listing, Page, Place
from intake_ledger.audit.look import BACKFILL_ID, STOP_BEFORE_MS
from intake_ledger.changes import Origin, own_message
from intake_ledger.settings import AuditSettings
from intake_ledger.states import State
from intake_ledger.table import BATCH_GET_KEYS, LedgerTable, condition_failed, plain

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient

_SEND_BATCH = 10  # SQS's limit of SendMessageBatch


@dataclass(slots=True)
class Backfilled:
    """What one call has done."""

    listed: int = 0
    sent: int = 0
    done: bool = False
    """Whether the pass has come to its end, in this call or before."""

    def as_json(self) -> dict[str, Any]:
        """As the function returns it."""
        return asdict(self)


class Backfill:
    """One pipeline's pass. `clock` gives epoch milliseconds."""

    def __init__(
        self,
        settings: AuditSettings,
        ledger: LedgerTable,
        listing: Listing,
        *,
        dynamodb: "DynamoDBClient",
        sqs: "SQSClient",
        clock: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._listing = listing
        self._dynamodb = dynamodb
        self._sqs = sqs
        self._clock = clock

    def go_on(self, since: int, *, allowance: int, remaining_ms: Callable[[], int]) -> Backfilled:
        """Go on with the pass until it has sent `allowance` messages, and whatever is left of a page then.

        `since` is when the pipeline's first audit began, in epoch milliseconds: what is younger is the audit's.
        """
        did = Backfilled()
        stored = plain(
            self._dynamodb.get_item(TableName=self._settings.table, Key=self._key(), ConsistentRead=True).get(
                "Item", {}
            )
        )
        step = int(stored.get("step", 0))
        if stored.get("place") == "end":
            return Backfilled(done=True)
        if allowance < 1:
            return did
        start = Place(**json.loads(stored["place"])) if stored else None
        for page in self._listing.pages(start):
            did.sent += self._send(self._without_row(page, since))
            did.listed += len(page.states)
            if not self._note(step, page.after):
                # Another call is at it.
                return did
            step += 1
            if page.after is None:
                did.done = True
            elif did.sent >= allowance or remaining_ms() < STOP_BEFORE_MS:
                break
        return did

    def _without_row(self, page: Page, since: int) -> list[tuple[str, State]]:
        """The objects that were there before, and that the ledger has never heard of."""
        settings = self._settings
        of_before = [
            (rows.row_key(settings.pipeline, settings.ordering, settings.bucket, key, state.identity), key, state)
            for key, state in page.states
            if not state.removed and settings.wants(key) and (state.created_at or since) < since
        ]
        found = {
            row_key: content
            for few in batched({row_key for row_key, _, _ in of_before}, BATCH_GET_KEYS)
            for row_key, content in self._ledger.get_items(few).items()
        }
        # A mark of the audit's is no row.
        return [(key, state) for row_key, key, state in of_before if not rows.from_attributes(found.get(row_key, {}))]

    def _send(self, found: Sequence[tuple[str, State]]) -> int:
        for few in batched(found, _SEND_BATCH):
            entries: Any = [{"Id": str(n), "MessageBody": self._message(*one)} for n, one in enumerate(few)]
            answer = self._sqs.send_message_batch(QueueUrl=self._settings.queue_url, Entries=entries)
            if answer.get("Failed"):
                # The page is not noted as done, and is sent again.
                raise RuntimeError(f"SQS took only a part of a batch: {answer['Failed'][0].get('Message')}")
        return len(found)

    def _message(self, key: str, state: State) -> str:
        # What is older than the retention is taken for settled and forgotten, unless somebody asks for it. What is
        # young may have an event on its way, and is not to be processed for both. Half of it is far from either.
        if (state.created_at or 0) < self._clock() - self._settings.retention_seconds * 1000 // 2:
            return own_message(Origin.REPROCESS, self._settings.bucket, key, state, reprocess_id=BACKFILL_ID)
        return own_message(Origin.AUDIT, self._settings.bucket, key, state)

    def _note(self, step: int, after: Place | None) -> bool:
        """Write down how far the pass has come, unless somebody else has done so since."""
        try:
            self._dynamodb.update_item(
                TableName=self._settings.table,
                Key=self._key(),
                UpdateExpression="SET #place = :place, #step = :next",
                ConditionExpression="attribute_not_exists(#step) OR #step = :step",
                ExpressionAttributeNames={"#place": "place", "#step": "step"},
                ExpressionAttributeValues={
                    ":place": {"S": json.dumps(asdict(after)) if after else "end"},
                    ":step": {"N": str(step)},
                    ":next": {"N": str(step + 1)},
                },
            )
        except ClientError as error:
            if not condition_failed(error):
                raise
            return False
        return True

    def _key(self) -> dict[str, Any]:
        # The bucket alone is no object's partition key.
        return {"pk": {"S": self._settings.bucket}, "sk": {"S": f"{self._settings.pipeline}@backfill"}}
