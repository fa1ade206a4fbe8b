"""The demo from beginning to end, with its progress on the terminal."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.demo import script as scripts
from examples.demo.judge import Result, judge
from examples.demo.page import write_page
from examples.demo.screen import Screen
from examples.demo.stack import ROOT, STACK
from examples.demo.waiting import audit, wait_until_drained, wait_until_settled
from examples.demo.wire import Wire
from examples.demo.world import LOCKS, SIDES, World
from rich.table import Table

from cdk_intake_ledger.testing import LocalAws

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
        screen.say(f"a local AWS runs on {aws.endpoint_url}")
        sides = (*SIDES, *LOCKS) if options.locks else SIDES
        world = World(aws, _deploy(screen, aws, script, Path(staging), options), sides)
        wire = Wire(world, options.seed)
        native = _stage_1(screen, world, wire, script)
        _stage_2(screen, world, wire, script)
        audits = audit(screen, world)
        with screen.bar("consumers by hand: waiting for their retries to end", None) as show:
            wait_until_drained(world, sides[1:], show)
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
    _write_json(options.output.with_suffix(".json"), result, native, seconds=screen.elapsed)
    screen.say(f"the page: {options.output}")
    verdict = "[bold green]right in every line" if result.right else "[bold red]WRONG, see above"
    screen.say(f"the ledger's column is {verdict}[/]")
    return result.right


def _deploy(screen: Screen, aws: LocalAws, script: Script, staging: Path, options: Options) -> dict[str, str]:
    context = {
        "code": str(staging),
        "killKeys": "|".join(script.kill_keys),
        "naiveTimeout": "1" if options.short else "4",
        "locks": "yes" if options.locks else "",
    }
    with screen.bar("cdk bootstrap and cdk deploy", None):
        outputs = aws.deploy(f"{sys.executable} -m examples.demo.stack", STACK, context=context, cwd=ROOT)
    screen.say(f"deployed with the CDK CLI: the pipeline, and a naive consumer ({len(outputs[STACK])} outputs)")
    return outputs[STACK]


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
        wait_until_settled(world, show)
    late = wire.deliver_late_copies()
    screen.say(f"{late} of the messages delivered again, after newer versions were processed")
    what = "waiting until the queue is empty (a killed worker's messages stay hidden for a minute)"
    with screen.bar(what, None) as show:
        wait_until_drained(world, ("ledger",), show)


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
    table = Table(title=f"{result.objects} objects in S3 after {result.versions} uploads", title_justify="left")
    table.add_column("")
    for title in ("right", *result.facts):
        table.add_column(title, justify="right")
    table.add_column("")
    for measure in result.measures:
        cells = [_cell(measure.verdict(side), value) for side, value in measure.values.items()]
        table.add_row(measure.name, str(measure.right), *cells, f"[dim]{measure.explanation}[/]")
    table.add_section()
    effects = [str(facts.effects) for facts in result.facts.values()]
    table.add_row("effects in all", "", *effects, "[dim]versions overtaken before they were processed need none[/]")
    screen.console.print(table)
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in result.verdicts.most_common())
    screen.console.print(f"The ledger's verdicts: {verdicts}.")
    screen.console.print(
        f"Stage 1, direct delivery:  {native.right} of {native.files} right. Stage 2, per queue: "
        + ", ".join(f"{count} {what}" for what, count in result.sent.most_common())
        + "."
    )


def _cell(verdict: bool | None, value: int | None) -> str:
    if verdict is None:
        return "[dim]-[/]"
    return f"[green]{value}[/]" if verdict else f"[bold red]{value}[/]"


def _write_json(path: Path, result: Result, native: Native, *, seconds: float) -> None:
    content = {
        "right": result.right,
        "seconds": round(seconds, 1),
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
    path.write_text(json.dumps(content, indent=2) + "\n")
