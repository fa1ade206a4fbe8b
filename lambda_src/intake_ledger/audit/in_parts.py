"""The audit in parts, for buckets beyond one function: each step of the state machine is one call of this.

    plan ──► read segment 0..n of the table ──► list shard 0..m of the bucket ──► scan segment 0..n ──► finish
             what the ledger has committed      what S3 shows, compared           rows that S3       one report,
             in filters, added up by "known"    with all of that; "shown" adds    has not shown      the metrics
                                                up the filters of all shards

It is the audit itself (`intake_ledger.audit.compare`) that works in each part; here is only what divides and sums up.
A step begins when the one before has been tried; it does nothing if a part of that is missing, and the run says so.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from intake_ledger.audit.compare import STOP_BEFORE_MS, Audit, Phase, Source
from intake_ledger.audit.diff import Window
from intake_ledger.audit.handed import HandedOn
from intake_ledger.audit.inventory import Inventory, Location, Manifest, overdue
from intake_ledger.audit.items import RunItems
from intake_ledger.audit.known import Known
from intake_ledger.audit.listing import Listing
from intake_ledger.audit.parts import Part, Parts
from intake_ledger.audit.progress import Progress, progress_of
from intake_ledger.audit.report import Report, Stopped, report_of, summed
from intake_ledger.audit.runs import CHECKPOINT_MS, AuditRuns, LostRun, next_at
from intake_ledger.audit.shards import Shard, cut
from intake_ledger.audit.shown import PARTS, Shown, parts_for
from intake_ledger.audit.sources import FileListing, Looks, ShardListing
from intake_ledger.audit.table import AuditTable
from intake_ledger.bucket import Bucket
from intake_ledger.rows import Ordering
from intake_ledger.settings import AuditSettings
from intake_ledger.table import LedgerTable

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

LOOKS_FOR_A_SHARD = 14
LEAST_LOOKS = 200
"""What keys have in common is passed a letter at a time, which for dated folders and numbers takes some 90 looks before
the first cut: few shards would never be found.
"""
MOST_LOOKS = 3_000
"""Each takes some 0.15 s: half of the time that the planner has."""
_NOTHING_JUDGED = Window(settled_before=0, known_since=0)
_RANDOM = random.SystemRandom()


class Step(StrEnum):
    """What the parts of a run do, one step after the other."""

    READ = "read"
    """A segment of the ledger's rows."""
    KNOWN = "known"
    """Adding up what was read, a share of the filters."""
    LIST = "list"
    """A shard of the bucket, or a file of its inventory."""
    SHOWN = "shown"
    """Adding up what was listed."""
    SCAN = "scan"
    """A segment of the ledger's rows again, for those that S3 has not shown."""


AUDITED = {Step.READ: Phase.READ, Step.LIST: Phase.LIST, Step.SCAN: Phase.SCAN}
ADDED_UP = {Step.KNOWN: ("rows", "settled"), Step.SHOWN: ("shown",)}
_BEFORE = dict(zip(tuple(Step)[1:], Step, strict=False))


@dataclass(frozen=True, slots=True)
class Judgement:
    """What may be judged now, whether anything may be sent, and why not, in words."""

    window: Window
    resubmit: bool
    held: str


class Warm:
    """What an environment that is called for several parts of a run need not read again: the filters of the ledger's
    rows, which nothing changes once they are added up.
    """

    def __init__(self) -> None:
        self._of: tuple[str, bytes] | None = None
        self._filters: dict[str, Shown] = {}

    def filter(self, name: str, run: str, salt: bytes, read: Callable[[], Shown]) -> Shown:
        """The one of this run, read if it is not there."""
        if self._of != (run, salt):
            # Two runs' would be more than the memory is for.
            self._filters, self._of = {}, (run, salt)
        if name not in self._filters:
            self._filters[name] = read()
        return self._filters[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What an invocation has. `clock` gives epoch milliseconds; `judge` takes the time of the pipeline's first run;
    `warm` stays from one invocation to the next.
    """

    settings: AuditSettings
    s3: "S3Client"
    sqs: "SQSClient"
    dynamodb: "DynamoDBClient"
    clock: Callable[[], int]
    new_salt: Callable[[], bytes]
    judge: Callable[[int], Judgement]
    delivery: Callable[[], list[str]]
    warm: Warm


class AuditInParts:
    """One run, under the name that the state machine gives to it."""

    def __init__(self, tools: Tools, run: str) -> None:
        settings = tools.settings
        self._tools = tools
        self._settings = settings
        self._run = run
        self._listing = Listing(tools.s3, settings)
        bucket, pipeline = settings.bucket, settings.pipeline
        items = RunItems(tools.dynamodb, settings.table, bucket=bucket, pipeline=pipeline, run=run, clock=tools.clock)
        self._parts, self._handed = Parts(items), HandedOn(items)
        self._runs = AuditRuns(
            tools.dynamodb,
            settings.table,
            bucket=bucket,
            pipeline=pipeline,
            clock=tools.clock,
            owner=run,
            new_salt=tools.new_salt,
        )

    def plan(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Begin a run and divide it; the numbers of what there is to do come back.

        Raises:
            NotNow: There is nothing to do.
            InventoryError: There is no report that can be used.

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
            segments = list(range(event["segments"]))
            about = {
                "report": report.as_json(now),
                "since": since,
                "everySeconds": every,
                "salts": [self._tools.new_salt().hex() for _ in range(2)],
                "segments": len(segments),
                "inventory": event.get("inventory"),
                # The files are the parts' own: all of their names may be more than an item takes.
                "manifest": asdict(replace(manifest, files=())) if manifest else None,
            }
            rows: list[dict[str, Any]] = [{"segment": number} for number in segments]
            self._parts.begin(about, {step: shares if step is Step.LIST else rows for step in Step})
        except Exception:
            if not report.dry_run:
                self._runs.give_back()
            raise
        return {"run": self._run, "parts": _order(shares), "segments": segments}

    def work(self, step: Step, number: int, remaining_ms: Callable[[], int]) -> bool:
        """Go on with one part of a step; False when there is more of it to do."""
        about, part = self._parts.about(), self._parts.part(step, number)
        if part.done or not self._can_begin(step):
            return True
        if step in ADDED_UP:
            return self._add_up(about, step, part, remaining_ms)
        return self._go_through(about, step, part, remaining_ms)

    def _add_up(self, about: Mapping[str, Any], step: Step, part: Part, remaining_ms: Callable[[], int]) -> bool:
        """Go on with a share of the places of the filters."""
        size, segments = parts_for(self._rows()), about["segments"]
        at: int = part.work["at"] if part.work else part.number
        saved_at = self._tools.clock()
        while at < size and remaining_ms() >= STOP_BEFORE_MS:
            for name in ADDED_UP[step]:
                # Only who had read all rows knew how large a filter has to be.
                self._handed.add_up(name, at, size=size, of=PARTS if step is Step.KNOWN else size)
            at += segments
            part.work = {"at": at}
            if (now := self._tools.clock()) - saved_at >= CHECKPOINT_MS:
                self._parts.save(step, part)
                saved_at = now
        part.done = at >= size
        self._parts.save(step, part)
        return part.done

    def _rows(self) -> int:
        """How many rows the ledger has; known once all of them were read."""
        return sum(one.work["known"]["count"] for one in self._parts.all(Step.READ) if one.work)

    def _go_through(self, about: Mapping[str, Any], step: Step, part: Part, remaining_ms: Callable[[], int]) -> bool:
        """Go on with a share of the audit itself."""
        progress = self._progress(about, step, part)
        judged = self._judge(about, step)
        progress.report.held = judged.held or progress.report.held
        saved_at, done = self._tools.clock(), json.dumps(progress.as_json(self._tools.clock()))

        def keep() -> None:
            self._keep_filters(step, part.number, progress)
            part.work = json.loads(done)
            self._parts.save(step, part)

        def saved() -> None:
            nonlocal saved_at, done
            now = self._tools.clock()
            done = json.dumps(progress.as_json(now))
            if now - saved_at >= CHECKPOINT_MS:
                keep()
                saved_at = now

        self._audit(about, step, part).run(
            progress,
            judged.window,
            resubmit=judged.resubmit and not about["report"]["dryRun"],
            remaining_ms=remaining_ms,
            saved=saved,
            phases=(AUDITED[step],),
            allow=lambda wanted: self._parts.allow(wanted, self._settings.budget),
        )
        part.done = progress.report.complete
        if progress.report.stopped is Stopped.BUDGET:
            # Nobody goes on here.
            done = json.dumps(progress.as_json(self._tools.clock()))
        done = json.dumps(json.loads(done) | {"refused": progress.refused})
        keep()
        return not progress.report.continues

    def finish(self) -> Report:
        """Sum up, and give the run back. Whoever calls it again gets the same."""
        about = self._parts.about()
        report = report_of(about["report"])
        report.delivery = about["report"]["delivery"]
        steps = [(step, self._parts.all(step)) for step in Step]
        works = [part.work["report"] for step, parts in steps if step in AUDITED for part in parts if part.work]
        summed(report, works)
        if report.stopped is not Stopped.BUDGET:
            # Where one step has a gap, the next was left out as a whole.
            gaps = (["".join(_words(step, part.what)) for part in parts if not part.done] for step, parts in steps)
            report.unfinished = next((gap for gap in gaps if gap), [])
            report.stopped = Stopped.PARTS if report.unfinished else None
        report.complete = report.stopped is None
        if not report.dry_run:
            every = about["everySeconds"]
            # A call before this one may have given the run back, and died before it told anybody.
            with suppress(LostRun):
                self._runs.keep(report)
                self._runs.finish(due_at=None if every is None else next_at(report.started_at, every))
        return report

    def _divide(self, event: Mapping[str, Any]) -> tuple[Manifest | None, list[dict[str, Any]]]:
        """The inventory's report, if it goes by one, and each part's share of the bucket."""
        versioned = self._listing.versioned()
        if "inventory" in event:
            manifest = self._inventory(event["inventory"]).newest(versioned=versioned)
            return manifest, [{"file": file} for file in manifest.files]
        looks = Looks(self._tools.s3, self._listing.common, versioned=versioned)
        most = min(max(LOOKS_FOR_A_SHARD * event["parts"], LEAST_LOOKS), MOST_LOOKS)
        return None, [asdict(one) for one in cut(self._listing.prefixes(), looks, shards=event["parts"], looks=most)]

    def _inventory(self, where: Mapping[str, Any]) -> Inventory:
        return Inventory(self._tools.s3, Location(**where), self._settings.bucket)

    def _can_begin(self, step: Step) -> bool:
        if step not in _BEFORE:
            return True
        before = self._parts.all(_BEFORE[step])
        # Adding up has a part for each segment. None at all: the run was begun by a release that did not add up.
        known_to_the_run = bool(before) or _BEFORE[step] not in ADDED_UP
        return known_to_the_run and all(part.done for part in before)

    def _progress(self, about: Mapping[str, Any], step: Step, part: Part) -> Progress:
        """How far the part has come, with the filters that its step needs."""
        of_rows, of_shown = (bytes.fromhex(salt) for salt in about["salts"])
        again = part.work is not None
        if part.work is None:
            now = self._tools.clock()
            progress = Progress(
                Report(about["report"]["runId"], now, about["report"]["dryRun"]), Known(of_rows), Shown(of_shown)
            )
        else:
            progress = progress_of(part.work, report_of(part.work["report"]))
        handed, number = self._handed, part.number
        if step is Step.READ:
            if again:
                handed.begin_own("rows", number, progress.known.rows)
                handed.begin_own("settled", number, progress.known.settled)
            return progress
        rows = self._rows()
        size = parts_for(rows)
        # What all segments together have read.
        progress.known = known = Known(of_rows, count=rows, complete=True, size=size)
        progress.shown = Shown(of_shown, size)
        known.rows = self._added_up("rows", known.rows)
        if step is Step.SCAN:
            handed.begin_all("shown", progress.shown)
            return progress
        known.settled = self._added_up("settled", known.settled)
        if again:
            handed.begin_own("shown", number, progress.shown)
        return progress

    def _added_up(self, name: str, empty: Shown) -> Shown:
        """The filter that all segments have filled, of which the environment may have it still."""

        def read() -> Shown:
            self._handed.begin_all(name, empty)
            return empty

        return self._tools.warm.filter(name, self._run, empty.salt, read)

    def _keep_filters(self, step: Step, number: int, progress: Progress) -> None:
        if step is Step.READ:
            self._handed.keep("rows", number, progress.known.rows)
            self._handed.keep("settled", number, progress.known.settled)
        elif step is Step.LIST:
            self._handed.keep("shown", number, progress.shown)

    def _judge(self, about: Mapping[str, Any], step: Step) -> Judgement:
        if step is Step.READ:
            return Judgement(_NOTHING_JUDGED, resubmit=False, held="")
        judged, manifest = self._tools.judge(about["since"]), about["manifest"]
        if manifest is None:
            return judged
        # What came after the report, or a moment before it, is not in it yet.
        reported = manifest["created_at"] - self._settings.settle_seconds * 1000
        window = judged.window
        window = replace(window, settled_before=min(window.settled_before, reported))
        return Judgement(window, judged.resubmit, judged.held)

    def _audit(self, about: Mapping[str, Any], step: Step, part: Part) -> Audit:
        tools, settings = self._tools, self._settings
        segment = None if step is Step.LIST else (part.what["segment"], about["segments"])
        return Audit(
            settings,
            LedgerTable(tools.dynamodb, settings.table),
            AuditTable(tools.dynamodb, settings.table, segment),
            self._source(about, part) if step is Step.LIST else self._listing,
            Bucket(lambda: tools.s3, settings.bucket, settings.bucket_owner),
            sqs=tools.sqs,
            clock=tools.clock,
            listed_long_ago=step is Step.LIST and about["manifest"] is not None,
        )

    def _source(self, about: Mapping[str, Any], part: Part) -> Source:
        if about["manifest"] is None:
            return ShardListing(self._listing, Shard(**part.what))
        stored = about["manifest"]
        manifest = Manifest(**(stored | {name: tuple(stored[name]) for name in ("columns", "files")}))
        every = self._settings.ordering is Ordering.EVERY_VERSION
        return FileListing(self._inventory(about["inventory"]), manifest, part.what["file"], every=every)


def _order(shares: Sequence[Mapping[str, Any]]) -> list[int]:
    """The numbers of the shares, about the heaviest first: whoever is last has little to do. Not the same ones in every
    run, since the last may find the budget used up.
    """
    turns = {number: share.get("weight", 1) * _RANDOM.uniform(0.5, 1.5) for number, share in enumerate(shares)}
    return sorted(turns, key=turns.__getitem__, reverse=True)


def _words(step: Step, what: Mapping[str, Any]) -> Iterator[str]:
    """A part in words, for a person who wants to know what was left out."""
    if step in ADDED_UP:
        yield f"what was {'read' if step is Step.KNOWN else 'listed'} was not added up, share {what['segment']}"
    elif "segment" in what:
        verb = "read" if step is Step.READ else "looked through for keys that are gone"
        yield f"segment {what['segment']} of the ledger's rows was not {verb}"
    elif "file" in what:
        yield f"the inventory's file {what['file']}"
    else:
        shard = Shard(**what)
        yield f"keys with the prefix {shard.prefix!r}" if shard.prefix else "keys"
        yield f" after {shard.after!r}" if shard.after else " from the beginning"
        yield f" up to {shard.until!r}" if shard.until is not None else " to the end"
