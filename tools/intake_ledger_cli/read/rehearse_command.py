"""The command that runs new code on the files that were committed last, and compares what it would do. Reads only."""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from intake_ledger.protocol.change import State
from intake_ledger.protocol.errors import SettingsError
from intake_ledger.protocol.settings import ConsumerSettings, setting_from
from intake_ledger_cli.app import FINDINGS, app, option
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.errors import CliError, UsageError
from intake_ledger_cli.options import Call, with_shared_options
from intake_ledger_cli.rehearsal import compare
from intake_ledger_cli.rehearsal.committed import LastCommit, Outputs, Versions, last_commits
from intake_ledger_cli.rehearsal.compare import Differences
from intake_ledger_cli.rehearsal.side import Opens, Outcome, Side, VersionLost
from intake_ledger_cli.rehearsal.walls import NO_KERNEL_FILTER, has_kernel_filter
from intake_ledger_cli.show.console import many

_DAY_MS = 86_400_000
_PUT = "ObjectCreated:Put"
_NOT_COMPARABLE = "depends on time, chance, or what no row keeps"


class Rehearsed(StrEnum):
    """The result for one file."""

    SAME = "same"
    DIFFERS = "differs"
    UNDECIDED = "undecided"
    """The outcome depends on time or chance, or S3 no longer shows what was committed."""
    REFUSED = "refused"
    """The code tried a thing that cannot be captured."""
    GONE = "gone"
    """S3 no longer has the version."""


@dataclass(frozen=True, slots=True)
class RehearsedFile:
    """A file whose result is not `SAME`."""

    outcome: Rehearsed
    key: str
    version_id: str | None
    why: str


@dataclass(slots=True)
class RehearseResult:
    """The document of `rehearse`."""

    pipeline: str
    code: str
    old_code: str | None
    files: list[RehearsedFile] = field(default_factory=list)
    same: int = 0
    differs: int = 0
    undecided: int = 0
    refused: int = 0
    gone: int = 0

    def count(self, commit: LastCommit, outcome: Rehearsed, why: str) -> None:
        """Count a file, and keep what a person has to see."""
        setattr(self, outcome.value, getattr(self, outcome.value) + 1)
        if outcome is not Rehearsed.SAME:
            form, _, name = commit.identity.partition("#")
            self.files.append(RehearsedFile(outcome, commit.key, name if form == "v" else None, why))


@app.command("rehearse")
@with_shared_options
def rehearse_command(
    call: Call,
    *,
    code: Annotated[Path, option(help="Folder of the new code, with all that it imports.")],
    entrypoint: Annotated[
        str, option(help="The new code's module:function. That of the deployed function when omitted.")
    ] = "",
    old_code: Annotated[
        Path | None,
        option(help="Folder of the deployed code, to compare all that both do."),
    ] = None,
    last: Annotated[int, typer.Option(help="The number of commits, the newest ones.", min=1)] = 100,
    prefix: Annotated[str, typer.Option(help="Only keys with this prefix.")] = "",
) -> None:
    """Run new code on the files that were committed last, without effects, and compare. Reads the whole table."""
    if not has_kernel_filter():
        raise UsageError(f"rehearse cannot run here: {NO_KERNEL_FILTER}")
    for folder in filter(None, (code, old_code)):
        if not folder.is_dir():
            raise UsageError(f"{folder} is not a folder: name the one that has the module of the processor")
    aws, deployed = call.open("rehearse")
    variables = _variables(aws, deployed)
    commits = last_commits(aws.dynamodb, deployed, last, prefix)
    result = RehearseResult(deployed.name, str(code), None if old_code is None else str(old_code))
    if not commits:
        call.output(result)
        raise CliError(f"no file was rehearsed: the ledger of {deployed.name} has no commit with the prefix {prefix!r}")
    with ExitStack() as ends:
        make = partial(_side, aws, variables)
        new = ends.enter_context(make("new", code, entrypoint))
        old = None if old_code is None else ends.enter_context(make("old", old_code, ""))
        rehearsal = _Rehearsal(deployed, new, old, Versions(aws.s3, deployed), Outputs(aws.s3, deployed.ordering))
        for commit in commits:
            rehearsal.file(commit, result)
    result.files.sort(key=lambda one: list(Rehearsed).index(one.outcome))
    call.output(result)
    if result.refused:
        why = f"no answer for {many(result.refused, 'files')}: {_first(result.files, Rehearsed.REFUSED)}"
        raise CliError(
            f"{why}. Only outputs, transact and `once` can be captured: use --entrypoint with a function that has a "
            "stand-in for the rest"
        )
    if result.gone == len(commits):
        raise CliError(f"no file was rehearsed: {_first(result.files, Rehearsed.GONE)}")
    if result.differs or result.undecided:
        raise typer.Exit(FINDINGS)


def _first(files: Iterable[RehearsedFile], outcome: Rehearsed) -> str:
    return next(one.why for one in files if one.outcome is outcome)


def _variables(aws: Aws, deployed: DeployedPipeline) -> Mapping[str, str]:
    """The variables of the deployed function. Raises UsageError if its processor is another function."""
    found = aws.functions.get_function_configuration(FunctionName=deployed.consumer_function)
    variables = found.get("Environment", {}).get("Variables", {})
    other = setting_from(ConsumerSettings, "processor_function", variables)
    if other is not None:
        raise UsageError(
            f"`rehearse` is not for {deployed.name}, whose processor is the function {other}: only code that runs in "
            "the consumer's function can be kept from effects"
        )
    return variables


def _side(aws: Aws, variables: Mapping[str, str], name: str, code: Path, entrypoint: str) -> Side:
    try:
        seconds = setting_from(ConsumerSettings, "processing_timeout_seconds", variables)
    except SettingsError as problem:
        raise CliError(f"the deployed function cannot run: {problem}") from None
    return Side(
        name=name,
        code=code.resolve(),
        entrypoint=entrypoint,
        variables=variables,
        region=aws.region,
        seconds=seconds,
    )


def _wrong_code(commit: LastCommit, outcome: Outcome) -> Differences:
    """The signs that the old code is not the code that made the commit, or cannot do here what it did then."""
    found = compare.with_row(commit.row, outcome)
    return {name: f"the old code does not give what was committed ({why})" for name, why in found.items()}


@dataclass(frozen=True, slots=True)
class _Rehearsal:
    """Both sides, and what they are compared with."""

    deployed: DeployedPipeline
    new: Side
    old: Side | None
    versions: Versions
    outputs: Outputs

    def file(self, commit: LastCommit, result: RehearseResult) -> None:
        """Rehearse one file, and count its result."""
        try:
            state = self.versions.look(commit)
        except VersionLost as lost:
            result.count(commit, Rehearsed.GONE, str(lost))
            return
        given = self._given(commit, state)
        opens = partial(self.versions.open, commit)
        sides = [self.new, *([] if self.old is None else [self.old])]
        outcomes = [side.run(given, opens) for side in sides]
        for side, outcome in zip(sides, outcomes, strict=True):
            if outcome["tried"]:
                result.count(commit, Rehearsed.REFUSED, f"the {side.name} code tried to {outcome['tried'][0]}")
                return
        if lost_why := next(filter(None, (outcome["lost"] for outcome in outcomes)), ""):
            result.count(commit, Rehearsed.GONE, lost_why)
            return
        again = self._given(commit, state, again=True)
        if self.old is None:
            differs, doubtful, unstable = self._new_alone(commit, outcomes[0], again, opens)
        else:
            differs, doubtful = compare.between(outcomes[1], outcomes[0]), _wrong_code(commit, outcomes[1])
            unstable = compare.between(outcomes[1], self.old.run(given, opens)) if differs else {}
            if doubtful:
                # Another time and chance tell whether they are the cause.
                moved = compare.between(outcomes[1], self.old.run(again, opens))
                doubtful = {name: why for name, why in doubtful.items() if name not in moved}
        # A run that ends in another way the next time shows nothing for certain.
        changing = differs.keys() if "end" in unstable else unstable.keys()
        sure = [why for name, why in differs.items() if name not in changing]
        unsure = [f"{why} ({_NOT_COMPARABLE})" for name, why in differs.items() if name in changing]
        unsure += doubtful.values()
        kind = Rehearsed.DIFFERS if sure else Rehearsed.UNDECIDED if unsure else Rehearsed.SAME
        result.count(commit, kind, "; ".join(sure + unsure))

    def _new_alone(
        self, commit: LastCommit, outcome: Outcome, again: Mapping[str, Any], opens: Opens
    ) -> tuple[Differences, Differences, Differences]:
        """The differences from the commit, the things that cannot be compared, and the changes of another run."""
        differs = compare.with_row(commit.row, outcome)
        unkept = [name for name in ("transact", "once") if outcome.get(name)]
        doubtful = {name: f"{name}: no row keeps what it writes" for name in unkept}
        if "end" not in differs:
            for name, why, is_sure in self.outputs.differences(commit, outcome):
                (differs if is_sure else doubtful)[name] = f"{name}: {why}"
        return differs, doubtful, compare.between(outcome, self.new.run(again, opens)) if differs else {}

    def _given(self, commit: LastCommit, state: State, *, again: bool = False) -> dict[str, Any]:
        """The claim of the commit. `again`: with other values of all that the row does not keep."""
        row, other = commit.row, int(again)
        place = self.deployed.row_key(commit.key, commit.identity)
        known, now = commit.is_last_claim, commit.fence + other * _DAY_MS
        return {
            "pk": place.pk,
            "sk": place.sk,
            "key": commit.key,
            "kind": state.kind.value,
            "versionId": state.version_id,
            "etag": state.etag,
            "size": state.size,
            "fence": commit.fence,
            "groupFence": commit.fence + other,
            "attempt": row.attempts if known else 1 + other,
            "firstClaimedAt": row.first_claimed_at if known else commit.fence + other,
            "eventName": row.event_name or _PUT if known else f"{_PUT}{other or ''}",
            "eventTime": now,
            "now": now,
            "seed": f"{commit.key} {commit.identity} {other}",
        }
