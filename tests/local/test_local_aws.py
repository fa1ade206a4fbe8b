"""The local AWS itself: it starts wherever it can, says why it cannot, and leaves nothing behind."""

import importlib.util
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdk_intake_ledger.testing import LocalAws, LocalAwsError
from tests.inside.kit import local_server

if TYPE_CHECKING:
    from collections.abc import Iterator

STARTS_AND_IS_KILLED = """
import os, signal
from cdk_intake_ledger.testing import LocalAws
aws = LocalAws()
aws.start()
print(aws.directory, aws.endpoint_url, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def listens(url: str) -> bool:
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def test_nothing_is_left_when_the_parent_is_killed(aws: LocalAws) -> None:
    """No handler runs in a process that gets SIGKILL; the server, its workers and its directory go all the same."""
    script = [sys.executable, "-c", STARTS_AND_IS_KILLED]
    ran = subprocess.run(script, capture_output=True, text=True, check=False, timeout=240)
    directory, url = ran.stdout.split()

    aws.wait_until(lambda: not Path(directory).exists() and not listens(url), "it is gone", timeout=120)


def test_a_port_that_was_taken_meanwhile_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between looking for a free port and using it anybody may take it: the next one is tried."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports: Iterator[int] = iter([taken.getsockname()[1]])
        really = local_server.free_port
        monkeypatch.setattr(local_server, "free_port", lambda: next(ports, None) or really())

        with LocalAws() as second:
            assert second.client("sts").get_caller_identity()["Account"] == second.account
            directory = second.directory

    assert not directory.exists()


def test_without_ministack_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library does not depend on it, so it may well be missing."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(LocalAwsError, match="pip install ministack"):
        LocalAws().start()


def test_a_failing_synthesis_is_told_with_its_last_words(aws: LocalAws, tmp_path: Path) -> None:
    """The error contains the app's output."""
    (tmp_path / "broken.py").write_text("raise SystemExit('the bucket has a hole')")

    with pytest.raises(LocalAwsError, match="the bucket has a hole"):
        aws.deploy(f"python {tmp_path / 'broken.py'}", cwd=Path(__file__).parent)


def test_waiting_in_vain_says_for_what(aws: LocalAws) -> None:
    """The error names the condition."""
    with pytest.raises(TimeoutError, match="pigs fly"):
        aws.wait_until(lambda: False, "pigs fly", timeout=0.1)
