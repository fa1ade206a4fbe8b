"""Run the example of a daily load."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_each_day_is_loaded_once_it_is_complete_and_again_when_a_file_is_replaced() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "examples.daily_load"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines()[-3:] == [
        "days/monday/manifest.json: 3 orders, amount 35",
        "days/tuesday/manifest.json: 3 orders, amount 35",
        "days/monday/manifest.json: 4 orders, amount 60",
    ]
