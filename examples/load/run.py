"""The demonstration from beginning to end, with its progress on the terminal."""

from __future__ import annotations

import csv
import io
import json
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from examples.demo.judge import what_s3_holds
from examples.demo.wire import Wire
from examples.demo.world import SIDES, World
from examples.harness.measures import Measure, table, told, write_json
from examples.harness.screen import Screen
from examples.harness.world import deploy
from examples.load import script as scripts
from examples.load.database import Databases
from examples.load.judge import Content, Current, Result, judge
from examples.load.material import PREFIX, customer_of
from examples.load.page import Facts, write_page
from examples.load.stack import STACK
from examples.postgres import postgres

from cdk_intake_ledger.testing import LocalAws

if TYPE_CHECKING:
    from pathlib import Path

    from examples.load.script import Script

FAULT_SECONDS = 900.0


@dataclass(frozen=True)
class Options:
    """The options of the command."""

    output: Path
    seed: int
    short: bool
    with_ledger: bool


class Run:
    """One run: a deployed stack, its databases, and the wire between S3 and the queues."""

    def __init__(self, screen: Screen, script: Script, world: World, databases: Databases) -> None:
        self._screen = screen
        self._script = script
        self._world = world
        self._databases = databases
        self._sides = world.sides
        self.wire = Wire(world, script.seed, prefix=PREFIX)
        self._audits: list[dict[str, Any]] = []

    def play(self) -> None:
        """Carry out the script, and wait until no work is left."""
        self.wire.put_in_between()
        late = len(self._script.first)
        with self._screen.bar("uploads whose first worker will be late", None) as show:
            self.wire.run(self._script.first, lambda: show(0, ""))
            self._world.aws.wait_until(
                lambda: all(self._databases.fired(side) >= late for side in self._sides),
                "the first worker of each of these files is late",
                timeout=FAULT_SECONDS,
            )
        self._screen.say(f"{late} files: on each side the first worker is late, with its transaction")
        with self._screen.bar("uploads, overwrites, deletes, and unreliable events", None) as show:
            self.wire.run(self._script.operations, lambda: show(0, f"{self.wire.forwarded} messages forwarded"))
        counts = Counter(delivery.what for delivery in self.wire.deliveries)
        self._screen.say(
            f"{self.wire.tapped} messages of S3: {counts['lost']} lost, {counts['copy']} copies, with the article's "
            f"gaps at 1:{self._script.scale}"
        )
        with self._screen.bar("waiting until the sent messages are handled", None) as show:
            self._world.wait_until_settled(self._world.queues(), show)
        again = self.wire.deliver_late_copies()
        self._screen.say(f"{again} messages delivered again, after newer versions were processed")
        self._drain()
        self._world.aws.wait_until(self._copies_have_ended, "late workers have ended", timeout=FAULT_SECONDS)
        if "ledger" in self._sides:
            outputs = self._world.outputs
            self._audits = self._world.audits(
                self._screen, "the pipeline", outputs["AuditFunction"], outputs["LedgerTable"], self._drain
            )

    def _drain(self) -> None:
        with self._screen.bar("waiting until all queues are empty", None) as show:
            self._world.wait_until_empty(self._world.queues(), show)

    def _copies_have_ended(self) -> bool:
        outcomes = [self._databases.outcomes(side) for side in self._sides]
        return not any(counts["waiting"] for kinds in outcomes for counts in kinds.values())

    def judge(self) -> Result:
        """Compare both databases with S3."""
        stories = self._script.stories
        owners = {key: customer_of(key) for key in stories}
        found = {side: self._databases.rows(side) for side in self._sides}
        return judge(self._expected(), found, stories, owners, self._further())

    def facts(self, seconds: float) -> Facts:
        """The events of the run, for the page."""
        return Facts(
            seconds=seconds,
            scale=self._script.scale,
            seed=self._script.seed,
            files=len(self._script.stories),
            tapped=self.wire.tapped,
            sent=Counter(delivery.what for delivery in self.wire.deliveries),
            gaps=self._gaps(),
            ages=self._ages(),
            audits=self._audits,
            outcomes={side: self._databases.outcomes(side) for side in self._sides},
        )

    def _expected(self) -> dict[str, Current | None]:
        s3, bucket = self._world.aws.client("s3"), self._world.bucket
        expected: dict[str, Current | None] = {}
        for key, newest in what_s3_holds(self._world, set(self._script.stories)).items():
            version = newest["VersionId"]
            if newest["marker"]:
                expected[key] = None
                continue
            body = s3.get_object(Bucket=bucket, Key=key, VersionId=version)["Body"].read().decode()
            rows = list(csv.DictReader(io.StringIO(body)))
            content = Content(rows[0]["customer"], len(rows), sum(int(row["cents"]) for row in rows))
            expected[key] = Current(version, content)
        return expected

    def _further(self) -> list[Measure]:
        outcomes = {side: self._databases.outcomes(side) for side in self._sides}
        died = Measure(
            "workers that died in a transaction",
            {side: self._databases.fired(side) for side in self._sides},
            len({fault.key for fault in self._script.faults}),
        )
        late = {side: counts["late"]["committed"] for side, counts in outcomes.items()}
        further = [died, Measure("late transactions that were committed", late)]
        if self._audits:
            left = sum(self._audits[-1]["counts"].values())
            further.append(Measure("left for a further audit", {"ledger": left}))
        return further

    def _gaps(self) -> list[float]:
        """The time from the first message about an event to each copy, in milliseconds."""
        first = {id(delivery.done): delivery.at for delivery in self.wire.deliveries if delivery.what == "sent"}
        return [
            float(delivery.at - first[id(delivery.done)])
            for delivery in self.wire.deliveries
            if delivery.what == "copy"
        ]

    def _ages(self) -> list[float]:
        """All values of the metric `DuplicateAge`, in milliseconds."""
        if "ledger" not in self._sides:
            return []
        found: list[float] = []
        for line in self._world.aws.logs(self._world.outputs["ConsumerFunction"]):
            if '"DuplicateAge"' in line:
                found += json.loads(line)["DuplicateAge"]
        return found


def run(options: Options) -> bool:
    """Run the demonstration. Return true if the judged column is right in every line.

    With the ledger it is the ledger's, and without it the naive consumer's.
    """
    screen = Screen()
    sides = SIDES if options.with_ledger else ("naive",)
    script = scripts.write(seed=options.seed, short=options.short)
    screen.say(f"{len(script.stories)} files of {script.customers} customers; seed {options.seed}")
    with postgres() as server, LocalAws() as aws, tempfile.TemporaryDirectory(prefix="load-") as staging:
        databases = Databases.create(server, [fault for fault in script.faults if fault.side in sides])
        context = {
            "code": staging,
            "ledger": databases.ledger,
            "naive": databases.naive,
            "faults": databases.faults,
            "withLedger": "yes" if options.with_ledger else "no",
        }
        outputs = deploy(screen, aws, "examples.load.stack", STACK, context)
        played = Run(screen, script, World(aws, outputs, sides), databases)
        started = time.monotonic()
        played.play()
        screen.say("no work is left: comparing the tables with S3")
        result, facts = played.judge(), played.facts(time.monotonic() - started)
    judged = sides[0]
    title = f"{result.customers} customers, {result.rows:,} rows in S3's files"
    screen.console.print(table(title, list(result.columns), result.measures))
    write_page(options.output, result, facts, judged)
    write_json(options.output.with_suffix(".json"), screen, _json(result, facts))
    screen.say(f"the page: {options.output}")
    return told(screen, judged, right=result.is_right(judged))


def _json(result: Result, facts: Facts) -> dict[str, Any]:
    return {
        "right": {side: result.is_right(side) for side in result.columns},
        "measures": {m.name: {"right": m.right, **m.values} for m in result.measures},
        "stories": result.by_story,
        "messages": facts.sent,
        "outcomes": facts.outcomes,
        "gaps_ms": facts.gaps,
        "duplicate_age_ms": facts.ages,
        "scale": facts.scale,
        "audits": facts.audits,
    }
