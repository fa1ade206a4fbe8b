"""The PostgreSQL server of tests and examples: it needs no privileges, and nothing of it remains."""

import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_nothing_remains_after_its_starter_was_killed() -> None:
    code = """
import sys
import time
from examples.postgres import postgres
with postgres() as server:
    print(server.directory, flush=True)
    sys.stdin.read()
"""
    starter = subprocess.Popen(
        (sys.executable, "-c", code), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout is not None
    directory = Path(starter.stdout.readline().strip())
    assert (directory / "data").is_dir()
    starter.send_signal(signal.SIGKILL)
    starter.communicate()
    end = time.monotonic() + 30
    while directory.exists():
        assert time.monotonic() < end, f"{directory} remains: {list(directory.iterdir())}"
        time.sleep(0.02)
