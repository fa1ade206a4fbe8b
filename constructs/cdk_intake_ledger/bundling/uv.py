"""Runs uv for Lambda's Python and machine, wherever synthesis runs."""

import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cdk_intake_ledger.bundling.pip_settings import uv_settings
from cdk_intake_ledger.bundling.requirements import MACHINES, RequirementLine, Requirements, WheelError
from cdk_intake_ledger.validation.requirement_rules import UV_MISSING

GLIBC = "manylinux_2_34"
"""The C library of Amazon Linux 2023, on which Lambda's Python 3.12 and later run. With an older one, uv would choose
older releases: https://docs.aws.amazon.com/linux/al2023/ug/core-glibc.html."""


@dataclass(frozen=True)
class Uv:
    """uv for one set of requirements, one Python version and one architecture."""

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

    def install(self, target: Path) -> "subprocess.CompletedProcess[str]":
        """Install the lines and what they need into a folder.

        Raises:
            WheelError: there is no uv, or a file of pip's settings cannot be read.

        """
        return self._run([line.text() for line in self.lines], "--quiet", "--target", str(target))

    def choose(self, lines: Iterable[str], *options: str) -> str:
        """Choose versions and install nothing.

        Args:
            lines: requirements.
            options: further options of uv.

        Returns:
            uv's messages: the chosen versions, or why there are none.

        """
        return self._run(lines, "--dry-run", "--target", "none", *options).stderr

    def _run(self, lines: Iterable[str], *arguments: str) -> "subprocess.CompletedProcess[str]":
        # In a folder of its own, so that no settings of the app's own project count.
        with tempfile.TemporaryDirectory(prefix="requirements-") as folder:
            Path(folder, "requirements.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            # Of several indexes, pip takes the newest version, and uv by default the first index that has the name.
            strategy = () if "--index-strategy" in arguments else ("--index-strategy", "unsafe-best-match")
            command = [
                *(self._binary, "pip", "install", "--requirement", "requirements.txt", "--only-binary", ":all:"),
                *("--python", sys.executable, "--no-python-downloads", "--python-version", self.python),
                *("--python-platform", f"{MACHINES[self.architecture]}-{GLIBC}", "--verify-hashes"),
                *("--link-mode", "hardlink", "--no-progress", "--color", "never"),
                *(*strategy, *self._settings[0], *arguments),
            ]
            done = self._call(command, folder)
            if "Failed to initialize cache" in done.stderr:  # a build server's user may have no home
                done = self._call([*command, "--no-cache"], folder)
            return done

    def _call(self, command: list[str], folder: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command, cwd=folder, env=self._settings[1], capture_output=True, encoding="utf-8", check=False
        )

    @cached_property
    def _settings(self) -> tuple[tuple[str, ...], dict[str, str]]:
        return uv_settings(self.requirements.options)

    @cached_property
    def _binary(self) -> str:
        try:
            from uv import find_uv_bin  # noqa: PLC0415 - a processor without requirements does not need it

            return find_uv_bin()
        except (ImportError, FileNotFoundError) as error:
            raise WheelError([UV_MISSING.problem(origin=self.requirements.origin, python=sys.executable)]) from error
