"""Runs the CDK CLI for a local AWS."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

from intake_ledger_testing.local_server import LocalAwsError, kill_group

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ALL_STACKS = "**"
"""The pattern of all stacks, also of those in a `Stage`, which the option `--all` leaves out."""


class Command:
    """A command in its own process group. Its output is kept for the error message."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        self._command = command
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self._process = subprocess.Popen(
            command,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        kill_group(self._process)
        self._output.close()

    def finish(self, server_log: str) -> None:
        """Wait for the end of the command.

        Raises:
            LocalAwsError: The command failed. The message ends with its output and the server's log.

        """
        if self._process.wait() != 0:
            self._output.seek(0)
            output = self._output.read().decode(errors="replace").strip().splitlines()[-60:]
            shown = " ".join(Path(part).name if part.startswith("/") else part for part in self._command)
            raise LocalAwsError(
                f"`{shown}` failed with exit code {self._process.returncode}:\n"
                + "\n".join(output)
                + f"\n--- the end of the log of the local AWS:\n{server_log}"
            )


def find_cdk(cwd: Path) -> str:
    """Return the path of the CDK CLI.

    Raises:
        LocalAwsError: It is not installed.

    """
    for folder in (cwd, *cwd.parents):
        candidate = folder / "node_modules" / ".bin" / "cdk"
        if candidate.exists():
            return str(candidate)
    if found := shutil.which("cdk"):
        return found
    raise LocalAwsError("the CDK CLI is not installed: npm install aws-cdk@2.1148.1")
