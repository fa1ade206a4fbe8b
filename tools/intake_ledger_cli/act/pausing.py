"""Pauses and resumes a consumer by its event source mappings. Messages wait in their source meanwhile."""

import time
from typing import Any

from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.row import pause_key
from intake_ledger_cli.act.operations import Operation
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.errors import CliError

_LOOK_SECONDS = 5.0
_CHANGING = frozenset({"Creating", "Deleting", "Disabling", "Enabling", "Updating"})


def mappings_of(aws: Aws, deployed: DeployedPipeline) -> list[str]:
    """Return the UUIDs of the consumer's event source mappings. A stream's intake also reads a queue.

    Raises:
        CliError: There is none, there are too many, or Lambda is changing one.

    """
    answer = aws.functions.list_event_source_mappings(FunctionName=deployed.consumer_function)
    mappings = answer["EventSourceMappings"]
    expected = 2 if deployed.reads_stream else 1
    if len(mappings) != expected:
        raise CliError(f"{deployed.consumer_function} has {len(mappings)} event source mappings, expected {expected}")
    for mapping in mappings:
        if mapping["State"] in _CHANGING:
            state = mapping["State"]
            raise CliError(f"Lambda is changing the event source mapping ({state}): repeat the command in a minute")
    return [mapping["UUID"] for mapping in mappings]


def wait_for(aws: Aws, deployed: DeployedPipeline, state: str) -> None:
    """Wait until each mapping has a state. Lambda needs a minute."""
    while True:
        answer = aws.functions.list_event_source_mappings(FunctionName=deployed.consumer_function)
        if all(mapping["State"] == state for mapping in answer["EventSourceMappings"]):
            return
        time.sleep(_LOOK_SECONDS)


def pause(aws: Aws, deployed: DeployedPipeline, uuids: list[str], operation: Operation) -> None:
    """Record the pause, and disable the mappings. The record comes first, so that the audit knows its reason.

    Raises:
        ClientError: AWS refuses a request.

    """
    content = {"paused_at": operation.at, "paused_by": operation.by, "because": operation.because}
    LedgerTable(aws.dynamodb, deployed.table).write(pause_key(deployed.name), content)
    for uuid in uuids:
        aws.functions.update_event_source_mapping(UUID=uuid, Enabled=False)


def resume(aws: Aws, deployed: DeployedPipeline, uuids: list[str]) -> None:
    """Enable the mappings, and remove the record of the pause.

    Raises:
        ClientError: AWS refuses a request.

    """
    for uuid in uuids:
        aws.functions.update_event_source_mapping(UUID=uuid, Enabled=True)
    key = pause_key(deployed.name)
    place: Any = {"pk": {"S": key.pk}, "sk": {"S": key.sk}}
    aws.dynamodb.delete_item(TableName=deployed.table, Key=place)
