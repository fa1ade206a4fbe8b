"""The demo from beginning to end, with its progress on the terminal."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.demo import script as scripts
from examples.demo.judge import Result, judge
from examples.demo.page import write_page
from examples.demo.stack import STACK
from examples.demo.wire import Wire
from examples.demo.world import LOCKS, SIDES, World
from examples.harness.measures import table, told, write_json
from examples.harness.screen import Screen
from examples.harness.world import deploy

from cdk_intake_ledger.testing import LocalAws

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from examples.demo.material import Source
    from examples.demo.script import Script

STAGE_1_SECONDS = 900.0


@dataclass(frozen=True)
class Options:
    """The options of the command."""

    sources: Sequence[Source]
    output: Path
    seed: int
    short: bool
    locks: bool = False
    """With two published locks."""


@dataclass(frozen=True)
class Native:
    """The result of stage 1, in which S3 notifies the pipeline's queue directly."""

    files: int
    right: int
    median_seconds: float
    """From the end of the upload until the effect was complete."""


def run(options: Options) -> bool:
    """Run the demo. Return true if the ledger's column is right in every line."""
    screen = Screen()
    script = scripts.write(options.sources, seed=options.seed, short=options.short)
    contents = sum(len(source.contents) for source in options.sources)
    screen.say(f"{len(options.sources)} files in {contents} versions; seed {options.seed}")
    with LocalAws() as aws, tempfile.TemporaryDirectory(prefix="demo-") as staging:
        sides = (*SIDES, *LOCKS) if options.locks else SIDES
        world = World(aws, _deploy(screen, aws, script, Path(staging), options), sides)
        wire = Wire(world, options.seed)
        native = _stage_1(screen, world, wire, script)
        _stage_2(screen, world, wire, script)

        def drain() -> None:
            with screen.bar("waiting until they are processed", None) as show:
                world.wait_until_empty(world.queues("ledger"), show)

        function, ledger = world.outputs["AuditFunction"], world.outputs["LedgerTable"]
        audits = world.audits(screen, "the pipeline", function, ledger, drain)
        with screen.bar("consumers by hand: waiting for their retries to end", None) as show:
            world.wait_until_empty(world.queues(*sides[1:]), show)
        screen.say("no work is left: comparing all sides with S3")
        with screen.bar("reading every object, row, log line and dead letter", None):
            result = judge(world, script, wire, audits)
        write_page(
            options.output,
            world=world,
            script=script,
            wire=wire,
            native=native,
            result=result,
            seconds=screen.elapsed,
        )
    _print(screen, result, native)
    write_json(options.output.with_suffix(".json"), screen, _content(result, native))
    screen.say(f"the page: {options.output}")
    return told(screen, "the ledger", right=result.right)


def _deploy(screen: Screen, aws: LocalAws, script: Script, staging: Path, options: Options) -> Mapping[str, str]:
    context = {
        "code": str(staging),
        "killKeys": "|".join(script.kill_keys),
        "naiveTimeout": "1" if options.short else "4",
        "locks": "yes" if options.locks else "",
    }
    return deploy(screen, aws, "examples.demo.stack", STACK, context)


def _stage_1(screen: Screen, world: World, wire: Wire, script: Script) -> Native:
    """Upload files through S3's notification, the queue and Lambda, without the wire."""
    put = {done.operation.key: done for done in (wire.operate(operation) for operation in script.first)}
    with screen.bar("stage 1: S3 notifies the pipeline's queue directly", len(put)) as show:

        def effects() -> dict[str, dict[str, Any]]:
            found = {e["key"]: e for e in world.effects()["ledger"] if e["version"] == put[e["key"]].version_id}
            show(len(found), "")
            return found if len(found) == len(put) else {}

        complete = world.aws.wait_until(effects, "the first files are in the catalogue", timeout=STAGE_1_SECONDS)
    waits = [(complete[key]["ended"] - done.at) / 1000 for key, done in put.items()]
    native = Native(len(put), len(complete), statistics.median(waits))
    screen.say(
        f"stage 1: {native.right} of {native.files} files through S3's own notification -> SQS -> Lambda, "
        f"median {native.median_seconds:.1f} s after the upload"
    )
    return native


def _stage_2(screen: Screen, world: World, wire: Wire, script: Script) -> None:
    wire.put_in_between()
    with screen.bar("stage 2: uploads, and unreliable delivery", len(script.operations)) as show:
        tick = _every(0.4, lambda: show(len(wire.done) - len(script.first), _status(world, wire)))
        wire.run(script.operations, tick)
    counts = Counter(delivery.what for delivery in wire.deliveries)
    screen.say(
        f"stage 2: {len(script.operations)} operations, each message of S3's to all queues: {counts['sent']} once, "
        f"{counts['copy']} twice at once, {counts['lost']} lost"
    )
    with screen.bar("waiting until the sent messages are handled", None) as show:
        world.wait_until_settled(world.queues(), show)
    late = wire.deliver_late_copies()
    screen.say(f"{late} of the messages delivered again, after newer versions were processed")
    what = "waiting until the queue is empty (a killed worker's messages stay hidden for a minute)"
    with screen.bar(what, None) as show:
        world.wait_until_empty(world.queues("ledger"), show)


def _status(world: World, wire: Wire) -> str:
    depths = ", ".join(f"{side} {sum(world.depth(world.queue(side)))}" for side in world.sides)
    return f"{wire.forwarded} messages forwarded; in the queues: {depths}"


def _every(seconds: float, action: Callable[[], None]) -> Callable[[], None]:
    due = [0.0]

    def tick() -> None:
        if time.monotonic() >= due[0]:
            action()
            due[0] = time.monotonic() + seconds

    return tick


# -- the outcome -----------------------------------------------------------------------------------------------------


def _print(screen: Screen, result: Result, native: Native) -> None:
    drawn = table(
        f"{result.objects} objects in S3 after {result.versions} uploads", list(result.facts), result.measures
    )
    drawn.add_section()
    effects = [str(facts.effects) for facts in result.facts.values()]
    drawn.add_row("effects in all", "", *effects, "[dim]versions overtaken before they were processed need none[/]")
    screen.console.print(drawn)
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in result.verdicts.most_common())
    screen.console.print(f"The ledger's verdicts: {verdicts}.")
    screen.console.print(
        f"Stage 1, direct delivery:  {native.right} of {native.files} right. Stage 2, per queue: "
        + ", ".join(f"{count} {what}" for what, count in result.sent.most_common())
        + "."
    )


def _content(result: Result, native: Native) -> dict[str, Any]:
    return {
        "right": result.right,
        "measures": {
            m.name: {"right": m.right, **m.values, "ledger_is_right": m.verdict("ledger")} for m in result.measures
        },
        "verdicts": dict(result.verdicts),
        "outcomes": dict(result.outcomes),
        "messages": dict(result.sent),
        "effects": {side: facts.effects for side, facts in result.facts.items()},
        "objects": result.objects,
        "uploads": result.versions,
        "native": {"files": native.files, "right": native.right, "median_seconds": native.median_seconds},
        "audits": result.audits,
    }
