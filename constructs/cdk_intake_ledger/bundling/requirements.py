"""Pinned requirements, and which of them Lambda needs. `requirements_file.py` reads them from a file."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name

from cdk_intake_ledger.validation.registry import Problem

LAMBDA_HAS: Mapping[str, str] = {
    "boto3": "1.28",
    "botocore": "1.31",
    "jmespath": "1.0",
    "python-dateutil": "2.8.2",
    "s3transfer": "0.6",
    "six": "1.16",
    "urllib3": "1.26",
}
"""Distributions in Lambda's Python runtimes, each with a version that is older than Lambda's. Lambda updates them:
https://docs.aws.amazon.com/lambda/latest/dg/lambda-python.html#python-sdk-included."""

MACHINES: Mapping[str, str] = {"arm64": "aarch64", "x86_64": "x86_64"}
"""Linux's name for each of Lambda's architectures."""

_URL_HASH = re.compile(r"[#&](sha256|sha384|sha512)=[0-9a-f]{64,}")


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


@dataclass(frozen=True)
class RequirementLine:
    """One requirement of a file."""

    requirement: Requirement
    hashes: tuple[str, ...]
    """Such as `sha256:...`."""
    where: str
    """File and line, such as `requirements.txt line 3`."""

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
            specifier.operator == "===" or (specifier.operator == "==" and not specifier.version.endswith(".*"))
            for specifier in self.requirement.specifier
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
        """The line for uv, without the marker, which `for_lambda` has evaluated."""
        return " ".join((without_marker(self.requirement), *(f"--hash={digest}" for digest in self.hashes)))


@dataclass(frozen=True)
class Requirements:
    """The content of a requirements file and of the files that it includes."""

    lines: tuple[RequirementLine, ...]
    options: tuple[tuple[str, str], ...] = ()
    """Names and values of pip's options for the package index: `("index-url", "https://...")`."""
    problems: tuple[Problem, ...] = ()
    """Reasons why it cannot be installed."""
    origin: str = "requirements"
    """The file's name, for messages."""

    def for_lambda(self, python: str, architecture: str) -> tuple[RequirementLine, ...]:
        """Lines for one Python version and one architecture, without lines that Lambda's own modules satisfy."""
        environment = lambda_environment(python, architecture)
        return tuple(line for line in self.lines if not line.is_left_to_lambda and line.applies(environment))

    def digest(self, python: str, architecture: str) -> str:
        """Hash of the pins, the Python version and the architecture. It is the same on each machine. Comments, the
        order of lines and the package index do not change it.
        """
        lines = sorted(line.text() for line in self.for_lambda(python, architecture))
        return sha256("\n".join(("2", python, architecture, *lines)).encode()).hexdigest()


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
    """True if Lambda's own version satisfies a requirement now and after each update of Lambda."""
    oldest = LAMBDA_HAS.get(canonicalize_name(requirement.name))
    if oldest is None or requirement.extras:
        return False
    # Only lower bounds stay true when Lambda updates the version.
    bounded = any(specifier.operator not in (">=", ">", "!=") for specifier in requirement.specifier)
    return not bounded and SpecifierSet(str(requirement.specifier)).contains(oldest)


def without_marker(requirement: Requirement) -> str:
    """The text of a requirement without its environment marker."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    url = f" @ {requirement.url}" if requirement.url else ""
    return f"{canonicalize_name(requirement.name)}{extras}{requirement.specifier}{url}"
