"""The measures of `make house`."""

from pathlib import Path

from scripts import house, prose


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
