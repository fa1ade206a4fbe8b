"""The run of a bucket's audit: one item of the table keeps runs from overlapping, and says when the next one is due.

      take: condition lease_until <= now, and next_run_at <= now where only a run that is due may begin
      ┌───────────────┐
    free ───► held until lease_until ───► finish: the report, and when the next run is due
      ▲                 └───► give_back: after an error, the next tick begins anew
      └── the lease of an invocation that died runs out

The item's partition key is the bucket alone, which no object's row can have.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from intake_ledger.audit.report import SOON, Report, Stopped, within
from intake_ledger.ledger import condition_failed, from_dynamodb
from intake_ledger.protocol import AuditSettings, truncate

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

KEPT_FINDINGS = 20
"""How many findings the item names: each write of it costs a unit for every kilobyte. The log has a hundred."""
KEPT_BYTES = 30_000
"""How long each other list of texts in the item may be as JSON."""
MOST_REPEATS = 4
"""Runs in a row that the next tick follows with another one, since time ran out or SQS refused messages. After these
the interval counts again.
"""
_EARLY_SECONDS = 60
"""A schedule does not tick to the second: a run is due this much before its time."""
_BACKFILL_SHARE = 0.9
"""Share of the ledger's retention that a backfill may take."""
_OF_FORMER_RELEASES = ("checkpoint", "store_ms")


def next_at(started_at: int, every_seconds: int) -> int:
    """When the run after the one that started then is due, in epoch milliseconds."""
    return started_at + (every_seconds - _EARLY_SECONDS) * 1000


class NotNow(Exception):  # noqa: N818 - an answer, not an error
    """There is nothing to do for this invocation; the text says why."""


class LostRun(Exception):  # noqa: N818 - the protocol's own word would be `Fenced`
    """Another invocation has taken the run over: this one outlived its lease."""


class AuditRuns:
    """Takes the run and gives it back. `clock` gives epoch milliseconds; `owner` is this invocation's own name."""

    def __init__(
        self,
        client: "DynamoDBClient",
        table: str,
        *,
        bucket: str,
        pipeline: str,
        clock: Callable[[], int],
        owner: str,
    ) -> None:
        self._client = client
        self._table = table
        self._key = {"pk": {"S": bucket}, "sk": {"S": f"{pipeline}@audit"}}
        self._clock = clock
        self._owner = owner
        self._content: Mapping[str, Any] = {}

    def since(self) -> int:
        """When this pipeline's first run began, in epoch milliseconds; now, if there was none yet."""
        answer = self._client.get_item(TableName=self._table, Key=self._key, ConsistentRead=True)
        self._content = from_dynamodb(answer.get("Item", {}))
        return int(self._content.get("first_run_at", self._clock()))

    def take(self, *, lease_ms: int, only_if_due: bool) -> int:
        """Hold the run for `lease_ms` milliseconds. The same owner may take it again.

        Returns:
            When this pipeline's first run began, in epoch milliseconds.

        Raises:
            NotNow: Another invocation holds it, or, with `only_if_due`, no run is due yet.

        """
        free = "(attribute_not_exists(#lease_until) OR #lease_until <= :now OR #lease_owner = :owner)"
        due = " AND (attribute_not_exists(#next_run_at) OR #next_run_at <= :now)" if only_if_due else ""
        now = self._clock()
        try:
            self._content = self._update(
                "SET #lease_until = :until, #lease_owner = :owner, #first_run_at = if_not_exists(#first_run_at, :now)",
                {":until": now + lease_ms, ":owner": self._owner, ":now": now},
                condition=free + due,
            )
        except LostRun:
            raise NotNow("another run is at work, or none is due yet") from None
        return int(self._content["first_run_at"])

    def backfill(self, settings: AuditSettings) -> tuple[bool, list[str]]:
        """Whether the run that was taken is a backfill, and problems of the backfill.

        The rows of the first objects expire after the retention. A backfill that took longer would process these again,
        so it is given up before.
        """
        if not settings.backfills or "backfilled_at" in self._content:
            return False, []
        begun_at, days = self._content.get("backfill_begun_at"), settings.retention_seconds * _BACKFILL_SHARE / 86_400
        if begun_at is None or settings.keeps_rows or self._clock() - begun_at < days * 86_400_000:
            return True, []
        problem = (
            f"the backfill was given up after {days:.0f} days, since its first rows expire soon: raise backfill_rate "
            f"or the ledger's retention, and remove backfill_begun_at from the item {self._key['sk']['S']}"
        )
        return False, [problem]

    def finish(self, report: Report, *, every_seconds: int | None, backfill: bool = False) -> None:
        """Give the run back with its report. `every_seconds` is the time to the next one; None leaves that as it was.
        `backfill`: it was one.

        Raises:
            LostRun: Another invocation has taken the run over.

        """
        repeats = self._content.get("repeats", 0) + 1 if report.stopped in SOON else 0
        values: dict[str, int | str] = {":last_report": json.dumps(self._kept(report)), ":repeats": repeats}
        if backfill:
            values[":backfill_begun_at"] = self._content.get("backfill_begun_at", report.started_at)
        if backfill and report.complete:
            values[":backfilled_at"] = self._clock()
        # What was left to a backlog is looked at again as soon as that may be gone.
        if report.held or report.stopped is Stopped.MORE or 0 < repeats <= MOST_REPEATS:
            values[":next_run_at"] = 0
        elif every_seconds is not None:
            values[":next_run_at"] = next_at(report.started_at, every_seconds)
        self._give_back(values)

    def give_back(self) -> None:
        """Let others have the run after an error.

        Raises:
            LostRun: Another invocation has taken the run over.

        """
        self._give_back({})

    def _kept(self, report: Report) -> dict[str, object]:
        """The report for those who ask how the last run went, small enough for the item."""
        content = report.as_json(self._clock())
        content["findings"] = content["findings"][:KEPT_FINDINGS]
        for name in ("delivery", "unfinished"):
            content[name] = within(content[name], KEPT_BYTES)
        content["summary"] = truncate(content["summary"], KEPT_BYTES // 6)
        return content

    def _give_back(self, values: Mapping[str, int | str]) -> None:
        set_ = "SET " + ", ".join(f"#{name[1:]} = {name}" for name in values) if values else ""
        gone = ", ".join(f"#{name}" for name in ("lease_until", "lease_owner", *_OF_FORMER_RELEASES))
        self._update(f"{set_} REMOVE {gone}", {**values, ":own": self._owner}, condition="#lease_owner = :own")

    def _update(self, expression: str, values: Mapping[str, int | str], *, condition: str = "") -> dict[str, Any]:
        names = re.findall(r"#(\w+)", f"{expression} {condition}")
        request: Any = {
            "UpdateExpression": expression,
            "ExpressionAttributeNames": {f"#{name}": name for name in names},
            "ExpressionAttributeValues": {
                name: {"N": str(value)} if isinstance(value, int) else {"S": value} for name, value in values.items()
            },
        }
        if condition:
            request["ConditionExpression"] = condition
        try:
            answer = self._client.update_item(TableName=self._table, Key=self._key, ReturnValues="ALL_NEW", **request)
        except ClientError as error:
            if not condition_failed(error):
                raise
            raise LostRun("another invocation has taken the run over") from None
        return from_dynamodb(answer["Attributes"])
