"""The executions of a durable Lambda function that is the pipeline's processor."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from botocore.exceptions import ClientError

from intake_ledger.executions.decide import Execution, execution_name
from intake_ledger.executions.durable_function import DurableFunction
from intake_ledger.protocol.row import Row, RowKey
from intake_ledger.protocol.settings_durable import DurableSettings
from intake_ledger_cli.errors import CliError

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

_HISTORY = 20
"""Events that are read for the last step. One step has two events, and each invocation has one."""


class DurableExecutions:
    """See `Executions` in `executions.py`."""

    def __init__(self, client: "LambdaClient", settings: DurableSettings, table: str) -> None:
        """Take the client of Lambda, the settings of the consumer and the name of the ledger's table.

        Raises:
            CliError: boto3 does not know durable executions.

        """
        if not hasattr(client, "list_durable_executions_by_function"):
            import boto3  # noqa: PLC0415 - for the message

            raise CliError(f"boto3 {boto3.__version__} knows no durable functions: install 1.42.1 or a later release")
        self._client: Any = client
        self._settings = settings
        self._place = DurableFunction(lambda: cast("Any", client), settings, table, lambda: time.time_ns() // 1_000_000)

    def started(self) -> Iterator[tuple[str, int]]:
        """The executions of each published version, since those of former versions run on after a deployment."""
        function, _, _ = self._settings.function.rpartition(":")
        pages = self._client.get_paginator("list_versions_by_function").paginate(FunctionName=function)
        versions = [one["Version"] for page in pages for one in page["Versions"] if one["Version"] != "$LATEST"]
        found = []
        for version in versions:
            request = {"FunctionName": function, "Qualifier": version, "Statuses": ["RUNNING"]}
            for page in self._client.get_paginator("list_durable_executions_by_function").paginate(**request):
                found += page["DurableExecutions"]
        found.sort(key=lambda one: one["StartTimestamp"], reverse=True)
        for one in found:
            yield one["DurableExecutionArn"], int(one["StartTimestamp"].timestamp() * 1000)

    def aborted(self, since: int) -> Iterator[tuple[str, int]]:  # noqa: ARG002 - see `Executions`
        """None: Lambda lists them for each version, which takes too many requests."""
        return iter(())

    def given(self, arn: str) -> str:
        """The input of an execution."""
        return str(self._client.get_durable_execution(DurableExecutionArn=arn).get("InputPayload") or "{}")

    def last_step(self, arn: str) -> str | None:
        """Return the last named operation, such as `approve (callback started)`. None if the history has none."""
        try:
            answer = self._client.get_durable_execution_history(
                DurableExecutionArn=arn, IncludeExecutionData=False, MaxItems=_HISTORY, ReverseOrder=True
            )
        except ClientError as error:
            if error.response["Error"].get("Code") != "ResourceNotFoundException":
                raise
            return None
        for event in answer["Events"]:
            if event.get("Name") and not event["EventType"].startswith(("Execution", "Invocation")):
                return f"{event['Name']} ({_words(event['EventType'])})"
        return None

    def of_row(self, place: RowKey, row: Row) -> str:
        """The ARN of the execution of a row's claim, or its name if Lambda has not told the ARN."""
        name = self._place.name_of(execution_name(place, row.fence))
        _, _, arn = (row.execution or "").partition(" ")
        return arn if f"/{name}/" in arn else name

    def describe(self, place: RowKey, row: Row) -> Execution | None:
        """See `Executions`. QUEUED: Lambda may still begin it."""
        return self._place.describe(execution_name(place, row.fence), row.execution)


def _words(event_type: str) -> str:
    """`callback started` for `CallbackStarted`."""
    return "".join(f" {one.lower()}" if one.isupper() else one for one in event_type).strip()
