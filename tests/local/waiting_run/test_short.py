"""The short form of `make waiting-run`: files wait beside ready ones, and messages in flight have a limit."""

import sys
from pathlib import Path

import pytest

from cdk_intake_ledger.testing import LocalAws
from tests.local.recorded import ROOT
from tests.local.waiting_run import STACK
from tests.local.waiting_run.scenario import SHORT, run

pytestmark = pytest.mark.thorough


@pytest.mark.failure_mode("F330")
@pytest.mark.parametrize("copies", [True, False], ids=["copies", "hidden messages"])
def test_files_that_wait_block_none_that_are_ready(tmp_path: Path, copies: bool) -> None:
    """Hidden messages block them: otherwise the run would show nothing about the copies."""
    with LocalAws(start_timeout=240) as aws:
        app = f"{sys.executable} -m tests.local.waiting_run.stack"
        outputs = aws.deploy(app, STACK, context={"code": str(tmp_path)}, cwd=ROOT)[STACK]
        outcome = run(aws, outputs, tmp_path, SHORT, copies=copies)
    if copies:
        assert outcome.problems() == []
    else:
        assert outcome.blocked
        assert outcome.ready < SHORT.ready
