"""The suite as on an account, at the endpoint of a local AWS: each check has a result, and nothing is left."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from cdk_intake_ledger.testing import LocalAws
from intake_ledger_testing.account_cleanup import TAG
from tests.local.support import TIMEOUT

pytestmark = pytest.mark.thorough
SUITE = Path(__file__).parents[3] / "suite"
QUICK = "test_marker_has_a_date"


@pytest.fixture(scope="module")
def alone() -> Iterator[LocalAws]:
    with LocalAws(start_timeout=TIMEOUT) as local:
        yield local


def started(aws: LocalAws, *arguments: str) -> "subprocess.Popen[str]":
    environment = os.environ | aws.environment | {"PYTHONPATH": str(SUITE), "PYTHONUNBUFFERED": "1"}
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "AWS_PROFILE"):
        environment.pop(name, None)
    options = ["--pyargs", "intake_ledger_suite", "--aws-account", aws.account, "--yes", *arguments]
    command = [sys.executable, "-m", "pytest", "-v", "-c", os.devnull, "-p", "no:cacheprovider", *options]
    # An own group, so that a signal reaches no other process.
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def ended(aws: LocalAws, *arguments: str, code: int = 0) -> str:
    """Run pytest until its end, and return the output."""
    process = started(aws, *arguments)
    said, _ = process.communicate(timeout=1_500)
    assert process.returncode == code, said
    return said


def told(process: "subprocess.Popen[str]", text: str) -> list[str]:
    """The lines until one has the text."""
    lines: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError(f"it never said {text!r}: {''.join(lines)}")


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
    mine = {kind: [one for one in names if TAG in one or "cdk-ir" in one] for kind, names in found.items()}
    return {kind: names for kind, names in mine.items() if names}


def test_a_run_on_an_account_deletes_everything(alone: LocalAws, tmp_path: Path) -> None:
    """It deploys one stack of two. `thorough` runs all of the suite on a local AWS without these options."""
    report = tmp_path / "report.xml"
    said = ended(alone, "-k", f"{QUICK} or durable_event", f"--junitxml={report}")
    assert "creates intake-run-" in said
    assert "dollars for 2 hours (000000000000, us-east-1)" in said
    [suite] = ET.parse(report).getroot()
    about = {one.attrib["name"]: one.attrib["value"] for one in suite.iterfind("properties/property")}
    assert (about["local"], about["region"]) == ("True", "us-east-1")
    found = {one.attrib["name"]: one for one in suite.iter("testcase")}
    properties = [one.attrib["value"] for one in found[QUICK].iter("property")]
    assert properties[0] == "S3-02 S3-03"
    assert properties[1].startswith("405 with Last-Modified: ")
    skipped = found["test_durable_event_of_an_end_has_no_input"].find("skipped")
    assert skipped is not None
    assert skipped.attrib["message"].startswith("not here: the rules of durable executions are")
    assert left(alone) == {}


@pytest.mark.failure_mode("F754")
def test_a_kept_run_goes_on_until_it_is_cleaned_up(alone: LocalAws) -> None:
    """A second run on the same stack passes too, and deletes nothing."""
    said = ended(alone, "-k", QUICK, "--keep")
    [run] = {one.split("-")[2] for one in left(alone)["stacks"]}
    assert f"--run {run}" in said
    again = ended(alone, "-k", QUICK, "--run", run)
    assert "creating the stack" not in again
    assert left(alone) != {}
    ended(alone, "--run", run, "--cleanup")
    assert left(alone) == {}
    assert f"there is no stack of the run {run}" in ended(alone, "-k", QUICK, "--run", run, code=4)


@pytest.mark.failure_mode("F461")
def test_an_interrupted_run_deletes_everything_and_a_killed_one_is_cleaned_up(alone: LocalAws) -> None:
    process = started(alone, "-k", "test_kill")  # it waits for a lease
    told(process, "creating the stack")
    alone.wait_until(
        lambda: alone.client("lambda").list_functions()["Functions"], "the stack is being made", timeout=TIMEOUT
    )
    process.terminate()
    said, _ = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 128 + signal.SIGTERM, said
    assert left(alone) == {}, said

    killed = started(alone, "-k", QUICK)
    told(killed, "PASSED")
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    # It was deleting the stack, or about to.
    assert left(alone) != {}

    def cleaned() -> bool:
        ended(alone, "--cleanup")
        return left(alone, logs=True) == {}

    alone.wait_until(cleaned, "no log group is made again", timeout=TIMEOUT)
