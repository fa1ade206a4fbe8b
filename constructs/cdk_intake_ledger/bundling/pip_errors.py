"""Explains pip's errors: which line has no wheel, why, and which version to pin."""

import re
import sys
from collections.abc import Iterable
from subprocess import CompletedProcess

from packaging.requirements import Requirement
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, canonicalize_name
from packaging.utils import parse_sdist_filename as parse_sdist
from packaging.utils import parse_wheel_filename as parse_wheel
from packaging.version import Version

from cdk_intake_ledger.bundling.pip import Pip, listed
from cdk_intake_ledger.bundling.requirements import RequirementLine
from cdk_intake_ledger.validation.registry import Problem
from cdk_intake_ledger.validation.requirement_rules import (
    DEPENDENCIES_HASH,
    DISTRIBUTION_MISSING,
    INDEX_UNREACHABLE,
    PIP_FAILED,
    PIP_MISSING,
    REQUIREMENTS_CONFLICT,
    VERSION_MISSING,
    WHEEL_MISSING,
)

_NO_MATCH = re.compile(r"No matching distribution found for (.+?)(?: \(from .*)?$", re.MULTILINE)
_FILES = re.compile(r"(?:https?|file)://[^\s#]*/([^/\s#]+\.(?:whl|tar\.gz|tar\.bz2|zip))")
_NEEDS_PYTHON = re.compile(r"requires a different Python \([\d.]+ not in: '([^']*)'\).*?/([^/\s#]+\.whl)")
_USABLE = re.compile(r"Could not find a version that satisfies .*\(from versions: (.*)\)")
_UNREACHABLE = re.compile(r"Could not fetch URL (\S+): (?!404)(.*?)(?: - skipping)?$", re.MULTILINE)
_CONFLICT = re.compile(r"(?:ERROR: )?Cannot install .*?(?=\n\n?To fix|\nERROR|\Z)", re.DOTALL)
_FILE_LINE = re.compile(r"-r \S+ \(line (\d+)\)")
_OTHER_PYTHON = re.compile(r"Package '(\S+)' requires a different Python: \S+ not in '(.*)'")
_UNPINNED_IN_HASHES = re.compile(r"These do not:\n((?: {4}\S.*\n?)+)")


class PipErrors:
    """The errors of one run of pip."""

    def __init__(self, pip: Pip) -> None:
        self._pip = pip
        self._origin = pip.requirements.origin

    def explain(self, failed: CompletedProcess[str], missing: Iterable[str]) -> list[Problem]:
        """Problems that made pip fail. pip stops at the first line without a wheel, so this asks for each line again.

        Args:
            failed: the result of the run.
            missing: requirements that were added to the lines.

        Returns:
            one text for each problem, with the fix.

        """
        problems = []
        lines = list(self._pip.lines)
        if _NO_MATCH.search(failed.stderr):
            while lines:
                retried = self._pip.install((line.text() for line in lines), "-vv", "--dry-run", "--no-deps")
                match = _NO_MATCH.search(retried.stdout + retried.stderr)
                line = match and _line_of(match[1], lines)
                if not match or not line:
                    break
                problems.append(self._no_wheel(match[1], retried, line))
                lines.remove(line)
            if not problems:
                retried = self._pip.install((*(line.text() for line in lines), *missing), "-vv", "--dry-run")
                if match := _NO_MATCH.search(retried.stdout + retried.stderr):
                    problems.append(self._no_wheel(match[1], retried, None))
        return problems or [self._other(failed.stderr)]

    def _no_wheel(self, text: str, retried: CompletedProcess[str], line: RequirementLine | None) -> Problem:
        requirement = Requirement(text)
        where = line.where if line else f"{self._origin}: a dependency"
        output = retried.stdout + retried.stderr
        files = _files_of(requirement.name, output)
        versions = {version for version, _ in files}
        if not versions and (unreachable := _UNREACHABLE.search(output)):
            return INDEX_UNREACHABLE.problem(where=where, url=unreachable[1], error=unreachable[2])
        if not versions:
            return DISTRIBUTION_MISSING.problem(where=where, name=requirement.name)
        of_version = [(version, file) for version, file in files if requirement.specifier.contains(version, True)]
        if not of_version:
            final = [version for version in versions if not version.is_prerelease]
            newest = [str(version) for version in sorted(final or versions)[-4:]]
            version = str(requirement.specifier).strip("=") or "any"
            return VERSION_MISSING.problem(where=where, name=requirement.name, version=version, newest=listed(newest))
        tags = sorted({_tag(file) for _, file in of_version} - {""})
        has = f"it has wheels for {listed(tags, 3)}" if tags else "it is published as source code only"
        pythons = {file: needed for needed, file in _NEEDS_PYTHON.findall(output)}
        if needed := next((pythons[file] for _, file in of_version if file in pythons), ""):
            has = f"it needs Python {needed}"
        usable = _USABLE.search(output)
        fitting = usable[1].split(", ")[-3:] if usable and usable[1] != "none" else []
        pin = f"a version that has one, such as {listed(fitting)}" if fitting else "another distribution"
        return WHEEL_MISSING.problem(where=where, requirement=text, target=self._pip.platform, reason=has, pin=pin)

    def _other(self, output: str) -> Problem:
        origin = self._origin
        if conflict := _CONFLICT.search(output):
            why = _FILE_LINE.sub(self._requirement_at, " ".join(conflict[0].removeprefix("ERROR: ").split()))
            return REQUIREMENTS_CONFLICT.problem(origin=origin, conflict=why.rstrip("."))
        if other := _OTHER_PYTHON.search(output):
            needs = f"it needs Python {other[2]}"
            return WHEEL_MISSING.problem(
                where=origin, requirement=other[1], target=self._pip.platform, reason=needs, pin="another version"
            )
        if unpinned := _UNPINNED_IN_HASHES.search(output):
            names = listed([line.split()[0] for line in unpinned[1].splitlines()])
            return DEPENDENCIES_HASH.problem(origin=origin, names=names)
        if "No module named pip" in output:
            return PIP_MISSING.problem(origin=origin, python=sys.executable)
        last = " ".join(output.strip().split())[-800:]
        return PIP_FAILED.problem(origin=origin, target=self._pip.platform, message=last)

    def _requirement_at(self, reference: re.Match[str]) -> str:
        """The requirement that pip names by its line in the generated file."""
        index = int(reference[1]) - len(self._pip.requirements.options) - 1
        return self._pip.lines[index].text() if index < len(self._pip.lines) else "a dependency"


def _line_of(text: str, lines: Iterable[RequirementLine]) -> RequirementLine | None:
    name = canonicalize_name(Requirement(text).name)
    return next((line for line in lines if line.name == name), None)


def _files_of(name: str, output: str) -> list[tuple[Version, str]]:
    """The files of a distribution in pip's output, usable or not."""
    files = []
    for file in dict.fromkeys(_FILES.findall(output)):
        try:
            project, version = parse_wheel(file)[:2] if file.endswith(".whl") else parse_sdist(file)
        except (InvalidWheelFilename, InvalidSdistFilename):
            continue
        if project == canonicalize_name(name):
            files.append((version, file))
    return files


def _tag(file: str) -> str:
    """The platform tags in a wheel's name."""
    return "-".join(file.removesuffix(".whl").split("-")[-3:]) if file.endswith(".whl") else ""
