"""The example of an option in docs/architecture.md: its lines are put into a copy of the code, and work."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
import pytest
from datetime import UTC, datetime
from cdk_intake_ledger.testing import LocalPipeline

seen = []
pipeline = LocalPipeline(lambda change: seen.append(pipeline.clock()), starts_at=6)
pipeline.put("a.csv", "1")
pipeline.run()
at = datetime.fromtimestamp(seen[0] / 1000, UTC)
assert at.hour == 6 and at.minute < 20, at
with pytest.raises(ValueError, match="starts_at is '24', expected a whole number from 0 to 23"):
    LocalPipeline(lambda change: None, starts_at=24)
print("right")
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """The runtime and the kit with the option of the page."""
    for tree in ("lambda_src", "constructs", "tools"):
        shutil.copytree(ROOT / tree, tmp_path / tree, ignore=shutil.ignore_patterns("__pycache__"))
    page = (ROOT / "docs" / "architecture.md").read_text().split("### A new option: what you write\n")[1]
    setting, module, kit = re.findall(r"```python\n(.*?)```", page.split("\n## ")[0], re.DOTALL)
    assert len((setting + module + kit).split("\n")) <= 44
    runtime = tmp_path / "lambda_src" / "intake_ledger"
    insert(runtime / "protocol" / "settings.py", r"^    max_rate: ", setting)
    insert(tmp_path / "tools" / "intake_ledger_testing" / "local_options.py", r"^    max_rate: ", kit)
    insert(runtime / "consumer" / "hooks.py", r"(?<=^OPTIONS = \()", '"starts_at", ')
    (runtime / "options" / "starts_at.py").write_text(module)
    return tmp_path


def insert(path: Path, before: str, text: str) -> None:
    """Put text in front of a place of a file."""
    changed, number = re.subn(before, lambda found: text + found[0], path.read_text(), flags=re.MULTILINE)
    assert number == 1, path
    path.write_text(changed)


def test_the_option_of_the_page_works(code: Path) -> None:
    """Its decision, its setting and its refusal. No other file names it."""
    trees = os.pathsep.join(str(code / tree) for tree in ("lambda_src", "constructs", "tools"))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | {"PYTHONPATH": trees},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "right\n", done.stderr
