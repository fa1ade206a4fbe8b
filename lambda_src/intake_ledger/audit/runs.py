"""Keeps the runs of a pipeline's audit from overlapping, and says when the next one is due. One item has the state.

      take: condition lease_until <= now, and next_run_at <= now for a run of the schedule
      ┌───────────────┐
    free ───► held until lease_until ───► finish: the report, and the time of the next run
      ▲                 └───► give_back: after an error, the next tick begins another run
      └── the lease of an invocation that died expires

The item's partition key is the bucket's name. No row has such a key.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from intake_ledger.audit.report import SOON, Report, Stopped, within
from intake_ledger.ledger.dynamodb_table import condition_failed
from intake_ledger.protocol.row import from_dynamodb, truncate
from intake_ledger.protocol.settings_audit import AuditSettings

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

KEPT_FINDINGS = 20
"""Findings that the item names, since a write costs a unit for each kilobyte. The log has `NAMED_FINDINGS`."""
KEPT_BYTES = 30_000
"""Length limit of each other list of texts in the item, in bytes of JSON."""
MOST_REPEATS = 4
"""Runs in a row that are repeated at the next tick, since time ran out or SQS refused messages. Then the interval
counts again.
"""
_EARLY_SECONDS = 60
"""A run is due this much before its time, since a schedule is not exact to the second."""
_BACKFILL_SHARE = 0.9
"""Share of the ledger's retention that a backfill may take."""
_NO_VALUES: Mapping[str, int | str] = {}


class RunNotDue(Exception):  # noqa: N818 - an answer, not an error
    """Nothing to do for this invocation. The text gives the reason."""


class RunLeaseLost(Exception):  # noqa: N818 - as above
    """The invocation's lease has expired, and another one has taken the run over."""


class AuditRuns:
    """Takes the run and gives it back. `clock` gives epoch milliseconds. `owner` is unique to the invocation."""

    def __init__(
        self, client: "DynamoDBClient", settings: AuditSettings, *, clock: Callable[[], int], owner: str
    ) -> None:
        self._client = client
        self._table = settings.table
        self._key = {"pk": {"S": settings.bucket}, "sk": {"S": f"{settings.pipeline}@audit"}}
        self._clock = clock
        self._owner = owner
        self._content: Mapping[str, Any] = {}

    def since(self) -> int:
        """The start of this pipeline's first run in epoch milliseconds. The current time if there was no run yet."""
        answer = self._client.get_item(TableName=self._table, Key=self._key, ConsistentRead=True)
        self._content = from_dynamodb(answer.get("Item", {}))
        return int(self._content.get("first_run_at", self._clock()))

    @property
    def began(self) -> bool:
        """True if `since` has found an earlier run."""
        return "first_run_at" in self._content

    def take(self, *, lease_ms: int, only_if_due: bool) -> int:
        """Hold the run for `lease_ms` milliseconds. The same owner may take it again.

        Returns:
            The start of this pipeline's first run, in epoch milliseconds.

        Raises:
            RunNotDue: Another invocation holds it, or, with `only_if_due`, no run is due yet.

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
        except RunLeaseLost:
            raise RunNotDue("another run is at work, or none is due yet") from None
        return int(self._content["first_run_at"])

    def backfill(self, settings: AuditSettings) -> tuple[bool, list[str]]:
        """True if the run is a backfill, and problems of the backfill.

        The rows of the first objects expire after the retention. A backfill stops before, since it would process these
        objects again.
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
        """Give the run back with its report.

        Args:
            report: The report of the run.
            every_seconds: Seconds from this run to the next one. None changes nothing.
            backfill: True if the run was a backfill.

        Raises:
            RunLeaseLost: Another invocation has taken the run over.

        """
        repeats = self._content.get("repeats", 0) + 1 if report.stopped in SOON else 0
        values: dict[str, int | str] = {":last_report": json.dumps(self._kept(report)), ":repeats": repeats}
        if backfill:
            values[":backfill_begun_at"] = self._content.get("backfill_begun_at", report.started_at)
        if backfill and report.complete:
            values[":backfilled_at"] = self._clock()
        # A run that waits for the backlog, or has more to send, is repeated at the next tick.
        if report.held or report.stopped is Stopped.MORE or 0 < repeats <= MOST_REPEATS:
            values[":next_run_at"] = 0
        elif every_seconds is not None:
            values[":next_run_at"] = report.started_at + (every_seconds - _EARLY_SECONDS) * 1000
        self.give_back(values)

    def give_back(self, values: Mapping[str, int | str] = _NO_VALUES) -> None:
        """Release the lease, and set these values of the item. Without values the run failed.

        Raises:
            RunLeaseLost: Another invocation has taken the run over.

        """
        set_ = "SET " + ", ".join(f"#{name[1:]} = {name}" for name in values) if values else ""
        self._update(
            f"{set_} REMOVE #lease_until, #lease_owner",
            {**values, ":own": self._owner},
            condition="#lease_owner = :own",
        )

    def _kept(self, report: Report) -> dict[str, object]:
        """The report as the item has it, short enough for an item."""
        content = report.as_json(self._clock())
        content["findings"] = content["findings"][:KEPT_FINDINGS]
        for name in ("delivery", "unfinished"):
            content[name] = within(content[name], KEPT_BYTES)
        content["summary"] = truncate(content["summary"], KEPT_BYTES // 6)
        return content

    def _update(self, expression: str, values: Mapping[str, int | str], *, condition: str) -> dict[str, Any]:
        names = re.findall(r"#(\w+)", f"{expression} {condition}")
        request: Any = {
            "UpdateExpression": expression,
            "ExpressionAttributeNames": {f"#{name}": name for name in names},
            "ExpressionAttributeValues": {
                name: {"N": str(value)} if isinstance(value, int) else {"S": value} for name, value in values.items()
            },
            "ConditionExpression": condition,
        }
        try:
            answer = self._client.update_item(TableName=self._table, Key=self._key, ReturnValues="ALL_NEW", **request)
        except ClientError as error:
            if not condition_failed(error):
                raise
            raise RunLeaseLost("another invocation has taken the run over") from None
        return from_dynamodb(answer["Attributes"])
