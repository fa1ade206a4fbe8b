"""The audit in parts, for buckets beyond one function: each step of the state machine is one call of this.

    plan ──► list shard 0..m, scan segment 0..n ──► join ──► look at candidates 0..k ──► finish
             side by side, each writes Parquet      nominates     judges, resubmits      one report, the metrics

`AuditInParts` has every step but the join. That is `join_parts`, which needs nothing but the run's own files: its
function has more memory and fewer permissions.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import batched
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

from botocore.exceptions import ClientError

from intake_ledger.audit.compare import STOP_BEFORE_MS, Audit, Seen
from intake_ledger.audit.diff import Line, Window
from intake_ledger.audit.inventory import File, Inventory, InventoryError, Location, Manifest, overdue
from intake_ledger.audit.join import MOST_CANDIDATES, Candidate, Join, Slice, held_row, listed_row, slice_name, write
from intake_ledger.audit.known import Known
from intake_ledger.audit.listing import Listing, Place
from intake_ledger.audit.progress import Progress
from intake_ledger.audit.report import CONTINUED, Pass, Report, Stopped, few_passes, report_of, summed
from intake_ledger.audit.runs import CHECKPOINT_MS, AuditRuns, LostRun, next_at
from intake_ledger.audit.scratch import Scratch
from intake_ledger.audit.shards import Shard, cut
from intake_ledger.audit.shown import Shown
from intake_ledger.audit.sources import FileListing, Looks, ShardListing
from intake_ledger.audit.table import AuditTable
from intake_ledger.bucket import Bucket
from intake_ledger.rows import Ordering, RowKey
from intake_ledger.settings import AuditSettings
from intake_ledger.states import State, StateKind
from intake_ledger.table import BATCH_GET_KEYS, LedgerTable, condition_failed

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

LOOKS_FOR_A_SHARD = 14
LEAST_LOOKS = 200
"""The common part of all keys is passed a letter at a time. For dated folders and numbers that takes some 90 looks
before the first cut: few shards would never be found.
"""
MOST_LOOKS = 3_000
"""Each takes some 0.15 s: half of the time that the planner has."""
SLICE_ROWS = 1_000_000
"""Rows of one Parquet file. Writing it takes a few seconds, less than the stop margin."""
SLICE_TEXT = 100_000_000
"""Characters of the keys of one file. JSON needs up to six bytes for one, and the function has 4 GB of disk."""
CHUNK = 5_000
"""Candidates for one look, each with a HEAD, a read and perhaps a mark: some four minutes."""
KEPT_SECONDS = 14 * 86_400
"""Retention of the count of a run's messages."""
LISTED, HELD, CANDIDATES, LOOKED = "listed", "held", "candidates", "looked"
PLAN, JOINED = "plan.json", "joined.json"
"""Names of a run's files."""
_RANDOM = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class Judgement:
    """The window of a run, whether it may send messages, and a reason if it may not."""

    window: Window
    resubmit: bool
    held: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Clients and settings of an invocation. `clock` gives epoch milliseconds; `judge` takes the time of the pipeline's
    first run.
    """

    settings: AuditSettings
    s3: "S3Client"
    sqs: "SQSClient"
    dynamodb: "DynamoDBClient"
    clock: Callable[[], int]
    new_salt: Callable[[], bytes]
    judge: Callable[[int], Judgement]
    delivery: Callable[[], list[str]]
    scratch: str
    """The bucket of the run's files."""


class AuditInParts:
    """One run, under the name that the state machine gives to it."""

    def __init__(self, tools: Tools, run: str) -> None:
        settings = tools.settings
        self._tools = tools
        self._settings = settings
        self._run = run
        self._listing = Listing(tools.s3, settings)
        self._scratch = Scratch(tools.s3, tools.scratch, run)
        self._runs = AuditRuns(
            tools.dynamodb,
            settings.table,
            bucket=settings.bucket,
            pipeline=settings.pipeline,
            clock=tools.clock,
            owner=run,
            new_salt=tools.new_salt,
        )

    def plan(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Begin a run and divide it; the names of its parts come back.

        Raises:
            NotNow: There is nothing to do.
            InventoryError: No report can be used.

        """
        asked, now = event["input"], self._tools.clock()
        report = Report(str(now), now, dry_run=bool(asked.get("dryRun")))
        every = asked.get("everySeconds")
        if report.dry_run:
            since = self._runs.since()
        else:
            since = self._runs.take(lease_ms=event["leaseSeconds"] * 1000, only_if_due=every is not None).since
        try:
            report.delivery = self._tools.delivery()
            manifest, shares = self._divide(event)
            if manifest is not None:
                report.delivery += overdue(manifest, now)
            about: dict[str, Any] = {
                "report": report.as_json(now),
                "since": since,
                "everySeconds": every,
                "segments": event["segments"],
                "inventory": event.get("inventory"),
                "manifest": asdict(replace(manifest, files=())) if manifest else None,
                "deletes": self._settings.deletes,
                "shares": shares,
            }
            about["window"] = asdict(self._judge(about).window)
            self._scratch.put(PLAN, about)
        except Exception:
            if not report.dry_run:
                self._runs.give_back()
            raise
        # Segments take longest.
        shards = [part_name(LISTED, number) for number in _order(shares)]
        return {"run": self._run, "parts": [*segments(about), *shards]}

    def write(self, event: Mapping[str, Any], remaining_ms: Callable[[], int]) -> dict[str, Any]:
        """List or scan some of a part, from `after` on, into the file of one slice; say where the next one begins."""
        part, number, start = event["part"], event["slice"], event["after"]
        with TemporaryDirectory(prefix="audit-") as folder:
            path = Path(folder, f"{slice_name(part, number)}.parquet")
            try:
                after = self._write(path, part, start, remaining_ms)
            except InventoryError as refused:
                # To try again would not change it: the join says so.
                self._scratch.put(f"{part}.refused", str(refused))
                after = ""
            else:
                self._scratch.upload(path)
        return {**event, "slice": number + 1, "after": after, "done": not after}

    def _write(self, path: Path, part: str, start: str, remaining_ms: Callable[[], int]) -> str:
        about = self._scratch.get(PLAN)
        listed = relation_of(part) == LISTED
        pages = self._listed(about, part, start, path.parent) if listed else self._held(about, part, start)
        clock = self._tools.clock
        begun_at, written, read, later, after = clock(), 0, 0, 0, start

        def content() -> Iterator[Sequence[Any]]:
            nonlocal written, read, later, after
            text = 0
            for page in pages:
                yield from page.rows
                written, read, later = written + len(page.rows), read + page.read, later + page.later_format
                after = page.after
                text += sum(len(row[0]) for row in page.rows)
                if written >= SLICE_ROWS or text >= SLICE_TEXT or remaining_ms() < STOP_BEFORE_MS:
                    break

        write(path, relation_of(part), content(), lambda: Slice(start, after, read, written, later, begun_at, clock()))
        return after

    def _listed(self, about: Mapping[str, Any], part: str, start: str, folder: Path) -> Iterator["_Rows"]:
        settings = self._settings
        what = about["shares"][number_of(part)]
        source: ShardListing | FileListing
        if about["manifest"] is None:
            source = ShardListing(self._listing, Shard(**what))
        else:
            stored = about["manifest"]
            manifest = Manifest(**(stored | {name: tuple(stored[name]) for name in ("columns", "files")}))
            every = settings.ordering is Ordering.EVERY_VERSION
            source = FileListing(self._inventory(about["inventory"]), manifest, File(**what), folder, every=every)
        for page in source.pages(Place(**json.loads(start)) if start else None):
            wanted = [listed_row(key, state, settings) for key, state in page.states if settings.wants(key)]
            yield _Rows(wanted, json.dumps(asdict(page.after)) if page.after else "", len(page.states))

    def _held(self, about: Mapping[str, Any], part: str, start: str) -> Iterator["_Rows"]:
        settings = self._settings
        table = AuditTable(self._tools.dynamodb, settings.table, (number_of(part), about["segments"]))
        ours = f"{settings.bucket}/"
        place = RowKey(**json.loads(start)) if start else None
        for page in table.held(settings.pipeline, settings.ordering, place):
            keys = [(row.row_key.pk.removeprefix(ours), row) for row in page.rows if row.row_key.pk.startswith(ours)]
            wanted = [held_row(key, row, settings) for key, row in keys if settings.wants(key)]
            after = json.dumps(asdict(page.after)) if page.after else ""
            yield _Rows(wanted, after, len(page.rows), page.later_format)

    def look(self, event: Mapping[str, Any], remaining_ms: Callable[[], int]) -> dict[str, Any]:
        """Look at some of the candidates, and resubmit the lost ones."""
        about, name = self._scratch.get(PLAN), part_name(LOOKED, event["part"])
        saved_at = now = self._tools.clock()
        begun = Report(about["report"]["runId"], now, about["report"]["dryRun"]).as_json(now)
        done = self._scratch.get(name) or {"report": begun, "at": 0, "refused": 0, "delivery": []}
        report = report_of(done["report"])
        report.delivery = done["delivery"]
        progress = Progress(report, Known(b""), Shown(b""), refused=done["refused"])
        # Candidates that S3 has shown have separate lines.
        candidates = [candidate_of(one) for one in self._scratch.get(part_name(CANDIDATES, event["part"]))]
        candidates.sort(key=lambda one: one.shown)
        judged, audit, stopped = self._judge(about), self._audit(), None
        report.held = judged.held or report.held
        done["report"] = report.as_json(now)
        while not stopped and done["at"] < len(candidates):
            few = candidates[done["at"] : done["at"] + BATCH_GET_KEYS]
            few = [one for one in few if one.shown == few[0].shown]
            stopped = audit.look(
                self._seen(few),
                progress,
                report.lines if few[0].shown else report.unlisted,
                judged.window,
                resubmit=judged.resubmit and not report.dry_run,
                remaining_ms=remaining_ms,
                allow=self._allow,
            )
            done |= {"refused": progress.refused, "delivery": report.delivery}
            if stopped in CONTINUED:
                # It is looked at again as a whole.
                break
            report.stopped = stopped
            done |= {"report": report.as_json(now), "at": done["at"] + len(few)}
            if self._tools.clock() - saved_at >= CHECKPOINT_MS:
                self._scratch.put(name, done)
                saved_at = self._tools.clock()
        over = stopped not in CONTINUED
        self._scratch.put(name, done | {"done": over})
        return {**event, "done": over}

    def finish(self) -> Report:
        """Sum up, and give the run back. A repeated call gives the same."""
        about, joined = self._scratch.get(PLAN), self._scratch.get(JOINED)
        if about is None:
            # An older release kept its plan in another place.
            with suppress(LostRun):
                self._runs.give_back()
            left = ["all of it: another release began the run, and the next run begins anew"]
            return Report(self._run, self._tools.clock(), stopped=Stopped.PARTS, unfinished=left)
        report = report_of(about["report"])
        report.delivery = about["report"]["delivery"]
        if joined is None:
            report.unfinished = ["what was listed was not compared with the ledger's rows: the join failed"]
        else:
            self._add_up(report, joined)
        if report.unfinished:
            report.stopped = report.stopped or Stopped.PARTS
        report.complete = report.stopped is None
        if not report.dry_run:
            every = about["everySeconds"]
            # A call before this one may have given the run back, and died before it told anybody.
            with suppress(LostRun):
                self._runs.keep(report)
                self._runs.finish(due_at=None if every is None else next_at(report.started_at, every))
        return report

    def _add_up(self, report: Report, joined: Mapping[str, Any]) -> None:
        looks = [self._scratch.get(part_name(LOOKED, number)) for number in range(joined["chunks"])]
        summed(report, [look["report"] for look in looks if look])
        told = dict.fromkeys(problem for look in looks if look for problem in look["delivery"])
        report.delivery = list(dict.fromkeys([*report.delivery, *told]))
        report.candidates, report.later_format = joined["candidates"], joined["laterFormat"]
        report.dismissed = (report.lines + report.unlisted).total() - report.counts.total()
        report.lines += Counter({Line(name): number for name, number in joined["lines"].items()})
        report.listed = report.lines.total()
        report.passes = few_passes([Pass(*one) for one in joined["passes"]])
        report.unfinished = joined["unfinished"] + [
            f"candidates from {number * CHUNK:,} on were not all looked at"
            for number, look in enumerate(looks)
            if not (look and look.get("done"))
        ]
        if joined["candidates"] > MOST_CANDIDATES:
            report.stopped = Stopped.BUDGET

    def _divide(self, event: Mapping[str, Any]) -> tuple[Manifest | None, list[dict[str, Any]]]:
        """The inventory's report, if it goes by one, and each part's share of the bucket."""
        versioned = self._listing.versioned()
        if "inventory" in event:
            manifest = self._inventory(event["inventory"]).newest(versioned=versioned)
            return manifest, [asdict(file) for file in manifest.files]
        looks = Looks(self._tools.s3, self._listing.common, versioned=versioned)
        most = min(max(LOOKS_FOR_A_SHARD * event["parts"], LEAST_LOOKS), MOST_LOOKS)
        return None, [asdict(one) for one in cut(self._listing.prefixes(), looks, shards=event["parts"], looks=most)]

    def _inventory(self, where: Mapping[str, Any]) -> Inventory:
        return Inventory(self._tools.s3, Location(**where), self._settings.bucket)

    def _judge(self, about: Mapping[str, Any]) -> Judgement:
        judged, manifest = self._tools.judge(about["since"]), about["manifest"]
        if manifest is None:
            return judged
        # Changes after the report, or a moment before it, are not in it yet.
        reported = manifest["created_at"] - self._settings.settle_seconds * 1000
        window = replace(judged.window, settled_before=min(judged.window.settled_before, reported))
        return Judgement(window, judged.resubmit, judged.held)

    def _audit(self) -> Audit:
        tools, settings = self._tools, self._settings
        return Audit(
            settings,
            LedgerTable(tools.dynamodb, settings.table),
            AuditTable(tools.dynamodb, settings.table),
            self._listing,
            Bucket(lambda: tools.s3, settings.bucket, settings.bucket_owner),
            sqs=tools.sqs,
            clock=tools.clock,
            listed_long_ago=True,
        )

    def _seen(self, few: Sequence[Candidate]) -> list[Seen]:
        """The states to judge. S3 is asked about keys that no listing shows; a version is what its row says."""
        settings = self._settings
        bucket = Bucket(lambda: self._tools.s3, settings.bucket, settings.bucket_owner)
        every = settings.ordering is Ordering.EVERY_VERSION
        return [
            Seen(
                one.key,
                one.state if one.shown or every else bucket.look(one.key),
                RowKey(f"{settings.bucket}/{one.key}", f"{settings.pipeline}@{one.place}"),
            )
            for one in few
        ]

    def _allow(self, wanted: int) -> int:
        """Take `wanted` messages, or the rest, from the budget that all parts share."""
        settings, sk = self._settings, f"{self._settings.pipeline}@audit"
        wanted = min(wanted, settings.budget)
        while wanted > 0:
            try:
                self._tools.dynamodb.update_item(
                    TableName=settings.table,
                    Key={"pk": {"S": f"{settings.bucket}#{self._run}"}, "sk": {"S": sk}},
                    UpdateExpression="ADD #sent :wanted SET #expires_at = :expires_at",
                    ConditionExpression="attribute_not_exists(#sent) OR #sent <= :most",
                    ExpressionAttributeNames={"#sent": "sent", "#expires_at": "expires_at"},
                    ExpressionAttributeValues={
                        ":wanted": {"N": str(wanted)},
                        ":most": {"N": str(settings.budget - wanted)},
                        ":expires_at": {"N": str(self._tools.clock() // 1000 + KEPT_SECONDS)},
                    },
                    ReturnValuesOnConditionCheckFailure="ALL_OLD",
                )
            except ClientError as error:
                if not condition_failed(error):
                    raise
                found: Any = error.response
                wanted = settings.budget - int(found["Item"]["sent"]["N"])
            else:
                return wanted
        return 0


class Chains:
    """Which parts of a run are complete, by the metadata of their slices."""

    def __init__(self, about: Mapping[str, Any], join: Join) -> None:
        self.about = about
        parts = [*segments(about), *(part_name(LISTED, number) for number in range(len(about["shares"])))]
        chains = {part: join.chain(part) for part in parts}
        self.whole = {part: chain for part, chain in chains.items() if chain is not None}
        self.gaps = [part for part in parts if part not in self.whole]
        # Without some of the rows, most listed objects would seem lost.
        self.comparable = not any(relation_of(part) == HELD for part in self.gaps)
        self.judged: dict[str, Any] = {
            "window": Window(**about["window"]),
            "deletes": about["deletes"],
            "all_listed": not self.gaps,
        }

    def summary(self, scratch: Scratch) -> dict[str, Any]:
        """What the join says of the parts, before anything is compared."""
        slices = [(relation_of(part), one) for part, chain in self.whole.items() for one in chain]
        listed = [one for relation, one in slices if relation == LISTED]
        return {
            "lines": {Line.FILTERS: sum(one.read - one.written for one in listed)},
            "passes": sorted([one.begun_at, one.ended_at, one.read] for one in listed),
            "laterFormat": sum(one.later_format for _, one in slices),
            "unfinished": [_words(self.about, part, scratch.get(f"{part}.refused")) for part in self.gaps],
        }


class Result(Protocol):
    """The result of the query."""

    def lines(self) -> dict[str, int]:
        """The number of listed states in each line, and of candidates."""

    def candidates(self) -> Iterator[Candidate]:
        """The candidates; at most `MOST_CANDIDATES` and one more."""


def join_parts(scratch: Scratch) -> dict[str, Any]:
    """Join the files of a run's parts, and write the candidates."""
    with TemporaryDirectory(prefix="audit-") as folder:
        scratch.download(".parquet", Path(folder))
        join = Join(Path(folder))
        chains = Chains(scratch.get(PLAN), join)
        summary = chains.summary(scratch)
        if not chains.comparable:
            return store_joined(scratch, summary, None)
        with join.audited(list(chains.whole), **chains.judged) as audited:
            return store_joined(scratch, summary, audited)


def store_joined(scratch: Scratch, summary: Mapping[str, Any], result: Result | None) -> dict[str, Any]:
    """Write the candidates and what the join found. Without a result nothing was compared."""
    chunks, candidates, lines = 0, 0, dict[str, int]()
    if result is not None:
        lines = result.lines()
        lines.pop("candidate", None)
        for chunks, few in enumerate(batched(result.candidates(), CHUNK), 1):
            scratch.put(part_name(CANDIDATES, chunks - 1), [_stored(one) for one in few])
            candidates += len(few)
    joined = {"chunks": chunks, "candidates": candidates, "lines": lines | summary["lines"]}
    scratch.put(JOINED, {**summary, **joined})
    return {"run": scratch.run, "parts": list(range(chunks))}


@dataclass(frozen=True, slots=True)
class _Rows:
    """A page of a part: rows for its file, where the next page begins, and how many entries were read."""

    rows: Sequence[Sequence[Any]]
    after: str
    read: int
    later_format: int = 0


def part_name(kind: str, number: int) -> str:
    """The name of a part of a run, and of its file."""
    return f"{kind}-{number:05d}"


def relation_of(part: str) -> str:
    """The relation of the query that a part's rows belong to."""
    return part.partition("-")[0]


def number_of(part: str) -> int:
    """A part's number among those of its kind."""
    return int(part.partition("-")[2])


def segments(about: Mapping[str, Any]) -> list[str]:
    """The names of the parts that scan the table."""
    return [part_name(HELD, number) for number in range(about["segments"])]


def _order(shares: Sequence[Mapping[str, Any]]) -> list[int]:
    """The numbers of the shares, about the heaviest first: the last ones are short."""
    turns = {number: share.get("weight", 1) * _RANDOM.uniform(0.5, 1.5) for number, share in enumerate(shares)}
    return sorted(turns, key=turns.__getitem__, reverse=True)


def _stored(one: Candidate) -> list[Any]:
    return [one.key, one.place, one.shown, asdict(one.state)]


def candidate_of(content: Sequence[Any]) -> Candidate:
    """The candidate that a file of them has."""
    key, place, shown, state = content
    return Candidate(key, place, shown, State(**state | {"kind": StateKind(state["kind"])}))


def _words(about: Mapping[str, Any], part: str, refused: str | None) -> str:
    """A part that was left out, for a person."""
    if refused:
        return refused
    if relation_of(part) == HELD:
        return f"segment {number_of(part)} of the ledger's rows was not read"
    what = about["shares"][number_of(part)]
    if about["manifest"] is not None:
        return f"the inventory's file {what['key']}"
    shard = Shard(**what)
    words = f"keys with the prefix {shard.prefix!r}" if shard.prefix else "keys"
    words += f" after {shard.after!r}" if shard.after else " from the beginning"
    return words + (f" up to {shard.until!r}" if shard.until is not None else " to the end")
