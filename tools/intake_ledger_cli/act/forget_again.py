"""Forgets keys again whose rows a restore of the table has brought back.

The table has lost their markers and the records of their operations. The stream of operations in the consumer's log has
their hashes, and outlives the table's recovery.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.row import forgotten_key, to_dynamodb
from intake_ledger_cli.act.forgetting import Forgetting, mark_forgotten, wait
from intake_ledger_cli.aws.consumer_log import OPERATIONS_STREAM, group_name, refusal
from intake_ledger_cli.errors import CliError
from intake_ledger_cli.show.console import many

if TYPE_CHECKING:
    from intake_ledger_cli.aws.clients import Aws
    from intake_ledger_cli.aws.deployed import DeployedPipeline

_COMMAND = "forget "


@dataclass(slots=True)
class ForgetAgainResult:
    """The document of `forget --again`."""

    pipeline: str
    hashes: int
    """Forgotten keys of which the log tells."""
    keys: int = 0
    """Those that the table had again."""
    rows: int = 0
    other_items: int = 0
    operations: int = 0
    later: int = 0
    """Rows that stay, because an attempt changed them after their key was forgotten: a new use of it."""
    left: dict[str, str] = field(default_factory=dict)
    """Keys that could not be forgotten, each with the reason."""


def forgotten_in_log(aws: "Aws", deployed: "DeployedPipeline") -> dict[str, int]:
    """The hashes of all forgotten keys of which the log tells, each with the last time of its marker.

    Raises:
        CliError: The log may not be read, or does not exist.

    """
    found, group = dict[str, int](), ""
    try:
        group = group_name(aws, deployed)
        pages = aws.logs.get_paginator("filter_log_events").paginate(
            logGroupName=group, logStreamNames=[OPERATIONS_STREAM], filterPattern='"forget"'
        )
        for page in pages:
            for event in page["events"]:
                for digest, at in _forgotten(event["message"], deployed.name):
                    found[digest] = max(at, found.get(digest, 0))
    except ClientError as error:
        raise CliError(f"the stream `{OPERATIONS_STREAM}` of {group} cannot be read: {refusal(error, group)}") from None
    return found


def _forgotten(message: str, pipeline: str) -> Iterator[tuple[str, int]]:
    """The hash in a line, with the time of its marker. A line before the marker has the time of the command."""
    try:
        line = json.loads(message)
        digest = str(line["what"]).removeprefix(_COMMAND)
        begun_at = datetime.fromisoformat(line["begun_at"])
    except (ValueError, KeyError, TypeError):
        return
    if line.get("service") == pipeline and str(line["what"]).startswith(_COMMAND) and not digest.startswith("-"):
        yield digest, int(line.get("forgotten_at") or begun_at.timestamp() * 1000)


def forget_again(aws: "Aws", deployed: "DeployedPipeline", forgotten: dict[str, int], now: int) -> ForgetAgainResult:
    """Write the markers again with their original times, and remove the rows of before.

    With the present time, a marker would refuse a new use of its key.

    Raises:
        ClientError: AWS refuses a request.

    """
    found, tasks = ForgetAgainResult(deployed.name, len(forgotten)), list[tuple[Forgetting, int]]()
    table, kept_ms = LedgerTable(aws.dynamodb, deployed.table), Forgetting(aws, deployed, "").kept_ms()
    for digest, at in forgotten.items():
        if at + kept_ms > now:
            marker = replace(forgotten_key(deployed.name, ""), sk=digest)
            mark_forgotten(table, deployed.name, marker, at, kept_ms)
    for pk in _keys_of_table(aws, deployed):
        digest = forgotten_key(deployed.name, pk).sk
        if digest in forgotten:
            tasks.append((Forgetting(aws, deployed, pk.removeprefix(f"{deployed.bucket}/")), forgotten[digest]))
    if tasks:
        wait(tasks[0][0])
    for task, at in tasks:
        try:
            found.later += task.remove_before(at, now)
        except CliError as error:
            found.left[task.key] = str(error)
        found.keys += 1
        found.rows += task.result.rows
        found.other_items += task.result.other_items
        found.operations += task.result.operations
    return found


def _keys_of_table(aws: "Aws", deployed: "DeployedPipeline") -> list[str]:
    """The partition keys of all rows and locks of the bucket, each once. It reads the whole table."""
    request: dict[str, Any] = {
        "TableName": deployed.table,
        "FilterExpression": "begins_with(#pk, :bucket)",
        "ProjectionExpression": "#pk",
        "ExpressionAttributeNames": {"#pk": "pk"},
        "ExpressionAttributeValues": to_dynamodb({":bucket": f"{deployed.bucket}/"}),
        "ConsistentRead": True,
    }
    pages = aws.dynamodb.get_paginator("scan").paginate(**request)
    return list(dict.fromkeys(item["pk"]["S"] for page in pages for item in page["Items"]))


def counts(done: ForgetAgainResult) -> str:
    """The result for the record of the operation."""
    return (
        f"{many(done.hashes, 'forgotten keys')} in the log, {done.keys:,} in the table: {many(done.rows, 'rows')} and "
        f"{many(done.other_items, 'other items')} removed, {many(done.later, 'later rows')} left, "
        f"{many(len(done.left), 'keys')} not forgotten"
    )
