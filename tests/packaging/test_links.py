"""Links and commands of the documents: each file, heading, make target and variable exists."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(page for folder in ("benchmarks", "docs", "examples", "tests") for page in ROOT.glob(f"{folder}/**/*.md")),
    ]
)
_BLOCK = re.compile("^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_DEFINED = re.compile(r"^ *(?:def|class) (\w+)", re.MULTILINE)
_PROOF = re.compile(r"\[✓\]\((?:\.\./)?(tests/[^)#]+\.py)#(\w+)\)")


def links(text: str) -> Iterator[str]:
    """Links to files of this repository, without those in code blocks."""
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


def names(target: Path) -> set[str]:
    """Possible anchors in a file: headings of a page, functions and classes of a module."""
    text = target.read_text()
    return set(_DEFINED.findall(text)) if target.suffix == ".py" else anchors(text)


def commands(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Targets of make in a text's code, each with the variables that are set for it."""
    for code in re.findall(r"`(make [^`]+)`|^ {4,}(make .+)$", text, re.MULTILINE):
        target, *words = re.split(r"\s+#|[,;]", code[0] or code[1])[0].split()[1:]
        yield target, tuple(word.partition("=")[0] for word in words if "=" in word)


def unknown_targets(used: Iterable[tuple[str, tuple[str, ...]]]) -> list[str]:
    """Targets that the Makefile does not have, or that ignore a variable which is set."""
    recipes = dict(re.findall(r"^([a-z-]+):.*\n((?:\t.*\n)*)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    return [
        f"make {target} {' '.join(variables)}"
        for target, variables in used
        if target not in recipes or any(f"({name})" not in recipes[target] for name in variables)
    ]


def test_each_command_of_make_in_the_documents_exists() -> None:
    """The target uses each variable. make would ignore an unknown variable."""
    unknown = {page.name: unknown_targets(commands(page.read_text())) for page in PAGES}
    assert {name: targets for name, targets in unknown.items() if targets} == {}


def in_tests() -> list[Path]:
    """The modules with tests, relative to their root."""
    return [path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")]


def test_make_test_runs_every_folder_of_tests() -> None:
    """Each folder has a make target. Without a target, `make test` would not run a new folder."""
    rules = re.findall(r"^([a-z]+):(.*)\n((?:\t.*\n)*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    recipes = {name: recipe for name, _, recipe in rules}
    [parts] = [needed.split() for name, needed, _ in rules if name == "parts" and ":=" not in needed]
    folders = {f"tests/{path.parts[0]}" for path in in_tests()}
    options = re.compile(r" \$\((?:[A-Z]+_WORKERS|RECORDING)\)")
    tests = sorted(part for part in parts if "pytest" in recipes[part])
    targets = sorted(options.sub("", recipes[part]) for part in tests)
    assert recipes["truth"] == "\t@pytest tests/truth\n"
    quick = folders - {"tests/truth", "tests/local"} | {"suite"}
    assert [target for target in targets if not re.fullmatch(r"\t@pytest .+ \$\(QUICK\)\n", target)] == []
    assert sorted(folder for target in targets for folder in target.split()[1:-1]) == sorted(quick)
    assert set(parts) - set(tests) == {"types", "lint"}
    assert recipes["test"].endswith(" parts\n")


def test_make_thorough_runs_every_folder_and_ci_all_of_it() -> None:
    """`make thorough` runs the tests that `make test` leaves out. CI runs both, then `make truth`."""
    makefile = (ROOT / "Makefile").read_text()
    folders = {f"tests/{path.parts[0]}" for path in in_tests()}
    chosen = re.findall(r"\t@pytest (.+) -m (?:thorough|\"thorough or wide\")\n", makefile)
    assert {folder for line in chosen for folder in line.split()} == {*folders, "suite"} - {
        "tests/truth",
        "tests/ordinary",
    }
    assert "\t@pytest tests/local $(QUICK) $(RECORDING)\n" in makefile
    [side_by_side] = re.findall(r"\t@\$\(SIDE_BY_SIDE\) --jobs=4 (thorough-.+)\n", makefile)
    assert set(side_by_side.split()) == {"deployed", *re.findall(r"^(thorough-\w+): \$", makefile, re.MULTILINE)}
    assert re.findall(r"^make (\w+)", (ROOT / ".ci" / "run").read_text(), re.MULTILINE) == [
        "test",
        "thorough",
        "truth",
        "prove",
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """The file and the heading exist."""
    broken = []
    for link in links(page.read_text()):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in names(target)):
            broken.append(link)
    assert not broken


def test_the_readme_and_the_documents_are_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 700
    pages = [*(ROOT / "docs").rglob("*.md")]
    assert len(pages) <= 45
    assert sum(len(page.read_text().split()) for page in pages) <= 65_000


def test_each_promise_names_the_test_that_would_break() -> None:
    """Each promise of the README links its test. Each one of the page of promises, and each row of the comparison, has
    a row with tests.
    """
    readme, promises, comparison = (
        (ROOT / name).read_text() for name in ("README.md", "docs/promises.md", "docs/compare.md")
    )
    short = re.findall(r"^\d+\. \*\*.*$", readme.split("## Promises\n", 1)[1].split("\n## ", 1)[0], re.MULTILINE)
    assert len(short) == 5
    assert [line for line in short if not _PROOF.search(line)] == []
    defined, tested = promises.split("\n## Their tests\n", 1)
    items = re.findall(r"^\d+\. \*\*(.+?)\*\*", defined, re.MULTILINE)
    assert len(items) == 9
    assert re.findall(r"^\| ([\w ]+) \|", tested.split("\n## ")[0], re.MULTILINE)[1:] == items
    by_hand = comparison.split("## By hand", 1)[1].split("\n## ", 1)[0]
    rows = [
        row
        for text in (promises, by_hand)
        for row in text.splitlines()
        if row.startswith("| ") and not row.startswith(("| ---", "| promise |", "| |")) and "yes |" not in row
    ]
    assert len(rows) > len(items) + 10
    assert [row for row in rows if not _PROOF.search(row)] == []
    named = [test for page in PAGES for _, test in _PROOF.findall(page.read_text())]
    assert len(named) > 30
    assert [test for test in named if not test.lower().startswith("test")] == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_a_page_links_its_tests_once_at_its_end(page: Path) -> None:
    """Sentences have no marks. Only the promises and the comparison have one for each answer."""
    text = page.read_text()
    assert page.name in ("promises.md", "compare.md") or "✓" not in text
    found = re.findall(r"^Tests: (.+)$", text, re.MULTILINE)
    assert len(found) <= 1
    tests = _LINK.findall("".join(found))
    assert len(tests) == len(set(tests))
    assert [line for line in text.partition("\nTests: ")[2].splitlines()[1:] if line and line[0] != "["] == []


def test_every_document_can_be_found_from_the_readme() -> None:
    """Links of the pages lead from the README to each page."""
    reached, new = set(), {ROOT / "README.md"}
    while new:
        page = new.pop()
        reached.add(page)
        targets = {(page.parent / link.partition("#")[0]).resolve() for link in links(page.read_text())}
        new |= {target for target in targets if target.suffix == ".md"} - reached
    assert set(PAGES) <= reached


def test_each_file_in_the_diagrams_of_the_architecture_exists() -> None:
    """A diagram names files of the runtime by their path in the package."""
    diagrams = "".join(_BLOCK.findall((ROOT / "docs" / "architecture.md").read_text()))
    files = re.findall(r"\b([a-z_]+/[a-z_/]+\.py)\b", diagrams)
    assert len(files) > 20
    assert [file for file in files if not (ROOT / "lambda_src" / "intake_ledger" / file).exists()] == []


def test_anchors_are_githubs() -> None:
    """GitHub removes punctuation, replaces spaces by hyphens and numbers repeated headings. Code has no headings."""
    text = "# What's `new`, and why?\n## A [link](x.md)\n## A link\n```\n# no\n```\n"
    assert anchors(text) == {"whats-new-and-why", "a-link", "a-link-1"}
