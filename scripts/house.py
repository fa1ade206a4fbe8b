"""Measure how readable the code and the documents are: `make house`. It fails if a text has too many unusual phrases.

It also fails if kinds of work differ without a written reason. The routes of records, the structure and
the words of the documents are reported without a limit: a reader judges whether they are clear.
"""

import ast
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from scripts import drift, prose, structure
from scripts.trace_record import WORK, route, trace

ROOT = Path(__file__).parents[1]
PRODUCTION = ("lambda_src", "constructs", "tools")
CODE = (*PRODUCTION, "tests", "examples", "benchmarks", "scripts")
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs")
CONSUMER = "lambda_src/intake_ledger/consumer/"
MAX_PHRASES = 1.5
"""Unusual phrases in 1,000 words."""
WORD_BUDGET = 60_000
"""Words that the README and the documents should have at most."""
LONG_PAGES = 15
"""Pages whose words are reported."""


def python_files(folders: Iterable[Path]) -> list[Path]:
    """List the Python files in some folders."""
    return [file for folder in folders for file in sorted(folder.rglob("*.py"))]


def code_lines(source: str) -> int:
    """Count the lines of a module without blank lines, comments and docstrings."""
    prose_lines = {
        number
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    return sum(
        bool(text.strip()) and not text.lstrip().startswith("#") and number not in prose_lines
        for number, text in enumerate(source.splitlines(), 1)
    )


def phrases(root: Path = ROOT) -> dict[str, float]:
    """Count unusual phrases in 1,000 words, by folder."""
    rates = {folder: prose.measure([root / folder]).rate for folder in CODE}
    return rates | {"documents": prose.measure(root / name for name in DOCUMENTS).rate}


def words_by_page(root: Path = ROOT) -> dict[str, int]:
    """Count the words of the README and of each document, the longest page first.

    Blocks of code, the borders of tables and links to tests have no words.
    """
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    counted = {str(page.relative_to(root)): _words(page.read_text(encoding="utf-8")) for page in pages}
    return dict(sorted(counted.items(), key=lambda page: -page[1]))


def _words(text: str) -> int:
    shown = (word for line in prose.markdown_lines(text) for word in line.text.split() if "[✓]" not in word)
    return sum(any(map(str.isalnum, word)) for word in shown)


def above(rates: Mapping[str, float]) -> list[str]:
    """Name the folders whose texts have too many unusual phrases."""
    return [name for name, rate in rates.items() if rate > MAX_PHRASES]


def details(root: Path = ROOT) -> list[str]:
    """Describe the size and the structure of the production code, and the routes of records through it."""
    files = python_files(root / folder for folder in PRODUCTION)
    sources = {str(file.relative_to(root)): file.read_text(encoding="utf-8") for file in files}
    total, code = (sum(map(count, sources.values())) for count in (lambda source: len(source.splitlines()), code_lines))
    lines = [f"production code: {total:,} lines, {code:,} without blank lines, comments and docstrings"]
    for work in WORK:
        one = route(trace(work))
        lines.append(
            f"route of the second record, {work}: {one.calls} calls, {one.files} files, {one.changes} changes of file"
        )
    doubled = structure.doubled_names(sources)
    lines.append(f"public classes with the name of another one: {len(doubled)}")
    lines += [f"  {name}: {', '.join(places)}" for name, places in doubled.items()]
    terms = structure.glossary_terms((root / "docs" / "glossary.md").read_text(encoding="utf-8"))
    consumer = {file: source for file, source in sources.items() if file.startswith(CONSUMER)}
    connecting = structure.overhead(consumer, sum(map(code_lines, consumer.values())))
    arrows = structure.arrows(root / "lambda_src" / "intake_ledger")
    return [
        *lines,
        f"terms of the glossary: {terms}",
        f"imports, doors and constructors in the consumer: {connecting.share:.0%} of {connecting.code:,} lines of code",
        f"arrows between the modules of the runtime: {arrows.total}, median fan-out {arrows.median_fan_out}",
    ]


def main() -> int:
    """Print all measures. Return 1 if a text has too many unusual phrases."""
    rates, differences, pages = phrases(), drift.lines(), words_by_page()
    print("\n".join([*details(), *differences]))
    print(f"\nwords of {len(pages)} pages: {sum(pages.values()):,} (budget {WORD_BUDGET:,}), the longest pages:")
    for name, count in list(pages.items())[:LONG_PAGES]:
        print(f"{name:32}{count:,}")
    print(f"\n{'unusual phrases in 1,000 words':32}(at most {MAX_PHRASES:g})")
    for name, rate in rates.items():
        print(f"{name:32}{rate:.2f}")
    for name in above(rates):
        print(f"ABOVE ITS LIMIT: {name}: python scripts/prose.py --lines 40 prints the phrases of a folder")
    if differences[1:]:
        print("ABOVE ITS LIMIT: drift between kinds of work: write the reason, or remove the difference")
    return bool(above(rates) or differences[1:])


if __name__ == "__main__":
    sys.exit(main())
