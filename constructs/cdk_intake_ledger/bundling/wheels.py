"""Wheels of pinned requirements for Lambda, installed at synthesis: by uv, without Docker, once for each set of pins.

The cache is `$CDK_INTAKE_LEDGER_CACHE`, or `cdk-intake-ledger` in `$XDG_CACHE_HOME` or `~/.cache`.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from cdk_intake_ledger.checks.registry import Problem
from cdk_intake_ledger.checks.rules.requirement_rules import (
    PIP_SETTING,
    PIP_SETTINGS,
    REQUIREMENT_FORMAT,
    REQUIREMENT_OPTION,
    REQUIREMENT_PINNED,
    REQUIREMENT_URL_HASH,
    REQUIREMENTS_UNREADABLE,
    UV_MISSING,
    WHEELS_MISSING,
)

UNUSED_DAYS = 30
"""Days after which unused wheels leave the cache."""
GLIBC = "manylinux_2_34"
"""The C library of Amazon Linux 2023, on which Lambda's Python 3.12 and later run. With an older one, uv would choose
older releases: https://docs.aws.amazon.com/linux/al2023/ug/core-glibc.html."""
MACHINES: Mapping[str, str] = {"arm64": "aarch64", "x86_64": "x86_64"}
"""Linux's name for each of Lambda's architectures."""
LAMBDA_HAS = frozenset({"boto3", "botocore", "jmespath", "python-dateutil", "s3transfer", "six", "urllib3"})
"""Distributions in Lambda's Python runtimes: https://docs.aws.amazon.com/lambda/latest/dg/lambda-python.html."""

_OPTION = re.compile(r"(-i|-f|--index-url|--extra-index-url|--find-links|--trusted-host)[ =]?(.+)|--(no-index|pre)()")
_LONG = {"-i": "--index-url", "-f": "--find-links"}
_IGNORED = re.compile(r"--(only-binary|prefer-binary|require-hashes)\b")
_URL_HASH = re.compile(r"[#&](sha256|sha384|sha512)=[0-9a-f]{64,}")

# uv's variables for settings of pip. uv does not read pip's configuration, and would ask the public index.
_HANDED = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "constraint": "UV_CONSTRAINT",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
}
# Settings that uv has in another form. If its variable is set, that of pip does not matter.
_REFUSED = {
    "keyring-provider": "UV_KEYRING_PROVIDER",
    "pre": "UV_PRERELEASE",
    "require-hashes": "UV_REQUIRE_HASHES",
    "uploaded-prior-to": "UV_EXCLUDE_NEWER",
}
_INDEXES = frozenset({"index-url", "extra-index-url", "find-links", "no-index"})
_UV_INDEXES = re.compile("UV_(CONFIG_FILE|DEFAULT_INDEX|EXTRA_INDEX_URL|FIND_LINKS|INDEX|INDEX_URL)")
_OFF = frozenset({"", "0", "auto", "disabled", "false", "n", "no", "off"})
# Other variables of uv are for other installations: into the system's Python, with byte code, from sources.
_UV_KEPT = re.compile(
    r"UV_(CACHE_DIR|CONCURRENT_\w+|CONFIG_FILE|CONSTRAINT|DEFAULT_INDEX|EXCLUDE_NEWER|EXTRA_INDEX_URL|FIND_LINKS|HTTP_\w+"
    r"|INDEX\w*|INSECURE_HOST|KEYRING_PROVIDER|NATIVE_TLS|NO_CACHE|OFFLINE|PRERELEASE|REQUIRE_HASHES|SYSTEM_CERTS)"
)
_PIP_FILES = ("~/.config/pip/pip.conf", "~/.pip/pip.conf", "/etc/pip.conf", "/etc/xdg/pip/pip.conf")


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


@dataclass
class Requirements:
    """The content of a requirements file and of the files that it includes."""

    origin: str
    """The file's name, for messages."""
    lines: list[str] = field(default_factory=list)
    """The requirements, as uv reads them."""
    options: list[str] = field(default_factory=list)
    """Options for the package index: `--index-url https://...`."""
    names: dict[str, str] = field(default_factory=dict)
    """File and line of each distribution, by its name in the normal form."""
    problems: list[Problem] = field(default_factory=list)
    """Reasons why it cannot be installed."""

    @property
    def hashed(self) -> bool:
        """True if a line has a hash. Then each distribution needs one."""
        return any("--hash" in line for line in self.lines)

    def digest(self, python: str, architecture: str) -> str:
        """Hash of the pins, the Python version and the architecture. It is the same on each machine. Comments, the
        order of lines and the package index do not change it.
        """
        return sha256("\n".join(("3", python, architecture, *sorted(self.lines))).encode()).hexdigest()

    def add(self, lines: Iterable[str], origin: str, folder: Path) -> None:
        """Add lines of a file in this folder."""
        for number, text in _joined(lines):
            where = f"{origin} line {number}"
            if text.startswith("-"):
                self._add_option(text, where, folder)
            else:
                self._add_requirement(text, where)

    def read(self, path: Path) -> None:
        """Add the lines of a file."""
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            self.problems.append(REQUIREMENTS_UNREADABLE.problem(path=path, error=error))
        else:
            self.add(lines, path.name, path.parent)

    def _add_option(self, text: str, where: str, folder: Path) -> None:
        if included := re.fullmatch(r"(?:-r|--requirement)[ =]?(.+)", text):
            self.read(folder / included[1].strip())
        elif found := _OPTION.fullmatch(text):
            name, value = _LONG.get(found[1], found[1] or f"--{found[3]}"), (found[2] or "").strip()
            if name == "--find-links" and "://" not in value:
                value = str((folder / value).resolve())
            self.options.append(f"{name} {value}".strip())
        elif not _IGNORED.match(text):
            self.problems.append(REQUIREMENT_OPTION.problem(where=where, text=text))

    def _add_requirement(self, text: str, where: str) -> None:
        pinned, *hashes = re.split(r"\s+--hash[ =]", text)
        try:
            requirement = Requirement(pinned)
        except InvalidRequirement as error:
            self.problems.append(REQUIREMENT_FORMAT.problem(where=where, text=text, error=str(error).splitlines()[0]))
            return
        name = canonicalize_name(requirement.name)
        exact = any(
            one.operator == "===" or (one.operator == "==" and not one.version.endswith(".*"))
            for one in requirement.specifier
        )
        if requirement.url and not (hashes or _URL_HASH.search(requirement.url)):
            self.problems.append(REQUIREMENT_URL_HASH.problem(where=where, text=text))
        elif exact or requirement.url:
            self.names[name] = where
            requirement.name = name
            self.lines.append(" ".join((str(requirement), *(f"--hash={one.strip()}" for one in hashes))))
        elif name not in LAMBDA_HAS or str(requirement.specifier) or requirement.extras:
            version = "1.2.3" if requirement.specifier else "<version>"
            self.problems.append(REQUIREMENT_PINNED.problem(where=where, text=text, name=name, version=version))


def read_requirements(path: Path) -> Requirements:
    """Read a file. The result's `problems` lists all errors in it.

    Args:
        path: a file in pip's format: `requirements.txt`, or the output of `uv export` or `pip-compile`.

    Returns:
        the requirements of this file and of the files that it includes.

    """
    requirements = Requirements(path.name)
    requirements.read(path)
    return requirements


def parse_requirements(lines: Sequence[str], origin: str = "requirements") -> Requirements:
    """Parse lines that do not come from a file.

    Args:
        lines: such as `duckdb==1.4.2` or `duckdb==1.4.2 --hash=sha256:...`.
        origin: the name of these lines in messages; `requirements` when omitted.

    Returns:
        the requirements.

    """
    requirements = Requirements(origin)
    requirements.add(lines, origin, Path())
    return requirements


def install(requirements: Requirements, *, python: str, architecture: str) -> Path:
    """Install the wheels of these requirements once, and keep the folder in the cache. Do not change the folder.

    Args:
        requirements: pinned requirements, from `read_requirements` or `parse_requirements`.
        python: Lambda's Python version, such as `3.13`.
        architecture: `arm64` or `x86_64`, Lambda's names.

    Returns:
        the folder with the unpacked wheels.

    Raises:
        WheelError: a line is not pinned, or uv cannot install the lines.

    """
    if requirements.problems:
        raise WheelError(requirements.problems)
    # Another index may have another wheel under the same name and version.
    indexes = sha256("\n".join(requirements.options).encode()).hexdigest()
    cached = cache_folder() / f"{requirements.digest(python, architecture)}-{indexes[:8]}"
    if cached.is_dir():
        os.utime(cached)
        return cached
    _tidy(cached.parent)
    # In the same folder, so that a rename completes it.
    with tempfile.TemporaryDirectory(dir=cached.parent, prefix=".new-") as temporary:
        content = Path(temporary, "content")
        content.mkdir()
        if requirements.lines:
            _install(requirements, content, python, architecture)
        try:
            content.rename(cached)
        except OSError:
            if not cached.is_dir():  # another synthesis installed it first
                raise
    return cached


def _install(requirements: Requirements, content: Path, python: str, architecture: str) -> None:
    target = f"Python {python} on Linux {architecture}"
    sys.stderr.write(f"Installing the wheels of {requirements.origin} for {target} ...\n")
    # In a separate folder, so that no settings of the app's project count.
    with tempfile.TemporaryDirectory(prefix="requirements-") as folder:
        lines = (*requirements.options, *requirements.lines)
        Path(folder, "requirements.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        arguments, environment = _uv_settings(requirements)
        command = [
            *(_uv(requirements), "pip", "install", "--requirement", "requirements.txt", "--only-binary", ":all:"),
            *("--python", sys.executable, "--no-python-downloads", "--python-version", python),
            *("--python-platform", f"{MACHINES[architecture]}-{GLIBC}", "--target", str(content)),
            *(["--require-hashes"] if requirements.hashed else []),
            # Of several indexes, pip takes the newest version, and uv by default the first index that has the name.
            *("--index-strategy", "unsafe-best-match", "--quiet", "--no-progress", "--color", "never", *arguments),
        ]
        done = _run(command, folder, environment)
        if "Failed to initialize cache" in done.stderr:  # a build server's user may have no home
            done = _run([*command, "--no-cache"], folder, environment)
    if done.returncode:
        reason = " ".join(re.sub(r"^\W*(error:|cause:)?", "", done.stderr, flags=re.MULTILINE).split()).rstrip(".")
        raise WheelError([WHEELS_MISSING.problem(origin=requirements.origin, target=target, reason=reason)])
    for name in (".lock", "*.dist-info/uv_*.json", "*.dist-info/direct_url.json"):  # about this machine
        for note in content.glob(name):
            note.unlink()
    if not (content / "bin" / "__init__.py").exists():  # console scripts with the path of this machine's Python
        shutil.rmtree(content / "bin", ignore_errors=True)
    found = {canonicalize_name(one.name): one.version for one in distributions(path=[str(content)])}
    if opened := ", ".join(f"{name}=={version}" for name, version in found.items() if name not in requirements.names):
        sys.stderr.write(f"{requirements.origin} leaves these versions open, pin them: {opened}\n")


def _run(command: list[str], folder: str, environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False)


def _uv(requirements: Requirements) -> str:
    try:
        from uv import find_uv_bin  # noqa: PLC0415 - a processor without requirements does not need it

        return find_uv_bin()
    except (ImportError, FileNotFoundError) as error:
        raise WheelError([UV_MISSING.problem(origin=requirements.origin, python=sys.executable)]) from error


def _uv_settings(requirements: Requirements) -> tuple[list[str], dict[str, str]]:
    """Arguments and variables of uv. If pip or the file names an index, uv's own settings of indexes do not count.

    Raises:
        WheelError: a setting of pip has no equal in uv, or pip's settings cannot be read.

    """
    settings = {name: value for name, value in _pip_settings().items() if value.lower() not in _OFF}
    if wrong := [name for name, variable in _REFUSED.items() if name in settings and variable not in os.environ]:
        raise WheelError(
            [PIP_SETTING.problem(name=name, value=settings[name], variable=_REFUSED[name]) for name in wrong]
        )
    if any(option.startswith("--index-url") for option in requirements.options):  # it replaces them, as in pip
        settings = {name: value for name, value in settings.items() if "index-url" not in name}
    if requirements.hashed:  # uv would refuse constraints without hashes, and the hashes pin everything
        settings.pop("constraint", None)
    given = bool(_INDEXES & settings.keys() or requirements.options)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("UV_") or (_UV_KEPT.fullmatch(name) and not (given and _UV_INDEXES.fullmatch(name)))
    }
    environment.setdefault("UV_SYSTEM_CERTS", "1")  # pip takes the certificates of the operating system
    if bundle := os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE"):
        settings.setdefault("cert", bundle)
    for name, variable in _HANDED.items():
        places = [_absolute(place) for place in settings.get(name, "").split()]
        if name == "find-links":
            places = [place for place in places if "://" in place or Path(place).exists()]
        if places:
            environment[variable] = ("," if name == "find-links" else " ").join(places)
    return [*(["--no-index"] if "no-index" in settings else []), *(["--no-config"] if given else [])], environment


def _pip_settings() -> dict[str, str]:
    """The settings of `pip install` by the long names of its options, as `pip config list` prints them."""
    pip = [sys.executable, "-m", "pip"]
    if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode:
        if not (found := shutil.which("pip") or shutil.which("pip3")):
            return _settings_without_pip()
        pip = [found]
    done = subprocess.run([*pip, "config", "list"], capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise WheelError([PIP_SETTINGS.problem(path="pip config list", error=" ".join(done.stderr.split()))])
    levels: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in done.stdout.splitlines():
        name, _, value = line.partition("=")
        level, _, option = name.rpartition(".")
        if level in levels:
            levels[level][option] = " ".join(str(ast.literal_eval(value)).split())
    return {name: value for level in levels.values() for name, value in level.items()}


def _settings_without_pip() -> dict[str, str]:
    """Pip's variables. Its files cannot be read without pip, and may name a private index."""
    files = [os.environ.get("PIP_CONFIG_FILE") or os.devnull, *_PIP_FILES, str(Path(sys.prefix, "pip.conf"))]
    for path in map(Path, files):
        if path.expanduser().is_file():
            error = f"{sys.executable} has no pip"
            raise WheelError([PIP_SETTINGS.problem(path=path.expanduser(), error=error)])
    return {key[4:].lower().replace("_", "-"): value for key, value in os.environ.items() if key.startswith("PIP_")}


def _absolute(place: str) -> str:
    """An address or a name as it is, and an absolute path: uv runs in another folder."""
    path = Path(place).expanduser()
    return str(path.absolute()) if "://" not in place and path.exists() else place


def _joined(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Logical lines without comments, each with the number of its first line."""
    first, parts = 0, []
    for number, line in enumerate([*lines, ""], 1):
        first = first or number
        text = re.sub(r"(^|\s)#.*$", "", line).strip()
        parts.append(text.removesuffix("\\").strip())
        if not text.endswith("\\"):
            if logical := " ".join(filter(None, parts)):
                yield first, logical
            first, parts = 0, []


def cache_folder() -> Path:
    """The cache's folder for installed wheels. This function makes it if it does not exist."""
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
