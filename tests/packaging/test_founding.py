"""The page about what the founding documents ask: each line that works names a test, and the counts are right."""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "tests" / "founding-documents.md").read_text()
_LINK = re.compile(r"\[✓\]\(([^)#]+)#(\w+)\)")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| asked", "| ---"))
]
STATES = ("works", "in part", "does not apply")


def state_of(row: list[str]) -> str:
    return next(state for state in STATES if (row[1] or "works").startswith(state))


def test_each_named_test_exists() -> None:
    for name, test in _LINK.findall(PAGE):
        assert re.search(rf"\bdef {test}\(", (ROOT / "tests" / name).read_text()), test


def test_each_line_that_works_names_a_test_and_each_other_one_a_reason() -> None:
    for row in ROWS:
        assert len(row) == 3, row
        if state_of(row) == "works":
            assert _LINK.search(row[2]), row[0]
        else:
            assert ": " in row[1], row[0]


def test_the_counts_are_those_of_the_lines() -> None:
    counts = Counter(map(state_of, ROWS))
    expected = f"Of {len(ROWS)} lines, {counts['works']} work, {counts['in part']} work in part, and "
    assert f"{expected}{counts['does not apply']} do not apply." in PAGE
    assert len({row[0] for row in ROWS}) == len(ROWS), "no line is there twice"


def test_each_source_is_used() -> None:
    sources = dict(re.findall(r"^\[([a-z-]+)\]: (https://\S+)$", PAGE, re.MULTILINE))
    assert set(re.findall(r"\]\[([a-z-]+)\]", PAGE)) == set(sources)
