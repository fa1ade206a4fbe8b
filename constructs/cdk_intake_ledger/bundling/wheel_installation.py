"""Installs pinned wheels into a folder, with the dependencies that Lambda does not have."""

import csv
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from cdk_intake_ledger.bundling.elf import wrong_objects
from cdk_intake_ledger.bundling.pip import Pip, listed
from cdk_intake_ledger.bundling.pip_errors import PipErrors
from cdk_intake_ledger.bundling.requirements import Requirements, lambda_environment, lambda_has
from cdk_intake_ledger.validation.registry import Problem
from cdk_intake_ledger.validation.requirement_rules import DEPENDENCY_HASH, DEPENDENCY_MISSING, WHEEL_ARCHITECTURE

# Each round adds one level of dependencies that pip left out.
_ROUNDS = 10


class WheelError(Exception):
    """Wheels cannot be installed."""

    problems: tuple[Problem, ...]
    """One text for each problem, with the value and the fix."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        """Make the error.

        Args:
            problems: one text for each problem, at least one.

        """
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


class WheelInstallation:
    """The installation of one set of pins for one Python version and one architecture."""

    def __init__(self, requirements: Requirements, python: str, architecture: str) -> None:
        self._requirements = requirements
        self._architecture = architecture
        self._environment = lambda_environment(python, architecture)
        self._pip = Pip(requirements, python, architecture)
        self._lines = self._pip.lines

    def install(self, content: Path) -> None:
        """Install the wheels into a new folder, with all dependencies that Lambda does not have.

        Raises:
            WheelError: see `install`.

        """
        content.mkdir()
        if not self._lines:
            return
        sys.stderr.write(f"Installing the wheels of {self._requirements.origin} for {self._pip.platform} ...\n")
        missing: set[str] = set()
        for _ in range(_ROUNDS):
            shutil.rmtree(content)
            self._run_pip(content, missing)
            needed, absent = self._closure(content)
            if not absent:
                break
            # pip evaluates markers for the machine that it runs on (pypa/pip#11664).
            self._refuse_without_hashes(absent)
            missing |= absent
        else:
            names = listed(sorted(absent))
            raise WheelError([DEPENDENCY_MISSING.problem(origin=self._requirements.origin, names=names)])
        for distribution in _distributions(content):
            if canonicalize_name(distribution.name) not in needed:
                _remove(distribution, content)
        _remove_extras(content)
        self._check_machines(content)
        self._name_unpinned(content)

    def _name_unpinned(self, content: Path) -> None:
        """Print the versions that may differ at the next installation."""
        pinned = {line.name for line in self._lines}
        installed = {
            canonicalize_name(distribution.name): distribution.version for distribution in _distributions(content)
        }
        versions = listed([f"{name}=={version}" for name, version in installed.items() if name not in pinned])
        if versions:
            sys.stderr.write(f"{self._requirements.origin} leaves these versions open, pin them: {versions}\n")

    def _run_pip(self, content: Path, missing: Iterable[str]) -> None:
        done = self._pip.install((*(line.text() for line in self._lines), *sorted(missing)), "--target", str(content))
        if done.returncode:
            raise WheelError(PipErrors(self._pip).explain(done, missing))

    def _closure(self, content: Path) -> tuple[set[str], set[str]]:
        """Names that Lambda needs, and those requirements of them that are not installed."""
        installed = {canonicalize_name(distribution.name): distribution for distribution in _distributions(content)}
        needed: set[str] = set()
        absent: set[str] = set()
        seen: set[tuple[NormalizedName, frozenset[str]]] = set()
        waiting = [(line.name, frozenset(line.requirement.extras)) for line in self._lines]
        while waiting:
            name, extras = waiting.pop()
            needed.add(name)
            if (name, extras) in seen or name not in installed:
                continue
            seen.add((name, extras))
            for requirement in self._requirements_of(installed[name], extras):
                other = canonicalize_name(requirement.name)
                if lambda_has(requirement):
                    continue  # a pinned requirement is among the lines
                if other in installed:
                    waiting.append((other, frozenset(requirement.extras)))
                else:
                    requirement.marker = None
                    absent.add(str(requirement))
        return needed, absent

    def _requirements_of(self, distribution: Distribution, extras: Iterable[str]) -> Iterator[Requirement]:
        for text in distribution.requires or ():
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is None or any(marker.evaluate(self._environment | {"extra": extra}) for extra in ("", *extras)):
                yield requirement

    def _refuse_without_hashes(self, absent: Iterable[str]) -> None:
        if any(line.hashes for line in self._lines):
            origin, platform = self._requirements.origin, self._pip.platform
            raise WheelError(
                [DEPENDENCY_HASH.problem(origin=origin, name=name, target=platform) for name in sorted(absent)]
            )

    def _check_machines(self, content: Path) -> None:
        problems = [
            WHEEL_ARCHITECTURE.problem(
                origin=self._requirements.origin,
                file=wrong.path.relative_to(content).as_posix(),
                distribution=f"{distribution.name} {distribution.version}",
                machine=wrong.machine,
                architecture=self._architecture,
            )
            for distribution in _distributions(content)
            for wrong in wrong_objects(
                [content / name for name in _record(distribution)],
                self._architecture,
                compiled=_is_compiled(distribution),
            )
        ]
        if problems:
            raise WheelError(problems)


def _distributions(content: Path) -> list[Distribution]:
    return sorted(distributions(path=[str(content)]), key=lambda distribution: distribution.name)


def _record(distribution: Distribution) -> Iterator[str]:
    """The files of a distribution, relative to the folder."""
    for row in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
        if row and not row[0].startswith(("/", "..")):
            yield row[0]


def _is_compiled(distribution: Distribution) -> bool:
    """True if its wheel is for one platform."""
    tags = re.findall(r"^Tag: \S+-(\S+)$", distribution.read_text("WHEEL") or "", re.MULTILINE)
    return any(tag != "any" for tag in tags)


def _remove(distribution: Distribution, content: Path) -> None:
    files = [content / name for name in _record(distribution)]
    for file in files:
        file.unlink(missing_ok=True)
    # Remove empty folders, the deepest first. A folder that another distribution uses stays.
    for folder in sorted({folder for file in files for folder in file.relative_to(content).parents}, reverse=True):
        place = content / folder
        if place != content and place.is_dir() and not any(place.iterdir()):
            place.rmdir()


def _remove_extras(content: Path) -> None:
    """Remove console scripts, byte code, and notes about the machine that installed it."""
    top_folders = {name.partition("/")[0] for distribution in _distributions(content) for name in _record(distribution)}
    if "bin" not in top_folders:
        shutil.rmtree(content / "bin", ignore_errors=True)
    for cache in content.rglob("__pycache__"):
        shutil.rmtree(cache)
    for note in content.glob("*.dist-info/direct_url.json"):
        note.unlink()
