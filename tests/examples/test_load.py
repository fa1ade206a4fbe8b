"""Run `make load` in its short form, with the ledger and without it."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.examples.runs import ran

pytestmark = pytest.mark.thorough


def load(output: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return ran("load", "--short", "--output", str(output), *arguments, timeout=900)


def test_the_table_has_the_rows_of_s3_in_every_case(tmp_path: Path) -> None:
    """The naive consumer has stale and lost rows. The page needs no network, and shows the measured gaps."""
    output = tmp_path / "load.html"

    ran = load(output)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    result = json.loads(output.with_suffix(".json").read_text())
    assert result["right"] == {"ledger": True, "naive": False}
    assert result["measures"]["customers with rows of an older version"]["naive"] > 0
    assert result["measures"]["customers with lost rows"]["naive"] > 0
    assert result["outcomes"]["ledger"]["late"] == {"refused": 2}
    assert sum(report["resubmitted"] for report in result["audits"]) > 0
    assert result["duplicate_age_ms"]
    page = output.read_text()
    assert page.count("<svg") == 1
    assert f"DuplicateAge of {len(result['duplicate_age_ms'])} duplicates" in page
    assert re.search(r"(src|href)\s*=|url\(|@import", page) is None


def test_without_the_ledger_the_demonstration_fails(tmp_path: Path) -> None:
    output = tmp_path / "load.html"

    ran = load(output, "--without-ledger")

    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert json.loads(output.with_suffix(".json").read_text())["right"] == {"naive": False}
    assert "The column of naive is wrong." in output.read_text()
