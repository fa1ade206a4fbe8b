"""Run the search or the tests against a copy of the runtime with a seeded defect.

This happens in a separate process, see `pool.py`, because the modules under search are imported again from the copy.
"""

import importlib
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from tests import seeds
from tests.protocol.mutants import MUTANTS
from tests.seeds import Mutant

ROOT = Path(__file__).resolve().parents[2]
_AGAIN = ("intake_ledger", "cdk_intake_ledger", "intake_ledger_cli", "intake_ledger_testing", "tests")
"""Packages that hold the code under search, or use it."""
_IMPORTERS = (
    "hypothesis",
    "intake_ledger.observability.powertools",
    "intake_ledger_cli.commands",
    "tests.unit.support",
)
"""Modules that load most third-party packages. Those stay loaded for all defects."""


class MutantError(Exception):
    """Nothing that could find the defect ran."""


def preload() -> None:
    """Parse the packages and load modules once, before a process is forked for each defect.

    Plugins of pytest are not among it: pytest rewrites them when it imports them.
    """
    for package in {seeds.package_of(mutant) for mutant in MUTANTS}:
        seeds.runtime(package)
    for name in _IMPORTERS:
        importlib.import_module(name)
    with mock_aws():
        for service in ("dynamodb", "s3", "sqs"):
            boto3.client(service, "eu-central-1", aws_access_key_id="testing", aws_secret_access_key="testing")


def seed(mutant: Mutant, folder: Path) -> tuple[bool, str]:
    """Return whether the defect is found, and how.

    Args:
        mutant: the defect.
        folder: an empty folder for the copy and for the output of the tests.

    Raises:
        DoesNotFitError: The runtime has changed: correct the mutant.
        MutantError: Nothing that could find the mutant ran.

    """
    seeds.seed(mutant, folder)
    import_again(folder)
    return _tests(mutant, folder) if mutant.found_by.startswith("tests/") else _search(mutant)


def import_again(folder: Path) -> None:
    """Make `intake_ledger` the copy, in this process and in the processes that it starts."""
    for name in [one for one in sys.modules if one.partition(".")[0] in _AGAIN]:
        del sys.modules[name]
    os.chdir(ROOT)
    os.environ["THOROUGH"] = "1"
    # The copy comes before the repository's own package on the path.
    os.environ["PYTHONPATH"] = os.pathsep.join((str(folder), str(ROOT)))
    sys.path[:0] = [str(folder), str(ROOT)]
    importlib.invalidate_caches()
    found = importlib.import_module("intake_ledger").__file__
    if found is None or Path(found).parent.parent != folder:
        raise MutantError(f"the copy is not used: {found}")


def _search(mutant: Mutant) -> tuple[bool, str]:
    sets = importlib.import_module("tests.protocol.set_search")
    if mutant.found_by in sets.WORLDS:
        holds, told = sets.explore(mutant.found_by)
        return not holds, told.splitlines()[0]
    worlds = importlib.import_module("tests.protocol.message_worlds")
    explorer = importlib.import_module("tests.protocol.explorer")
    scenarios = importlib.import_module("tests.protocol.scenarios")
    messages = worlds.FULL.get(mutant.found_by)
    search = worlds.MessageSearch(messages) if messages else explorer.Explorer(scenarios.FULL[mutant.found_by])
    result = search.explore()
    if not result.violation:
        return False, f"{mutant.found_by}: holds, {result.states:,} states"
    return True, f"{mutant.found_by}: VIOLATED: {result.violation}"


def _tests(mutant: Mutant, folder: Path) -> tuple[bool, str]:
    said = folder / "said"
    # pytest shows failures in full where one of these is set. For large values that takes a quarter of an hour.
    for name in ("CI", "BUILD_NUMBER"):
        os.environ.pop(name, None)
    with said.open("w") as output, redirect_stdout(output), redirect_stderr(output):
        # With a fixed seed, a test that finds the defect once finds it in each run. Only the plugin of this option is
        # loaded: pytest would refuse ours, since its package was imported before.
        plugins = ["--disable-plugin-autoload", "-p", "_hypothesis_pytestplugin"]
        options = [*plugins, "-q", "-x", "--no-header", "--hypothesis-seed=0", "--basetemp", str(folder / "tmp")]
        code = pytest.main([*options, *_words(mutant.found_by)])
    lines = said.read_text().strip().splitlines() or [""]
    finding = next((line for line in lines if line.startswith("FAILED")), None)
    if code == pytest.ExitCode.TESTS_FAILED and finding is not None:
        return True, finding
    if code == pytest.ExitCode.OK:
        return False, lines[-1]
    raise MutantError(f"{mutant.found_by}: pytest ends with {code}\n" + "\n".join(lines[-20:]))


def _words(command: str) -> list[str]:
    """Paths, and what stands behind -k."""
    paths, _, chosen = command.partition(" -k ")
    return [*paths.split(), *(["-k", chosen] if chosen else [])]
