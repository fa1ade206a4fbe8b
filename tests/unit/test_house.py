"""The measures of `make house`."""

from pathlib import Path

import pytest
from scripts import house, prose, structure, trace_record


def test_phrases_in_docstrings_comments_and_documents_are_counted(tmp_path: Path) -> None:
    """Strings of the code and blocks of documents are no prose."""
    (tmp_path / "a.py").write_text(
        '"""Whether it is no loss."""\n\n# Do this anew.\nTEXT = "what is lost, nobody knows"\n'
    )
    (tmp_path / "a.md").write_text("It is no longer needed. Nobody reads.\n\n```\nnobody\n```\n\n    nobody\n")
    found = prose.measure([tmp_path]).findings
    assert [(one.line.number, one.patterns[0]) for one in found] == [
        (1, "whoever, whatever, nobody, somebody"),
        (1, '"is no X"'),
        (3, "anew, mend, beside, lest, as ever"),
    ]
    assert house.above({"some": 1.5, "many": 1.6}) == ["many"]


def test_words_are_counted_by_page_without_code(tmp_path: Path) -> None:
    (tmp_path / "docs" / "api").mkdir(parents=True)
    (tmp_path / "README.md").write_text("# Two words\n\n    make demo\n")
    (tmp_path / "docs" / "api" / "a.md").write_text("One\n")
    (tmp_path / "docs" / "b.md").write_text("| It has | four words [✓](a.py#b) |\n\n```\nnot this\n```\n")
    assert list(house.words_by_page(tmp_path).items()) == [("docs/b.md", 4), ("README.md", 2), ("docs/api/a.md", 1)]


def test_doubled_names_are_those_of_public_classes() -> None:
    sources = {"a.py": "class Row: ...\nclass _Own: ...", "b.py": "class Row: ...\nclass _Own: ...\nclass Key: ..."}
    assert structure.doubled_names(sources) == {"Row": ["a.py", "b.py"]}


def test_each_row_of_the_glossary_is_a_term() -> None:
    head = "\n\n| term | meaning |\n| --- | --- |\n"
    assert structure.glossary_terms(f"# Terms{head}| row | An item. |{head}| key | A name. |") == 2


def test_imports_and_constructors_connect_the_parts_of_a_package() -> None:
    source = (
        "from a import (\n    b,\n)\n\n\nclass C:\n    def __init__(self, d):\n"
        '        """Make it."""\n        self.d = b(d)\n'
    )
    assert structure.overhead({"c.py": source}, 10) == structure.Overhead(imports=3, constructors=2, code=10)


def test_an_import_from_a_door_is_an_arrow_to_the_module_behind_it(tmp_path: Path) -> None:
    """An import for types, or one that nothing uses, is not an arrow."""
    package = tmp_path / "p"
    package.mkdir()
    (package / "__init__.py").write_text("from p.low import Row\n__all__ = ['Row']\n")
    (package / "low.py").write_text("class Row: ...\n")
    (package / "unused.py").write_text("from p import Row\n\ndef f(): ...\n")
    (package / "high.py").write_text(
        "from typing import TYPE_CHECKING\nfrom p import Row\nif TYPE_CHECKING:\n    from p.unused import f\n\n"
        "class Ledger:\n    row: Row\n    g: f\n"
    )
    assert structure.arrows(package) == structure.Arrows(total=1, median_fan_out=1)


@pytest.mark.parametrize("work", trace_record.WORK)
def test_the_route_of_a_record_begins_in_the_consumer_and_has_no_start_of_the_environment(work: str) -> None:
    calls = trace_record.trace(work)
    assert (calls[0].depth, calls[0].function) == (0, "Consumer.handle")
    assert "RowHistoryRecord._write" not in {call.function for call in calls}
    assert trace_record.route(calls).files > 1
