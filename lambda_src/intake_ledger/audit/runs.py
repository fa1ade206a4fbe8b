"""Runs never overlap, and one that stops half-way is finished by the next invocation: one item in the ledger's table.

    free ──► held (lease) ──► free, with a checkpoint     stopped: the next invocation goes on there
      ▲                 └───► free, without               complete: the next run is due after the interval
      └── the lease of an invocation that died runs out, its last checkpoint stands

The item's partition key is the bucket alone, which no object's row can have. The filters of what was read and listed
lie beside it, in parts.
"""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from intake_ledger.audit.known import Known
from intake_ledger.audit.progress import Progress, progress_of
from intake_ledger.audit.report import Report, report_of, within
from intake_ledger.audit.shown import PARTS, Shown
from intake_ledger.rows import cut
from intake_ledger.table import condition_failed, plain

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

CHECKPOINT_MS = 120_000
"""How much work a death may cost at most, in milliseconds."""
KEPT_FINDINGS = 20
"""How many findings the item names: each write of it costs a unit for every kilobyte. The log has a hundred."""
KEPT_BYTES = 30_000
"""How long each other list of texts in the item may be as JSON."""
_LAST_MS = 5_000
"""How much of an invocation's time is left for its end when it gives a checkpoint up, in milliseconds."""
_NO_LIMIT = 2**40
_KEPT_SECONDS = 40 * 86_400


_EARLY_SECONDS = 60
"""A schedule does not tick to the second: a run is due this much before its time."""


def next_at(started_at: int, every_seconds: int) -> int:
    """When the run after the one that started then is due, in epoch milliseconds."""
    return started_at + (every_seconds - _EARLY_SECONDS) * 1000


class NotNow(Exception):  # noqa: N818 - an answer, not an error
    """There is nothing to do for this invocation; the text says why."""


class _TooSlow(Exception):  # noqa: N818 - an answer, not an error
    """There is no time left to store all parts of a filter."""


class LostRun(Exception):  # noqa: N818 - the protocol's own word would be `Fenced`
    """Another invocation has taken the run over: this one outlived its lease."""


@dataclass(slots=True)
class Held:
    """The right to go on with the run. `since` is when this pipeline's first run began, in epoch milliseconds."""

    progress: Progress
    since: int


class AuditRuns:
    """Takes, stores and gives back the run. `clock` gives epoch milliseconds; `owner` is this invocation's own name."""

    def __init__(
        self,
        client: "DynamoDBClient",
        table: str,
        *,
        bucket: str,
        pipeline: str,
        clock: Callable[[], int],
        owner: str,
        new_salt: Callable[[], bytes],
    ) -> None:
        self._client = client
        self._table = table
        self._bucket = bucket
        self._name = f"{pipeline}@audit"
        self._clock = clock
        self._owner = owner
        self._new_salt = new_salt
        self._saved_at = 0
        self._done: dict[str, Any] = {}
        self._known_is_stored = self._shown_is_stored = False
        self._parts_of_rows: list[int] = []
        self._stored: dict[str, Any] | None = None
        self._store_ms = self._slowest_part_ms = 0
        self._time_ms = _NO_LIMIT
        self._remaining_ms: Callable[[], int] = lambda: _NO_LIMIT

    def fresh(self) -> Progress:
        """A run that has not begun, and that nobody else knows of."""
        now = self._clock()
        return Progress(Report(str(now), now), Known(self._new_salt()), Shown(self._new_salt()))

    def since(self) -> int:
        """When this pipeline's first run began, in epoch milliseconds; now, if there was none yet."""
        answer = self._client.get_item(TableName=self._table, Key=self._key(), ConsistentRead=True)
        return int(plain(answer.get("Item", {})).get("first_run_at", self._clock()))

    def begin(self) -> int:
        """When this pipeline's first run began, in epoch milliseconds; if there was none yet, that is now, for good."""
        answer = self._client.update_item(
            TableName=self._table,
            Key=self._key(),
            UpdateExpression="SET #first_run_at = if_not_exists(#first_run_at, :now)",
            ExpressionAttributeNames={"#first_run_at": "first_run_at"},
            ExpressionAttributeValues={":now": {"N": str(self._clock())}},
            ReturnValues="ALL_NEW",
        )
        return int(plain(answer["Attributes"])["first_run_at"])

    def reserve_ms(self) -> int:
        """How much earlier than otherwise the run has to stop, in milliseconds, so that its last checkpoint is stored
        in time: twice as long as the one before took. Never more than half of the invocation, so that each one does
        some work.
        """
        return min(2 * self._store_ms, self._time_ms // 2)

    def take(self, *, lease_ms: int, only_if_due: bool, remaining_ms: Callable[[], int] = lambda: _NO_LIMIT) -> Held:
        """Hold the run for `lease_ms` milliseconds: the one that was stopped, or else a fresh one. Whoever asks again
        under the same name holds it already. A checkpoint that takes longer than `remaining_ms()` is given up.

        Raises:
            NotNow: Another invocation holds it, or, with `only_if_due`, no run is due yet.

        """
        now = self._clock()
        free = "attribute_not_exists(#lease_until) OR #lease_until <= :now OR #lease_owner = :owner"
        due = " AND (attribute_not_exists(#next_run_at) OR #next_run_at <= :now)" if only_if_due else ""
        try:
            answer = self._client.update_item(
                TableName=self._table,
                Key=self._key(),
                UpdateExpression="SET #lease_until = :until, #lease_owner = :owner,"
                " #first_run_at = if_not_exists(#first_run_at, :now)",
                ConditionExpression=f"({free}){due}",
                ExpressionAttributeNames={
                    "#lease_until": "lease_until",
                    "#lease_owner": "lease_owner",
                    "#first_run_at": "first_run_at",
                }
                | ({"#next_run_at": "next_run_at"} if due else {}),
                ExpressionAttributeValues={
                    ":until": {"N": str(now + lease_ms)},
                    ":owner": {"S": self._owner},
                    ":now": {"N": str(now)},
                },
                ReturnValues="ALL_NEW",
            )
        except ClientError as error:
            if not condition_failed(error):
                raise
            raise NotNow("another run is at work, or none is due yet") from None
        content = plain(answer["Attributes"])
        self._time_ms, self._remaining_ms = remaining_ms(), remaining_ms
        self._store_ms = content.get("store_ms", 0)
        progress = self._resumed(content) or self.fresh()
        self._saved_at, self._done = now, self._snapshot(progress)
        return Held(progress, content["first_run_at"])

    def done(self, progress: Progress) -> None:
        """Note that everything up to here is done, and store it every two minutes."""
        self._done = self._snapshot(progress)
        if self._clock() - self._saved_at >= CHECKPOINT_MS:
            self._store(progress)

    def keep(self, report: Report) -> None:
        """Leave the report of this invocation in the item, for whoever asks how the last one went."""
        content = report.as_json(self._clock())
        content["findings"] = content["findings"][:KEPT_FINDINGS]
        for name in ("delivery", "unfinished"):
            content[name] = within(content[name], KEPT_BYTES)
        content["summary"] = cut(content["summary"], KEPT_BYTES // 6)
        self._write("SET #last_report = :last_report", {":last_report": json.dumps(content)})

    def stop(self, progress: Progress, *, due_at: int | None, anew: bool) -> None:
        """Give the run back where it is. `due_at` is when it is to be continued; None leaves that as it was. `anew`: a
        report, and a budget, of its own.
        """
        # A page that was not finished is judged again. Its messages were sent, and the budget is one of the run.
        self._done["refused"] = progress.refused
        self._done["report"]["resubmitted"] = progress.report.resubmitted
        self._store(progress, anew=anew)
        self._give_back(due_at)

    def finish(self, *, due_at: int | None) -> None:
        """Give the run back: it is complete. `due_at` is when the next one is due; None leaves that as it was."""
        self._give_back(due_at, "#checkpoint")

    def give_back(self) -> None:
        """Let others have the run after an error; its last checkpoint stands."""
        self._give_back(None)

    def _snapshot(self, progress: Progress) -> dict[str, Any]:
        # A copy: what the report counts after this is done again by whoever goes on here.
        content = copy.deepcopy(progress.as_json(self._clock()))
        # Each invocation finds these again.
        content["report"] |= {"delivery": [], "unfinished": [], "summary": ""}
        return content

    def _give_back(self, due_at: int | None, *more: str) -> None:
        gone = "REMOVE " + ", ".join(("#lease_until", "#lease_owner", *more))
        if due_at is None:
            self._write(gone, {})
        else:
            self._write(f"SET #next_run_at = :next_run_at {gone}", {":next_run_at": due_at})

    def _store(self, progress: Progress, *, anew: bool = False) -> None:
        """Store all up to the last call of `done`. If there is no time for it, the last checkpoint stands."""
        # The last page may have been stored already.
        if self._stored is not self._done:
            begun_at = self._clock()
            try:
                self._store_filters(progress)
                self._stored = self._done
            except _TooSlow:
                pass
            self._saved_at = self._clock()
            # The next invocation begins its last checkpoint earlier, also where this one is given up.
            self._store_ms = self._saved_at - begun_at
            self._write("SET #store_ms = :store_ms", {":store_ms": self._store_ms})
        if self._stored is self._done:
            content = self._done | {"anew": anew, "rows": self._parts_of_rows}
            self._write("SET #checkpoint = :checkpoint", {":checkpoint": json.dumps(content)})

    def _store_filters(self, progress: Progress) -> None:
        # Before the checkpoint: they may know more than the checkpoint, never less.
        if not self._known_is_stored:
            parts_of_rows = self._store_filter("rows", progress.known.rows)
            self._store_filter("settled", progress.known.settled)
            self._parts_of_rows = parts_of_rows
            # Once all rows are read, it stays as it is.
            self._known_is_stored = progress.known.complete
        if not self._shown_is_stored:
            self._store_filter("shown", progress.shown)
            self._shown_is_stored = progress.listed

    def _store_filter(self, name: str, content: Shown) -> list[int]:
        """Store what is not empty of a filter, and say which parts those are."""
        expires_at, stored = self._clock() // 1000 + _KEPT_SECONDS, []
        for number, part in content.parts():
            begun_at = self._clock()
            if self._remaining_ms() < _LAST_MS + self._slowest_part_ms:
                raise _TooSlow
            self._client.put_item(
                TableName=self._table,
                Item={
                    **self._key(f"#{name}#{number}"),
                    "salt": {"S": content.salt.hex()},
                    "part": {"B": part},
                    "expires_at": {"N": str(expires_at)},
                },
            )
            self._slowest_part_ms = max(self._slowest_part_ms, self._clock() - begun_at)
            stored.append(number)
        return stored

    def _resumed(self, content: Mapping[str, Any]) -> Progress | None:
        """The run that was stopped, if there is one."""
        if "checkpoint" not in content:
            return None
        stored = json.loads(content["checkpoint"])
        if not stored["anew"] and "lines" not in stored["report"]:
            # A release that did not count each state in a line has begun it: nobody knows the lines of its states.
            return None
        fresh = self.fresh()
        progress = progress_of(stored, fresh.report if stored["anew"] else report_of(stored["report"]))
        self._restore("shown", progress.shown)
        self._shown_is_stored = progress.listed
        # What a release before this one stored does not say of which parts it is.
        parts: list[int] | None = stored.get("rows")
        # A loss would stay unnoticed where a part of the rows is missing: nobody asks about a key without one.
        if stored["anew"] or parts is None or not self._restore("rows", progress.known.rows).issuperset(parts):
            # Or it may be an interval later: what the ledger has committed is read anew.
            progress.known = fresh.known
        else:
            self._restore("settled", progress.known.settled)
            self._known_is_stored, self._parts_of_rows = progress.known.complete, parts
        return progress

    def _restore(self, name: str, content: Shown) -> set[int]:
        """Add what was stored of a filter, and say which parts those are."""
        restored = set()
        for number in range(PARTS):
            key = self._key(f"#{name}#{number}")
            item = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True).get("Item", {})
            # Another salt is another run's: this one had nothing there.
            if item.get("salt", {}).get("S") == content.salt.hex():
                content.restore(number, bytes(item["part"]["B"]))
                restored.add(number)
        return restored

    def _write(self, expression: str, values: Mapping[str, int | str]) -> None:
        names = ("checkpoint", "store_ms", "lease_until", "lease_owner", "next_run_at", "last_report")
        try:
            self._client.update_item(
                TableName=self._table,
                Key=self._key(),
                UpdateExpression=expression,
                ConditionExpression="#lease_owner = :own",
                ExpressionAttributeNames={
                    f"#{name}": name for name in names if f"#{name}" in expression or name == "lease_owner"
                },
                ExpressionAttributeValues={":own": {"S": self._owner}}
                | {n: {"N": str(v)} if isinstance(v, int) else {"S": v} for n, v in values.items()},
            )
        except ClientError as error:
            if not condition_failed(error):
                raise
            raise LostRun("another invocation has taken the run over") from None

    def _key(self, part: str = "") -> dict[str, Any]:
        return {"pk": {"S": self._bucket}, "sk": {"S": f"{self._name}{part}"}}
