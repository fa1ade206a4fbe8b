"""`intake-ledger acceptance` on a local AWS of its own: each check has a result, and nothing is left."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from cdk_intake_ledger.testing import LocalAws
from tests.inside.acceptance import CHECKS, deployment
from tests.local.support import TIMEOUT

pytestmark = pytest.mark.thorough
PROGRAM = "import sys; from intake_ledger_cli import commands; sys.exit(commands.run())"


@pytest.fixture(scope="module")
def alone() -> Iterator[LocalAws]:
    with LocalAws(start_timeout=TIMEOUT) as local:
        yield local


def started(aws: LocalAws, *arguments: str) -> "subprocess.Popen[str]":
    environment = os.environ | aws.environment
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "AWS_PROFILE"):
        environment.pop(name, None)
    command = [sys.executable, "-c", PROGRAM, "acceptance", "--yes", *arguments]
    # An own group, so that a signal reaches no other process.
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)


def told(process: "subprocess.Popen[str]", text: str) -> list[str]:
    """The lines until one has the text."""
    lines: list[str] = []
    assert process.stderr is not None
    for line in process.stderr:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError(f"it never said {text!r}: {''.join(lines)}")


def read(folder: Path) -> Any:
    return json.loads((folder / "acceptance.json").read_text())


def left(aws: LocalAws, *, logs: bool = False) -> Mapping[str, list[str]]:
    """All resources whose names are of a run. A key waits for its deletion.

    A function that ends late makes its log group again. Only a later cleanup removes all of them.
    """
    found = {
        "stacks": [
            one["StackName"]
            for one in aws.client("cloudformation").describe_stacks()["Stacks"]
            if one["StackStatus"] != "DELETE_COMPLETE"
        ],
        "buckets": [one["Name"] for one in aws.client("s3").list_buckets()["Buckets"]],
        "functions": [one["FunctionName"] for one in aws.client("lambda").list_functions()["Functions"]],
        "tables": aws.client("dynamodb").list_tables()["TableNames"],
        "queues": aws.client("sqs").list_queues().get("QueueUrls", []),
        "roles": [one["RoleName"] for one in aws.client("iam").list_roles()["Roles"]],
        "streams": aws.client("kinesis").list_streams()["StreamNames"],
        "machines": [one["name"] for one in aws.client("stepfunctions").list_state_machines()["stateMachines"]],
    }
    if logs:
        found["logs"] = [one["logGroupName"] for one in aws.client("logs").describe_log_groups()["logGroups"]]
    return {kind: mine for kind, names in found.items() if (mine := [one for one in names if deployment.TAG in one])}


@pytest.mark.failure_mode("F460")
def test_each_check_has_a_result_or_a_reason_and_nothing_is_left(alone: LocalAws, tmp_path: Path) -> None:
    process = started(alone, "--to", str(tmp_path))
    _, said = process.communicate(timeout=1_500)
    report = read(tmp_path)
    outcomes = {one["name"]: one for one in report["outcomes"]}
    assert set(outcomes) == {one.name for one in CHECKS}
    assert [one for one in outcomes.values() if one["result"] == "failed"] == [], said
    assert all(one["detail"] for one in outcomes.values())
    for one in CHECKS:
        assert outcomes[one.name]["result"] == ("not here" if one.not_local else "passed")
    assert (report["local"], report["interrupted"], report["left"]) == (True, False, [])
    assert sum(one["dollars"] for one in report["estimate"]) < 1
    assert process.returncode == 0
    assert left(alone) == {}


@pytest.mark.failure_mode("F461")
def test_an_interrupted_run_removes_everything_and_a_killed_one_is_cleaned_up(alone: LocalAws, tmp_path: Path) -> None:
    process = started(alone, "--to", str(tmp_path))
    told(process, "creating the stack")
    alone.wait_until(lambda: left(alone).get("functions"), "the stack is being made", timeout=TIMEOUT)
    process.terminate()
    _, said = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 128 + signal.SIGTERM, said
    assert left(alone) == {}, said
    assert read(tmp_path)["interrupted"]

    killed = started(alone, "--to", str(tmp_path), "--only", "marker-date")
    told(killed, "marker-date")
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    # It was removing the stack, or about to.
    assert left(alone) != {}

    def cleaned() -> bool:
        cleanup = started(alone, "--cleanup")
        _, said = cleanup.communicate(timeout=TIMEOUT)
        assert cleanup.returncode == 0, said
        return left(alone, logs=True) == {}

    alone.wait_until(cleaned, "no log group is made again", timeout=TIMEOUT)
