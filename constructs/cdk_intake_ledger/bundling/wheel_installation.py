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
from cdk_intake_ledger.bundling.requirements import Requirements, WheelError, lambda_environment, lambda_has
from cdk_intake_ledger.bundling.uv import Uv
from cdk_intake_ledger.bundling.uv_errors import explain
from cdk_intake_ledger.validation.requirement_rules import DEPENDENCIES_HASH, WHEEL_ARCHITECTURE


class WheelInstallation:
    """The installation of one set of pins for one Python version and one architecture."""

    def __init__(self, requirements: Requirements, python: str, architecture: str) -> None:
        self._requirements = requirements
        self._architecture = architecture
        self._environment = lambda_environment(python, architecture)
        self._uv = Uv(requirements, python, architecture)
        self._lines = self._uv.lines

    def install(self, content: Path) -> None:
        """Install the wheels into a new folder, with all dependencies that Lambda does not have.

        Raises:
            WheelError: see `install`.

        """
        content.mkdir()
        if not self._lines:
            return
        sys.stderr.write(f"Installing the wheels of {self._requirements.origin} for {self._uv.platform} ...\n")
        done = self._uv.install(content)
        if done.returncode:
            raise WheelError(explain(self._uv, done.stderr))
        needed = self._needed(content)
        self._refuse_without_hashes(needed)
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
        versions = _listed([f"{name}=={version}" for name, version in installed.items() if name not in pinned])
        if versions:
            sys.stderr.write(f"{self._requirements.origin} leaves these versions open, pin them: {versions}\n")

    def _needed(self, content: Path) -> set[NormalizedName]:
        """Names of the installed distributions that Lambda needs and does not have."""
        installed = {canonicalize_name(distribution.name): distribution for distribution in _distributions(content)}
        seen: set[tuple[NormalizedName, frozenset[str]]] = set()
        waiting = [(line.name, frozenset(line.requirement.extras)) for line in self._lines]
        while waiting:
            name, extras = waiting.pop()
            if (name, extras) in seen or name not in installed:
                continue
            seen.add((name, extras))
            waiting += [
                (canonicalize_name(requirement.name), frozenset(requirement.extras))
                for requirement in self._requirements_of(installed[name], extras)
                if not lambda_has(requirement)  # a pinned requirement is among the lines
            ]
        return {name for name, _ in seen}

    def _requirements_of(self, distribution: Distribution, extras: Iterable[str]) -> Iterator[Requirement]:
        for text in distribution.requires or ():
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is None or any(marker.evaluate(self._environment | {"extra": extra}) for extra in ("", *extras)):
                yield requirement

    def _refuse_without_hashes(self, names: set[NormalizedName]) -> None:
        """Refuse what has no hash. With `--require-hashes`, uv would take no constraints that have none."""
        if any(line.hashes for line in self._lines) and (unpinned := names - {line.name for line in self._lines}):
            raise WheelError(
                [
                    DEPENDENCIES_HASH.problem(
                        origin=self._requirements.origin, names=_listed(sorted(unpinned)), target=self._uv.platform
                    )
                ]
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
    """Remove console scripts, byte code, and what uv writes about this machine."""
    scripts = content / "bin"
    if (scripts / "__init__.py").exists():  # a package
        for file in filter(Path.is_file, scripts.iterdir()):
            if file.read_bytes().startswith(b"#!"):
                file.unlink()
    else:
        shutil.rmtree(scripts, ignore_errors=True)
    for cache in content.rglob("__pycache__"):
        shutil.rmtree(cache)
    for note in (".lock", "*.dist-info/direct_url.json", "*.dist-info/uv_*.json"):
        for file in content.glob(note):
            file.unlink()
    for record in content.glob("*.dist-info/RECORD"):
        rows = record.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [row for row in rows if (content / next(csv.reader([row]))[0]).exists()]
        record.unlink()  # it can be a link to uv's cache
        record.write_text("".join(kept), encoding="utf-8")


def _listed(values: Sequence[str], most: int = 8) -> str:
    return ", ".join(values[:most]) + (" and others" if len(values) > most else "")
