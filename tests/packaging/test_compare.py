"""The page about other systems: each statement has its source, and each promise of ours its test."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "compare.md").read_text()
SOURCES = dict(re.findall(r"^\[([a-z-]+)\]: (\S+)$", PAGE, re.MULTILINE))
_CITED = re.compile(r"\[[^\]]+\]\[([a-z-]+)\]")


def table(section: str) -> tuple[list[str], dict[str, list[str]]]:
    """The columns of a section's table, and its cells by the feature in the first column."""
    text = PAGE.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    head, _, *rows = [
        [cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.splitlines() if line.startswith("| ")
    ]
    return head[1:], {row[0]: row[1:] for row in rows}


OURS = table("This construct")
OTHERS = [table(section) for section in ("Loaders of tables", "Shippers of logs", "Parts to build with")]


def test_each_statement_about_another_system_has_its_source() -> None:
    """A cell links a source, or it says that none was found."""
    unsourced = [
        f"{feature}, {system}: {cell}"
        for systems, rows in OTHERS
        for feature, cells in rows.items()
        for system, cell in zip(systems, cells, strict=True)
        if cell != "not found" and not _CITED.search(cell)
    ]
    assert unsourced == []


def test_each_source_exists_and_is_used() -> None:
    assert set(_CITED.findall(PAGE)) == set(SOURCES)
    assert [url for url in SOURCES.values() if not url.startswith("https://")] == []


def test_each_system_is_compared_by_the_same_features() -> None:
    """In the same order, so that a reader finds a row in each table."""
    for _, rows in OTHERS:
        assert list(rows) == list(OURS[1])
    assert sum(len(systems) for systems, _ in OTHERS) == 10


def test_each_answer_of_ours_names_a_test_or_a_page() -> None:
    """Measured figures are on the page of their measurement."""
    for feature, [answer] in OURS[1].items():
        assert "[✓](../tests/" in answer or feature in ("throughput and latency", "price"), feature
