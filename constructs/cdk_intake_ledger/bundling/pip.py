"""Runs pip for Lambda's Python and machine, wherever synthesis runs."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cdk_intake_ledger.bundling.requirements import MACHINES, RequirementLine, Requirements

NEWEST_GLIBC = 34
"""The minor version of the C library of Amazon Linux 2023, on which Lambda's Python 3.12 and later run:
https://docs.aws.amazon.com/linux/al2023/ug/core-glibc.html."""

OLDEST_GLIBC: Mapping[str, int] = {"arm64": 17, "x86_64": 5}
"""The oldest minor versions in the tags of wheels."""

OLD_TAGS: Mapping[str, tuple[str, ...]] = {
    "arm64": ("manylinux2014",),
    "x86_64": ("manylinux2014", "manylinux2010", "manylinux1"),
}


@dataclass(frozen=True)
class Pip:
    """pip for one set of requirements, one Python version and one architecture."""

    requirements: Requirements
    python: str
    """Such as `3.13`."""
    architecture: str
    """`arm64` or `x86_64`."""

    @property
    def platform(self) -> str:
        """The platform's name in messages."""
        return f"Python {self.python} on Linux {self.architecture}"

    @cached_property
    def lines(self) -> tuple[RequirementLine, ...]:
        """The lines that Lambda needs."""
        return self.requirements.for_lambda(self.python, self.architecture)

    def install(self, lines: Iterable[str], *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run `pip install` with these lines, and further arguments."""
        machine = MACHINES[self.architecture]
        versions = range(NEWEST_GLIBC, OLDEST_GLIBC[self.architecture] - 1, -1)
        tags = [*(f"manylinux_2_{version}" for version in versions), *OLD_TAGS[self.architecture]]
        with tempfile.TemporaryDirectory(prefix="requirements-") as folder:
            file = Path(folder, "requirements.txt")
            file.write_text("".join(f"{line}\n" for line in (*self.requirements.options, *lines)), encoding="utf-8")
            command = [
                *(sys.executable, "-m", "pip", "install", "--requirement", str(file), "--only-binary=:all:"),
                *("--implementation", "cp", "--python-version", self.python),
                *(part for tag in tags for part in ("--platform", f"{tag}_{machine}")),
                *("--no-user", "--no-compile", "--no-input", "--no-color", "--disable-pip-version-check"),
                *("--no-warn-script-location", *arguments),
            ]
            # pip installs into another folder, so this setting of the user does not apply.
            environment = os.environ | {"PIP_REQUIRE_VIRTUALENV": "0"}
            return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def listed(values: Sequence[str], most: int = 8) -> str:
    """The first values as text."""
    return ", ".join(values[:most]) + (" and others" if len(values) > most else "")
