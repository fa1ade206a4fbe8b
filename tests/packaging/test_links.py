"""Links of the documents: whatever they point to in this repository is there, headings included."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
_BLOCK = re.compile("^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def links(text: str) -> Iterator[str]:
    """Those of this repository; what is in code is none."""
    for target in _LINK.findall(_BLOCK.sub("", text)):
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors(text: str) -> set[str]:
    """The names that GitHub gives to a page's headings."""
    seen: Counter[str] = Counter()
    names = set()
    for heading in re.findall(r"^#+ (.+)$", _BLOCK.sub("", text), re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip())
        name = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        names.add(name if not seen[name] else f"{name}-{seen[name]}")
        seen[name] += 1
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """To a file, and to a heading in it."""
    broken = []
    for link in links(page.read_text()):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            broken.append(link)
    assert not broken


def test_every_document_can_be_found_from_the_readme() -> None:
    """Over however many pages."""
    found, new = set(), {ROOT / "README.md"}
    while new:
        page = new.pop()
        found.add(page)
        targets = {(page.parent / link.partition("#")[0]).resolve() for link in links(page.read_text())}
        new |= {target for target in targets if target.suffix == ".md"} - found
    assert set(PAGES) <= found


def test_anchors_are_githubs() -> None:
    """Punctuation is left out, spaces become hyphens, what comes twice is numbered; code is no heading."""
    text = "# What's `new`, and why?\n## A [link](x.md)\n## A link\n```\n# no\n```\n"
    assert anchors(text) == {"whats-new-and-why", "a-link", "a-link-1"}
