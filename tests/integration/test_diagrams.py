"""The diagrams of the documents, in a browser."""

import json
import re
from pathlib import Path

import pytest
from scripts.mkdocs_hooks import MERMAID

from tests.browser import Browser, needs_chromium

ROOT = Path(__file__).parents[2]


@pytest.mark.failure_mode("F223")
@needs_chromium
def test_each_diagram_can_be_drawn(browser: Browser, tmp_path: Path) -> None:
    """mermaid parses the diagrams of all pages. For a mistake, the page would show an error instead of a diagram."""
    block = re.compile("^```mermaid\n(.*?)^```", re.MULTILINE | re.DOTALL)
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    diagrams = {f"{page.name} {n}": text for page in pages for n, text in enumerate(block.findall(page.read_text()))}
    assert len(diagrams) > 8
    html = tmp_path / "diagrams.html"
    html.write_text(f"<!doctype html><meta charset=utf-8><script src='{MERMAID.as_uri()}'></script>")
    each = "([name, text]) => mermaid.parse(text).then(() => null, error => `${name}: ${error.message}`)"
    parse = f"Promise.all(Object.entries({json.dumps(diagrams)}).map({each}))"
    answer = browser.opens(html).does("Runtime.evaluate", expression=parse, returnByValue=True, awaitPromise=True)
    assert [error for error in answer["result"]["value"] if error] == []
