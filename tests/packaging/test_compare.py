"""The page about other systems: each statement has its source, and each promise of ours its test."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "compare.md").read_text()
SOURCES = dict(re.findall(r"^\[([a-z-]+)\]: (\S+)$", PAGE, re.MULTILINE))
_CITED = re.compile(r"\[[^\]]+\]\[([a-z-]+)\]")


def features(section: str) -> dict[str, str]:
    """The answers of a section, by their feature."""
    text = re.split(r"\n###? ", re.split(rf"\n###? {re.escape(section)}\n", PAGE, maxsplit=1)[1], maxsplit=1)[0]
    return {
        feature: " ".join(answer.split())
        for feature, answer in re.findall(r"^- \*\*(.+?)\*\*: (.+(?:\n  .+)*)$", text, re.MULTILINE)
    }


OURS = features("This construct")
OTHERS = {system: features(system) for system in re.findall(r"^### (.+)$", PAGE, re.MULTILINE)}


def test_each_statement_about_another_system_has_its_source() -> None:
    """A feature without a source is left out. No cell says that nothing was found."""
    unsourced = [
        f"{feature}, {system}: {cell}"
        for system, rows in OTHERS.items()
        for feature, cell in rows.items()
        if not _CITED.search(cell)
    ]
    assert unsourced == []
    assert "not found" not in PAGE.lower()


def test_each_source_exists_and_is_used() -> None:
    assert set(_CITED.findall(PAGE)) == set(SOURCES)
    assert [url for url in SOURCES.values() if not url.startswith("https://")] == []


def test_each_system_is_compared_by_the_same_features() -> None:
    """In the same order, so that a reader finds a row of each."""
    for rows in OTHERS.values():
        assert [*rows] == [feature for feature in OURS if feature in rows]
    assert len(OTHERS) == 12


def test_each_answer_of_ours_names_a_test_or_a_page() -> None:
    """Measured figures are on the page of their measurement."""
    for feature, answer in OURS.items():
        assert "[✓](../tests/" in answer or feature in ("throughput and latency", "price"), feature
