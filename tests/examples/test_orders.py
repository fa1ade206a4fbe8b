"""Run the example of orders without the ledger. tests/local has the run with it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.thorough
def test_without_the_ledger_each_copy_is_booked_again() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "examples.orders", "--without-ledger"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-2:] == ["48 booked, 0 copies without an effect", "rejected: (no reason)"]
