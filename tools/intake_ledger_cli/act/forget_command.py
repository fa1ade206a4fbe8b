"""The command that removes a key from the stores of its pipeline."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Any

import typer
from botocore.exceptions import ClientError

from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.row import forgotten_key
from intake_ledger_cli.act import operations
from intake_ledger_cli.act.forgetting import Forgetting, Remain, mark_forgotten, read_items
from intake_ledger_cli.act.redrive_lock import redrive_lock
from intake_ledger_cli.app import Yes, app, argument, now_ms, option
from intake_ledger_cli.aws import reading
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.consumer_log import OPERATIONS_STREAM, group_name, refusal, write_operation
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.errors import CliError, UsageError, denied_action
from intake_ledger_cli.options import Call, with_shared_options
from intake_ledger_cli.read.inspection import key_in
from intake_ledger_cli.show.console import many
from intake_ledger_cli.show.formatting import duration

_COMMAND = "forget "
_DAY_MS = 86_400_000
_EXECUTIONS_KEPT_MS = 90 * _DAY_MS
"""Step Functions keeps the history of an execution for 90 days after its end, and Lambda for 90 days at most."""
_RECOVERY_DAYS = 35
"""DynamoDB's longest and default recovery period."""
_RUN_FILES = "files of audits in parts and lists of the parts of sets, for 30 days at most"


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


@app.command("forget")
@with_shared_options
def forget_command(
    call: Call,
    key: Annotated[str | None, argument(help="Key of an object, a set or messages.")] = None,
    *,
    because: Annotated[str, option("--because", help="The reason, for others, without the key.")],
    output: Annotated[
        list[str] | None, typer.Option("--output", help="s3:// URI of an output of the key. May be repeated.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="After a restore of the table: all forgotten keys. Reads the whole table.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Remove a key from the rows, dead letters and records of the pipeline: a person's right to be forgotten."""
    if again is (key is not None) or (again and output):
        raise UsageError("forget needs a key, or --again without a key and --output")
    aws, deployed = call.open("forget")
    if key is None:
        _forget_again(call, aws, deployed, because, yes=yes)
        return
    key = key_in(deployed, key)
    task = Forgetting(aws, deployed, key)
    if task.finds_key(because):
        raise UsageError("--because names the key, and the record of the operation keeps the reason: leave it out")

    task.check(now_ms())
    task.tombstones(output or [], now_ms())
    does = (
        f"{deployed.name} will lose its rows and dead-letter messages of this key for good, and refuses each message "
        f"that was sent until now. It takes {duration(task.wait_ms)}, until each worker knows that."
    )
    # The record has no key. Its hash proves to those who know the key that it was forgotten.
    what = f"forget {task.result.digest}"
    with operations.acting(aws, deployed, what, does=does, yes=yes, because=because) as act:
        task.mark()
        write_operation(aws, deployed, act.operation, at=now_ms(), forgotten_at=task.result.forgotten_at)
        task.wait()
        with redrive_lock(aws, deployed, act.operation.by) as lock:
            task.check(now_ms(), since=task.result.forgotten_at)
            found = task.tombstones(output or [], now_ms())
            task.remove_dead_letters(lock.renew)
            for one in found:
                task.remove_tombstone(one)
            task.remove_items(now_ms())
            task.remove_from_records()
        task.result.remains += _remains(aws, deployed, task, now_ms())
        done = task.result
        act.ends(
            f"{many(done.rows, 'rows')}, {many(done.other_items, 'other items')}, "
            f"{many(done.dead_letters, 'dead-letter messages')}, {many(done.outputs, 'tombstones')}, "
            f"{many(done.operations, 'records')} without the key"
        )
    call.output(task.result)
    if task.result.unfinished:
        raise typer.Exit(1)


def _forget_again(call: Call, aws: Aws, deployed: DeployedPipeline, because: str, *, yes: bool) -> None:
    """Forget keys again whose rows a restore of the table has brought back.

    The table has lost their markers and the records of their operations. The stream of operations in the consumer's log
    has their hashes, and outlives the table's recovery.
    """
    found = _forgotten_in_log(aws, deployed)
    does = (
        f"{deployed.name} will lose the rows of {many(len(found), 'forgotten keys')} again, as far as a restore has "
        "brought them back. Later rows stay."
    )
    with operations.acting(aws, deployed, "forget --again", does=does, yes=yes, because=because) as act:
        done = _remove_again(aws, deployed, found, now_ms())
        act.ends(
            f"{many(done.hashes, 'forgotten keys')} in the log, {done.keys:,} in the table: "
            f"{many(done.rows, 'rows')} and {many(done.other_items, 'other items')} removed, "
            f"{many(done.later, 'later rows')} left, {many(len(done.left), 'keys')} not forgotten"
        )
    call.output(done)
    if done.left:
        raise typer.Exit(1)


def _forgotten_in_log(aws: Aws, deployed: DeployedPipeline) -> dict[str, int]:
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


def _remove_again(aws: Aws, deployed: DeployedPipeline, forgotten: dict[str, int], now: int) -> ForgetAgainResult:
    """Write the markers again with their original times, and remove the rows of before.

    With the present time, a marker would refuse a new use of its key.
    """
    found, tasks = ForgetAgainResult(deployed.name, len(forgotten)), list[tuple[Forgetting, int]]()
    table, kept_ms = LedgerTable(aws.dynamodb, deployed.table), Forgetting(aws, deployed, "").kept_ms()
    for digest, at in forgotten.items():
        if at + kept_ms > now:
            marker = replace(forgotten_key(deployed.name, ""), sk=digest)
            mark_forgotten(table, deployed.name, marker, at, kept_ms)
    # It reads the whole table.
    wanted = {"FilterExpression": "begins_with(#pk, :bucket)", "ProjectionExpression": "#pk, #sk"}
    items = read_items(aws, deployed, "scan", {":bucket": f"{deployed.bucket}/"}, **wanted)
    for pk in dict.fromkeys(item.place.pk for item in items):
        digest = forgotten_key(deployed.name, pk).sk
        if digest in forgotten:
            tasks.append((Forgetting(aws, deployed, pk.removeprefix(f"{deployed.bucket}/")), forgotten[digest]))
    if tasks:
        tasks[0][0].wait()
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


def _remains(aws: Aws, deployed: DeployedPipeline, forgetting: Forgetting, now: int) -> Iterator[Remain]:
    """Yield each place that may still have the key. A place that the caller may not read is named too."""
    until = forgetting.result.refused_until
    yield Remain("copies in the queue or in flight, which are refused", until)
    yield from forgetting.others()
    yield from _readable("log lines", lambda: _logs(aws, deployed, now))
    yield from _readable("the last report of the audit", lambda: _last_report(aws, deployed, forgetting))
    if deployed.reports is not None:
        yield Remain(f"reports in {deployed.reports}, for as long as that bucket keeps them")
    yield from _readable("backups of the table", lambda: _backups(aws, deployed, now))
    if deployed.has_executions:
        service = "Step Functions" if deployed.state_machine is not None else "Lambda"
        yield Remain(f"histories of executions in {service}", now + _EXECUTIONS_KEPT_MS)
    if deployed.machines or deployed.has_sets:
        yield Remain(_RUN_FILES, now + 30 * _DAY_MS)


def _readable(what: str, find: Callable[[], list[Remain]]) -> list[Remain]:
    try:
        return find()
    except ClientError as error:
        action = denied_action(error) or error.response["Error"].get("Code", "an error")
        return [Remain(f"{what}, which were not read: {action}")]


def _logs(aws: Aws, deployed: DeployedPipeline, now: int) -> list[Remain]:
    """A line that is written now ends with the retention of its group."""
    found = []
    for function in filter(None, (deployed.consumer_function, deployed.audit_function)):
        group = group_name(aws, deployed, function)
        groups = aws.logs.describe_log_groups(logGroupNamePrefix=group)["logGroups"]
        days = next((one.get("retentionInDays") for one in groups if one["logGroupName"] == group), None)
        found.append(Remain(f"log lines in {group}", None if days is None else now + days * _DAY_MS))
    return found


def _last_report(aws: Aws, deployed: DeployedPipeline, forgetting: Forgetting) -> list[Remain]:
    item = reading.read_item(aws.dynamodb, deployed, reading.audit_key(deployed))
    named = forgetting.finds_key(str(item.get("last_report", "")))
    return [Remain("the last report of the audit in the table, until the next run")] if named else []


def _backups(aws: Aws, deployed: DeployedPipeline, now: int) -> list[Remain]:
    found, table = list[Remain](), deployed.table
    recovery: Any = aws.dynamodb.describe_continuous_backups(TableName=table)["ContinuousBackupsDescription"]
    settings = recovery.get("PointInTimeRecoveryDescription", {})
    if settings.get("PointInTimeRecoveryStatus") == "ENABLED":
        days = settings.get("RecoveryPeriodInDays", _RECOVERY_DAYS)
        found.append(Remain("the table's point-in-time recovery", now + days * _DAY_MS))
    request: Any = {"TableName": table, "BackupType": "ALL"}
    while True:
        answer: Any = aws.dynamodb.list_backups(**request)
        for one in answer.get("BackupSummaries", ()):
            ends = one.get("BackupExpiryDateTime")
            found.append(Remain(f"the backup {one['BackupArn']}", int(ends.timestamp() * 1000) if ends else None))
        if not (after := answer.get("LastEvaluatedBackupArn")):
            return found
        request["ExclusiveStartBackupArn"] = after
