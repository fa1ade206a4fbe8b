"""Reads a `requirements.txt`: which distributions at which versions a folder needs, and what pip must be told.

Each line needs a version (`==`) or a hash, so that the same file gives the same wheels. Nothing is installed here.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name

LAMBDA_HAS: Mapping[str, str] = {
    "boto3": "1.28",
    "botocore": "1.31",
    "jmespath": "1.0",
    "python-dateutil": "2.8.2",
    "s3transfer": "0.6",
    "six": "1.16",
    "urllib3": "1.26",
}
"""Distributions in Lambda's Python runtimes, each with a version older than theirs. Lambda updates them without asking:
https://docs.aws.amazon.com/lambda/latest/dg/lambda-python.html#python-sdk-included."""

MACHINES: Mapping[str, str] = {"arm64": "aarch64", "x86_64": "x86_64"}
"""Linux's name for each of Lambda's architectures."""

# With a value each. The others would change how wheels are chosen, which is decided here.
_INDEX_OPTIONS = ("--index-url", "--extra-index-url", "--find-links", "--trusted-host")
_SHORT = {"-i": "--index-url", "-f": "--find-links", "-r": "--requirement", "-c": "--constraint", "-e": "--editable"}
_FLAGS = ("--no-index", "--pre", "--prefer-binary", "--require-hashes")
_COMMENT = re.compile(r"(^|\s)#.*$")
_URL_HASH = re.compile(r"[#&](sha256|sha384|sha512)=[0-9a-f]{64,}")


@dataclass(frozen=True)
class Line:
    """One requirement, as a file has it."""

    requirement: Requirement
    hashes: tuple[str, ...]
    """Hashes in pip's form: `sha256:...`."""
    where: str
    """Such as `requirements.txt line 3`."""

    @property
    def name(self) -> NormalizedName:
        """The distribution's name in its normal form."""
        return canonicalize_name(self.requirement.name)

    @property
    def is_pinned(self) -> bool:
        """True if the line always means the same version."""
        if self.requirement.url:
            return bool(self.hashes or _URL_HASH.search(self.requirement.url))
        return any(
            one.operator == "===" or (one.operator == "==" and not one.version.endswith(".*"))
            for one in self.requirement.specifier
        )

    @property
    def is_left_to_lambda(self) -> bool:
        """True if Lambda has the distribution and the line has no pin."""
        requirement = self.requirement
        return not self.is_pinned and not requirement.url and lambda_has(requirement)

    def applies(self, environment: Mapping[str, str]) -> bool:
        """True if the line has no marker, or a marker that is true on Lambda."""
        return self.requirement.marker is None or self.requirement.marker.evaluate(dict(environment))

    def text(self) -> str:
        """The line for pip, without the marker: pip would evaluate that for the machine that it runs on."""
        return " ".join((_without_marker(self.requirement), *(f"--hash={one}" for one in self.hashes)))


@dataclass(frozen=True)
class Requirements:
    """The content of a requirements file and of the files that it includes."""

    lines: tuple[Line, ...]
    options: tuple[str, ...] = ()
    """Options for pip's index: one line each."""
    problems: tuple[str, ...] = ()
    """Reasons why it cannot be installed."""
    origin: str = "requirements"
    """The file's name, for messages."""

    def for_lambda(self, python: str, architecture: str) -> tuple[Line, ...]:
        """Lines for one Python version and one architecture, without names that Lambda has anyway."""
        environment = lambda_environment(python, architecture)
        return tuple(one for one in self.lines if not one.is_left_to_lambda and one.applies(environment))

    def digest(self, python: str, architecture: str) -> str:
        """A hash of the pins, the Python version and the architecture, the same on every machine. Comments, the order
        of lines and the package index do not count.
        """
        lines = sorted(one.text() for one in self.for_lambda(python, architecture))
        return sha256("\n".join(("1", python, architecture, *lines)).encode()).hexdigest()


def lambda_environment(python: str, architecture: str) -> dict[str, str]:
    """The values of environment markers in a Lambda function."""
    return {
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "os_name": "posix",
        "platform_machine": MACHINES[architecture],
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
        "extra": "",
    }


def lambda_has(requirement: Requirement) -> bool:
    """True if Lambda's own version satisfies a requirement, today and after each update by Lambda."""
    oldest = LAMBDA_HAS.get(canonicalize_name(requirement.name))
    if oldest is None or requirement.extras:
        return False
    # Only lower bounds stay true when Lambda updates the version.
    bounded = any(one.operator not in (">=", ">", "!=") for one in requirement.specifier)
    return not bounded and SpecifierSet(str(requirement.specifier)).contains(oldest)


def read_requirements(path: Path) -> Requirements:
    """Read a file. All of its faults are in `problems`.

    Args:
        path: a file in pip's format, such as `requirements.txt`, or as `uv export` and `pip-compile` write it.

    """
    reader = _Reader()
    reader.read(path)
    return reader.result(path.name)


def parse_requirements(lines: Sequence[str], origin: str = "requirements") -> Requirements:
    """Parse lines that are in no file.

    Args:
        lines: such as `duckdb==1.4.2`; with hashes if wanted: `duckdb==1.4.2 --hash=sha256:...`.
        origin: what messages call it; `requirements` when omitted.

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
            self._one(text, f"{origin} line {number}", folder)

    def _one(self, text: str, where: str, folder: Path) -> None:
        try:
            words = shlex.split(text)
        except ValueError as error:
            self._problems.append(f"{where} is {text!r}, which cannot be read ({error}): close the quotation marks")
            return
        if text.startswith("-"):
            self._option(words, text, where, folder)
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

    def _option(self, words: list[str], text: str, where: str, folder: Path) -> None:
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
            return  # that is so anyway
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
    """Lines without comments, continued ones joined, each with the number of its first line."""
    begun, parts = 0, []
    for number, line in enumerate(lines, 1):
        begun = begun or number
        text = _COMMENT.sub("", line)
        parts.append(text.removesuffix("\\").strip())
        if text.endswith("\\"):
            continue
        if whole := " ".join(filter(None, parts)):
            yield begun, whole
        begun, parts = 0, []
    if whole := " ".join(filter(None, parts)):
        yield begun, whole


def _hashes(words: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """The hashes of a line, and the first word that is something else."""
    hashes, rest = [], list(words)
    while rest:
        word = rest.pop(0)
        name, _, value = word.partition("=")
        if name != "--hash":
            return (), word
        hashes.append(value or (rest.pop(0) if rest else ""))
    return tuple(hashes), ""


def _without_marker(requirement: Requirement) -> str:
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    url = f" @ {requirement.url}" if requirement.url else ""
    return f"{canonicalize_name(requirement.name)}{extras}{requirement.specifier}{url}"


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
    """Lines without a hash among others that have one. pip then asks for all of them."""
    if not any(line.hashes for line in lines):
        return
    for line in lines:
        if not (line.hashes or line.requirement.url or line.is_left_to_lambda):
            yield (
                f"{line.where} is '{_without_marker(line.requirement)}' without a hash, and other lines have one: let "
                "`uv pip compile --generate-hashes` write them all, or leave all out"
            )


def _repeated(lines: Sequence[Line]) -> Iterator[str]:
    """Two lines for one name that could both count. pip says nothing about lines in its errors."""
    seen: dict[str, Line] = {}
    for line in lines:
        first = seen.setdefault(line.name, line)
        if first is line or line.requirement.marker or first.requirement.marker:
            continue
        if _without_marker(first.requirement) != _without_marker(line.requirement):
            yield (
                f"{line.where} is '{_without_marker(line.requirement)}' and {first.where} "
                f"'{_without_marker(first.requirement)}': leave one of them out"
            )
