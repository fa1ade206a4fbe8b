"""Test the command that runs the whole proof: its output, its exit codes and the processes that it stops.

The command forks. Here it runs in a separate process, without the threads of other tests.
"""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough
ROOT = Path(__file__).resolve().parents[2]

MADE_UP = """
import os, subprocess, sys, time
from pathlib import Path
from tests.protocol.pool import Job, run_jobs
from tests.protocol.prove import Part, run

def passes(): return True, "it passes"
def is_violated(): return False, "it is VIOLATED"
def breaks(): raise KeyError("broken")
def dies(): os._exit(3)
def spins():
    while True: pass
def grows(): return bool(bytearray(2**40)), ""
def blocks():
    child = subprocess.Popen(["sleep", "1000"])
    Path(sys.argv[1]).write_text(f"{os.getpid()} {child.pid}.")
    return child.wait() == 0, ""
def waits():
    while not (Path(sys.argv[1]).exists() and Path(sys.argv[1]).read_text().endswith(".")): time.sleep(0.01)
    return True, ""
def parts(*jobs): return [Part("world", Job(job.__name__, job)) for job in jobs]
"""


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def made_up(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code after the jobs above."""
    return python("-c", MADE_UP + code, *arguments)


def is_gone(pid: int) -> bool:
    """Return whether a process has ended. Its parent ended first, so it may remain as a zombie."""
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_it_passes_if_everything_that_ran_passed() -> None:
    """The last line counts worlds, seeded defects and the replay together."""
    ran = python("-m", "tests.protocol.prove", "--scenario", "losses", "marker")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "2 passed, 0 failed"
    assert "marker: holds, " in ran.stdout


def test_what_the_time_limit_left_out_is_listed_and_is_no_failure() -> None:
    """CI sets a limit, so a correct change does not fail on a busy machine."""
    ran = python("-m", "tests.protocol.prove", "--minutes", "0", "--short")
    assert ran.returncode == 0, ran.stderr
    assert "not run: world losses" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "0 passed, 0 failed"


def test_a_seeded_defect_that_ends_in_an_exception_is_found() -> None:
    """The search finds the first defect, a named test the second one."""
    ran = python("-m", "tests.protocol.prove", "--mutants", "not reported to Lambda")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "found      failures are not reported to Lambda: puts, no audit: VIOLATED" in ran.stdout
    ran = python("-m", "tests.protocol.prove", "--mutants", "all are probes at once")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "all are probes at once: FAILED tests/unit/consumer/test_breaker.py" in ran.stdout


def test_tests_of_a_seeded_defect_do_not_know_that_ci_runs_them(tmp_path: Path) -> None:
    """pytest prints failures in full where CI is set. For two large values that took twenty minutes."""
    (tmp_path / "test_ci.py").write_text("import os\ndef test_ci():\n    assert 'CI' in os.environ\n")
    ran = made_up(
        """
from tests.protocol.mutants import MUTANTS
from tests.protocol.seeding import _tests
folder = Path(sys.argv[1])
os.environ["CI"] = "true"
print(_tests(MUTANTS[0]._replace(found_by=str(folder / "test_ci.py")), folder))
""",
        str(tmp_path),
    )
    assert ran.stdout.startswith("(True, 'FAILED"), ran.stdout + ran.stderr


def test_a_violation_and_a_failure_of_the_search_have_different_exit_codes() -> None:
    """Code 1: the code is wrong. Code 2: the search is wrong. In both cases the other jobs still run."""
    ran = made_up("sys.exit(run(parts(is_violated, passes), None))")
    assert ran.returncode == 1, ran.stderr
    assert ran.stdout.splitlines()[-2:] == ["failed: world is_violated", "1 passed, 1 failed"]
    ran = made_up("sys.exit(run(parts(breaks, dies, is_violated, passes), None))")
    assert ran.returncode == 2, ran.stderr
    assert "breaks: THE SEARCH FAILED: Traceback" in ran.stdout
    assert "KeyError: 'broken'" in ran.stdout
    assert "dies: THE SEARCH FAILED: its process died (3)" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "1 passed, 3 failed"


def test_processor_time_is_bounded() -> None:
    """A seeded defect may keep a test from its end. The others still get their turn."""
    ran = made_up('sys.exit(run([Part("seeded defect", Job("spins", spins, cpu_seconds=1)), *parts(passes)], None))')
    assert ran.returncode == 2, ran.stderr
    assert "spins: THE SEARCH FAILED: it took 1 s" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "1 passed, 1 failed"


def test_memory_is_bounded() -> None:
    """Two searches fit into 4 GB of memory. A search that needs more has failed."""
    ran = made_up('sys.exit(run([Part("world", Job("grows", grows, 2**35))], None))')
    assert ran.returncode == 2, ran.stderr
    assert "grows: THE SEARCH FAILED: it needs more memory than 32,768 MB" in ran.stdout


def test_what_runs_at_the_limit_is_stopped(tmp_path: Path) -> None:
    """This also holds if the caller stops early: no process remains."""
    code = """
started = run_jobs([Job("blocks", blocks), Job("waits", waits)], workers=2)
assert next(started).job.name == "waits"
started.close()
"""
    ran = made_up(code, str(tmp_path / "pids"))
    assert ran.returncode == 0, ran.stderr
    for pid in (tmp_path / "pids").read_text().removesuffix(".").split():
        assert is_gone(int(pid))
    ran = made_up(
        "print(list(run_jobs([Job('blocks', blocks)], until=time.monotonic() + 0.2)))", str(tmp_path / "more")
    )
    assert ran.stdout == "[]\n", ran.stderr
