"""Pauses and resumes a consumer by its event source mappings. Messages wait in their source meanwhile."""

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.row import pause_key, to_dynamodb
from intake_ledger_cli.act import operations
from intake_ledger_cli.app import Because, Wait, Yes, app
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.errors import CliError
from intake_ledger_cli.options import Call, with_shared_options

if TYPE_CHECKING:
    from mypy_boto3_lambda.type_defs import EventSourceMappingConfigurationTypeDef as Mapping

_LOOK_SECONDS = 5.0
_CHANGING = frozenset({"Creating", "Deleting", "Disabling", "Enabling", "Updating"})


@app.command("pause")
@with_shared_options
def pause_command(call: Call, *, because: Because, wait: Wait = False, yes: Yes = False) -> None:
    """Stop the consumer. Messages wait in their queue or stream, and expire after its retention."""
    aws, deployed = call.open("pause")
    uuids = _settled_mappings(aws, deployed)
    place = "stream" if deployed.reads_stream else "queue"
    does = (
        f"{deployed.name} will process no message until `intake-ledger resume`. Messages wait in the {place}, and are "
        "lost after its retention."
    )
    with operations.acting(aws, deployed, "pause", does=does, yes=yes, because=because) as act:
        # The record comes first, so that the audit knows the reason.
        content = {"paused_at": act.operation.at, "paused_by": act.operation.by, "because": because}
        LedgerTable(aws.dynamodb, deployed.table).write(pause_key(deployed.name), content)
        _switch(aws, uuids, enabled=False)
        act.ends("paused")
    if wait:
        _wait_for(aws, deployed, "Disabled")
    call.output({"paused": True})


@app.command("resume")
@with_shared_options
def resume_command(call: Call, *, because: Because = "", wait: Wait = False, yes: Yes = False) -> None:
    """Start a paused consumer again."""
    aws, deployed = call.open("resume")
    uuids = _settled_mappings(aws, deployed)
    does = f"{deployed.name} will process messages again, also those that have waited."
    with operations.acting(aws, deployed, "resume", does=does, yes=yes, because=because) as act:
        _switch(aws, uuids, enabled=True)
        aws.dynamodb.delete_item(TableName=deployed.table, Key=to_dynamodb(asdict(pause_key(deployed.name))))
        act.ends("resumed")
    if wait:
        _wait_for(aws, deployed, "Enabled")
    call.output({"paused": False})


def _mappings(aws: Aws, deployed: DeployedPipeline) -> "Sequence[Mapping]":
    return aws.functions.list_event_source_mappings(FunctionName=deployed.consumer_function)["EventSourceMappings"]


def _settled_mappings(aws: Aws, deployed: DeployedPipeline) -> list[str]:
    """The UUIDs of the consumer's event source mappings. A stream's intake also reads a queue.

    Raises:
        CliError: There is none, there are too many, or Lambda is changing one.

    """
    mappings, expected = _mappings(aws, deployed), 2 if deployed.reads_stream else 1
    if len(mappings) != expected:
        raise CliError(f"{deployed.consumer_function} has {len(mappings)} event source mappings, expected {expected}")
    for mapping in mappings:
        if (state := mapping["State"]) in _CHANGING:
            raise CliError(f"Lambda is changing the event source mapping ({state}): repeat the command in a minute")
    return [mapping["UUID"] for mapping in mappings]


def _switch(aws: Aws, uuids: Sequence[str], *, enabled: bool) -> None:
    for uuid in uuids:
        aws.functions.update_event_source_mapping(UUID=uuid, Enabled=enabled)


def _wait_for(aws: Aws, deployed: DeployedPipeline, state: str) -> None:
    """Wait until each mapping has a state. Lambda needs a minute."""
    while any(mapping["State"] != state for mapping in _mappings(aws, deployed)):
        time.sleep(_LOOK_SECONDS)
