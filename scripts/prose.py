"""Count phrases that are hard to read, per 1,000 words, and print the worst lines.

It reads docstrings and comments of Python files and the text of Markdown files:

    python scripts/prose.py [--lines N] [--fail-above X] FILE_OR_FOLDER ...

The same patterns find 0.7 in structlog, 0.3 in the idempotency and batch utilities of Powertools, and 0.2 in stamina.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_AFTER_WHAT = (
    "is was were has had have came comes it they nobody somebody differs fails failed waits runs follows remains can "
    "could may cannot the a one S3 SQS all people someone"
)
PATTERNS = {
    '"what is …" as a noun': re.compile(rf"\b[Ww]hat ({'|'.join(_AFTER_WHAT.split())})\b"),
    "whoever, whatever, nobody, somebody": re.compile(
        r"\b([Ww]hoever|[Ww]hatever|[Nn]obody|[Ss]omebody|[Ee]verybody)\b"
    ),
    "anew, mend, beside, lest, as ever": re.compile(
        r"\b(anew|mend(s|ed|ing)?|once more|as ever|as always|beside|in place of|in its place|thereupon|hence|lest)\b"
    ),
    "so many, so much, so often": re.compile(r"\b[Ss]o (many|much|often)\b"),
    "comes to its end, of its own": re.compile(
        r"\b(com(es?|ing) to (an|its|their) end|come to its|of (its|their|our|the team's|your|one's|whose) own"
        r"|team's own|of theirs|of ours)\b"
    ),
    '"is no X"': re.compile(r"\b(is|are|was|were|be) no (?!longer|more|such)[a-z]+\b|\bnone that\b|\bfor none\b"),
    '"one" as a pronoun': re.compile(r"\b([Oo]ne that|the one|those that|that one|the ones)\b"),
}
OPENING = "docstring opens with What, Of, …"
_OPENING = re.compile(r"^(What|Whoever|Those|That|Of|As|How|Whether|Which)\b")
_INDENTED_CODE = re.compile(r"    |\t")


class Line(NamedTuple):
    """A line of prose."""

    number: int
    text: str
    opens_docstring: bool = False


class Finding(NamedTuple):
    """A line of prose with unusual phrases, one entry in `patterns` for each."""

    file: Path
    line: Line
    patterns: list[str]


@dataclass(frozen=True)
class Report:
    """The findings in some files, and the number of words of prose in these files."""

    files: int
    words: int
    findings: list[Finding]

    @property
    def count(self) -> int:
        """Number of unusual phrases."""
        return sum(len(finding.patterns) for finding in self.findings)

    @property
    def rate(self) -> float:
        """Unusual phrases per 1,000 words."""
        return 1000 * self.count / max(self.words, 1)


def phrases(line: Line) -> list[str]:
    """Name the pattern of each unusual phrase in a line."""
    found = [name for name, pattern in PATTERNS.items() for _ in pattern.finditer(line.text)]
    if line.opens_docstring and _OPENING.match(line.text):
        found.append(OPENING)
    return found


def python_lines(source: str) -> Iterator[Line]:
    """Yield the lines of docstrings and comments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for offset, text in enumerate(node.value.value.splitlines()):
                yield Line(node.lineno + offset, text, opens_docstring=offset == 0)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Line(token.start[0], token.string.lstrip("# "))


def markdown_lines(source: str) -> Iterator[Line]:
    """Yield the lines outside code blocks."""
    in_block = False
    for number, text in enumerate(source.splitlines(), 1):
        fence = text.startswith("```")
        in_block ^= fence
        if not in_block and not fence and not _INDENTED_CODE.match(text):
            yield Line(number, text)


def measure(paths: Iterable[Path]) -> Report:
    """Read the Python and Markdown files among the paths and in the folders among them."""
    listed = (file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path]))
    files = [file for file in listed if file.suffix in (".py", ".md")]
    words, findings = 0, []
    for file in files:
        lines = python_lines if file.suffix == ".py" else markdown_lines
        for line in lines(file.read_text(encoding="utf-8")):
            words += len(line.text.split())
            if found := phrases(line):
                findings.append(Finding(file, line, found))
    return Report(len(files), words, findings)


def main() -> None:
    """Print the number of each pattern, the worst lines, and the rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=15, help="number of lines to print")
    parser.add_argument("--fail-above", type=float, help="exit with 1 if the rate is higher")
    parser.add_argument("paths", nargs="+", type=Path)
    arguments = parser.parse_args()
    report = measure(arguments.paths)
    for name in (*PATTERNS, OPENING):
        print(f"{sum(finding.patterns.count(name) for finding in report.findings):6d}  {name}")
    worst = sorted(report.findings, key=lambda finding: -len(finding.patterns))
    for finding in worst[: arguments.lines]:
        print(f"  {finding.file}:{finding.line.number}: {finding.line.text.strip()[:150]}")
    print(f"{report.rate:.1f} per 1,000 words ({report.count} in {report.words} words, {report.files} files)")
    sys.exit(arguments.fail_above is not None and report.rate > arguments.fail_above)


if __name__ == "__main__":
    main()
