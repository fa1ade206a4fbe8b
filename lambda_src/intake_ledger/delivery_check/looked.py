"""The results of a check: differences, deleted resources, parts that did not answer, and a pause by a person."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from intake_ledger.delivery_check.deployed import Deployed
from intake_ledger.protocol.row import from_dynamodb, pause_key

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

UNKNOWN = "unknown: "
"""Begins a result that is neither right nor broken."""
_GONE = (
    "AWS.SimpleQueueService.NonExistentQueue",
    "NoSuchBucket",
    "NotFoundException",
    "QueueDoesNotExist",
    "ResourceNotFoundException",
    "TableNotFoundException",
)
_NEEDED = ("bucket", "queue", "table")
"""Resources without which no run can begin."""
_REFUSED = ("403", "AccessDenied", "AccessDeniedException", "AuthorizationError", "UnauthorizedOperation")


@dataclass(slots=True)
class Looked:
    """Results of one check."""

    problems: list[str] = field(default_factory=list)
    """Differences and missing permissions, each with its repair."""
    unknown: list[str] = field(default_factory=list)
    """Conditions that cannot be evaluated, and services that did not answer."""
    gone: list[str] = field(default_factory=list)
    """Deleted resources without which no run can begin."""
    whose: str = "audit"
    """Whose role looks."""

    def add(self, check: Callable[[], Iterator[str]], what: str, resource: str, deployed: Deployed) -> None:
        """Add the results of one part. A deleted resource or a missing permission is a result, never an error.

        Args:
            check: yields problems.
            what: the part, for people.
            resource: the resource, as `Deployed.again` takes it.
            deployed: has the repair.

        """
        try:
            for problem in check():
                (self.unknown if problem.startswith(UNKNOWN) else self.problems).append(problem)
        except ClientError as error:
            code, again = error.response["Error"].get("Code", ""), deployed.again(resource)
            if code in _GONE:
                gone = f"the {resource}" if resource in _NEEDED else what
                if gone not in self.gone:
                    self.problems.append(f"{gone} is gone: {again}")
                    self.gone += [gone] if resource in _NEEDED else []
            elif code in _REFUSED:
                refused = f"{what} could not be looked at, the {self.whose}'s role may not {error.operation_name}"
                self.problems.append(f"{UNKNOWN}{refused}: {deployed.again(self.whose)}")
            else:
                self.unknown.append(f"{UNKNOWN}{what} could not be looked at: {error}")
        except BotoCoreError as error:
            self.unknown.append(f"{UNKNOWN}{what} could not be looked at: {error}")


def describe_pause(client: "DynamoDBClient", table: str, pipeline: str) -> str:
    """Describe the recorded pause, with the command that ends it. Empty if there is none."""
    key = pause_key(pipeline)
    place: Any = {"pk": {"S": key.pk}, "sk": {"S": key.sk}}
    found = from_dynamodb(client.get_item(TableName=table, Key=place).get("Item", {}))
    if not found:
        return ""
    return (
        f"paused by {found['paused_by']} because {found['because']}, so that no message is processed: "
        "run `intake-ledger resume`"
    )
