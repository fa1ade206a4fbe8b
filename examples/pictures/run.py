"""The comparison from beginning to end, with its progress on the terminal."""

from __future__ import annotations

import json
import platform
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.demo.screen import Screen
from examples.pictures import script as scripts
from examples.pictures.client import Client
from examples.pictures.columns import LEDGERS, Column, chosen
from examples.pictures.comparison_stack import ROOT, SETTLE_SECONDS, STACK
from examples.pictures.gate import Gate
from examples.pictures.judge import Judged, columns_of, wrong_by_story, wrong_rounds
from examples.pictures.montage import draw
from examples.pictures.processor.pictures import greyscale
from examples.pictures.script import Event
from examples.pictures.wire import Wire
from examples.pictures.world import World
from rich.table import Table

from cdk_intake_ledger.testing import LocalAws

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from examples.pictures.script import Round

AUDITS = 4
DRAIN_SECONDS = 900.0
HIDDEN_SECONDS = 17
"""Seconds for which the queues of the pipelines hide a received message: just more than the lease. The construct's
default is half a minute longer, so that a killed worker's message is not received in vain."""


@dataclass(frozen=True)
class Options:
    """The options of the command."""

    rounds: int
    output: Path
    seed: int
    kills: bool
    locks: bool
    """With the published locks."""
    ledger: bool = True
    """With the pipelines that have a ledger."""


def run(options: Options) -> dict[Column, int]:
    """Play all rounds, draw the montage, and return the wrong rounds of each column."""
    screen = Screen()
    rounds = scripts.write(options.rounds, seed=options.seed, kills=options.kills)
    screen.say(f"{len(rounds)} rounds, one key each; seed {options.seed}")
    with (
        LocalAws() as aws,
        Gate(aws.endpoint_url) as gate,
        tempfile.TemporaryDirectory(prefix="pictures-") as staging,
    ):
        screen.say(f"a local AWS runs on {aws.endpoint_url}")
        columns = chosen(locks=options.locks, ledger=options.ledger)
        world = World(aws, _deploy(screen, aws, gate, Path(staging), columns), columns)
        gate.columns = {world.copies(column): column for column in columns}
        wire = Wire(world, options.seed)
        _play(screen, world, wire, gate, rounds)
        _audit(screen, world)
        gate.release()
        refused = Counter(place.column for place, status in gate.late if status >= 300)
        screen.say(
            f"{len(gate.late)} requests of late workers arrive. S3 refuses: "
            + ", ".join(f"{column.label} {refused[column]}" for column in columns)
        )
        _wait_until_drained(screen, world, world.columns)
        judged = _judge(world, rounds)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    draw(judged, faults=_faults(gate, wire)).save(options.output, optimize=True)
    wrong = wrong_rounds(judged)
    _print(screen, judged)
    _write_json(options.output.with_suffix(".json"), judged, gate, wire, seconds=screen.elapsed)
    screen.say(f"the montage: {options.output}")
    return wrong


def _deploy(screen: Screen, aws: LocalAws, gate: Gate, staging: Path, columns: Sequence[Column]) -> dict[str, str]:
    machine = "arm64" if platform.machine().lower() in ("arm64", "aarch64") else "x86_64"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    context = {"code": str(staging), "gateUrl": gate.url, "python": python, "machine": machine}
    context["columns"] = " ".join(columns)
    with screen.bar("cdk bootstrap and cdk deploy", None):
        outputs = aws.deploy(
            f"{sys.executable} -m examples.pictures.comparison_stack", STACK, context=context, cwd=ROOT
        )
    screen.say(f"deployed with the CDK CLI, Pillow's wheel for Python {python} on {machine} in each function")
    return outputs[STACK]


def _play(screen: Screen, world: World, wire: Wire, gate: Gate, rounds: Sequence[Round]) -> None:
    for column in _ledgers(world):
        world.hide_for(column, HIDDEN_SECONDS)
    wire.put_in_between()
    with screen.bar("uploads, deletions and faults", len(rounds)) as show:
        Client(world, wire, gate).play(rounds, lambda done: show(done, ""))
    screen.say(f"{len(rounds)} rounds played. {_faults(gate, wire)}")
    _wait_until_drained(screen, world, world.columns)
    wire.repeat()
    _wait_until_drained(screen, world, world.columns)


def _faults(gate: Gate, wire: Wire) -> str:
    """Return the faults of the run in a sentence."""
    counts = ", ".join(f"{wire.counts[fate]} {fate}" for fate in Event if wire.counts[fate])
    # A consumer whose lock stays taken does not reach each fault.
    killed, late = (
        max(sum(number for place, number in counter.items() if place.column is column) for column in wire.world.columns)
        for counter in (gate.killed, gate.held)
    )
    return f"Faults of each consumer: events {counts}; {killed} workers killed, {late} late."


def _audit(screen: Screen, world: World) -> None:
    """Run the audit of both pipelines until it finds no difference. The usual consumer has none."""
    for column in _ledgers(world):
        for _ in range(AUDITS):
            report = _audit_report(world, column)
            found = sum(report["counts"].values())
            screen.say(f"audit, {column.label}: {report['checked']} keys compared, {found} differ")
            if not found:
                break
            _wait_until_drained(screen, world, [column])


def _ledgers(world: World) -> list[Column]:
    return [column for column in world.columns if column in LEDGERS]


def _audit_report(world: World, column: Column) -> dict[str, Any]:
    """Run an audit when it judges all states. It leaves new states alone, and starts nothing while another one runs."""

    def settled() -> bool:
        return time.time() - world.newest_row(column) > SETTLE_SECONDS + 0.2

    world.aws.wait_until(settled, "the settle time is over", interval=0.3)
    report = world.aws.wait_until(lambda: world.audit(column), "the scheduled audit, if one runs, has ended")
    assert report is not None
    return report


def _wait_until_drained(screen: Screen, world: World, columns: Iterable[Column]) -> None:
    with screen.bar("waiting until the queues are empty", None) as show:

        def drained() -> bool:
            counts = {column: world.messages(column) for column in columns}
            show(0, ", ".join(f"{column} {count}" for column, count in counts.items()))
            return not any(counts.values())

        world.aws.wait_until(drained, "the queues are empty", timeout=DRAIN_SECONDS, interval=0.2)


def _judge(world: World, rounds: Sequence[Round]) -> list[Judged]:
    """Read all outputs. The expected copy is made here, from the picture that S3 holds."""
    judged: list[Judged] = []
    for one in rounds:
        for column in world.columns:
            if world.upload_of(column, one.key) != one.expected:
                raise RuntimeError(f"{column.label}: S3 does not hold the last upload of {one.key}")
        judged.append(
            Judged(
                number=one.number,
                key=one.key,
                story=one.story.title,
                expected=None if one.expected is None else greyscale(one.expected),
                outputs={column: world.copy_of(column, one.key) for column in world.columns},
            )
        )
    return judged


def _print(screen: Screen, judged: Sequence[Judged]) -> None:
    table = Table(title="wrong rounds", title_justify="left")
    table.add_column("")
    table.add_column("rounds", justify="right")
    totals = wrong_rounds(judged)
    for column in totals:
        table.add_column(column.label, justify="right")
    sizes = Counter(one.story for one in judged)
    for story, counts in wrong_by_story(judged).items():
        table.add_row(story, str(sizes[story]), *(_cell(counts[column]) for column in totals))
    table.add_section()
    table.add_row("all", str(len(judged)), *map(_cell, totals.values()))
    screen.console.print(table)


def _cell(wrong: int) -> str:
    return f"[bold red]{wrong}[/]" if wrong else "[green]0[/]"


def _write_json(path: Path, judged: Sequence[Judged], gate: Gate, wire: Wire, *, seconds: float) -> None:
    late = Counter((place.column, status) for place, status in gate.late)
    columns = columns_of(judged)
    content = {
        "rounds": len(judged),
        "wrong": wrong_rounds(judged),
        "stories": wrong_by_story(judged),
        "events": dict(wire.counts),
        "killed": {column: sum(n for place, n in gate.killed.items() if place.column is column) for column in columns},
        "late": {column: {str(s): n for (c, s), n in late.items() if c is column} for column in columns},
        "findings": {one.key: {column: one.finding(column) for column in one.outputs} for one in judged},
        "seconds": round(seconds, 1),
    }
    path.write_text(json.dumps(content, indent=2) + "\n")
