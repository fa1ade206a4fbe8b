"""Judge the outstanding requests of people by their rows, and send them again.

A repeated request has no second effect: the ledger accepts an ID of a reprocess once per object, and the fence of a
rejection once.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from botocore.exceptions import ClientError

from intake_ledger.events.copies import REDRIVEN
from intake_ledger.events.parser import own_message
from intake_ledger.ledger.conditions import Condition, ConditionFailed
from intake_ledger.ledger.dynamodb_table import LedgerTable, condition_failed, send_write
from intake_ledger.protocol.change import ABSENT, Origin, State, StateKind
from intake_ledger.protocol.reasons import ReasonCode
from intake_ledger.protocol.row import Ordering, Row, RowKey, Status, to_dynamodb
from intake_ledger.protocol.settings import Settings
from intake_ledger.protocol.ulids import made_at
from intake_ledger.requests.record import (
    Command,
    Entry,
    RequestBatch,
    batch_item,
    batch_key,
    queried_batches,
    rows_of,
)
from intake_ledger.requests.redriven import Redriven
from intake_ledger.requests.standing import AfterStop, Standing, after_stop, standing_of
from intake_ledger.requests.stop import Stop, read_stops

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from intake_ledger.aws.queues import Queues

MOST_SENT = 10_000
"""The largest number of messages of a check. The next check continues."""
BATCH_MS = 15 * 60_000
"""Lambda's longest invocation. A consumer that did not see a stop has ended its batch this time after it."""


@dataclass(slots=True)
class RequestFindings:
    """The result of a look at the records that were due."""

    served: int = 0
    """Requests for which an attempt has begun since the last look."""
    void: int = 0
    """Requests whose object was replaced, processed or removed meanwhile. They count as served."""
    in_work: int = 0
    resent: int = 0
    waiting: int = 0
    """Requests that were not sent again: SQS refused them, or the look had sent enough."""
    lost: int = 0
    """Messages whose content was found to be gone."""

    @property
    def numbers(self) -> dict[str, int]:
        """The numbers for the log."""
        return asdict(self)

    @property
    def counts(self) -> dict[str, int]:
        """The metrics."""
        return {"CopiesLost": self.lost} if self.lost else {}


class RequestCheck:
    """The look of one pipeline at its records."""

    def __init__(
        self,
        client: "DynamoDBClient",
        queues: "Queues",
        settings: Settings,
        *,
        clock: Callable[[], int],
        look: Callable[[str, State | None, Row | None], State],
        is_lost: Callable[[int], bool] | None = None,
    ) -> None:
        """Make a check.

        Args:
            client: the client.
            queues: sends messages to the pipeline's queue.
            settings: those of the pipeline.
            clock: gives epoch milliseconds.
            look: gives the present state of a key, or of the version that a request names.
            is_lost: true if a message that was sent at this time and changed no row is in no queue any more. Only an
                intake of messages has it: the ledger cannot send their content again.

        """
        self._client = client
        self._table = LedgerTable(client, settings.table)
        self._queues = queues
        self._settings = settings
        self._clock = clock
        self._look = look
        self._is_lost = is_lost

    def due(self, settled_before: int) -> list[RequestBatch]:
        """The records with outstanding requests whose messages were sent before this time, the oldest first.

        Raises:
            ClientError: DynamoDB refuses a request. Also BotoCoreError.

        """
        batches = queried_batches(self._client, self._table.name, self._settings.pipeline)
        due = [one for one in batches if one.entries and one.sent_at <= settled_before]
        return sorted(due, key=lambda one: one.sent_at)

    def run(self, due: Sequence[RequestBatch], *, has_time: Callable[[], bool]) -> RequestFindings:
        """Judge the requests of these records, and send the outstanding ones again.

        The requests of an operation that a person has stopped are counted, and leave their records when none of them
        can begin any more.

        Raises:
            ClientError: AWS refuses a request. Also BotoCoreError.

        """
        found = RequestFindings()
        stops = read_stops(self._client, self._table.name, self._settings.pipeline) if due else {}
        for batch in due:
            if not has_time():
                break
            if (stop := stops.get(batch.request_id)) is None:
                self._judge(batch, found)
            else:
                self._count(batch, stop)
        return found

    def _count(self, batch: RequestBatch, stop: Stop) -> None:
        """Count how the requests of a stopped operation stand."""
        now, counts, before = self._clock(), Counter[str](), batch.counts
        is_final = stop.at <= now - BATCH_MS
        for entry, row in rows_of(self._table, batch.entries, self._place):
            standing = self._by_row(row, entry, batch)
            counts[after_stop(row, standing, batch, stop.at)] += 1
            is_final &= standing is not Standing.IN_WORK
        if is_final:
            # Their messages were sent before those that wait now.
            counts[AfterStop.WITHDRAWN] = counts.pop(AfterStop.OUTSTANDING, 0)
            batch.entries = []
        batch.counts, batch.counted_at = dict(+counts), now
        if is_final or batch.counts != before:
            self._keep(batch)

    def _judge(self, batch: RequestBatch, found: RequestFindings) -> None:
        now, before, lost = self._clock(), len(batch.entries), batch.lost
        left, again = list[Entry](), list[tuple[Entry, Row | None]]()
        for entry, row in rows_of(self._table, batch.entries, self._place):
            match self._standing(row, entry, batch, now):
                case Standing.OUTSTANDING:
                    again.append((entry, row))
                case Standing.IN_WORK:
                    found.in_work += 1
                    left.append(entry)
                case Standing.VOID:
                    found.void += 1
                case Standing.LOST:
                    found.lost += 1
                    batch.lost += 1
                case _ if row is not None and row.unfinished:
                    # It failed, and is tried again. `wait` follows it until then.
                    found.in_work += 1
                    left.append(entry)
                case _:
                    found.served += 1
        if self._is_lost is None:
            self._send(batch, again, found)
        else:
            found.waiting += len(again)
        batch.entries = [*left, *(entry for entry, _ in again)]
        if self._is_lost is None:
            batch.sent_at = now
        elif (len(batch.entries), batch.lost) == (before, lost):
            return
        self._keep(batch)

    def _standing(self, row: Row | None, entry: Entry, batch: RequestBatch, now: int) -> Standing:
        settings, requested_at = self._settings, made_at(batch.request_id)
        standing = self._by_row(row, entry, batch)
        if standing is Standing.NO_ROW:
            expired = not settings.keeps_rows and requested_at < now - settings.retention_seconds * 1000
            if expired or not settings.takes(entry.key):
                return Standing.VOID
            state = self._look(entry.key, entry.state, row)
            # The consumer accepts the removal that a delete marker shows, if the processor is told of removals.
            is_work = not state.removed or (settings.deletes and state.kind is StateKind.MARKER)
            return Standing.OUTSTANDING if is_work else Standing.VOID
        if standing is Standing.OUTSTANDING and (not settings.wants(entry.key) or self._is_gone(row, entry)):
            return Standing.VOID
        if standing is Standing.OUTSTANDING and self._is_lost is not None and self._is_lost(batch.sent_at):
            return Standing.LOST if self._mark_lost(entry, batch) else Standing.SERVED
        return standing

    def _is_gone(self, row: Row | None, entry: Entry) -> bool:
        """True if S3 no longer has the version of the request. No attempt can begin for it.

        Without the version, the present state of a key decides, and the ledger settles its removal.
        """
        if row is None or self._is_lost is not None or self._settings.ordering is Ordering.LATEST:
            return False
        state = entry.state or row.state
        return state.kind is not StateKind.DELETED and self._look(entry.key, state, row) == ABSENT

    def _by_row(self, row: Row | None, entry: Entry, batch: RequestBatch) -> Standing:
        skew_ms = self._settings.clock_skew_seconds * 1000
        return standing_of(row, entry, batch, requested_at=made_at(batch.request_id), skew_ms=skew_ms)

    def _place(self, entry: Entry) -> RowKey:
        return entry.row_key(self._settings.pipeline, self._settings.ordering, self._settings.bucket)

    def _send(self, batch: RequestBatch, again: Sequence[tuple[Entry, Row | None]], found: RequestFindings) -> None:
        allowed = again[: max(0, MOST_SENT - found.resent)]
        # The group of the operation, as its own messages have it: see `Look`.
        group = {"MessageGroupId": batch.request_id}
        taken, _ = self._queues.send_copies([self._message(batch, entry, row) | group for entry, row in allowed])
        found.resent += len(taken)
        found.waiting += len(again) - len(taken)

    def _message(self, batch: RequestBatch, entry: Entry, row: Row | None) -> dict[str, Any]:
        if batch.command is Command.REPROCESS:
            request_id = batch.request_id
            body = own_message(Origin.REPROCESS, self._settings.bucket, entry.key, entry.state, reprocess_id=request_id)
            return {"MessageBody": body}
        state = None
        if row is not None and self._settings.ordering is Ordering.EVERY_VERSION:
            state = row.state
        body = own_message(Origin.AUDIT, self._settings.bucket, entry.key, state)
        fence = {"DataType": "Number", "StringValue": str(entry.fence)}
        operation = {"DataType": "String", "StringValue": self._letter(batch, entry, row).text}
        return {"MessageBody": body, "MessageAttributes": {"rejected_fence": fence, REDRIVEN: operation}}

    def _letter(self, batch: RequestBatch, entry: Entry, row: Row | None) -> Redriven:
        """The operation, and the attributes with which the message goes back if the operation is stopped."""
        known: dict[str, str | int | None] = {"pipeline": self._settings.pipeline, "bucket": self._settings.bucket}
        known["key"] = quote(entry.key)
        if row is not None:
            known |= {"reason": (row.reason or "")[:1024], "reason_code": row.reason_code, "version_id": row.version_id}
            known |= {"attempts": row.attempts, "first_claimed_at": row.first_claimed_at}
        return Redriven(batch.request_id, {name: value for name, value in known.items() if value not in (None, "")})

    def _mark_lost(self, entry: Entry, batch: RequestBatch) -> bool:
        """Let the row say that its copy is lost. False: an attempt has changed the row meanwhile."""
        condition = Condition(
            "#status = :seen_status AND #rejected_fence = :seen_fence",
            ("status", "rejected_fence"),
            {":seen_status": Status.REJECTED.value, ":seen_fence": entry.fence},
        )
        text = (
            f"copy lost: its copy was redriven by the operation {batch.request_id}, and is in no queue any more. Send "
            "the message again from its source"
        )
        try:
            self._table.mark(self._place(entry), {"reason": text, "reason_code": ReasonCode.COPY_LOST.value}, condition)
        except ConditionFailed:
            return False
        return True

    def _keep(self, batch: RequestBatch) -> None:
        """Write the outstanding requests of a record, or delete it. A deleted record stays deleted."""
        key = batch_key(self._settings.pipeline, batch)
        place = to_dynamodb({"pk": key.pk, "sk": key.sk})
        if not (batch.entries or batch.lost or batch.counts):
            self._client.delete_item(TableName=self._table.name, Key=place)
            return
        content = batch_item(batch, made_at=made_at(batch.request_id))
        request = {
            "TableName": self._table.name,
            "Key": place,
            "UpdateExpression": "SET " + ", ".join(f"#{name} = :{name}" for name in content),
            "ConditionExpression": "attribute_exists(#pk)",
            "ExpressionAttributeNames": {f"#{name}": name for name in (*content, "pk")},
            "ExpressionAttributeValues": to_dynamodb({f":{name}": value for name, value in content.items()}),
        }
        try:
            send_write(self._client.update_item, request)
        except ClientError as error:
            if not condition_failed(error):
                raise
