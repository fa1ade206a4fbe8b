"""`make demo`, in its short form and on a folder of one's own."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.local.conftest import Demo

ROOT = Path(__file__).resolve().parents[2]


def test_the_demo_on_a_folder_is_right_and_writes_its_page(demo: Demo) -> None:
    """Any files will do; the ledger is right in every line, the naive consumer is not, the page needs no network."""
    assert "FILES: 1 files are left out" in demo.ended()
    result = json.loads((demo.folder / "demo.json").read_text())
    assert result["right"] is True
    assert result["native"]["right"] == result["native"]["files"] > 0
    assert any(line["naive"] not in (None, line["right"]) for line in result["measures"].values())
    assert {"ACCEPTED", "DUPLICATE", "STALE"} <= set(result["verdicts"])
    page = (demo.folder / "demo.html").read_text()
    assert page.count("<svg") == 4
    assert re.search(r"(src|href)\s*=|url\(|@import", page) is None


@pytest.mark.parametrize("kind", ["missing", "empty"])
def test_a_wrong_path_is_one_clear_line(tmp_path: Path, kind: str) -> None:
    """Nothing is started for it, and the exit code is 2."""
    path = tmp_path / kind
    if kind == "empty":
        path.mkdir()

    ran = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--files", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (ran.returncode, ran.stdout) == (2, "")
    [line] = ran.stderr.splitlines()
    assert line.startswith("FILES: ")
    assert str(path) in line
