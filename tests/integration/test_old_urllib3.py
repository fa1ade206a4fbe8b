"""F93: the tests of cut connections with urllib3 1.26, which shows a cut body as a whole one.

Lambda's runtime chooses the release. `make build/urllib3/.ready` puts 1.26 into a folder.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OLD_URLLIB3 = ROOT / "build" / "urllib3"


@pytest.mark.failure_mode("F93")
def test_nothing_depends_on_the_http_client() -> None:
    """Every way of reading, with a client that leaves the length to others."""
    assert (OLD_URLLIB3 / "urllib3").is_dir(), "urllib3 1.26 has a folder of its own: make build/urllib3/.ready"
    # What stands on the path already comes after it: a seeded defect's copy of the runtime, for example.
    path = os.pathsep.join(filter(None, (str(OLD_URLLIB3), os.environ.get("PYTHONPATH"))))
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--noconftest", "tests/unit/processor/test_cut_connections.py"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "skipped" not in run.stdout, "this is not the old release"
