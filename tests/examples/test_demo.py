"""Run `make demo` in its short form, and with a folder of the user."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from scripts.demo_table import table

from tests.browser import INSTALL, chromium, has_chromium
from tests.examples.runs import ran

ROOT = Path(__file__).resolve().parents[2]
WIDER_THAN_THE_PAGE = (
    "[...document.querySelectorAll('.card:not(.wide)')].filter(card => card.scrollWidth > card.clientWidth).length"
)


def demo(*arguments: str, timeout: float) -> subprocess.CompletedProcess[str]:
    return ran("demo", *arguments, timeout=timeout)


def test_the_demo_on_a_folder_is_right_and_writes_its_page(tmp_path: Path) -> None:
    """Any files will do; the ledger is right in every line, consumers by hand are not, the page needs no network."""
    files = tmp_path / "files"
    (files / "some where").mkdir(parents=True)
    (files / "table.csv").write_text("a,b\n1,2\n")
    (files / "some where" / "ä+b.json").write_text('{"a": 1}')
    (files / "bytes.bin").write_bytes(bytes(range(256)))
    (files / ".hidden").write_text("left out")

    ran = demo("--short", "--locks", "--files", str(files), "--output", str(tmp_path / "demo.html"), timeout=900)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "FILES: 1 files are left out" in ran.stdout
    result = json.loads((tmp_path / "demo.json").read_text())
    assert result["right"] is True
    assert result["native"]["right"] == result["native"]["files"] > 0
    for by_hand in ("naive", "flag", "index"):
        assert any(line[by_hand] not in (None, line["right"]) for line in result["measures"].values()), by_hand
    # Sequencers keep the order of a key. They do not tell of a message that was lost.
    backwards = result["measures"]["effects that went backwards"]
    assert (backwards["flag"], backwards["index"]) == (0, 0)
    assert {"ACCEPTED", "DUPLICATE", "STALE"} <= set(result["verdicts"])
    page = (tmp_path / "demo.html").read_text()
    assert page.count("<svg") == 1
    assert page.count('class="bars"') == 3
    assert re.search(r"(src|href)\s*=|url\(|@import", page) is None
    if not has_chromium():
        pytest.skip(f"the page was not opened. {INSTALL}")
    with chromium(tmp_path / "profile") as browser:
        for width, dark in ((390, False), (390, True), (1280, False), (1280, True)):
            opened = browser.opens(tmp_path / "demo.html", width=width, dark=dark)
            assert (opened.requests, opened.complaints) == ([(tmp_path / "demo.html").as_uri()], [])
            assert opened.value("document.documentElement.scrollWidth") <= width
            # Only the timeline of the hot key scrolls.
            assert opened.value(WIDER_THAN_THE_PAGE) == 0, width


@pytest.mark.parametrize("kind", ["missing", "empty"])
def test_a_wrong_path_is_one_clear_line(tmp_path: Path, kind: str) -> None:
    """Nothing is started for it, and the exit code is 2."""
    path = tmp_path / kind
    if kind == "empty":
        path.mkdir()

    ran = demo("--files", str(path), timeout=60)

    assert (ran.returncode, ran.stdout) == (2, "")
    [line] = ran.stderr.splitlines()
    assert line.startswith("FILES: ")
    assert str(path) in line


def test_the_table_of_the_readme_is_made_from_a_run() -> None:
    """Its rows are measures of the demo in which the naive consumer was wrong. A run of a wrong ledger has no table."""
    wrong = {"naive": 7, "ledger": 0, "right": 0}
    run = {"right": True, "uploads": 9, "objects": 8, "measures": {"lost": wrong, "kept": wrong | {"naive": 0}}}
    assert "| lost | **7** | 0 |" in table(run)
    assert "kept" not in table(run)
    with pytest.raises(ValueError, match="ledger was wrong"):
        table(run | {"right": False})
    shown = re.findall(r"^\| (.+) \| \*\*\d+\*\* \| 0 \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(shown) > 5
    assert [name for name in shown if f'"{name}"' not in (ROOT / "examples/demo/judge.py").read_text()] == []
