"""Reads who has paused the consumer with `intake-ledger pause`."""

from typing import TYPE_CHECKING, Any

from intake_ledger.protocol.row import from_dynamodb, pause_key

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


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
