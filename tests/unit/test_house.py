"""The measures of `make house`, each on a small input."""

from pathlib import Path

import pytest
from scripts import house, prose
from scripts.trace_record import Call, route

GOALS = {"prose": 1.5, "calls": 80.0}


def folder(root: Path, **files: str) -> Path:
    for name, text in files.items():
        (root / name.replace("_", ".")).write_text(text)
    return root


def test_docstrings_and_comments_are_read_and_strings_are_not(tmp_path: Path) -> None:
    source = '"""Whether it is no loss."""\n\n# Do this anew.\nTEXT = "what is lost, nobody knows"\n'
    report = prose.measure([folder(tmp_path, a_py=source)])
    assert [(found.line.number, found.patterns) for found in report.findings] == [
        (1, ['"is no X"', prose.OPENING]),
        (3, ["anew, mend, beside, lest, as ever"]),
    ]
    assert (report.count, report.words) == (3, 8)
    assert report.rate == 375


def test_only_the_first_line_of_a_docstring_opens_it(tmp_path: Path) -> None:
    source = '"""Count calls.\n\nOf all kinds.\n"""\n'
    assert prose.measure([folder(tmp_path, a_py=source)]).count == 0


def test_blocks_in_documents_are_not_prose(tmp_path: Path) -> None:
    text = "Nobody reads.\n\n```\nnobody\n```\n\n    nobody\n"
    report = prose.measure([folder(tmp_path, a_md=text)])
    assert (report.count, report.words) == (1, 2)


@pytest.mark.parametrize(
    "sentence",
    [
        "what the row holds",
        "Whoever asks",
        "the message goes once more",
        "so many keys",
        "a team of its own",
        "it is no error",
        "the one that waits",
    ],
)
def test_each_pattern_is_found_once(sentence: str) -> None:
    assert len(prose.phrases(prose.Line(1, sentence))) == 1


def test_plain_sentences_are_not_found() -> None:
    assert prose.phrases(prose.Line(1, "It is no longer needed. Each message has one key.")) == []


def test_parameters_are_counted_without_self() -> None:
    source = (
        "class A:\n    def __init__(self, a, /, b, *c, d=1, **e): ...\n    async def go(cls): ...\ndef f(a, b): ...\n"
    )
    assert list(house.parameters(source)) == [("A.__init__", 3), ("A.go", 0), ("f", 2)]


def test_functions_in_functions_have_the_name_of_both() -> None:
    assert list(house.parameters("def f():\n    if True:\n        def g(a): ...\n")) == [("f", 0), ("f.g", 1)]


def test_lines_of_code_are_without_blanks_comments_and_docstrings() -> None:
    source = '"""A\nmodule."""\n\n# why\nA = 1  # what\n\ndef f() -> None:\n    """Do it."""\n    return\n'
    assert (house.lines(source), house.code_lines(source)) == (9, 3)


def test_a_route_counts_each_change_of_file() -> None:
    calls = [Call(0, "a.py", "f"), Call(1, "a.py", "g"), Call(1, "b.py", "f"), Call(0, "a.py", "f")]
    assert route(calls) == (4, 3, 2, 3)


def test_a_measure_may_not_pass_its_bound_or_without_one_its_goal() -> None:
    bounds = {"calls": 150.0}
    assert house.over({"prose": 1.5, "calls": 150}, GOALS, bounds) == []
    assert house.over({"prose": 1.6, "calls": 151}, GOALS, bounds) == ["prose", "calls"]
    assert house.open_goals({"prose": 1.5, "calls": 150}, GOALS) == ["calls"]


def test_a_bound_only_falls() -> None:
    bounds = {"prose": 3.0, "calls": 150.0}
    assert house.lowered({"prose": 2.41, "calls": 160}, GOALS, bounds) == {"prose": 2.5, "calls": 150}
    assert house.lowered({"prose": 1.4, "calls": 100}, GOALS, bounds) == {"calls": 100}
    assert house.lowered({"prose": 1.6, "calls": 90}, GOALS, {}) == {}


def test_the_table_of_bounds_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "house.py"
    after = '}\n"""Limits."""\nB = {"calls": 150}\n'
    file.write_text('A = {}\nBOUNDS: dict[str, float] = {\n    "calls": 150,\n' + after)
    house.write({"calls": 100.0, "prose": 2.5}, file)
    table = 'A = {}\nBOUNDS: dict[str, float] = {\n    "calls": 100,\n    "prose": 2.5,\n'
    assert file.read_text() == table + after


def test_each_bound_belongs_to_a_goal_that_is_not_reached() -> None:
    assert {name for name, bound in house.BOUNDS.items() if bound <= house.GOALS[name]} == set()
