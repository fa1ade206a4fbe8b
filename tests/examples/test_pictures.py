"""Run `make pictures` in its short form."""

import json
import subprocess
import sys
from pathlib import Path

from examples.pictures.columns import Column
from examples.pictures.judge import demonstrated
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 12


def test_fenced_outputs_are_right_where_others_are_not(tmp_path: Path) -> None:
    """Events are lost, duplicated and reordered, and late workers write last. The run fails for the other columns."""
    output = tmp_path / "pictures.png"

    ran = subprocess.run(
        [sys.executable, "-m", "examples.pictures", "--short", "--rounds", str(ROUNDS), "--output", str(output)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    result = json.loads(output.with_suffix(".json").read_text())
    assert result["rounds"] == ROUNDS
    wrong = {column: result["wrong"][column] for column in Column}
    assert demonstrated(wrong)
    assert not demonstrated(wrong, Column.USUAL)
    assert not demonstrated(wrong, Column.PLAIN)
    # Late requests of the fenced column arrived, and S3 refused each.
    assert set(result["late"]["fenced"]) == {"412"}
    assert set(result["late"]["plain"]) <= {"200", "204"}
    with Image.open(output) as montage:
        assert montage.format == "PNG"
