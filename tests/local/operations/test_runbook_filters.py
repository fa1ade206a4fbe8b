"""The log filter of a runbook finds the failures of functions that are deployed on the local AWS."""

import io
import re
import zipfile
from pathlib import Path

import pytest

from cdk_intake_ledger.testing import LocalAws

RUNBOOKS = Path(__file__).parents[3] / "docs" / "runbooks.md"
HANDLER = "def handler(event, context):\n    "
BROKEN = {
    "syntax": ("def handler(event, context:\n", "UserCodeSyntaxError: Syntax error in module 'index'"),
    "module": ("import no_such_module\n", "No module named 'no_such_module'"),
    "variable": ("import os\nos.environ['WAREHOUSE_URL']\n", "KeyError: 'WAREHOUSE_URL'"),
    "handler": ("", "Handler 'handler' missing on module 'index'"),
    "exit": ("raise SystemExit(1)\n", "Runtime.ExitError"),
    "exception": (f"{HANDLER}raise ValueError('no batch')\n", "ValueError: no batch"),
    "death": (f"import os\n{HANDLER}os._exit(1)\n", "Runtime exited"),
}
"""Code of functions, and a text of the line that says why they fail."""


def filter_of(runbook: str) -> str:
    """The filter pattern that the runbook of an alarm gives."""
    section = RUNBOOKS.read_text().split(f"\n## {runbook}\n")[1].split("\n## ")[0]
    [pattern] = re.findall(r"--filter-pattern '(.*)'", section)
    return str(pattern)


def found(aws: LocalAws, name: str, code: str, *, timeout: int = 3) -> list[str]:
    """Deploy a function and invoke it. Return the lines that the runbook's filter finds."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as content:
        content.writestr("index.py", code)
    aws.client("lambda").create_function(
        FunctionName=name,
        Runtime="python3.13",
        Handler="index.handler",
        Role=f"arn:aws:iam::{aws.account}:role/a",
        Code={"ZipFile": archive.getvalue()},
        Timeout=timeout,
    )
    answer = aws.client("lambda").invoke(FunctionName=name, Payload=b"{}")
    assert ("FunctionError" in answer) is (name != "works")
    events = aws.client("logs").filter_log_events(
        logGroupName=f"/aws/lambda/{name}", filterPattern=filter_of("ConsumerFunctionErrors")
    )["events"]
    return [event["message"] for event in events]


@pytest.mark.failure_mode("F393")
@pytest.mark.parametrize("name", BROKEN)
def test_the_filter_finds_a_broken_function(aws: LocalAws, name: str) -> None:
    code, text = BROKEN[name]
    assert any(text in line for line in found(aws, name, code))


@pytest.mark.failure_mode("F393")
def test_the_filter_finds_nothing_of_a_function_that_works(aws: LocalAws) -> None:
    assert found(aws, "works", f"{HANDLER}print('status: error, 2 tasks timed out')\n") == []


@pytest.mark.thorough
@pytest.mark.failure_mode("F393")
def test_the_filter_finds_a_start_that_is_too_long(aws: LocalAws) -> None:
    lines = found(aws, "hangs", "import time\ntime.sleep(600)\n", timeout=11)
    assert [line.split("\t")[1:] for line in lines[:2]] == [
        ["Phase: init", "Status: timeout"],
        ["Phase: invoke", "Status: timeout"],
    ]
    assert "Task timed out after 11.00 seconds" in lines[2]
