"""Reader of requirements files in pip's format.

Each line needs a version (`==`) or a hash, so that the same file gives the same wheels. This module installs nothing.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from cdk_intake_ledger.bundling.requirements import RequirementLine, Requirements, without_marker
from cdk_intake_ledger.validation.registry import Problem
from cdk_intake_ledger.validation.requirement_rules import (
    REQUIREMENT_EDITABLE,
    REQUIREMENT_FORMAT,
    REQUIREMENT_HASH,
    REQUIREMENT_OPTION,
    REQUIREMENT_PATH,
    REQUIREMENT_PINNED,
    REQUIREMENT_PIP_OPTION,
    REQUIREMENT_QUOTES,
    REQUIREMENT_REPEATED,
    REQUIREMENT_URL_HASH,
    REQUIREMENTS_UNREADABLE,
)

# Each has a value. Other options would change the choice of wheels, which this package makes.
_INDEX_OPTIONS = ("--index-url", "--extra-index-url", "--find-links", "--trusted-host")
_SHORT = {"-i": "--index-url", "-f": "--find-links", "-r": "--requirement", "-c": "--constraint", "-e": "--editable"}
_FLAGS = ("--no-index", "--pre", "--prefer-binary", "--require-hashes")
_COMMENT = re.compile(r"(^|\s)#.*$")


def read_requirements(path: Path) -> Requirements:
    """Read a file. The result's `problems` lists all errors in it.

    Args:
        path: a file in pip's format: `requirements.txt`, or the output of `uv export` or `pip-compile`.

    Returns:
        the requirements of this file and of the files that it includes.

    """
    reader = _Reader()
    reader.read(path)
    return reader.result(path.name)


def parse_requirements(lines: Sequence[str], origin: str = "requirements") -> Requirements:
    """Parse lines that do not come from a file.

    Args:
        lines: such as `duckdb==1.4.2` or `duckdb==1.4.2 --hash=sha256:...`.
        origin: the name of these lines in messages; `requirements` when omitted.

    Returns:
        the requirements.

    """
    reader = _Reader()
    reader.add(lines, origin, Path())
    return reader.result(origin)


class _Reader:
    def __init__(self) -> None:
        self._lines: list[RequirementLine] = []
        self._options: list[tuple[str, str]] = []
        self._problems: list[Problem] = []
        self._files: set[Path] = set()

    def result(self, origin: str) -> Requirements:
        self._problems += [*_repeated(self._lines), *_without_hash(self._lines, self._options)]
        return Requirements(tuple(self._lines), tuple(self._options), tuple(self._problems), origin)

    def read(self, path: Path) -> None:
        if path.resolve() in self._files:
            return
        self._files.add(path.resolve())
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            self._problems.append(REQUIREMENTS_UNREADABLE.problem(path=path, error=error))
            return
        self.add(lines, path.name, path.parent)

    def add(self, lines: Iterable[str], origin: str, folder: Path) -> None:
        for number, text in _joined(lines):
            self._add_line(text, f"{origin} line {number}", folder)

    def _add_line(self, text: str, where: str, folder: Path) -> None:
        try:
            words = shlex.split(text)
        except ValueError as error:
            self._problems.append(REQUIREMENT_QUOTES.problem(where=where, text=text, error=error))
            return
        if text.startswith("-"):
            self._add_option(words, text, where, folder)
            return
        words = text.split()
        options = next((index for index, word in enumerate(words) if word.startswith("--")), len(words))
        hashes, unknown = _hashes(words[options:])
        if unknown:
            self._problems.append(REQUIREMENT_OPTION.problem(where=where, option=unknown))
            return
        requirement = " ".join(words[:options])
        try:
            line = RequirementLine(Requirement(requirement), hashes, where)
        except InvalidRequirement as error:
            self._problems.append(_unreadable(requirement, where, str(error).splitlines()[0]))
            return
        if line.is_pinned or line.is_left_to_lambda:
            self._lines.append(line)
        else:
            self._problems.append(_unpinned(line, requirement))

    def _add_option(self, words: list[str], text: str, where: str, folder: Path) -> None:
        name, _, value = words[0].partition("=")
        if name[:2] in _SHORT and not name.startswith("--"):
            name, value = _SHORT[name[:2]], value or name[2:]
        value = value or " ".join(words[1:])
        if name == "--requirement" and value:
            self.read(folder / value)
        elif name == "--find-links" and value:
            local = "://" not in value
            self._options.append((name[2:], str((folder / value).resolve()) if local else value))
        elif name in _INDEX_OPTIONS and value:
            self._options.append((name[2:], value))
        elif name in _FLAGS:
            self._options.append((name[2:], ""))
        elif name == "--only-binary":
            return  # this package always sets it
        elif name == "--editable":
            self._problems.append(REQUIREMENT_EDITABLE.problem(where=where, text=text))
        else:
            self._problems.append(REQUIREMENT_PIP_OPTION.problem(where=where, name=name))


def _joined(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Logical lines without comments, each with the number of its first line."""
    first, parts = 0, []
    for number, line in enumerate(lines, 1):
        first = first or number
        text = _COMMENT.sub("", line)
        parts.append(text.removesuffix("\\").strip())
        if text.endswith("\\"):
            continue
        if logical_line := " ".join(filter(None, parts)):
            yield first, logical_line
        first, parts = 0, []
    if logical_line := " ".join(filter(None, parts)):
        yield first, logical_line


def _hashes(words: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """The hashes of a line, and the first word that is not a hash."""
    hashes, rest = [], list(words)
    while rest:
        word = rest.pop(0)
        name, _, value = word.partition("=")
        if name != "--hash":
            return (), word
        hashes.append(value or (rest.pop(0) if rest else ""))
    return tuple(hashes), ""


def _unpinned(line: RequirementLine, text: str) -> Problem:
    if line.requirement.url:
        return REQUIREMENT_URL_HASH.problem(where=line.where, text=text)
    return REQUIREMENT_PINNED.problem(
        where=line.where,
        text=text,
        name=line.requirement.name,
        version="1.2.3" if line.requirement.specifier else "<version>",
    )


def _unreadable(text: str, where: str, why: str) -> Problem:
    if text.startswith((".", "/")) or text.endswith((".whl", ".gz", ".zip")) or "+" in text.partition(":")[0]:
        return REQUIREMENT_PATH.problem(where=where, text=text)
    return REQUIREMENT_FORMAT.problem(where=where, text=text, error=why)


def _without_hash(lines: Sequence[RequirementLine], options: Sequence[tuple[str, str]]) -> Iterator[Problem]:
    """Lines without a hash, if other lines have one or the file demands them."""
    if ("require-hashes", "") not in options and not any(line.hashes for line in lines):
        return
    for line in lines:
        if not (line.hashes or line.requirement.url or line.is_left_to_lambda):
            yield REQUIREMENT_HASH.problem(where=line.where, text=without_marker(line.requirement))


def _repeated(lines: Sequence[RequirementLine]) -> Iterator[Problem]:
    """Two lines for one name that could both apply. uv's error would not name the lines."""
    seen: dict[str, RequirementLine] = {}
    for line in lines:
        first = seen.setdefault(line.name, line)
        if first is line or line.requirement.marker or first.requirement.marker:
            continue
        if without_marker(first.requirement) != without_marker(line.requirement):
            yield REQUIREMENT_REPEATED.problem(
                where=line.where,
                text=without_marker(line.requirement),
                first_where=first.where,
                first=without_marker(first.requirement),
            )
