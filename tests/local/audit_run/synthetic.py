"""The audit of a million synthetic objects, in this process: `python -m tests.local.audit_run.synthetic [OBJECTS]`.

The steps are those of the audit in parts, as its state machine calls them, with DuckDB between them. S3 and DynamoDB
are answers that are generated below boto3. With `--one` it is the audit in one function, with SQLite.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import format_datetime
from tempfile import TemporaryDirectory
from typing import Any, cast
from unittest.mock import patch
from urllib.parse import unquote, urlsplit

from benchmarks.audit import AGE_MS, NOW, PAGE, Item, Source, json_response, key_of, number_of, response, row_of
from benchmarks.measure import peak_mb

from intake_ledger.audit import in_parts
from intake_ledger.audit.budget import OwnBudget
from intake_ledger.audit.diff import Finding, Line, Window
from intake_ledger.audit.function import AT_THE_SAME_TIME
from intake_ledger.audit.in_parts import AuditInParts
from intake_ledger.audit.join.parts import join_parts
from intake_ledger.audit.look import Look
from intake_ledger.audit.one_function import AuditInOneFunction
from intake_ledger.audit.report import Report
from intake_ledger.audit.tools import Judgement, Tools
from intake_ledger.aws.bucket import Bucket
from intake_ledger.aws.page_parsing import parse_scans_directly, parse_versions_once
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.change import ABSENT, State, StateKind
from intake_ledger.protocol.row import FORMAT, Status
from intake_ledger_testing.dynamodb_expressions import inserted_item, parse_update_statement
from tests.settings import AUDIT
from tests.unit.audit.scratch import FolderScratch
from tests.unit.audit.support import FakeSQS

HOUR, DAY = 3_600_000, 86_400_000
WINDOW = Window(NOW - HOUR, NOW - 14 * DAY)
PERIOD, GAP = 1_999, 100
"""Each story happens to one of `PERIOD` objects. Two stories are `GAP` objects apart."""
SHARDS, SEGMENTS, LOOKS = 8, 4, 2
INVOCATIONS = 4
"""Invocations in which a shard is listed, in a large bucket."""


@dataclass(frozen=True, kw_only=True)
class Story:
    """The history of one object, and the result that the audit must have."""

    listed: State | None = None
    head: State | None = None
    """State that S3 shows at the look. None: the state that it listed."""
    scanned: Item | None = None
    read: Item | None = None
    """The item at the look; the row that was scanned, if None."""
    finding: Finding | None = None
    line: Line | None = None
    """Where the report counts it; None for a row that the query does not nominate."""
    dismissed: bool = False
    """True: the query nominates it, and the look finds no difference."""

    @property
    def now(self) -> State:
        return self.head or self.listed or ABSENT


def version(number: int, name: int = 0, age: int = AGE_MS) -> State:
    """The version of this name. Those of 0 are in each row that no story has changed."""
    at = (NOW - age) // 1_000 * 1_000
    return State(StateKind.OBJECT, f"{name}{number:031}", f"{number:032x}", 1, at)


def marker(number: int) -> State:
    return replace(version(number, 9), kind=StateKind.MARKER, etag=None, size=None)


def changed(number: int, committed: str = "", **attributes: str | int) -> Item:
    """The row with another committed state, or with other attributes."""
    typed = {
        name: {"N" if isinstance(value, int) else "S": str(value)}
        for name, value in ({"committed_state": committed} if committed else attributes).items()
    }
    return row_of(number) | typed


def half_done(number: int, status: Status, **attributes: str | int) -> Item:
    """The row of an attempt that has committed nothing."""
    row = changed(number, "", status=status.value, **attributes)
    return {name: value for name, value in row.items() if not name.startswith("commit")}


def marked(number: int) -> Item:
    """No row: the mark of a run that has sent a message a moment ago."""
    keys = {name: row_of(number)[name] for name in ("pk", "sk")}
    mark = {"audit_resubmitted_state": {"S": version(number).identity}, "audit_resubmitted_at": {"N": str(NOW - 1)}}
    return keys | mark


def lost(finding: Finding, line: Line = Line.RESUBMITTED, **what: Any) -> Story:
    return Story(finding=finding, line=line, **what)


def dismissed(line: Line, **what: Any) -> Story:
    return Story(line=line, dismissed=True, **what)


STORIES: tuple[Callable[[int], Story], ...] = (
    # Uploads, overwrites, delete markers, deletions for good.
    lambda n: lost(Finding.MISSING, listed=version(n)),
    lambda n: lost(Finding.OVERTAKEN, listed=version(n, 1), scanned=row_of(n)),
    lambda n: lost(Finding.REMOVED, listed=marker(n), scanned=row_of(n)),
    lambda n: lost(Finding.REMOVED, scanned=row_of(n)),
    # Attempts of which no message is left.
    lambda n: lost(Finding.UNSETTLED, listed=version(n), scanned=half_done(n, Status.FAILED)),
    lambda n: lost(
        Finding.UNSETTLED, listed=version(n), scanned=half_done(n, Status.PROCESSING, lease_until=NOW - HOUR)
    ),
    lambda n: lost(
        Finding.UNSETTLED, listed=version(n), scanned=row_of(n) | {"late_writes": {"SS": [version(n, 1).identity]}}
    ),
    # Lost, and resubmitted a moment ago.
    lambda n: lost(Finding.MISSING, Line.MARKED, listed=version(n), read=marked(n)),
    # Not lost: the query knows.
    lambda n: Story(listed=version(n, age=0), line=Line.SETTLING),
    lambda n: Story(listed=version(n, age=30 * DAY), line=Line.LOOK_BACK),
    lambda n: Story(listed=version(n, 1), scanned=changed(n, format=FORMAT + 1), line=Line.LATER_FORMAT),
    lambda n: Story(scanned=changed(n, "absent")),
    lambda n: Story(scanned=changed(n, updated_at=NOW)),
    # Not lost: the look knows.
    lambda n: dismissed(Line.SETTLING, listed=version(n, 1), scanned=changed(n, updated_at=NOW)),
    lambda n: dismissed(
        Line.LEASED, listed=version(n), scanned=half_done(n, Status.PROCESSING, lease_until=NOW + HOUR)
    ),
    lambda n: dismissed(Line.NOT_YET, listed=version(n), scanned=half_done(n, Status.FAILED, retry_at=NOW + HOUR)),
    lambda n: dismissed(Line.REJECTED, listed=version(n), scanned=half_done(n, Status.REJECTED)),
    # Something happened between the listing and the look.
    lambda n: dismissed(Line.AGREES, listed=version(n, 1), scanned=row_of(n), read=changed(n, version(n, 1).identity)),
    lambda n: dismissed(Line.SETTLING, listed=version(n, 1), head=version(n, 2, age=0), scanned=row_of(n)),
    lambda n: dismissed(Line.AGREES, scanned=row_of(n), read=changed(n, "absent")),
)


def story_of(number: int) -> Story | None:
    """None for most: the row has committed the object."""
    place, rest = divmod(number % PERIOD, GAP)
    return STORIES[place](number) if rest == 0 else None


class World(Source):
    """The bucket, the ledger, and a record of all messages and marks."""

    def __init__(self, objects: int) -> None:
        super().__init__(objects, latency=False)
        parse_versions_once(self.s3)
        parse_scans_directly(self.dynamodb)
        self.sqs = FakeSQS(AUDIT.queue_url)
        self.marks: Counter[str] = Counter()
        """Marks of each row, by partition key."""
        self.settings = replace(AUDIT, budget=10**6)

    def stories(self) -> Iterator[tuple[str, Story]]:
        """All of them, by key."""
        for place, story in enumerate(STORIES):
            for number in range(place * GAP, self.objects, PERIOD):
                yield key_of(number), story(number)

    def listed(self, number: int) -> str:
        if (story := story_of(number)) is None:
            return super().listed(number)
        if (state := story.listed) is None:
            return ""
        common = (
            f"<Key>{key_of(number)}</Key><VersionId>{state.version_id}</VersionId><IsLatest>true</IsLatest>"
            f"<LastModified>{_moment(state):%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
        )
        if state.removed:
            return f"<DeleteMarker>{common}</DeleteMarker>"
        return f"<Version>{common}<ETag>&quot;{state.etag}&quot;</ETag><Size>{state.size}</Size></Version>"

    def scanned(self, number: int) -> Item | None:
        story = story_of(number)
        return story.scanned if story else super().scanned(number)

    def read(self, number: int) -> Item | None:
        story = story_of(number)
        return (story.read or story.scanned) if story else super().read(number)

    def _answer_s3(self, request: Any, **others: Any) -> Any:
        if request.method != "HEAD":
            return super()._answer_s3(request, **others)
        self.requests["HeadObject"] += 1
        number = number_of(unquote(urlsplit(request.url).path))
        story = story_of(number)
        state = story.now if story else version(number)
        headers = {"x-amz-version-id": state.version_id} if state.version_id else {}
        if state.removed:
            headers |= {"x-amz-delete-marker": "true"} if state.kind is StateKind.MARKER else {}
            return response(b"", "application/xml", 404, headers)
        headers |= {"ETag": f'"{state.etag}"', "Content-Length": str(state.size)}
        headers["Last-Modified"] = format_datetime(_moment(state), usegmt=True)
        return response(b"", "binary/octet-stream", 200, headers)

    def _answer_dynamodb(self, request: Any, **others: Any) -> Any:
        operation = request.headers["X-Amz-Target"].decode().rpartition(".")[2]
        if operation == "UpdateItem":
            # The run's own items: no other run is at work, and no budget is used up.
            return json_response({"Attributes": {"first_run_at": {"N": "0"}}})
        if operation != "BatchExecuteStatement":
            return super()._answer_dynamodb(request, **others)
        statements = json.loads(request.body)["Statements"]
        for one in statements:
            item = inserted_item(one) if one["Statement"].startswith("INSERT") else parse_update_statement(one)[2]
            self.marks[item["pk"]["S"]] += 1
        return json_response({"Responses": [{} for _ in statements]})


def _moment(state: State) -> datetime:
    return datetime.fromtimestamp((state.created_at or 0) / 1_000, UTC)


Found = list[tuple[str, Finding]]


@contextmanager
def findings() -> Iterator[Found]:
    """All findings, by key: a report names a hundred."""
    seen: Found = []
    count = Report.found

    def found(report: Report, key: str, finding: Finding, state: State) -> None:
        seen.append((key, finding))
        count(report, key, finding, state)

    with patch.object(Report, "found", found):
        yield seen


def audit_in_parts(world: World) -> Report:
    """A run as the state machine calls it, one call after the other."""
    pages = max(world.objects // (SHARDS * INVOCATIONS * PAGE), 2)
    with TemporaryDirectory() as folder, patch.object(in_parts, "Scratch", FolderScratch):
        tools = Tools(
            settings=world.settings,
            s3=world.s3,
            sqs=cast("Any", world.sqs),
            dynamodb=world.dynamodb,
            clock=lambda: NOW,
            judge=lambda *_: Judgement(WINDOW, resubmit=True, held=""),
            delivery=list,
            scratch=folder,
            heads=AT_THE_SAME_TIME,
            sleep=lambda _: None,
        )
        plan = {"input": {}, "leaseSeconds": 1, "parts": SHARDS, "segments": SEGMENTS, "looks": LOOKS}
        planned = AuditInParts(tools, "run").plan(plan)
        for part in planned["parts"]:
            event = {"part": part, "slice": 0, "after": "", "done": False}
            while not event["done"]:
                event = AuditInParts(tools, "run").write(event, time_for(pages))
        for part in join_parts(FolderScratch(world.s3, folder, "run"))["parts"]:
            event = {"part": part, "done": False}
            while not event["done"]:
                event = AuditInParts(tools, "run").look(event, time_for(pages))
        return AuditInParts(tools, "run").finish()


def time_for(pages: int) -> Callable[[], int]:
    """An invocation with time for a number of pages or batches."""
    left = iter([900_000] * (pages - 1))
    return lambda: next(left, 0)


def audit_in_one(world: World) -> Report:
    """A run in one function."""
    report, settings, bucket = Report("run", NOW), world.settings, Bucket(lambda: world.s3, AUDIT.bucket)
    look = Look(
        settings,
        LedgerTable(world.dynamodb, settings.table),
        bucket,
        sqs=cast("Any", world.sqs),
        clock=lambda: NOW,
        budget=OwnBudget(settings.budget),
        heads=AT_THE_SAME_TIME,
    )
    audit = AuditInOneFunction(settings, world.s3, world.dynamodb, look, lambda: NOW, readers=AT_THE_SAME_TIME)
    audit.run(report, WINDOW, remaining_ms=lambda: 900_000)
    return report


def problems(world: World, report: Report, found: Found) -> list[str]:
    """Everything that is not as the stories have it."""
    stories = dict(world.stories())
    lost = {key: story for key, story in stories.items() if story.finding}
    sent = {key: story.now for key, story in lost.items() if story.line is Line.RESUBMITTED}
    lines, unlisted = Counter[Line](), Counter[Line]()
    for story in stories.values():
        if story.line:
            (lines if story.listed else unlisted)[story.line] += 1
    lines[Line.AGREES] += world.objects - len(stories)
    of_dismissed = sum(story.dismissed for story in stories.values())
    checks: Mapping[str, tuple[object, object]] = {
        "complete": (report.complete, True),
        "unfinished": (report.unfinished, []),
        "keys and kinds": (Counter(found), Counter((key, story.finding) for key, story in lost.items())),
        "kinds": (report.counts, Counter(story.finding for story in lost.values())),
        "messages": (
            Counter((one["kind"], one["key"], one["state"], one.get("versionId")) for one in world.sqs.bodies),
            Counter(("audit", key, state.kind.value, state.version_id) for key, state in sent.items()),
        ),
        "resubmitted": (report.resubmitted, len(sent)),
        "marks": (world.marks, Counter(f"{AUDIT.bucket}/{key}" for key in sent)),
        "listed": (report.listed, world.objects - sum(story.listed is None for story in stories.values())),
        "lines": (+report.lines, lines),
        "sum of the lines": (report.lines.total(), report.listed),
        "unlisted": (+report.unlisted, unlisted),
        "candidates": (report.candidates, len(lost) + of_dismissed),
        "dismissed": (report.dismissed, of_dismissed),
        "HEADs": (world.requests["HeadObject"], len(lost) + of_dismissed),
    }
    return [
        f"{name}: {str(got)[:200]}, expected {str(wanted)[:200]}"
        for name, (got, wanted) in checks.items()
        if got != wanted
    ]


def main() -> int:
    """Print what happened; the exit code is 1 when anything is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("objects", nargs="?", type=int, default=1_000_000)
    parser.add_argument("--one", action="store_true", help="audit in one function")
    asked = parser.parse_args()
    world, started = World(asked.objects), time.monotonic()
    with findings() as found:
        report = (audit_in_one if asked.one else audit_in_parts)(world)
    wrong = problems(world, report, found)
    print(f"{asked.objects:,} synthetic objects, {time.monotonic() - started:.0f} s, peak {peak_mb():,.0f} MB")
    print(f"the run said:   {report.summary(NOW)}")
    print(f"looked at:      {report.candidates:,} candidates, {report.dismissed:,} dismissed, {len(found):,} findings")
    print("\n".join(f"WRONG: {one}" for one in wrong) or "all of it, and nothing else")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
