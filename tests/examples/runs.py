"""Runs an example as a person does."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def ran(example: str, *arguments: str, timeout: float = 400) -> subprocess.CompletedProcess[str]:
    """Run `python -m examples.EXAMPLE`, and return its exit code and its output."""
    return subprocess.run(
        [sys.executable, "-m", f"examples.{example}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
