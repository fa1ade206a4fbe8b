"""Measure how readable the code and the documents are: `make house`. It fails if a text has too many unusual phrases.

The route of one record is reported without a limit: a reader judges whether the code is clear.
"""

import ast
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from scripts import prose
from scripts.trace_record import Route, route, trace

ROOT = Path(__file__).parents[1]
PRODUCTION = ("lambda_src", "constructs", "tools")
CODE = (*PRODUCTION, "tests", "examples", "benchmarks", "scripts")
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs")
MAX_PHRASES = 1.5
"""Unusual phrases in 1,000 words."""


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


def above(rates: Mapping[str, float]) -> list[str]:
    """Name the folders whose texts have too many unusual phrases."""
    return [name for name, rate in rates.items() if rate > MAX_PHRASES]


def details(root: Path = ROOT) -> list[str]:
    """Describe the size of the production code and the route of one record through it."""
    sources = [file.read_text(encoding="utf-8") for file in python_files(root / folder for folder in PRODUCTION)]
    total, code = sum(len(source.splitlines()) for source in sources), sum(map(code_lines, sources))
    one: Route = route(trace())
    return [
        f"production code: {total:,} lines, {code:,} without blank lines, comments and docstrings",
        f"route of one record: {one.calls} calls, {one.files} files, {one.changes} changes of file",
    ]


def main() -> int:
    """Print all measures. Return 1 if a text has too many unusual phrases."""
    rates = phrases()
    print("\n".join(details()))
    print(f"\n{'unusual phrases in 1,000 words':32}(at most {MAX_PHRASES:g})")
    for name, rate in rates.items():
        print(f"{name:32}{rate:.2f}")
    for name in above(rates):
        print(f"ABOVE ITS LIMIT: {name}: python scripts/prose.py --lines 40 prints the phrases of a folder")
    return bool(above(rates))


if __name__ == "__main__":
    sys.exit(main())
