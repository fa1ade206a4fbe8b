"""Reader of requirements files in pip's format.

Each line needs a version (`==`) or a hash, so that the same file gives the same wheels. This module installs nothing.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from cdk_intake_ledger.bundling.requirements import Line, Requirements, without_marker

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
        self._lines: list[Line] = []
        self._options: list[str] = []
        self._problems: list[str] = []
        self._files: set[Path] = set()

    def result(self, origin: str) -> Requirements:
        self._problems += [*_repeated(self._lines), *_without_hash(self._lines)]
        return Requirements(tuple(self._lines), tuple(self._options), tuple(self._problems), origin)

    def read(self, path: Path) -> None:
        if path.resolve() in self._files:
            return
        self._files.add(path.resolve())
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            self._problems.append(f"'{path}' cannot be read ({error}): give a file of UTF-8 text")
            return
        self.add(lines, path.name, path.parent)

    def add(self, lines: Iterable[str], origin: str, folder: Path) -> None:
        for number, text in _joined(lines):
            self._add_line(text, f"{origin} line {number}", folder)

    def _add_line(self, text: str, where: str, folder: Path) -> None:
        try:
            words = shlex.split(text)
        except ValueError as error:
            self._problems.append(f"{where} is {text!r}, which cannot be read ({error}): close the quotation marks")
            return
        if text.startswith("-"):
            self._add_option(words, text, where, folder)
            return
        words = text.split()
        options = next((index for index, word in enumerate(words) if word.startswith("--")), len(words))
        hashes, unknown = _hashes(words[options:])
        if unknown:
            self._problems.append(f"{where} has {unknown!r}, which is not supported: only --hash is, leave it out")
            return
        requirement = " ".join(words[:options])
        try:
            line = Line(Requirement(requirement), hashes, where)
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
            self._options.append(f"--find-links {(folder / value).resolve() if local else value}")
        elif name in _INDEX_OPTIONS and value:
            self._options.append(f"{name} {value}")
        elif name in _FLAGS:
            self._options.append(name)
        elif name == "--only-binary":
            return  # this package always sets it
        elif name == "--editable":
            self._problems.append(
                f"{where} is {text!r}: only wheels go to Lambda, copy the modules into the folder, or build a wheel "
                "for your package index and pin that"
            )
        else:
            self._problems.append(
                f"{where} has the option {name}, which is not supported: leave it out, or pin all versions with "
                "`uv pip compile` or `pip-compile`, which write a file without it"
            )


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


def _unpinned(line: Line, text: str) -> str:
    if line.requirement.url:
        return f"{line.where} is {text!r}: a URL needs a hash, append #sha256=... of the wheel"
    if line.requirement.specifier:
        fix = f"give one version, such as {line.requirement.name}==1.2.3"
    else:
        fix = f"write {line.requirement.name}==<version>"
    return (
        f"{line.where} is {text!r}, which is not pinned: {fix}, or let `uv pip compile` or `pip-compile` pin everything"
    )


def _unreadable(text: str, where: str, why: str) -> str:
    if text.startswith((".", "/")) or text.endswith((".whl", ".gz", ".zip")) or "+" in text.partition(":")[0]:
        return (
            f"{where} is {text!r}, which is no distribution in a package index: name a wheel as "
            "`name @ https://...whl#sha256=...`, or put it into a folder and name that by --find-links"
        )
    return f"{where} is {text!r}, which is no requirement ({why}): write name==version"


def _without_hash(lines: Sequence[Line]) -> Iterator[str]:
    """Lines without a hash, if other lines have one. pip then requires a hash for each line."""
    if not any(line.hashes for line in lines):
        return
    for line in lines:
        if not (line.hashes or line.requirement.url or line.is_left_to_lambda):
            yield (
                f"{line.where} is '{without_marker(line.requirement)}' without a hash, and other lines have one: let "
                "`uv pip compile --generate-hashes` write them all, or leave all out"
            )


def _repeated(lines: Sequence[Line]) -> Iterator[str]:
    """Two lines for one name that could both apply. pip's error would not name the lines."""
    seen: dict[str, Line] = {}
    for line in lines:
        first = seen.setdefault(line.name, line)
        if first is line or line.requirement.marker or first.requirement.marker:
            continue
        if without_marker(first.requirement) != without_marker(line.requirement):
            yield (
                f"{line.where} is '{without_marker(line.requirement)}' and {first.where} "
                f"'{without_marker(first.requirement)}': leave one of them out"
            )
