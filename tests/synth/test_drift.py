"""Kinds of work differ only where a reason says why."""

from typing import Any

import pytest
from scripts import drift

from cdk_intake_ledger import FileSets, MessageIntake
from intake_ledger.contract import ALARMS, LACKS, METRICS, MetricRow


def found() -> list[str]:
    return [line for lines in drift.drift().values() for line in lines]


def test_no_kind_differs_without_a_reason() -> None:
    assert found() == []


def test_a_kind_without_a_kit_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift, "KIT", {**drift.KIT, "sets": "LocalFolders"})
    assert found() == ["sets has no class for tests"]


@pytest.mark.parametrize("name", ["grant_output", "deletes", "INTAKE_SETS"])
def test_a_difference_without_its_reason_is_noticed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(drift, "LACKS", {key: reason for key, reason in LACKS.items() if key != name})
    assert [line for line in found() if name in line]


def test_a_new_member_of_one_kind_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileSets, "grant_reject", None, raising=False)
    assert "member grant_reject: not for objects, messages" in found()


def test_a_reason_that_no_lack_needs_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lack was removed, and the reason stayed."""
    for kind in (MessageIntake,):
        monkeypatch.setattr(kind, "grant_output", None, raising=False)
    assert "grant_output" in found()


def test_rows_of_one_kind_without_a_reason_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: dict[str, Any] = {
        **METRICS,
        "Accepted": MetricRow("", kinds=("sets",)),
        "Failed": MetricRow("", reason="none"),
    }
    monkeypatch.setattr(drift, "METRICS", rows)
    monkeypatch.setattr(drift, "ALARMS", ALARMS)
    assert {"metric Accepted: no reason", "metric Failed: a reason without a lack"} <= set(found())


def test_an_empty_cell_of_the_command_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("operating.md", "kinds.md"):
        text = (drift.DOCS / name).read_text()
        text = text.replace("`operations` | yes |", "`operations` | |").replace("- **Cost.** [Cost]", "- **Cost.**[")
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(drift, "DOCS", tmp_path)
    assert "operations for a pipeline of objects: the page has ''" in found()
    assert "docs/kinds.md: no Cost of Sets of files" in found()
