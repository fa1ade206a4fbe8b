"""Installs pinned wheels for Lambda at synthesis: with pip, without Docker, once for each set of pins.

The wheels are those for Lambda's Python and machine, wherever synthesis runs. They are kept in a cache of the user's,
`$CDK_INTAKE_LEDGER_CACHE`, or `cdk-intake-ledger` in `$XDG_CACHE_HOME` or `~/.cache`.
"""

import csv
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, NormalizedName, canonicalize_name
from packaging.utils import parse_sdist_filename as parse_sdist
from packaging.utils import parse_wheel_filename as parse_wheel
from packaging.version import Version

from cdk_intake_ledger.bundling.elf import wrong_objects
from cdk_intake_ledger.bundling.requirements import MACHINES, Line, Requirements, lambda_environment, lambda_has

NEWEST_GLIBC = 34
"""The minor version of the C library of Amazon Linux 2023, on which Lambda's Python 3.12 and later run:
https://docs.aws.amazon.com/linux/al2023/ug/core-glibc.html."""

OLDEST_GLIBC: Mapping[str, int] = {"arm64": 17, "x86_64": 5}
"""The oldest that wheels are tagged with."""

OLD_TAGS: Mapping[str, tuple[str, ...]] = {
    "arm64": ("manylinux2014",),
    "x86_64": ("manylinux2014", "manylinux2010", "manylinux1"),
}

UNUSED_DAYS = 30
"""Days after which unused wheels leave the cache."""

# Rounds in which dependencies are added that pip left out: a round for each level of them.
_ROUNDS = 10

_NO_MATCH = re.compile(r"No matching distribution found for (.+?)(?: \(from .*)?$", re.MULTILINE)
_FILES = re.compile(r"(?:https?|file)://[^\s#]*/([^/\s#]+\.(?:whl|tar\.gz|tar\.bz2|zip))")
_NEEDS_PYTHON = re.compile(r"requires a different Python \([\d.]+ not in: '([^']*)'\).*?/([^/\s#]+\.whl)")
_USABLE = re.compile(r"Could not find a version that satisfies .*\(from versions: (.*)\)")
_UNREACHABLE = re.compile(r"Could not fetch URL (\S+): (?!404)(.*?)(?: - skipping)?$", re.MULTILINE)
_CONFLICT = re.compile(r"(?:ERROR: )?Cannot install .*?(?=\n\n?To fix|\nERROR|\Z)", re.DOTALL)
_FILE_LINE = re.compile(r"-r \S+ \(line (\d+)\)")
_OTHER_PYTHON = re.compile(r"Package '(\S+)' requires a different Python: \S+ not in '(.*)'")
_UNPINNED_IN_HASHES = re.compile(r"These do not:\n((?: {4}\S.*\n?)+)")


class WheelError(Exception):
    """Wheels cannot be installed."""

    problems: tuple[str, ...]
    """Each with the value and the fix."""

    def __init__(self, problems: Sequence[str]) -> None:
        """Keep the problems.

        Args:
            problems: at least one.

        """
        self.problems = tuple(problems)
        super().__init__("\n".join(problems))


def install(requirements: Requirements, *, python: str, architecture: str) -> Path:
    """Give the folder that has the wheels of these requirements, unpacked. It is made once: do not change it.

    What Lambda has is left out where it is not pinned and Lambda's version is certain to fit. Console scripts and byte
    code are left out.

    Args:
        requirements: pinned ones, as `read_requirements` or `parse_requirements` give them.
        python: Lambda's Python, such as `3.13`.
        architecture: `arm64` or `x86_64`, as Lambda calls it.

    Raises:
        WheelError: a line is not pinned, a wheel or version does not exist, pip cannot reach its index, or a shared
            object is for another machine.

    """
    if requirements.problems:
        raise WheelError(requirements.problems)
    target = _Target(requirements, python, architecture)
    # Another index may have something else under the same name and version.
    indexes = sha256("\n".join(requirements.options).encode()).hexdigest()
    kept = cache_folder() / f"{requirements.digest(python, architecture)}-{indexes[:8]}"
    if kept.is_dir():
        os.utime(kept)
        return kept
    _tidy(kept.parent)
    # Beside the place where it will be, so that it can be moved there whole.
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix=".new-") as made:
        content = Path(made, "content")
        target.install(content)
        try:
            content.rename(kept)
        except OSError:
            if not kept.is_dir():  # another synthesis was faster
                raise
    return kept


def cache_folder() -> Path:
    """The folder where installed wheels are kept. It is made if it does not exist."""
    chosen = os.environ.get("CDK_INTAKE_LEDGER_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    folder = Path(chosen).absolute() if chosen else Path(home, "cdk-intake-ledger")
    try:
        (folder / "wheels").mkdir(parents=True, exist_ok=True)
    except OSError:
        if chosen:
            raise
        # A build server's user may have no home that it can write to.
        return Path(tempfile.mkdtemp(prefix="cdk-intake-ledger-"))
    return folder / "wheels"


def _tidy(cache: Path) -> None:
    for entry in cache.iterdir():
        if entry.is_dir() and time.time() - entry.stat().st_mtime > UNUSED_DAYS * 86_400:
            shutil.rmtree(entry, ignore_errors=True)


class _Target:
    """One set of pins for one Python and one machine."""

    def __init__(self, requirements: Requirements, python: str, architecture: str) -> None:
        self._requirements = requirements
        self._python = python
        self._architecture = architecture
        self._environment = lambda_environment(python, architecture)
        self._lines = requirements.for_lambda(python, architecture)
        self._name = f"Python {python} on Linux {architecture}"

    def install(self, content: Path) -> None:
        content.mkdir()
        if not self._lines:
            return
        sys.stderr.write(f"Installing the wheels of {self._requirements.origin} for {self._name} ...\n")
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
            raise WheelError(
                [f"{self._requirements.origin} needs {_listed(sorted(absent))}, which pip does not install"]
            )
        for distribution in _distributions(content):
            if canonicalize_name(distribution.name) not in needed:
                _remove(distribution, content)
        _remove_extras(content)
        self._check_machines(content)
        self._name_unpinned(content)

    def _name_unpinned(self, content: Path) -> None:
        """Say which versions may be others the next time."""
        pinned = {one.name for one in self._lines}
        others = [one for one in _distributions(content) if canonicalize_name(one.name) not in pinned]
        if others:
            versions = _listed([f"{canonicalize_name(one.name)}=={one.version}" for one in others])
            sys.stderr.write(f"{self._requirements.origin} leaves these versions open, pin them: {versions}\n")

    def _run_pip(self, content: Path, missing: Iterable[str]) -> None:
        done = self._pip((*(one.text() for one in self._lines), *sorted(missing)), "--target", str(content))
        if done.returncode:
            raise WheelError(self._explain(done, missing))

    def _pip(self, lines: Iterable[str], *arguments: str) -> "subprocess.CompletedProcess[str]":
        machine = MACHINES[self._architecture]
        versions = range(NEWEST_GLIBC, OLDEST_GLIBC[self._architecture] - 1, -1)
        tags = [*(f"manylinux_2_{one}" for one in versions), *OLD_TAGS[self._architecture]]
        with tempfile.TemporaryDirectory(prefix="requirements-") as folder:
            file = Path(folder, "requirements.txt")
            file.write_text("".join(f"{line}\n" for line in (*self._requirements.options, *lines)), encoding="utf-8")
            command = [
                *(sys.executable, "-m", "pip", "install", "--requirement", str(file), "--only-binary=:all:"),
                *("--implementation", "cp", "--python-version", self._python),
                *(part for tag in tags for part in ("--platform", f"{tag}_{machine}")),
                *("--no-user", "--no-compile", "--no-input", "--no-color", "--disable-pip-version-check"),
                *("--no-warn-script-location", *arguments),
            ]
            # A setting of the user's for an environment that is not installed into.
            environment = os.environ | {"PIP_REQUIRE_VIRTUALENV": "0"}
            return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def _closure(self, content: Path) -> tuple[set[str], set[str]]:
        """The names that are needed on Lambda, and the requirements among them that are not installed."""
        installed = {canonicalize_name(one.name): one for one in _distributions(content)}
        needed: set[str] = set()
        absent: set[str] = set()
        seen: set[tuple[NormalizedName, frozenset[str]]] = set()
        waiting = [(one.name, frozenset(one.requirement.extras)) for one in self._lines]
        while waiting:
            name, extras = waiting.pop()
            needed.add(name)
            if (name, extras) in seen or name not in installed:
                continue
            seen.add((name, extras))
            for requirement in self._requirements_of(installed[name], extras):
                other = canonicalize_name(requirement.name)
                if lambda_has(requirement):
                    continue  # if it is pinned, it is among the lines
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
            if marker is None or any(marker.evaluate(self._environment | {"extra": one}) for one in ("", *extras)):
                yield requirement

    def _refuse_without_hashes(self, absent: Iterable[str]) -> None:
        if any(one.hashes for one in self._lines):
            raise WheelError([
                f"{self._requirements.origin} has hashes, but no line for {one!r}, which is needed on {self._name}: "
                "write the file for all platforms (`uv pip compile --universal --generate-hashes`)"
                for one in sorted(absent)
            ])  # fmt: skip

    def _check_machines(self, content: Path) -> None:
        problems = [
            f"{self._requirements.origin}: '{wrong.path.relative_to(content).as_posix()}' of {distribution.name} "
            f"{distribution.version} is for {wrong.machine} and the function for {self._architecture}, although its "
            "wheel says otherwise: pin another version, or build the wheel for this architecture"
            for distribution in _distributions(content)
            for wrong in wrong_objects(
                [content / name for name in _record(distribution)],
                self._architecture,
                compiled=_is_compiled(distribution),
            )
        ]
        if problems:
            raise WheelError(problems)

    def _explain(self, failed: "subprocess.CompletedProcess[str]", missing: Iterable[str]) -> list[str]:
        """All lines that pip finds nothing for. pip itself stops at the first one."""
        problems = []
        lines = list(self._lines)
        if _NO_MATCH.search(failed.stderr):
            while lines:
                looked = self._pip((one.text() for one in lines), "-vv", "--dry-run", "--no-deps")
                found = _NO_MATCH.search(looked.stdout + looked.stderr)
                line = found and _line_of(found[1], lines)
                if not found or not line:
                    break
                problems.append(self._nothing_for(found[1], looked, line))
                lines.remove(line)
            if not problems:
                looked = self._pip((*(one.text() for one in lines), *missing), "-vv", "--dry-run")
                if found := _NO_MATCH.search(looked.stdout + looked.stderr):
                    problems.append(self._nothing_for(found[1], looked, None))
        return problems or [self._other(failed.stderr)]

    def _nothing_for(self, text: str, looked: "subprocess.CompletedProcess[str]", line: Line | None) -> str:
        requirement = Requirement(text)
        where = line.where if line else f"{self._requirements.origin}: a dependency"
        said = looked.stdout + looked.stderr
        files = _files_of(requirement.name, said)
        versions = {version for version, _ in files}
        if not versions and (unreachable := _UNREACHABLE.search(said)):
            return f"{where}: {unreachable[1]} cannot be read ({unreachable[2]}): pip needs its package index"
        if not versions:
            return (
                f"{where}: the package index has no {requirement.name!r} at all: correct the name, or name the index "
                "that has it (--extra-index-url)"
            )
        of_version = [(version, file) for version, file in files if requirement.specifier.contains(version, True)]
        if not of_version:
            final = [one for one in versions if not one.is_prerelease]
            newest = [str(one) for one in sorted(final or versions)[-4:]]
            return (
                f"{where}: {requirement.name} has no version that is {str(requirement.specifier).strip('=') or 'any'}: "
                f"pin one that exists, the newest are {_listed(newest)}"
            )
        tags = sorted({_tag(file) for _, file in of_version} - {""})
        has = f"it has wheels for {_listed(tags, 3)}" if tags else "it is published as source code only"
        pythons = {file: needed for needed, file in _NEEDS_PYTHON.findall(said)}
        if needed := next((pythons[file] for _, file in of_version if file in pythons), ""):
            has = f"it needs Python {needed}"
        usable = _USABLE.search(said)
        fitting = usable[1].split(", ")[-3:] if usable and usable[1] != "none" else []
        pin = f"pin a version that has one, such as {_listed(fitting)}" if fitting else "pin something that has one"
        return f"{where}: {text} has no wheel for {self._name}: {has}; {pin}, or use Processor.from_image"

    def _other(self, said: str) -> str:
        if conflict := _CONFLICT.search(said):
            why = _FILE_LINE.sub(self._line_again, " ".join(conflict[0].removeprefix("ERROR: ").split()))
            return f"{self._requirements.origin}: {why.rstrip('.')}: pin versions that go together"
        if other := _OTHER_PYTHON.search(said):
            return (
                f"{self._requirements.origin}: {other[1]} has no wheel for {self._name}: it needs Python {other[2]}; "
                "pin another version, or use Processor.from_image"
            )
        if unpinned := _UNPINNED_IN_HASHES.search(said):
            names = _listed([line.split()[0] for line in unpinned[1].splitlines()])
            return (
                f"{self._requirements.origin} has hashes, but no line for {names}, which others need: pin all "
                "dependencies with hashes (`uv pip compile --generate-hashes`), or none"
            )
        if "No module named pip" in said:
            return f"{self._requirements.origin} cannot be installed, since {sys.executable} has no pip: install pip"
        last = " ".join(said.strip().split())[-800:]
        return f"{self._requirements.origin} cannot be installed for {self._name}, pip says: {last}"

    def _line_again(self, found: re.Match[str]) -> str:
        """The requirement that pip names by its line in our file."""
        index = int(found[1]) - len(self._requirements.options) - 1
        return self._lines[index].text() if index < len(self._lines) else "a dependency"


def _distributions(content: Path) -> list[Distribution]:
    return sorted(distributions(path=[str(content)]), key=lambda one: one.name)


def _record(distribution: Distribution) -> Iterator[str]:
    """The files of a distribution, relative to the folder."""
    for row in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
        if row and not row[0].startswith(("/", "..")):
            yield row[0]


def _is_compiled(distribution: Distribution) -> bool:
    """True if its wheel is for one platform."""
    tags = re.findall(r"^Tag: \S+-(\S+)$", distribution.read_text("WHEEL") or "", re.MULTILINE)
    return any(one != "any" for one in tags)


def _remove(distribution: Distribution, content: Path) -> None:
    files = [content / name for name in _record(distribution)]
    for file in files:
        file.unlink(missing_ok=True)
    # Remove empty folders, the deepest first. A folder that another distribution uses stays.
    for folder in sorted({one for file in files for one in file.relative_to(content).parents}, reverse=True):
        place = content / folder
        if place != content and place.is_dir() and not any(place.iterdir()):
            place.rmdir()


def _remove_extras(content: Path) -> None:
    """Remove console scripts, byte code, and notes about the machine that installed it."""
    of_packages = {name.partition("/")[0] for one in _distributions(content) for name in _record(one)}
    if "bin" not in of_packages:
        shutil.rmtree(content / "bin", ignore_errors=True)
    for cache in content.rglob("__pycache__"):
        shutil.rmtree(cache)
    for note in content.glob("*.dist-info/direct_url.json"):
        note.unlink()


def _line_of(text: str, lines: Iterable[Line]) -> Line | None:
    name = canonicalize_name(Requirement(text).name)
    return next((one for one in lines if one.name == name), None)


def _files_of(name: str, said: str) -> list[tuple[Version, str]]:
    """The files of a distribution that pip looked at, usable or not."""
    files = []
    for file in dict.fromkeys(_FILES.findall(said)):
        try:
            project, version = parse_wheel(file)[:2] if file.endswith(".whl") else parse_sdist(file)
        except (InvalidWheelFilename, InvalidSdistFilename):
            continue
        if project == canonicalize_name(name):
            files.append((version, file))
    return files


def _tag(file: str) -> str:
    """The part of a wheel's name that says where it runs."""
    return "-".join(file.removesuffix(".whl").split("-")[-3:]) if file.endswith(".whl") else ""


def _listed(values: Sequence[str], most: int = 8) -> str:
    return ", ".join(values[:most]) + (" and others" if len(values) > most else "")
