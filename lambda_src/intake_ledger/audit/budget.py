"""How many messages a run may still send. What SQS refuses is given back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from intake_ledger.ledger import condition_failed
from intake_ledger.protocol import AuditSettings

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

KEPT_SECONDS = 14 * 86_400
"""Retention of the count of a run's messages."""


@dataclass(slots=True)
class OwnBudget:
    """The budget of a run in one function."""

    left: int

    def take(self, wanted: int) -> int:
        """Take so many messages, or the rest."""
        taken = max(min(wanted, self.left), 0)
        self.left -= taken
        return taken

    def give_back(self, count: int) -> None:
        """Give back messages that were not sent."""
        self.left += count


@dataclass(frozen=True, slots=True)
class SharedBudget:
    """The budget that all parts of a run share: one item of the table, which tells how far the run has come too.
    `most` is the number of its messages, `candidates` that of its candidates. `clock` gives epoch milliseconds.
    """

    dynamodb: "DynamoDBClient"
    settings: AuditSettings
    run: str
    most: int
    candidates: int
    clock: Callable[[], int]

    def take(self, wanted: int) -> int:
        """Take so many messages, or the rest."""
        budget = self.most
        wanted = min(wanted, budget)
        while wanted > 0:
            try:
                self._add(wanted, most=budget - wanted)
            except ClientError as error:
                if not condition_failed(error):
                    raise
                found: Any = error.response
                wanted = budget - int(found["Item"]["sent"]["N"])
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
            Key={
                "pk": {"S": f"{self.settings.bucket}#{self.run}"},
                "sk": {"S": f"{self.settings.pipeline}@audit"},
            },
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
