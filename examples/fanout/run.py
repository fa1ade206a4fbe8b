"""The demonstration from beginning to end, with its progress on the terminal."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from examples.fanout import material
from examples.fanout import script as scripts
from examples.fanout.judge import Errors, Indexes, changes, compare, demanded_indexes, kept_indexes
from examples.fanout.wire import Wire
from examples.fanout.world import STACK, World
from examples.harness.measures import Measure, is_right, table, told, write_json
from examples.harness.screen import Screen
from examples.harness.world import deploy
from examples.postgres import postgres

from cdk_intake_ledger.testing import LocalAws
from intake_ledger.outputs.sql import schema

if TYPE_CHECKING:
    from examples.fanout.script import Script

SCHEMA = Path(__file__).parent / "schema.sql"
LEDGER, HANDWRITTEN = "ledger", "hand-written"
DIRECT_KEYS = 3
"""Objects of the first check, whose events take S3's own way."""
AFTER_FAULTS, AFTER_REPLAY, AFTER_ALL_AGAIN = "after the faults", "after the replay of stage one", "all events again"
AT_THE_END = "at the end"
LINES = {
    "archive_missing": "archive: versions without an entry",
    "archive_wrong": "archive: wrong hashes",
    "archive_surplus": "archive: entries of deleted versions",
    "search_missing": "search: objects without a document",
    "search_stale": "search: documents with an older text",
    "search_surplus": "search: documents of deleted objects",
    "answers_wrong": "search: wrong answers",
}


@dataclass(frozen=True)
class Options:
    """The options of the command."""

    output: Path
    seed: int
    short: bool
    with_ledger: bool


@dataclass
class Run:
    """A run of the demonstration, with its measures."""

    options: Options
    screen: Screen
    world: World
    script: Script
    databases: dict[str, str]
    measures: list[Measure] = dataclasses.field(default_factory=list)

    @property
    def sides(self) -> list[str]:
        return [*([LEDGER] if self.options.with_ledger else []), HANDWRITTEN]

    def everything(self) -> None:
        """Carry out all parts."""
        wire = Wire(self.world)
        # The bucket belongs to the stack. Objects that are older than a pipeline's first audit are left alone.
        for name in self.world.pipelines:
            self.world.audit_of(name, 0)
        self._check_the_direct_way()
        archive = wire.archive()
        self.world.deliver_directly("TapQueueUrl")
        began = self._next_second()
        self._stage(wire, 0, "stage one")
        # A replay's end is inclusive, and an event's time has no fraction: stage two begins in the second after it.
        ended = self._next_second() - 1
        self._stage(wire, 1, "stage two")
        self._deliver_directly("Archive", "Search")
        left = self._audits()
        self._compare(AFTER_FAULTS)
        before, commits = self._indexes(), self.world.commits()
        wire.replay(archive, began, ended)
        self._after_replay(AFTER_REPLAY, before)
        again = wire.send_all_again(self.options.seed)
        self.screen.say(f"all {again} events were put on the bus again, in another order")
        self._after_replay(AFTER_ALL_AGAIN, before)
        self._add(AT_THE_END, "commits that the replays caused", {LEDGER: self.world.commits() - commits})
        self._add(AT_THE_END, "differences that the last audits found", {LEDGER: left})
        self._add(AT_THE_END, "dead-letter messages", self.world.dead_letters())
        if self.script.kill_keys:
            killed = {side: self._killed(side) for side in self.sides}
            self.screen.say("killed workers: " + ", ".join(f"{count} of {side}" for side, count in killed.items()))
            if not all(killed.values()):
                raise RuntimeError(f"no worker was killed in one of the columns: {killed}")
        counts = ", ".join(f"{count} {fate}" for fate, count in wire.counts.items())
        self.screen.say(f"fates of the events: {counts}")

    def _check_the_direct_way(self) -> None:
        """Upload a few texts whose events take the pipeline's own rule.

        The archive does not hear of them: the local AWS does not tell the version, which each event of AWS names. Its
        audit finds them.
        """
        self._deliver_directly("Search")
        keys = {f"direct/{n}.txt" for n in range(DIRECT_KEYS)}
        s3 = self.world.aws.client("s3")
        with self.screen.bar("S3's events through EventBridge's default bus", None):
            for key, topic in zip(keys, material.names(short=True), strict=False):
                s3.put_object(Bucket=self.world.bucket, Key=key, Body=material.draft(topic, 1))
            for side in self.sides:
                self.world.aws.wait_until(partial(self._finds, side, keys), f"the search of {side} has the texts")
            self.world.wait_until_drained()
        self.screen.say(f"{len(keys)} uploads by S3 -> EventBridge's default bus -> the pipeline's rule")

    def _deliver_directly(self, *pipelines: str) -> None:
        chosen = [name for name in pipelines if name in self.world.pipelines]
        self.world.deliver_directly(*(f"{name}QueueUrl" for name in (*chosen, "Handwritten")))

    def _finds(self, side: str, keys: set[str]) -> bool:
        return kept_indexes(self.databases[side], ()).documents.keys() == keys

    def _stage(self, wire: Wire, number: int, name: str) -> None:
        operations = self.script.stages[number]
        with self.screen.bar(f"{name}: operations and their events", len(operations)) as show:
            wire.run(operations, lambda done: show(done, ""))
        self.screen.say(f"{name}: {len(operations)} operations")
        with self.screen.bar("waiting until the queues are empty (a killed worker's messages stay hidden)", None):
            self.world.wait_until_drained()
        self.screen.say(f"{name}: {len(operations)} operations on {len(self.script.stages[0])} objects")

    def _audits(self) -> int:
        """Run the audit of each pipeline until it finds nothing. Return the number of differences in the last runs."""
        outputs, left = self.world.outputs, 0
        for name in self.world.pipelines:
            reports = self.world.audits(
                self.screen, name, outputs[f"{name}Audit"], outputs["LedgerTable"], self.world.wait_until_drained
            )
            left += sum(reports[-1]["counts"].values())
        return left

    def _after_replay(self, moment: str, before: dict[str, Indexes]) -> None:
        with self.screen.bar("waiting until the replayed events are handled", None):
            self.world.wait_until_drained()
        after = self._indexes()
        self._add(
            moment, "entries that the replay changed", {side: changes(before[side], after[side]) for side in self.sides}
        )
        self._compare(moment)

    def _compare(self, moment: str) -> None:
        demanded = demanded_indexes(self.world.aws, self.world.bucket, _words())
        kept = self._indexes()
        errors: dict[str, Errors] = {side: compare(demanded, kept[side]) for side in self.sides}
        for kind, name in LINES.items():
            self._add(moment, name, {side: getattr(errors[side], kind) for side in self.sides})
        self.screen.say(
            f"{moment}: compared with {len(demanded.archive)} versions of {len(demanded.documents)} objects"
        )

    def _killed(self, side: str) -> int:
        with psycopg.connect(self.databases[side]) as connection:
            return len(connection.execute("SELECT worker FROM kills").fetchall())

    def _indexes(self) -> dict[str, Indexes]:
        return {side: kept_indexes(self.databases[side], _words()) for side in self.sides}

    def _add(self, moment: str, name: str, values: dict[str, int]) -> None:
        self.measures.append(Measure(name, {side: values.get(side) for side in self.sides}, moment=moment))

    def _next_second(self) -> float:
        """Wait for the next full second, since the times of events have no fractions, and return it."""
        start = int(time.time()) + 1
        self.world.aws.wait_until(lambda: time.time() >= start, "the second is over", interval=0.05)
        return float(start)


def run(options: Options) -> bool:
    """Run the demonstration. Return true if the judged side is right in every line."""
    screen = Screen()
    keys = material.names(short=options.short)
    script = scripts.write(keys, seed=options.seed, kills=not options.short)
    with postgres() as server, LocalAws() as aws:
        databases = {side: server.new_database() for side in (LEDGER, HANDWRITTEN)}
        for database in databases.values():
            with psycopg.connect(database) as connection:
                connection.execute(SCHEMA.read_bytes())
                connection.execute(schema())
        context = {
            "ledgerDatabase": databases[LEDGER],
            "handwrittenDatabase": databases[HANDWRITTEN],
            "killKeys": "|".join(script.kill_keys) or "-",
            "withLedger": "yes" if options.with_ledger else "no",
        }
        world = World(aws, deploy(screen, aws, "examples.fanout.stand", STACK, context), options.with_ledger)
        done = Run(options, screen, world, script, databases)
        done.everything()
    judged = done.sides[0]
    right = is_right(done.measures, judged)
    screen.console.print(table("wrong entries, compared with the content of S3", done.sides, done.measures))
    moments: dict[str, dict[str, object]] = {}
    for measure in done.measures:
        moments.setdefault(measure.moment, {})[measure.name] = measure.values
    write_json(options.output, screen, {"right": right, "judged": judged, "measures": moments})
    return told(screen, judged, right=right)


def _words() -> list[str]:
    return [material.word_of(number) for number in range(1, material.DRAFTS + 1)]
