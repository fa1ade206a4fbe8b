"""Run the example of events out."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.thorough
def test_each_outcome_is_noted_once_also_when_it_is_sent_again() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "examples.events_out"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[1:4] == [
        "a.txt: Intake Committed, 9 characters",
        "b.txt: Intake Rejected, no amount in it",
        "c.txt: Intake Committed, 8 characters",
    ]
    assert ran.stdout.splitlines()[-1] == "3 events were sent again, without an effect"
