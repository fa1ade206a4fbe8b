"""No answer that a user needs vanishes when pages move: each question has a place, and the place has its words."""

import re
from pathlib import Path

import pytest

from tests.packaging.test_links import anchors

ROOT = Path(__file__).parents[2]
QUESTIONS = [
    [cell.strip() for cell in line.split(" | ")]
    for line in Path(__file__).with_name("questions.txt").read_text().splitlines()
    if not line.startswith("#")
]
_BLOCK = re.compile("(^```.*?^```)", re.MULTILINE | re.DOTALL)


def section(page: Path, anchor: str) -> str:
    """The text below a heading, with its subsections. Without an anchor, the page."""
    if not anchor:
        return page.read_text()
    # A comment in a block of code is no heading.
    parts = _BLOCK.split(page.read_text())
    parts[1::2] = [re.sub("^#", " #", block, flags=re.MULTILINE) for block in parts[1::2]]
    found = re.split(r"^(#+ .+)$", "".join(parts), flags=re.MULTILINE)
    headings = found[1::2]
    place = next(n for n, heading in enumerate(headings) if anchors(heading) == {anchor})
    depth = headings[place].index(" ")
    end = next((n for n in range(place + 1, len(headings)) if headings[n].index(" ") <= depth), len(headings))
    return "".join(found[1 + 2 * place : 1 + 2 * end])


@pytest.mark.parametrize(("question", "place", "words"), QUESTIONS, ids=[row[0] for row in QUESTIONS])
def test_each_question_has_its_answer(question: str, place: str, words: str) -> None:
    name, _, anchor = place.partition("#")
    text = section(ROOT / name, anchor).casefold()
    assert [word for word in words.split(", ") if word.casefold() not in text] == [], question
