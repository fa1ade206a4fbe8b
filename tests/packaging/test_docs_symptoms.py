"""The page of symptoms has each failure mode, and its lines, metrics and commands exist."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from intake_ledger.contract import METRICS
from intake_ledger_cli import commands
from intake_ledger_cli.show import render

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "symptoms.md").read_text()
TABLES, _, REST = PAGE.partition("## Failures without a command")
ROWS = [line for line in TABLES.splitlines() if re.search(r"\bF\d+\b", line)]
_NUMBER = re.compile(r"\bF\d{2,3}\b")
_SHOWS = re.compile(r"\]\(runbooks\.md#|metric `|line `|`intake-ledger|the effect")


def numbers(text: str) -> list[str]:
    """All numbers of a text. `F54-F56` has three."""
    ranges = re.findall(r"\bF(\d{2,3})(?:-F(\d{2,3}))?\b", text)
    return [f"F{number:02}" for first, last in ranges for number in range(int(first), int(last or first) + 1)]


def parse(command: str) -> None:
    """Parse a command as the user's shell would."""
    commands.load()
    known = typer.main.get_group(commands.app).commands
    _, name, *rest = shlex.split(command)
    assert name in known, f"no such command: {name}"
    known[name].make_context(name, rest)


def test_each_failure_mode_is_on_the_page_once() -> None:
    """A new failure mode gets a number in a row, or in the list at the page's end."""
    modes = set(re.findall(r"^\| (F\d+) \|", (ROOT / "tests" / "failure-modes.md").read_text(), re.MULTILINE))
    found = numbers(PAGE)
    assert len(found) == len(set(found))
    assert set(found) <= modes
    missing = modes - set(found)
    assert not missing, "docs/symptoms.md: add each new number to a row, or to the list at the end"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: _NUMBER.findall(row)[0])
def test_a_row_has_what_shows_it_and_what_ends_it(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTAKE_LEDGER_STACK", "Intake")
    _, failure, shown, ended, _ = row.split("|")
    assert _NUMBER.search(failure)
    assert _SHOWS.search(shown)
    found = re.findall(r"`(intake-ledger [^`]+)`", row)
    assert found or "`logs:" in ended
    for command in found:
        parse(command)


def test_a_wrong_command_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTAKE_LEDGER_STACK", "Intake")
    with pytest.raises(Exception, match=r"(?i)no such"):
        parse("intake-ledger list --no-such-option")


def test_each_line_of_the_status_exists() -> None:
    """The table of fields has each label."""
    labels = {field.label for name, field in render.FIELDS.items() if name.startswith("status.")}
    named = set(re.findall(r"line `([^`]+)`", TABLES))
    assert named
    assert named <= labels


def test_each_metric_exists() -> None:
    """The page on monitoring is made from the same table."""
    metrics = set(re.findall(r"metric `(\w+)`", TABLES))
    assert metrics
    assert metrics <= set(METRICS)
