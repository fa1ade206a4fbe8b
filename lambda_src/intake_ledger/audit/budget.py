"""Limits the number and the rate of a run's messages. Messages that SQS refuses do not count."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from intake_ledger.ledger.dynamodb_table import condition_failed
from intake_ledger.protocol.settings_audit import AuditSettings

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

KEPT_SECONDS = 14 * 86_400
"""Retention of the count of a run's messages."""
_LONGEST_WAIT_SECONDS = 10


@dataclass(slots=True)
class OwnBudget:
    """The budget of a run in one function."""

    left: int

    def take(self, wanted: int) -> int:
        """Take this number of messages, or the rest."""
        taken = max(min(wanted, self.left), 0)
        self.left -= taken
        return taken

    def give_back(self, count: int) -> None:
        """Give back messages that were not sent."""
        self.left += count


@dataclass(frozen=True, slots=True)
class SharedBudget:
    """The budget that all parts of a run share. It is one item of the table, which shows the run's progress too.

    `most` is the run's number of messages, `candidates` its number of candidates. `clock` gives epoch milliseconds.
    """

    dynamodb: "DynamoDBClient"
    settings: AuditSettings
    run: str
    most: int
    candidates: int
    clock: Callable[[], int]

    def take(self, wanted: int) -> int:
        """Take this number of messages, or the rest."""
        wanted = min(wanted, self.most)
        while wanted > 0:
            try:
                self._add(wanted, most=self.most - wanted)
            except ClientError as error:
                if not condition_failed(error):
                    raise
                response: Any = error.response
                wanted = self.most - int(response["Item"]["sent"]["N"])
            else:
                return wanted
        return 0

    def give_back(self, count: int) -> None:
        """Give back messages that were not sent."""
        if count:
            self._add(-count, most=self.most)

    def _add(self, count: int, *, most: int) -> None:
        self.dynamodb.update_item(
            TableName=self.settings.table,
            Key={"pk": {"S": f"{self.settings.bucket}#{self.run}"}, "sk": {"S": f"{self.settings.pipeline}@audit"}},
            UpdateExpression="ADD #sent :count SET #expires_at = :expires_at, #of = :of,"
            " #begun_at = if_not_exists(#begun_at, :now)",
            ConditionExpression="attribute_not_exists(#sent) OR #sent <= :most",
            ExpressionAttributeNames={f"#{name}": name for name in ("sent", "expires_at", "of", "begun_at")},
            ExpressionAttributeValues={
                ":count": {"N": str(count)},
                ":most": {"N": str(most)},
                ":of": {"N": str(self.candidates)},
                ":now": {"N": str(self.clock())},
                ":expires_at": {"N": str(self.clock() // 1000 + KEPT_SECONDS)},
            },
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )


Budget = OwnBudget | SharedBudget


class LookRate:
    """Keeps one look to its share of the run's rate. `clock` gives epoch milliseconds."""

    def __init__(self, per_second: float, clock: Callable[[], int], sleep: Callable[[float], None]) -> None:
        self._per_second = per_second
        self._clock = clock
        self._sleep = sleep
        self._due_at: float = clock()

    def most(self) -> int:
        """The number of messages between two waits, so that no wait is longer than some seconds."""
        return max(int(self._per_second * _LONGEST_WAIT_SECONDS), 1)

    def wait(self, sent: int) -> None:
        """Wait after this number of messages."""
        now = self._clock()
        # At most one second of unused time counts.
        self._due_at = max(self._due_at, now - 1_000) + 1_000 * sent / self._per_second
        if self._due_at > now:
            self._sleep((self._due_at - now) / 1_000)
