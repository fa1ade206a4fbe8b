"""The audit in parts, for buckets that are too large for one function. A state machine calls each step.

    plan ──► list shard 0..m, scan segment 0..n ──► join ──► look at candidates 0..k ──► finish
             in parallel, each writes Parquet       nominates     judges, resubmits      one report, the metrics

`AuditInParts` has every step but the join. The function of the join (`join.parts`) has more memory, and may only read
and write the run's own files.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from intake_ledger.audit.budget import Budget, LookRate, SharedBudget
from intake_ledger.audit.diff import Line
from intake_ledger.audit.inventory import File, Inventory, InventoryError, Location, Manifest, overdue
from intake_ledger.audit.join.duckdb import MOST_CANDIDATES, Slice, slice_name, write
from intake_ledger.audit.join.parts import CHUNK
from intake_ledger.audit.listing import BucketListing
from intake_ledger.audit.look import BATCH, STOP_BEFORE_MS
from intake_ledger.audit.relations import LISTED, Entries, candidate, held, listed, place_of
from intake_ledger.audit.report import Pass, Report, Stopped, age, few_passes, report_of, summed
from intake_ledger.audit.row_numbers import RowNumbers, row_numbers
from intake_ledger.audit.runs import RunLeaseLost
from intake_ledger.audit.scratch import (
    CANDIDATES,
    JOINED,
    LOOKED,
    PLAN,
    Scratch,
    number_of,
    part_name,
    relation_of,
    segments,
)
from intake_ledger.audit.shards import Shard
from intake_ledger.audit.tools import Judgement, Tools
from intake_ledger.protocol.row import Ordering

SAMPLES_FOR_A_SHARD = 14
LEAST_SAMPLES = 200
"""The planner follows the common beginning of all keys letter by letter. With dated folders and numbers it takes some
90 samples to reach the first cut, so that fewer samples would find no shards.
"""
MOST_SAMPLES = 3_000
"""Each takes some 0.15 s. Together that is half of the planner's time."""
SLICE_ROWS = 1_000_000
"""Rows of one Parquet file. Writing it takes a few seconds, less than `STOP_BEFORE_MS`."""
SLICE_TEXT = 100_000_000
"""Characters of the keys of one file. JSON needs up to six bytes for one, and the function has 4 GB of disk."""
CHECKPOINT_MS = 120_000
"""Milliseconds of work that are lost at most when a look dies."""
QUEUE_WAIT_SECONDS = 60
BURST_SECONDS = 900
"""A backfill sends nothing while the queue holds more messages than the backfill sends in this time."""
SENDING_SECONDS = 43_200
"""The longest time of sending in one run. The state machine stops a run after a day."""
_RANDOM = random.SystemRandom()


class AuditInParts:
    """One run. `run` is its name, which the state machine gives."""

    def __init__(self, tools: Tools, run: str) -> None:
        settings = tools.settings
        self._tools = tools
        self._settings = settings
        self._run = run
        self._listing = BucketListing(tools.s3, settings)
        self._scratch = Scratch(tools.s3, tools.scratch, run)
        self._runs = tools.runs(run)

    def plan(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Begin a run and divide it. The answer has the names of its parts.

        Raises:
            RunNotDue: There is nothing to do.
            InventoryError: There is no usable report.

        """
        asked, now = event["input"], self._tools.clock()
        report = Report(str(now), now, dry_run=bool(asked.get("dryRun")))
        every = asked.get("everySeconds")
        if report.dry_run:
            since = self._runs.since()
        else:
            since = self._runs.take(lease_ms=event["leaseSeconds"] * 1000, only_if_due=every is not None)
        try:
            backfill, problems = self._runs.backfill(self._settings)
            report.delivery = [*self._tools.delivery(), *problems]
            manifest, shares = self._divide(event)
            if manifest is not None:
                report.delivery += overdue(manifest, now)
            plan: dict[str, Any] = {
                "report": report.as_json(now),
                "since": since,
                "everySeconds": every,
                "segments": event["segments"],
                "inventory": event.get("inventory"),
                "manifest": asdict(replace(manifest, files=())) if manifest else None,
                "deletes": self._settings.deletes,
                "shares": shares,
                "backfill": backfill,
                "looks": event.get("looks", 1),
            }
            plan["window"] = asdict(self._judge(plan).window)
            self._scratch.put(PLAN, plan)
        except Exception:
            if not report.dry_run:
                self._runs.give_back()
            raise
        # Segments come first, since they take longest.
        shards = [part_name(LISTED, number) for number in _order(shares)]
        return {"run": self._run, "parts": [*segments(plan), *shards]}

    def write(self, event: Mapping[str, Any], remaining_ms: Callable[[], int]) -> dict[str, Any]:
        """List or scan a part from `after` on, and write one slice. The answer says where the next one begins."""
        part, number, start = event["part"], event["slice"], event["after"]
        with TemporaryDirectory(prefix="audit-") as folder:
            path = Path(folder, f"{slice_name(part, number)}.parquet")
            try:
                after = self._write(path, part, start, remaining_ms)
            except InventoryError as refused:
                # A repetition would not help. The join reports it.
                self._scratch.put(f"{part}.refused", str(refused))
                after = ""
            else:
                self._scratch.upload(path)
        return {**event, "slice": number + 1, "after": after, "done": not after}

    def _write(self, path: Path, part: str, start: str, remaining_ms: Callable[[], int]) -> str:
        plan = self._scratch.get(PLAN)
        if relation_of(part) == LISTED:
            pages = self._listed(plan, part, start, path.parent)
        else:
            pages = held(
                self._tools.dynamodb,
                self._settings,
                (number_of(part), plan["segments"]),
                start,
                now=self._tools.clock(),
            )
        clock = self._tools.clock
        begun_at, written, read, later, after = clock(), 0, 0, 0, start
        rows = RowNumbers()

        def content() -> Iterator[Sequence[Any]]:
            nonlocal written, read, later, after
            text = 0
            for page in pages:
                yield from page.entries
                written, read, later = written + len(page.entries), read + page.read, later + page.later_format
                rows.add(page.rows)
                after = page.after
                text += sum(len(entry[0]) for entry in page.entries)
                if written >= SLICE_ROWS or text >= SLICE_TEXT or remaining_ms() < STOP_BEFORE_MS:
                    break

        def about() -> Slice:
            return Slice(start, after, read, written, later, begun_at, clock(), rows.as_json())

        write(path, relation_of(part), content(), about)
        return after

    def _listed(self, plan: Mapping[str, Any], part: str, start: str, folder: Path) -> Iterator[Entries]:
        settings = self._settings
        share, place, stored = plan["shares"][number_of(part)], place_of(start), plan["manifest"]
        if stored is None:
            return listed(self._listing.shard(Shard(**share), place), settings)
        manifest = Manifest(**(stored | {name: tuple(stored[name]) for name in ("columns", "files")}))
        every, inventory = settings.ordering is Ordering.EVERY_VERSION, self._inventory(plan["inventory"])
        return listed(inventory.pages(manifest, File(**share), every=every, start=place, folder=folder), settings)

    def look(self, event: Mapping[str, Any], remaining_ms: Callable[[], int]) -> dict[str, Any]:
        """Look at the candidates of a chunk until it is done or time runs out, and resubmit the lost ones."""
        plan, name = self._scratch.get(PLAN), part_name(LOOKED, event["part"])
        candidates = [candidate(values) for values in self._scratch.get(part_name(CANDIDATES, event["part"]))]
        saved_at = now = self._tools.clock()
        judged, rate = self._judge(plan), self._rate(plan)
        if plan["backfill"] and judged.waiting > rate * BURST_SECONDS:
            # New uploads would wait behind all of them.
            self._tools.sleep(QUEUE_WAIT_SECONDS)
            return {**event, "done": False}
        begun = Report(plan["report"]["runId"], now, plan["report"]["dryRun"])
        done = self._scratch.get(name) or {"report": begun.as_json(now), "at": 0}
        report = report_of(done["report"])
        report.held = report.held or judged.held
        done["report"] = report.as_json(now)
        sends = judged.resubmit and not report.dry_run
        look = self._tools.look(self._budget(plan) if sends else None, backfill=plan["backfill"])
        limit = LookRate(rate / plan["looks"], self._tools.clock, self._tools.sleep)
        while done["at"] < len(candidates) and not report.stopped and remaining_ms() >= STOP_BEFORE_MS:
            batch, sent = candidates[done["at"] : done["at"] + min(BATCH, limit.most())], report.resubmitted
            look.at(batch, judged.window, report)
            limit.wait(report.resubmitted - sent)
            done = {"report": report.as_json(now), "at": done["at"] + len(batch)}
            if self._tools.clock() - saved_at >= CHECKPOINT_MS:
                self._scratch.put(name, done)
                saved_at = self._tools.clock()
        over = bool(report.stopped) or done["at"] >= len(candidates)
        self._scratch.put(name, done | {"done": over})
        return {**event, "done": over}

    def finish(self) -> Report:
        """Add up the reports of the looks, and give the run back. A repeated call returns the same report."""
        plan, joined = self._scratch.get(PLAN), self._scratch.get(JOINED)
        if plan is None:
            # A user or a lifecycle rule removed it.
            with suppress(RunLeaseLost):
                self._runs.give_back()
            left = ["all of it: the plan of the run is gone. The next run starts from the beginning"]
            return Report(self._run, self._tools.clock(), stopped=Stopped.PARTS, unfinished=left)
        report = report_of(plan["report"])
        if joined is None:
            report.unfinished = ["what was listed was not compared with the ledger's rows: the join failed"]
        else:
            self._add_up(report, plan, joined)
        if report.unfinished:
            report.stopped = report.stopped or Stopped.PARTS
        report.complete = report.stopped is None
        if not report.dry_run:
            # An earlier call may have given the run back, and died before it reported anything.
            with suppress(RunLeaseLost):
                self._runs.finish(report, every_seconds=plan["everySeconds"], backfill=plan["backfill"])
        return report

    def _add_up(self, report: Report, plan: Mapping[str, Any], joined: Mapping[str, Any]) -> None:
        looks = [self._scratch.get(part_name(LOOKED, number)) for number in range(joined["chunks"])]
        summed(report, [look["report"] for look in looks if look])
        report.later_format, report.rows = joined["laterFormat"], row_numbers(joined["rows"])
        report.passes = few_passes([Pass(*times) for times in joined["passes"]])
        report.unfinished = joined["unfinished"] + [
            f"candidates from {number * CHUNK:,} on were not all looked at"
            for number, look in enumerate(looks)
            if not (look and look.get("done"))
        ]
        report.add_joined(joined["lines"], outside=joined["outside"], candidates=joined["candidates"])
        if joined["candidates"] > MOST_CANDIDATES:
            report.stopped = report.stopped or Stopped.MORE
        if report.stopped is Stopped.MORE:
            both, rate = report.lines + report.unlisted, self._rate(plan)
            left = both[Line.NOT_LOOKED] + both[Line.OVER_BUDGET]
            report.unfinished.append(f"{left:,} objects are left: {age(left * 1_000 // rate)} at {rate:,} a second")

    def _divide(self, event: Mapping[str, Any]) -> tuple[Manifest | None, list[dict[str, Any]]]:
        """The inventory's manifest if the run uses an inventory, and each part's share of the bucket."""
        if "inventory" in event:
            manifest = self._inventory(event["inventory"]).newest(versioned=self._listing.versioned())
            return manifest, [asdict(file) for file in manifest.files]
        samples = min(max(SAMPLES_FOR_A_SHARD * event["parts"], LEAST_SAMPLES), MOST_SAMPLES)
        return None, [asdict(shard) for shard in self._listing.shards(event["parts"], samples=samples)]

    def _inventory(self, location: Mapping[str, Any]) -> Inventory:
        return Inventory(self._tools.s3, Location(**location), self._settings.bucket)

    def _judge(self, plan: Mapping[str, Any]) -> Judgement:
        judged, manifest = self._tools.judge(plan["since"], plan["backfill"]), plan["manifest"]
        if manifest is None:
            return judged
        # The report lacks changes that came after it or shortly before it.
        reported = manifest["created_at"] - self._settings.settle_seconds * 1000
        window = replace(judged.window, settled_before=min(judged.window.settled_before, reported))
        return replace(judged, window=window)

    def _rate(self, plan: Mapping[str, Any]) -> int:
        return self._settings.backfill_rate if plan["backfill"] else self._settings.resubmit_rate

    def _budget(self, plan: Mapping[str, Any]) -> Budget:
        """The run's budget. For a backfill, only the rate limits it."""
        candidates = self._scratch.get(JOINED)["candidates"]
        most = min(candidates if plan["backfill"] else self._settings.budget, self._rate(plan) * SENDING_SECONDS)
        tools = self._tools
        return SharedBudget(tools.dynamodb, self._settings, self._run, most, candidates, tools.clock)


def _order(shares: Sequence[Mapping[str, Any]]) -> list[int]:
    """The numbers of the shares, roughly by weight with the largest first, so that the last ones are short."""
    turns = {number: share.get("weight", 1) * _RANDOM.uniform(0.5, 1.5) for number, share in enumerate(shares)}
    return sorted(turns, key=turns.__getitem__, reverse=True)
