"""Run `make fanout` in its short form, with the ledger and without it."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.examples.runs import ran

pytestmark = pytest.mark.thorough


def fan_out(output: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return ran("fanout", "--short", "--output", str(output), *arguments, timeout=900)


def test_both_indexes_are_right_and_no_replay_changes_them(tmp_path: Path) -> None:
    """The hand-written consumer has wrong entries after the faults, and the replay changes its index."""
    output = tmp_path / "fanout.json"

    ran = fan_out(output)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    result = json.loads(output.read_text())
    assert (result["judged"], result["right"]) == ("ledger", True)
    moments = result["measures"]
    assert list(moments) == ["after the faults", "after the replay of stage one", "all events again", "at the end"]
    assert {side for lines in moments.values() for values in lines.values() for side in values} == {
        "ledger",
        "hand-written",
    }
    assert not any(values["ledger"] for lines in moments.values() for values in lines.values())
    faults, replay = moments["after the faults"], moments["after the replay of stage one"]
    assert faults["archive: versions without an entry"]["hand-written"] > 0
    assert faults["search: documents with an older text"]["hand-written"] > 0
    assert replay["entries that the replay changed"]["hand-written"] > 0


def test_without_the_ledger_the_demonstration_fails(tmp_path: Path) -> None:
    output = tmp_path / "fanout.json"

    ran = fan_out(output, "--without-ledger")

    assert ran.returncode == 1, ran.stdout + ran.stderr
    result = json.loads(output.read_text())
    assert (result["judged"], result["right"]) == ("hand-written", False)
    assert result["measures"]["after the replay of stage one"]["entries that the replay changed"]["hand-written"] > 0
