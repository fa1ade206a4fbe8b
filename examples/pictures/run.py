"""The comparison from beginning to end, with its progress on the terminal."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from examples.harness.measures import cell, write_json
from examples.harness.screen import Screen
from examples.harness.world import deploy
from examples.pictures import script as scripts
from examples.pictures.client import Client
from examples.pictures.columns import LEDGERS, Column, chosen
from examples.pictures.comparison_stack import STACK
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
    from collections.abc import Sequence
    from pathlib import Path

    from examples.pictures.script import Round

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
        columns = chosen(locks=options.locks, ledger=options.ledger)
        context = {"code": staging, "gateUrl": gate.url, "columns": " ".join(columns)}
        world = World(aws, deploy(screen, aws, "examples.pictures.comparison_stack", STACK, context), columns)
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
        _drain(screen, world)
        judged = _judge(world, rounds)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    draw(judged, faults=_faults(gate, wire)).save(options.output, optimize=True)
    wrong = wrong_rounds(judged)
    _print(screen, judged)
    write_json(options.output.with_suffix(".json"), screen, _content(judged, gate, wire))
    screen.say(f"the montage: {options.output}")
    return wrong


def _play(screen: Screen, world: World, wire: Wire, gate: Gate, rounds: Sequence[Round]) -> None:
    for column in _ledgers(world):
        world.hide_for(column, HIDDEN_SECONDS)
    wire.put_in_between()
    with screen.bar("uploads, deletions and faults", len(rounds)) as show:
        Client(world, wire, gate).play(rounds, lambda done: show(done, ""))
    screen.say(f"{len(rounds)} rounds played. {_faults(gate, wire)}")
    _drain(screen, world)
    wire.repeat()
    _drain(screen, world)


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
        function, table = (world.outputs[f"{column.construct}{name}"] for name in ("Audit", "Table"))
        world.audits(screen, column.label, function, table, partial(_drain, screen, world, column))


def _ledgers(world: World) -> list[Column]:
    return [column for column in world.columns if column in LEDGERS]


def _drain(screen: Screen, world: World, *columns: Column) -> None:
    with screen.bar("waiting until the queues are empty", None) as show:
        world.wait_until_empty(world.queues(*columns), show)


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
        table.add_row(story, str(sizes[story]), *(cell(not counts[column], counts[column]) for column in totals))
    table.add_section()
    table.add_row("all", str(len(judged)), *(cell(not wrong, wrong) for wrong in totals.values()))
    screen.console.print(table)


def _content(judged: Sequence[Judged], gate: Gate, wire: Wire) -> dict[str, Any]:
    late = Counter((place.column, status) for place, status in gate.late)
    columns = columns_of(judged)
    return {
        "rounds": len(judged),
        "wrong": wrong_rounds(judged),
        "stories": wrong_by_story(judged),
        "events": dict(wire.counts),
        "killed": {column: sum(n for place, n in gate.killed.items() if place.column is column) for column in columns},
        "late": {column: {str(s): n for (c, s), n in late.items() if c is column} for column in columns},
        "findings": {one.key: {column: one.finding(column) for column in one.outputs} for one in judged},
    }
