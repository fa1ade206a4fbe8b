"""The audit in parts, for buckets beyond one function: each step of the state machine is one call of this.

    plan ──► list shard 0..m, scan segment 0..n ──► join ──► look at candidates 0..k ──► finish
             side by side, each writes Parquet      nominates     judges, resubmits      one report, the metrics

`AuditInParts` has every step but the join. That is `join_parts`, which needs nothing but the run's own files: its
function has more memory and fewer permissions.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import batched
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

from intake_ledger.audit.budget import Budget, SharedBudget
from intake_ledger.audit.diff import Line, Window
from intake_ledger.audit.inventory import File, Inventory, InventoryError, Location, Manifest, overdue
from intake_ledger.audit.join import MOST_CANDIDATES, Join, Slice, slice_name, write
from intake_ledger.audit.key_samples import Looks
from intake_ledger.audit.listing import Listing
from intake_ledger.audit.look import BATCH, STOP_BEFORE_MS, Look
from intake_ledger.audit.relations import HELD, LISTED, Entries, candidate, held, listed, place_of
from intake_ledger.audit.report import Pass, Report, Stopped, age, few_passes, report_of, summed
from intake_ledger.audit.runs import AuditRuns, LostRun
from intake_ledger.audit.scratch import Scratch
from intake_ledger.audit.shards import Shard, cut
from intake_ledger.aws import Bucket
from intake_ledger.ledger import LedgerTable
from intake_ledger.protocol import AuditSettings, Ordering

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
CHECKPOINT_MS = 120_000
"""Work that the death of a look may cost at most, in milliseconds."""
QUEUE_WAIT_SECONDS = 60
_LONGEST_WAIT_SECONDS = 10
BURST_SECONDS = 900
"""A backfill sends none while the queue holds more messages than it sends in this time."""
SENDING_SECONDS = 43_200
"""The longest that a run sends: the state machine ends it after a day."""
CANDIDATES, LOOKED = "candidates", "looked"
PLAN, JOINED = "plan.json", "joined.json"
"""Names of a run's files."""
_RANDOM = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class Judgement:
    """The window of a run, whether it may send messages, a reason if it may not, and the messages in the queue."""

    window: Window
    resubmit: bool
    held: str
    waiting: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Clients and settings of an invocation. `clock` gives epoch milliseconds; `judge` takes the time of the pipeline's
    first run, and whether the run is a backfill.
    """

    settings: AuditSettings
    s3: "S3Client"
    sqs: "SQSClient"
    dynamodb: "DynamoDBClient"
    clock: Callable[[], int]
    judge: Callable[[int, bool], Judgement]
    delivery: Callable[[], list[str]]
    scratch: str
    """The bucket of the run's files."""
    heads: int
    """Requests to S3 at the same time in a look."""
    sleep: Callable[[float], None]


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
            since = self._runs.take(lease_ms=event["leaseSeconds"] * 1000, only_if_due=every is not None)
        try:
            backfill, problems = self._runs.backfill(self._settings)
            report.delivery = [*self._tools.delivery(), *problems]
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
                "backfill": backfill,
                "looks": event.get("looks", 1),
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
        if relation_of(part) == LISTED:
            pages = self._listed(about, part, start, path.parent)
        else:
            pages = held(self._tools.dynamodb, self._settings, (number_of(part), about["segments"]), start)
        clock = self._tools.clock
        begun_at, written, read, later, after = clock(), 0, 0, 0, start

        def content() -> Iterator[Sequence[Any]]:
            nonlocal written, read, later, after
            text = 0
            for page in pages:
                yield from page.entries
                written, read, later = written + len(page.entries), read + page.read, later + page.later_format
                after = page.after
                text += sum(len(entry[0]) for entry in page.entries)
                if written >= SLICE_ROWS or text >= SLICE_TEXT or remaining_ms() < STOP_BEFORE_MS:
                    break

        write(path, relation_of(part), content(), lambda: Slice(start, after, read, written, later, begun_at, clock()))
        return after

    def _listed(self, about: Mapping[str, Any], part: str, start: str, folder: Path) -> Iterator[Entries]:
        settings = self._settings
        what = about["shares"][number_of(part)]
        if about["manifest"] is None:
            return listed(self._listing.shard(Shard(**what), place_of(start)), settings)
        stored = about["manifest"]
        manifest = Manifest(**(stored | {name: tuple(stored[name]) for name in ("columns", "files")}))
        every = settings.ordering is Ordering.EVERY_VERSION
        inventory, place = self._inventory(about["inventory"]), place_of(start)
        return listed(inventory.pages(manifest, File(**what), every=every, start=place, folder=folder), settings)

    def look(self, event: Mapping[str, Any], remaining_ms: Callable[[], int]) -> dict[str, Any]:
        """Look at some of the candidates, and resubmit the lost ones."""
        about, name = self._scratch.get(PLAN), part_name(LOOKED, event["part"])
        candidates = [candidate(one) for one in self._scratch.get(part_name(CANDIDATES, event["part"]))]
        saved_at = now = self._tools.clock()
        judged = self._judge(about)
        rate = self._rate(about)
        if about["backfill"] and judged.waiting > rate * BURST_SECONDS:
            # New uploads would stand behind all of them.
            self._tools.sleep(QUEUE_WAIT_SECONDS)
            return {**event, "done": False}
        begun = Report(about["report"]["runId"], now, about["report"]["dryRun"])
        done = self._scratch.get(name) or {"report": begun.as_json(now), "at": 0}
        report = report_of(done["report"])
        report.held = report.held or judged.held
        done["report"] = report.as_json(now)
        sends = judged.resubmit and not report.dry_run
        look = self._look(self._budget(about) if sends else None, backfill=about["backfill"])
        pace = Pace(rate / about["looks"], self._tools.clock, self._tools.sleep)
        while done["at"] < len(candidates) and not report.stopped and remaining_ms() >= STOP_BEFORE_MS:
            few, sent = candidates[done["at"] : done["at"] + min(BATCH, pace.most())], report.resubmitted
            look.at(few, judged.window, report)
            pace.wait(report.resubmitted - sent)
            done = {"report": report.as_json(now), "at": done["at"] + len(few)}
            if self._tools.clock() - saved_at >= CHECKPOINT_MS:
                self._scratch.put(name, done)
                saved_at = self._tools.clock()
        over = bool(report.stopped) or done["at"] >= len(candidates)
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
        if joined is None:
            report.unfinished = ["what was listed was not compared with the ledger's rows: the join failed"]
        else:
            self._add_up(report, about, joined)
        if report.unfinished:
            report.stopped = report.stopped or Stopped.PARTS
        report.complete = report.stopped is None
        if not report.dry_run:
            # A call before this one may have given the run back, and died before it told anybody.
            with suppress(LostRun):
                self._runs.finish(report, every_seconds=about["everySeconds"], backfill=about["backfill"])
        return report

    def _add_up(self, report: Report, about: Mapping[str, Any], joined: Mapping[str, Any]) -> None:
        looks = [self._scratch.get(part_name(LOOKED, number)) for number in range(joined["chunks"])]
        summed(report, [look["report"] for look in looks if look])
        report.later_format = joined["laterFormat"]
        report.passes = few_passes([Pass(*one) for one in joined["passes"]])
        report.unfinished = joined["unfinished"] + [
            f"candidates from {number * CHUNK:,} on were not all looked at"
            for number, look in enumerate(looks)
            if not (look and look.get("done"))
        ]
        report.add_joined(joined["lines"], outside=joined["outside"], candidates=joined["candidates"])
        if joined["candidates"] > MOST_CANDIDATES:
            report.stopped = report.stopped or Stopped.MORE
        if report.stopped is Stopped.MORE:
            both, rate = report.lines + report.unlisted, self._rate(about)
            left = both[Line.NOT_LOOKED] + both[Line.OVER_BUDGET]
            report.unfinished.append(f"{left:,} objects are left: {age(left * 1_000 // rate)} at {rate:,} a second")

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
        judged, manifest = self._tools.judge(about["since"], about["backfill"]), about["manifest"]
        if manifest is None:
            return judged
        # Changes after the report, or a moment before it, are not in it yet.
        reported = manifest["created_at"] - self._settings.settle_seconds * 1000
        window = replace(judged.window, settled_before=min(judged.window.settled_before, reported))
        return replace(judged, window=window)

    def _rate(self, about: Mapping[str, Any]) -> int:
        return self._settings.backfill_rate if about["backfill"] else self._settings.resubmit_rate

    def _budget(self, about: Mapping[str, Any]) -> Budget:
        """A backfill has no budget but its rate."""
        tools, settings = self._tools, self._settings
        candidates = self._scratch.get(JOINED)["candidates"]
        most = min(candidates if about["backfill"] else settings.budget, self._rate(about) * SENDING_SECONDS)
        return SharedBudget(tools.dynamodb, settings, self._run, most, candidates, tools.clock)

    def _look(self, budget: Budget | None, *, backfill: bool) -> Look:
        tools, settings = self._tools, self._settings
        return Look(
            settings,
            LedgerTable(tools.dynamodb, settings.table),
            Bucket(lambda: tools.s3, settings.bucket, settings.bucket_owner),
            sqs=tools.sqs,
            clock=tools.clock,
            budget=budget,
            heads=tools.heads,
            backfill=backfill,
        )


class Pace:
    """The share of a run's rate that one look has. `clock` gives epoch milliseconds."""

    def __init__(self, per_second: float, clock: Callable[[], int], sleep: Callable[[float], None]) -> None:
        self._per_second = per_second
        self._clock = clock
        self._sleep = sleep
        self._due_at: float = clock()

    def most(self) -> int:
        """The number of messages of some seconds, so that no wait is longer."""
        return max(int(self._per_second * _LONGEST_WAIT_SECONDS), 1)

    def wait(self, sent: int) -> None:
        """Wait until more may be sent than these."""
        now = self._clock()
        # A second that was not used is made up for, and no more.
        self._due_at = max(self._due_at, now - 1_000) + 1_000 * sent / self._per_second
        if self._due_at > now:
            self._sleep((self._due_at - now) / 1_000)


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
        lists = [one for relation, one in slices if relation == LISTED]
        return {
            "outside": sum(one.read - one.written for one in lists),
            "passes": sorted([one.begun_at, one.ended_at, one.read] for one in lists),
            "laterFormat": sum(one.later_format for _, one in slices),
            "unfinished": [_words(self.about, part, scratch.get(f"{part}.refused")) for part in self.gaps],
        }


class Result(Protocol):
    """The result of the query."""

    def lines(self) -> dict[str, int]:
        """The number of listed states in each line, and of candidates."""

    def candidates(self) -> Iterator[Sequence[Any]]:
        """The values of `CANDIDATE` for each; at most `MOST_CANDIDATES` and one more."""


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
        for chunks, few in enumerate(batched(result.candidates(), CHUNK), 1):
            scratch.put(part_name(CANDIDATES, chunks - 1), few)
            candidates += len(few)
    scratch.put(JOINED, {**summary, "chunks": chunks, "candidates": candidates, "lines": lines})
    # In random order: where the budget does not suffice, each chunk has the same chance in each run.
    return {"run": scratch.run, "parts": _RANDOM.sample(range(chunks), chunks), "done": True}


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
