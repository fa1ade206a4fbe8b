"""Run `make pictures` in its short form."""

import json
from pathlib import Path
from typing import Any

import pytest
from examples.pictures.columns import LEDGERS, LOCKS, Column, chosen
from examples.pictures.judge import demonstrated
from PIL import Image

from tests.examples.runs import ran

ROUNDS = 12


def play(output: Path, *options: str, code: int = 0) -> dict[str, Any]:
    """Play the rounds, and return the result."""
    found = ran("pictures", "--rounds", str(ROUNDS), "--output", str(output), *options, timeout=900)
    assert found.returncode == code, found.stdout + found.stderr
    result: dict[str, Any] = json.loads(output.with_suffix(".json").read_text())
    assert result["rounds"] == ROUNDS
    return result


@pytest.mark.thorough
def test_fenced_outputs_are_right_where_others_are_not(tmp_path: Path) -> None:
    """Events are lost, duplicated and reordered, and late workers write last. The run fails for the other columns."""
    output = tmp_path / "pictures.png"
    result = play(output, "--short")
    wrong = {column: result["wrong"][column] for column in chosen(locks=False)}
    assert demonstrated(wrong)
    assert not demonstrated(wrong, Column.USUAL)
    assert not demonstrated(wrong, Column.PLAIN)
    # Late requests of the fenced column arrived, and S3 refused each.
    assert set(result["late"]["fenced"]) == {"412"}
    assert set(result["late"]["plain"]) <= {"200", "204"}
    with Image.open(output) as montage:
        assert montage.format == "PNG"


@pytest.mark.thorough
def test_the_published_locks_are_right_about_order_and_stay_with_dead_workers(tmp_path: Path) -> None:
    """Among the hand-written consumers alone, so the run is wrong. Killed and late workers keep their locks."""
    result = play(tmp_path / "locks.png", "--locks", "--without-ledger", code=1)
    assert not set(result["wrong"]) & set(LEDGERS)
    stories = result["stories"]
    for lock in LOCKS:
        assert stories["overwritten; each event twice, in the wrong order"][lock] == 0
        assert stories["overwritten; the second event lost"][lock] == 1
        assert stories["deleted and uploaded again; the deletion's event repeated later"][lock] == 0
        assert stories["overwritten; the first worker killed before its write"][lock] == 1
