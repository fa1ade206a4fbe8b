"""The command `acceptance`."""

import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from intake_ledger_cli.acceptance import deployment
from intake_ledger_cli.acceptance.checking import Check
from intake_ledger_cli.acceptance.costs import HOURS, estimate
from intake_ledger_cli.acceptance.deployment import Run
from intake_ledger_cli.acceptance.document import AcceptanceReport, CostLine, Outcome, counts, dollars
from intake_ledger_cli.acceptance.page import render
from intake_ledger_cli.acceptance.running import run_checks
from intake_ledger_cli.acceptance.world import World
from intake_ledger_cli.app import Yes, app, now_ms
from intake_ledger_cli.aws import Aws
from intake_ledger_cli.console import console, escape
from intake_ledger_cli.errors import CliError, UsageError
from intake_ledger_cli.json_output import versioned
from intake_ledger_cli.operations import ask, confirm
from intake_ledger_cli.report_file import replace_file


@app.command()
def acceptance(
    *,
    region: Annotated[str | None, typer.Option(help="AWS Region, as for the AWS CLI.", show_default=False)] = None,
    profile: Annotated[str | None, typer.Option(help="AWS profile, as for the AWS CLI.", show_default=False)] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Run this check only. May be given several times.", show_default=False)
    ] = None,
    to: Annotated[Path, typer.Option(help="Folder for acceptance.html and acceptance.json.")] = Path(),
    cleanup: Annotated[
        bool, typer.Option("--cleanup", help="Remove what interrupted runs have left.", show_default=False)
    ] = False,
    yes: Yes = False,
) -> None:
    """Check the library on your AWS account: deploy a stack of pipelines, check them, report, and remove everything.

    It announces resources and cost, and asks. It needs the permissions of an administrator, and Node.js.
    """
    aws = Aws(region=region, profile=profile)
    if cleanup:
        _clean_up(aws, yes=yes)
        return
    checks = _chosen(only or ())
    if not to.is_dir():
        raise UsageError(f"--to {to} is no folder: make it first")
    report = _run(aws, checks, to, yes=yes)
    _say(f"{counts(report.outcomes)}: {to / 'acceptance.html'}")
    if report.left:
        raise CliError(f"not removed: {', '.join(report.left)}; use intake-ledger acceptance --cleanup")
    if report.failed:
        raise typer.Exit(1)


def _chosen(names: Sequence[str]) -> Sequence[Check]:
    from intake_ledger_cli.acceptance.catalogue import CHECKS  # noqa: PLC0415 - the help needs no check

    known = [one.name for one in CHECKS]
    if wrong := [name for name in names if name not in known]:
        raise UsageError(f"--only {wrong[0]} is no check: use one of {', '.join(known)}")
    return [one for one in CHECKS if one.name in names] if names else CHECKS


def _run(aws: Aws, checks: Sequence[Check], to: Path, *, yes: bool) -> AcceptanceReport:
    run, local, started = Run(secrets.token_hex(4)), deployment.is_local(aws), now_ms()
    outcomes: list[Outcome] = []
    with TemporaryDirectory() as folder:
        assembly = Path(folder, "assembly")
        with console(stderr=True).status("the CDK is starting"):
            template = deployment.synthesise(run, assembly, local=local)
        cost = estimate(template, checks)
        ask(aws, _announcement(run, len(template["Resources"]), checks, cost), yes=yes)

        def finish(left: tuple[str, ...], *, interrupted: bool) -> AcceptanceReport:
            found = AcceptanceReport(
                run=run.id,
                release=_release(),
                region=aws.region,
                local=local,
                started_at=started,
                ended_at=now_ms(),
                estimate=cost,
                outcomes=tuple(outcomes),
                interrupted=interrupted,
                left=left,
            )
            write(found, to)
            return found

        try:
            _say(f"creating the stack {run.name}")
            outputs = deployment.deploy(aws, run, assembly)
            world = World(aws=aws, stack=run.name, outputs=outputs, local=local)

            def done(outcome: Outcome) -> None:
                outcomes.append(outcome)
                _say(f"{outcome.result:9} {outcome.name}: {outcome.detail}")

            run_checks(world, checks, done)
        except BaseException:
            finish(_removed(aws, run), interrupted=True)
            raise
        return finish(_removed(aws, run), interrupted=False)


def _announcement(run: Run, resources: int, checks: Sequence[Check], cost: Sequence[CostLine]) -> str:
    return (
        f"creates the stack {run.name} with {resources} resources, all tagged {deployment.TAG}, runs {len(checks)} "
        f"checks, and removes everything. At most {dollars(cost):.2f} dollars for {HOURS} hours"
    )


def _removed(aws: Aws, run: Run) -> tuple[str, ...]:
    """Remove everything. A second interruption ends that, and says how to go on."""
    with _telling_of_cleanup(run):
        _say(f"removing the stack {run.name}")
        return deployment.remove(aws, run)


@contextmanager
def _telling_of_cleanup(run: Run) -> Iterator[None]:
    try:
        yield
    except BaseException:
        _say(f"{run.name} is not removed: use intake-ledger acceptance --cleanup")
        raise


def _clean_up(aws: Aws, *, yes: bool) -> None:
    found = list(deployment.runs(aws))
    if not found:
        _say("nothing is left of any run")
        return
    confirm(f"removes {', '.join(one.name for one in found)} in {aws.region}, also if a run uses it", yes=yes)
    if left := [name for run in found for name in deployment.remove(aws, run)]:
        raise CliError(f"not removed: {', '.join(left)}; see the events of the stack")
    _say(f"removed {len(found)}")


def write(report: AcceptanceReport, folder: Path) -> None:
    """Write the report as a page and as JSON.

    Raises:
        CliError: The folder cannot be written.

    """
    replace_file(folder / "acceptance.html", render(report))
    replace_file(folder / "acceptance.json", json.dumps(versioned(report), indent=2) + "\n")


def _release() -> str:
    try:
        return version("cdk-intake-ledger")
    except PackageNotFoundError:
        return "unknown"


def _say(line: str) -> None:
    console(stderr=True).print(escape(line))
