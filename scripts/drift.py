"""Count the drift: members, alarms, metrics, variables, subcommands, classes of the testing kit and parts of a page
that one kind of work has and another lacks without a written reason. A reason that no lack needs counts too.

    python -m scripts.drift

The reasons are in `intake_ledger.contract`, and in `REFUSED` of the command. `make house` prints the number.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from intake_ledger.contract import ALARMS, KINDS, LACKS, METRICS, AlarmRow, MetricRow

DOCS = Path(__file__).parents[1] / "docs"
_COMMANDS = re.compile(r"^\| (`.*`) \|(.*)\|$", re.MULTILINE)
_RUNNERS = ("Inline", "Remote", "Later")
_OF_ALL_STACKS = frozenset({"acceptance", "ls", "template"})
"""Commands that take no pipeline."""

KIT: Mapping[str, str] = {"objects": "LocalPipeline", "messages": "LocalMessages", "sets": "LocalSets"}
"""The class of the testing kit for each kind."""


class Cells(NamedTuple):
    """The constructs of all kinds and runners, without synthesis."""

    constructs: Mapping[tuple[str, str], Any]
    without_workers: list[str]


def drift() -> dict[str, list[str]]:
    """Return the differences without a reason by subject."""
    cells = _cells()
    return {
        "options": _unexplained("option", _options),
        "members": _unexplained("member", _members),
        "variables": sorted({line for runner in _RUNNERS for line in _variables(cells, runner)}),
        "reasons without a lack": _unneeded(cells),
        "alarms and metrics": [*_rows()],
        "workers": cells.without_workers,
        "subcommands": [*_commands()],
        "kit": [f"{kind} has no class for tests" for kind, name in KIT.items() if name not in _kit()],
        "pages": [*_sections()],
    }


def _classes() -> dict[str, type]:
    import cdk_intake_ledger  # noqa: PLC0415 - it starts the CDK

    return {kind: getattr(cdk_intake_ledger, name) for kind, name in KINDS.items()}


def _options(construct: type) -> AbstractSet[str]:
    return set(inspect.signature(construct.__init__).parameters) - {"self", "scope", "id"}  # type: ignore[misc]


def _members(construct: type) -> AbstractSet[str]:
    return {name for name in dir(construct) if not name.startswith("_") and not name.startswith("jsii")}


def _lacks(has: Mapping[str, AbstractSet[str]]) -> dict[str, list[str]]:
    """The kinds that lack a thing, by its name."""
    every = set[str]().union(*has.values())
    found = {name: [kind for kind in has if name not in has[kind]] for name in sorted(every)}
    return {name: kinds for name, kinds in found.items() if kinds}


def _unexplained(what: str, names: Callable[[type], AbstractSet[str]]) -> list[str]:
    lacks = _lacks({kind: names(construct) for kind, construct in _classes().items()})
    return [f"{what} {name}: not for {', '.join(kinds)}" for name, kinds in lacks.items() if name not in LACKS]


@cache
def _cells() -> Cells:
    from aws_cdk import App, Duration, Stack  # noqa: PLC0415 - it starts the CDK
    from aws_cdk import aws_ecs as ecs  # noqa: PLC0415
    from aws_cdk import aws_lambda as lambda_  # noqa: PLC0415
    from aws_cdk import aws_stepfunctions as sfn  # noqa: PLC0415

    from cdk_intake_ledger import (  # noqa: PLC0415
        FileSets,
        IntakeConfigurationError,
        IntakePipeline,
        IntakeWorkers,
        MessageIntake,
        MessageSource,
        Processor,
        SetForm,
    )

    stack = Stack(App(), "Drift")
    arn = "arn:aws:{}:eu-central-1:123456789012:{}"
    machine = sfn.StateMachine.from_state_machine_arn(stack, "Machine", arn.format("states", "stateMachine:work"))
    function = lambda_.Function.from_function_attributes(
        stack, "Function", function_arn=arn.format("lambda", "function:work"), same_environment=True
    )
    code = lambda_.Code.from_inline("def process(work): return None")
    processors = {
        "Inline": Processor.from_code(code, entrypoint="index:process", processor_version="1"),
        "Remote": Processor.from_function(function, processor_version="1"),
        "Later": Processor.from_state_machine(machine, timeout=Duration.hours(1), processor_version="1"),
    }
    made: dict[tuple[str, str], Any] = {}
    for runner, one in processors.items():
        pipeline = IntakePipeline(stack, f"Objects{runner}", processor=one)
        made["objects", runner] = pipeline
        made["sets", runner] = FileSets(
            stack, f"Sets{runner}", pipeline=pipeline, form=SetForm.manifest("in/*/m.json"), processor=one
        )
        made["messages", runner] = MessageIntake(
            stack, f"Messages{runner}", source=MessageSource.sqs(), key="k", identity="i", processor=one
        )
    cluster = ecs.Cluster(stack, "Cluster")
    image = ecs.ContainerImage.from_registry("intake")
    refused = []
    for (kind, runner), intake in made.items():
        try:
            IntakeWorkers(stack, f"{kind}{runner}Workers", intake=intake, cluster=cluster, image=image)
        except IntakeConfigurationError as error:
            refused.append(f"workers do not run {kind}, {runner}: {error}")
    return Cells(made, refused)


def _variables(cells: Cells, runner: str) -> Iterator[str]:
    for name, kinds in _lacks(_variables_of(cells, runner)).items():
        if name not in LACKS:
            yield f"variable {name}: not for {', '.join(kinds)}"


def _variables_of(cells: Cells, runner: str) -> dict[str, AbstractSet[str]]:
    return {kind: set(cells.constructs[kind, runner]._consumer.environment) for kind in KINDS}  # noqa: SLF001


def _unneeded(cells: Cells) -> list[str]:
    classes = _classes().items()
    needed = {*_lacks({kind: _options(one) for kind, one in classes})}
    needed |= {*_lacks({kind: _members(one) for kind, one in classes})}
    needed |= {name for runner in _RUNNERS for name in _lacks(_variables_of(cells, runner))}
    return sorted(set(LACKS) - needed)


def _rows() -> Iterator[str]:
    rows: dict[str, AlarmRow | MetricRow] = {f"alarm {row.name}": row for row in ALARMS}
    rows |= {f"metric {name}": row for name, row in METRICS.items()}
    for name, row in rows.items():
        if bool(row.reason) != (set(row.kinds) != set(KINDS)):
            yield f"{name}: {'a reason without a lack' if row.reason else 'no reason'}"


def _commands() -> Iterator[str]:
    """Cells of the page of the command that are empty, or refuse without a way out; commands without a row."""
    import typer  # noqa: PLC0415

    from intake_ledger_cli import commands  # noqa: PLC0415
    from intake_ledger_cli.kinds import REFUSED, PipelineKind  # noqa: PLC0415

    text = (DOCS / "operating.md").read_text(encoding="utf-8")
    table = text.partition("## Which command knows which kind")[2].partition("\n## ")[0]
    shown = set()
    for names, cells in _COMMANDS.findall(table):
        for name in re.findall(r"`([^`]+)`", names):
            shown.add(name.split()[0])
            for kind, cell in zip(PipelineKind, cells.split("|"), strict=True):
                refused = kind in REFUSED.get(name, {})
                if not cell.strip() or cell.strip().startswith("no") != refused:
                    yield f"{name} for {kind}: the page has {cell.strip()!r}"
    commands.load()
    for name in typer.main.get_group(commands.app).commands:
        if name not in shown | _OF_ALL_STACKS:
            yield f"{name}: no row of the page"


def _kit() -> AbstractSet[str]:
    from cdk_intake_ledger import testing  # noqa: PLC0415

    return set(testing.__all__)


def _sections() -> Iterator[str]:
    """The page of the kinds has the same parts for each kind."""
    text = (DOCS / "kinds.md").read_text(encoding="utf-8")
    sections = [one for one in text.split("\n## ")[1:] if "**Purpose.**" in one]
    parts = {one.partition("\n")[0]: {*re.findall(r"\*\*(\w+)\.\*\* \S", one)} for one in sections}
    if len(parts) < len(KINDS):
        yield f"docs/kinds.md has only {', '.join(parts)}"
    for part, kinds in _lacks(parts).items():
        yield f"docs/kinds.md: no {part} of {', '.join(kinds)}"


def lines() -> list[str]:
    """The number, and each difference."""
    found = [line for differences in drift().values() for line in differences]
    return [f"drift between kinds of work: {len(found)}", *(f"  {line}" for line in found)]


def main() -> int:
    """Print the drift. Return 1 if there is any."""
    found = lines()
    print("\n".join(found))
    return len(found) > 1


if __name__ == "__main__":
    sys.exit(main())
