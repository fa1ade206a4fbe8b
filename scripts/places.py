"""Count the places that a standard change touches, by making it in a copy of the repository.

    python -m scripts.places [--check]

The changes: a new alarm, a new verdict, a new setting, and a new runner. Pages that a script writes are counted apart.
With `--check`, the tests of each change run in the copy, which takes minutes.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SOURCES = ("constructs", "lambda_src", "tools", ".")


class Edit(NamedTuple):
    """Text that is added to a file."""

    path: str
    text: str
    after: str = ""
    """The text before it, which is in the file once. Empty: the file is new."""


class Change(NamedTuple):
    """A standard change."""

    goal: int
    """The most files that a person edits or adds, without lines in a registry."""
    edits: tuple[Edit, ...]
    registries: tuple[str, ...] = ()
    """Files of `edits` that get a line only."""
    generate: tuple[str, ...] = ()
    """Modules that write pages."""
    tests: tuple[str, ...] = ()
    program: str = ""
    """A program that uses the change, and fails if it has no effect."""


class Places(NamedTuple):
    """The files of a change, by the way in which they were changed."""

    by_hand: list[str]
    registries: list[str]
    generated: list[str]


_ROW = """    AlarmRow(
        name="ManyDuplicates",
        metric="Duplicates",
        meaning="most messages are duplicates",
        graph="Answered without work",
        threshold=9,
    ),
"""
_RUNBOOK = """\
# ManyDuplicates

## Meaning

In five minutes, nine or more messages were about states that were committed before.

## Look

    intake-ledger status

## Do

1. Ask the sender why it sends its events again.

## Never do

- Do not purge the queue.
"""
_RUNNER = '''\
"""The runner that does nothing: it commits each claim, for load tests of the ledger."""

from typing import TYPE_CHECKING

from intake_ledger.processor import Commit
from intake_ledger.runners import AnswersAtOnce, Run

if TYPE_CHECKING:
    from intake_ledger.kinds import Work
    from intake_ledger.ledger import Claim

NOTHING = "INTAKE_NOTHING"
"""The variable that chooses it."""


class Nothing(AnswersAtOnce):
    """Answers with a commit."""

    package = ""

    def start(self, claim: "Claim", work: "Work", run: Run) -> object:  # noqa: ARG002 - see `Runner`
        """See `Runner`."""
        return Commit("nothing")
'''
_PROCESSOR = '''
    @classmethod
    def nothing(cls) -> "Processor":
        """Do nothing, for load tests of the ledger.

        Returns:
            the processor.

        """
        code = lambda_.Code.from_inline(CONSUMER_CODE)
        return cls(lambda: code, entrypoint="", memory_size=256, elsewhere=Nothing())
'''
_CONSTRUCT = '''\
"""The processor that does nothing."""

from dataclasses import dataclass

from aws_cdk import aws_iam as iam
from constructs import Construct

from cdk_intake_ledger.validation.nag_suppressions import Wildcards


@dataclass(frozen=True, kw_only=True)
class Nothing:
    """Tells the consumer to do nothing. It needs no permission and no endpoint."""

    services: tuple[str, ...] = ()

    @property
    def settings(self) -> dict[str, str]:
        """The variable that chooses the runner."""
        return {"INTAKE_NOTHING": "true"}

    def allow(self, scope: Construct, role: iam.Role, wildcards: Wildcards) -> None:
        """See `Elsewhere`."""
'''

CHANGES = {
    "alarm": Change(
        goal=2,
        edits=(
            Edit(
                "lambda_src/intake_ledger/contract.py",
                _ROW,
                after="        threshold=HOUR * 1_000,\n        periods=3,\n    ),\n",
            ),
            Edit("docs/runbooks/many-duplicates.md", _RUNBOOK),
        ),
        generate=("scripts.alarms_page",),
        tests=(
            "tests/synth/test_alarms_of_all_kinds.py",
            "tests/synth/test_runbooks.py",
            "tests/synth/test_monitoring.py",
            "tests/synth/test_template_page.py",
            "tests/synth/test_drift.py",
            "tests/packaging/test_links.py",
        ),
        program="""
from aws_cdk import App, Stack
from cdk_intake_ledger import IntakePipeline
from tests.synth.build import processor
assert "ManyDuplicates" in IntakePipeline(Stack(App(), "S"), "Orders", processor=processor()).alarms
""",
    ),
    "verdict": Change(
        goal=3,
        edits=(
            Edit(
                "lambda_src/intake_ledger/protocol/verdict.py",
                '    PARKED = "PARKED"\n    """A person has parked the key. Acknowledge the message."""\n',
                after='Try again when it is deployed, and do not acknowledge the message."""\n',
            ),
            Edit(
                "lambda_src/intake_ledger/protocol/verdict.py",
                '    Verdict.PARKED: "Parked",\n',
                after='    Verdict.LATER_FORMAT: "LaterFormat",\n',
            ),
            Edit(
                "lambda_src/intake_ledger/protocol/verdict.py",
                '    if change.reprocess_id == "parked":\n'
                '        return Ruling(Verdict.PARKED, "a person has parked the key")\n',
                after="    if row is None:\n        return None\n",
            ),
            Edit(
                "lambda_src/intake_ledger/contract.py",
                '    "Parked": MetricRow("messages about keys that a person has parked"),\n',
                after='    "Rejected": MetricRow("changes that were rejected"),\n',
            ),
            Edit(
                "docs/protocol.md",
                "| a key that a person has parked | PARKED |\n",
                after="LATER_FORMAT: return the message until that release is deployed |\n",
            ),
        ),
        generate=("scripts.alarms_page",),
        tests=(
            "tests/unit/test_verdicts.py",
            "tests/unit/test_telemetry.py",
            "tests/packaging/test_protocol_page.py",
            "tests/synth/test_monitoring.py",
            "tests/synth/test_alarms_of_all_kinds.py",
        ),
        program="""
from dataclasses import replace
from intake_ledger.contract import METRICS
from intake_ledger.protocol import VERDICT_METRICS, Status, Verdict, judge_row
from tests.unit.test_verdicts import A1, reprocess, row
change = replace(reprocess(A1), reprocess_id="parked")
ruling = judge_row(row(Status.PROCESSED), change, owner="o", now=0)
assert ruling.verdict is Verdict.PARKED
assert VERDICT_METRICS[ruling.verdict] in METRICS
""",
    ),
    "setting": Change(
        goal=2,
        edits=(
            Edit(
                "lambda_src/intake_ledger/protocol/settings.py",
                '    calm_seconds: Annotated[int, Variable("INTAKE_CALM_SECONDS", 1)] = 60\n'
                '    """The time without failures after which the waits begin anew."""\n',
                after='    max_backoff_seconds: Annotated[int, Variable("INTAKE_MAX_BACKOFF_SECONDS")]\n',
            ),
            Edit(
                "constructs/cdk_intake_ledger/options/options.py",
                "    calm: Duration = field(default_factory=lambda: Duration.minutes(1))\n"
                '    """The time without failures after which the waits begin again; 1 minute when omitted."""\n\n',
                after='    hour."""\n\n',
            ),
        ),
        tests=("tests/unit/test_settings.py", "tests/synth/test_arguments.py", "tests/synth/test_drift.py"),
        program="""
from aws_cdk import App, Duration, Stack
from cdk_intake_ledger import IntakePipeline, MessageIntake, MessageSource, RetryOptions
from tests.synth.build import processor
stack, retry = Stack(App(), "S"), RetryOptions(calm=Duration.minutes(2))
orders = IntakePipeline(stack, "Orders", processor=processor(), retry=retry)
shop = MessageIntake(
    stack, "Shop", source=MessageSource.sqs(), key="k", identity="i", processor=processor(), retry=retry
)
for intake in (orders, shop):
    assert intake._consumer.environment["INTAKE_CALM_SECONDS"] == "120"
""",
    ),
    "runner": Change(
        goal=3,
        edits=(
            Edit("lambda_src/intake_ledger/runners/nothing.py", _RUNNER),
            Edit("constructs/cdk_intake_ledger/functions/nothing.py", _CONSTRUCT),
            Edit(
                "docs/nothing.md",
                "# Nothing\n\n`Processor.nothing()` commits each claim, for load tests of the ledger.\n",
            ),
            Edit(
                "lambda_src/intake_ledger/consumer/composition.py",
                '    if "INTAKE_NOTHING" in environment:\n'
                "        from intake_ledger.runners.nothing import Nothing  # noqa: PLC0415 - few need it\n\n"
                "        return Nothing()\n",
                after="    settings = services.settings\n",
            ),
            Edit(
                "constructs/cdk_intake_ledger/functions/processor.py",
                "from cdk_intake_ledger.functions.nothing import Nothing\n",
                after="from cdk_intake_ledger.functions.durable_function import DurableExecutions\n",
            ),
            Edit(
                "constructs/cdk_intake_ledger/functions/processor.py",
                _PROCESSOR,
                after="            elsewhere=RemoteFunction(function=function),\n"
                "            processor_version=processor_version,\n        )\n",
            ),
            Edit("mkdocs.yml", "      - nothing.md\n", after="      - long-work.md\n"),
            Edit("docs/README.md", ", [nothing](nothing.md)", after="[work that takes long](long-work.md)"),
        ),
        registries=(
            "lambda_src/intake_ledger/consumer/composition.py",
            "constructs/cdk_intake_ledger/functions/processor.py",
            "mkdocs.yml",
            "docs/README.md",
        ),
        tests=(
            "tests/kinds/test_composition.py",
            "tests/packaging/test_layout.py",
            "tests/packaging/test_links.py",
            "tests/synth/test_cells.py",
        ),
        program="""
from unittest.mock import Mock
from aws_cdk import App, Stack
from cdk_intake_ledger import IntakePipeline, Processor
from intake_ledger.consumer.composition import make_runner
from intake_ledger.protocol import consumer_settings
orders = IntakePipeline(Stack(App(), "S"), "Orders", processor=Processor.nothing())
environment = orders._consumer.environment | {"INTAKE_KEY_FILTERS": "[]"}
services = Mock(settings=consumer_settings(environment))
assert type(make_runner(environment, services)).__name__ == "Nothing"
assert make_runner(environment, services).start(None, None, None).identity == "nothing"
""",
    ),
}


def places(name: str, folder: Path) -> Places:
    """Make a change in a copy of the repository, and return its places.

    Args:
        name: of the change.
        folder: the copy.

    Raises:
        ValueError: The text before an edit is not in its file once.

    """
    change = CHANGES[name]
    before = _contents(folder)
    for edit in change.edits:
        _make(edit, folder)
    edited = {edit.path for edit in change.edits}
    for module in change.generate:
        _run(folder, "-m", module, "--write")
    changed = {path for path, content in _contents(folder).items() if before.get(path) != content}
    return Places(sorted(edited - set(change.registries)), sorted(change.registries), sorted(changed - edited))


def make_all(folder: Path) -> None:
    """Make the edits of every change in a copy of the repository, without the pages that scripts write.

    Raises:
        ValueError: See `places`.

    """
    for change in CHANGES.values():
        for edit in change.edits:
            _make(edit, folder)


def _make(edit: Edit, folder: Path) -> None:
    file = folder / edit.path
    if not edit.after:
        file.write_text(edit.text, encoding="utf-8")
        return
    text = file.read_text(encoding="utf-8")
    if text.count(edit.after) != 1:
        raise ValueError(f"{edit.path} has {text.count(edit.after)} times {edit.after!r}: correct the edit")
    file.write_text(text.replace(edit.after, edit.after + edit.text), encoding="utf-8")


@contextmanager
def copy() -> Iterator[Path]:
    """Copy the files that git knows, and new ones that it does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in listed:
            if (ROOT / path).is_file():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / path, folder / path)
        yield folder


def check(name: str, folder: Path) -> None:
    """Use a change in its copy, and run its tests.

    Raises:
        CalledProcessError: One of them fails.

    """
    change = CHANGES[name]
    _run(folder, "-c", change.program)
    _run(folder, "-m", "ruff", "check", "-q", "lambda_src", "constructs")
    _run(folder, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *change.tests)


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix in (".md", ".py", ".toml", ".yml")
    }


def _run(folder: Path, *arguments: str) -> None:
    paths = os.pathsep.join(str(folder / source) for source in SOURCES)
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, *arguments], cwd=folder, check=True, env=environment)


def main() -> int:
    """Print the places of each change. Return 1 if one has more than its goal."""
    above = False
    for name, change in CHANGES.items():
        with copy() as folder:
            found = places(name, folder)
            if sys.argv[1:] == ["--check"]:
                check(name, folder)
        print(f"{name}: {len(found.by_hand)} places (at most {change.goal}): {', '.join(found.by_hand)}")
        for what, files in (("lines in registries", found.registries), ("written by scripts", found.generated)):
            if files:
                print(f"  {what}: {', '.join(files)}")
        above = above or len(found.by_hand) > change.goal
    return above


if __name__ == "__main__":
    sys.exit(main())
