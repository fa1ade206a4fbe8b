"""The page of failure modes: each number occurs once, and a test that carries the number holds it."""

import re
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS / "failure-modes.md"
# A number is never given again, and none is taken from the page.
LAST_OF_THE_CATALOGUE = 162
_LINE = re.compile(r"^\| F(\d+) \|(.+)\|$", re.MULTILINE)
_LINK = re.compile(r"\[✓\]\(([^)#]+\.py)#(\w+)\)")
_MARKER = re.compile(r"failure_mode\(([^)]*)\)")
_STORY = re.compile(r"^ +((?:F\d+ )+)\w", re.MULTILINE)
_TEST = re.compile(r"((?:^ *@.*\n(?:^ +[^\s@].*\n|^ *\"*\).*\n)*)*)^ *def (test_\w+)", re.MULTILINE)


def numbers_of(decorators: str) -> set[int]:
    """Numbers that the decorators of a test carry: `failure_mode("F07", "F12")`, or the names of its stories."""
    texts = [*_MARKER.findall(decorators), *_STORY.findall(decorators)]
    return {int(number) for number in re.findall(r"F(\d+)", " ".join(texts))}


def carried() -> dict[int, set[str]]:
    """By number, the tests that carry it, as `unit/protocol/test_rows.py#test_the_fence_grows`."""
    tests = defaultdict(set)
    for path in TESTS.glob("**/test_*.py"):
        for decorators, name in _TEST.findall(path.read_text()):
            for number in numbers_of(decorators):
                tests[number].add(f"{path.relative_to(TESTS)}#{name}")
    return tests


def on_the_page() -> list[int]:
    """All numbers of the page, in its order."""
    return [int(number) for number, _ in _LINE.findall(PAGE.read_text())]


def test_each_number_is_on_the_page_once() -> None:
    """In no particular order: the page is grouped by subject."""
    assert len(on_the_page()) == len(set(on_the_page()))
    assert set(range(1, LAST_OF_THE_CATALOGUE + 1)) <= set(on_the_page())


def test_each_line_links_tests_that_carry_its_number() -> None:
    """A test that is renamed keeps its number, and a line without a test is not a promise."""
    tests = carried()
    wrong = {
        number: links
        for number, line in _LINE.findall(PAGE.read_text())
        if not (links := {"#".join(link) for link in _LINK.findall(line)}) or not links <= tests[int(number)]
    }
    assert not wrong
    assert set(on_the_page()) <= set(tests)


def test_no_test_carries_a_number_that_the_page_does_not_explain() -> None:
    """A new number needs a line."""
    assert set(carried()) <= set(on_the_page())


def test_numbers_are_read_from_markers() -> None:
    """Decorators may have several lines, and stories have numbers before their names."""
    marker = "@pytest.mark.failure_mode('F20', 'F21')\n"
    table = "@pytest.mark.parametrize(\n    'a',\n    [1],\n)\n"
    told = '@stories("""\n    F30 F31 a copy\n        put F32; created F32 commits\n    late\n        wait 1 d\n""")\n'
    for decorators, numbers in ((marker + table, {20, 21}), (told, {30, 31})):
        (test,) = _TEST.findall(f"{decorators}def test_a_worker_of_f99_pauses() -> None:\n")
        assert numbers_of(test[0]) == numbers
