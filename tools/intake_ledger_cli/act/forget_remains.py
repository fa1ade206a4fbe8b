"""Lists the places that keep a forgotten key for a time, and that no command of the pipeline can change."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from intake_ledger_cli.act.forgetting import Forgetting, Remain
from intake_ledger_cli.aws import reading
from intake_ledger_cli.aws.consumer_log import group_name
from intake_ledger_cli.errors import denied_action

if TYPE_CHECKING:
    from intake_ledger_cli.aws.clients import Aws
    from intake_ledger_cli.aws.deployed import DeployedPipeline

_DAY_MS = 86_400_000
_EXECUTIONS_KEPT_MS = 90 * _DAY_MS
"""Step Functions keeps the history of an execution for 90 days after its end, and Lambda for 90 days at most."""
_RECOVERY_DAYS = 35
"""DynamoDB's longest and default recovery period."""
_RUN_FILES = "files of audits in parts and lists of the parts of sets, for 30 days at most"


def remains(aws: "Aws", deployed: "DeployedPipeline", forgetting: Forgetting, now: int) -> Iterator[Remain]:
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
    if deployed.machines or deployed.set_variables is not None:
        yield Remain(_RUN_FILES, now + 30 * _DAY_MS)


def _readable(what: str, find: Callable[[], list[Remain]]) -> list[Remain]:
    try:
        return find()
    except ClientError as error:
        action = denied_action(error) or error.response["Error"].get("Code", "an error")
        return [Remain(f"{what}, which were not read: {action}")]


def _logs(aws: "Aws", deployed: "DeployedPipeline", now: int) -> list[Remain]:
    """A line that is written now ends with the retention of its group."""
    found = []
    for function in filter(None, (deployed.consumer_function, deployed.audit_function)):
        group = group_name(aws, deployed, function)
        groups = aws.logs.describe_log_groups(logGroupNamePrefix=group)["logGroups"]
        days = next((one.get("retentionInDays") for one in groups if one["logGroupName"] == group), None)
        found.append(Remain(f"log lines in {group}", None if days is None else now + days * _DAY_MS))
    return found


def _last_report(aws: "Aws", deployed: "DeployedPipeline", forgetting: Forgetting) -> list[Remain]:
    item = reading.read_item(aws.dynamodb, deployed, reading.audit_key(deployed))
    named = forgetting.finds_key(str(item.get("last_report", "")))
    return [Remain("the last report of the audit in the table, until the next run")] if named else []


def _backups(aws: "Aws", deployed: "DeployedPipeline", now: int) -> list[Remain]:
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
