"""All runs, by the name of the pipeline or intake in the deployed stack."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.local.faults.collection import MANIFESTS, MARKED, QUIET, Collection, Form
from tests.local.faults.durable import durable
from tests.local.faults.executions import executions
from tests.local.faults.intakes import EventIntake, FifoIntake, Intake
from tests.local.faults.messages import messages
from tests.local.faults.outcomes import Outcome
from tests.local.faults.scenarios import called, grouped, killed, outage, plain, wired
from tests.local.faults.sets import sets
from tests.local.faults.sizes import Sizes
from tests.local.faults.streams import StreamIntake, TableIntake
from tests.local.faults.world import Line, Sources

Outputs = Mapping[str, str]
"""Outputs of the deployed stack, by name."""
Run = Callable[[Sources, Outputs, Sizes], Iterator[Outcome]]


def _of_pipeline(name: str, scenario: Callable[[Line, Sources, Sizes], Iterator[Outcome]]) -> Run:
    return lambda world, outputs, sizes: scenario(Line.of(world, outputs, name), world, sizes)


def _of_intake(name: str, intake: type[Intake], *, fewer: bool = True) -> Run:
    return lambda world, outputs, sizes: messages(
        intake.of(world, outputs, name), world, sizes.with_fewer_keys() if fewer else sizes
    )


def _of_sets(name: str, form: Form) -> Run:
    return lambda world, outputs, sizes: sets(
        Collection.of(world, outputs, name, form), world, sizes if form is MANIFESTS else sizes.with_fewer_sets()
    )


LINES: dict[str, Run] = {
    "Killed": _of_pipeline("Killed", killed),
    "Wired": _of_pipeline("Wired", wired),
    "Plain": _of_pipeline("Plain", plain),
    "Outage": _of_pipeline("Outage", outage),
    "Grouped": _of_pipeline("Grouped", grouped),
    "Called": _of_pipeline("Called", called),
    "Executions": executions,
    "Durable": durable,
    "Messages": _of_intake("Messages", Intake, fewer=False),
    "Fifo": _of_intake("Fifo", FifoIntake, fewer=False),
    "Events": _of_intake("Events", EventIntake),
    "Kinesis": _of_intake("Kinesis", StreamIntake),
    "Changes": _of_intake("Changes", TableIntake),
    "Sets": _of_sets("Sets", MANIFESTS),
    "Marked": _of_sets("Marked", MARKED),
    "Quiet": _of_sets("Quiet", QUIET),
}


AT_ONCE = 4
"""Lines that run at the same time on two cores."""


def run(world: Sources, outputs: Outputs, sizes: Sizes, lines: Sequence[str] = ()) -> list[Outcome]:
    """Run the scenarios of these lines, `AT_ONCE` at the same time. All lines if `lines` is empty."""

    def one(name: str) -> list[Outcome]:
        return list(LINES[name](world, outputs, sizes))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [outcome for outcomes in pool.map(one, lines or LINES) for outcome in outcomes]
