"""Test the command line against a deployed pipeline: its output is correct, and its messages are processed."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from intake_ledger_cli import commands
from intake_ledger_cli.act.redrive_lock import redrive_lock
from intake_ledger_cli.options import Call
from tests.local.conftest import Typed
from tests.local.support import TIMEOUT, Catalogue, model

Types = Callable[..., Any]
STACK = ("--stack", "Local", "--pipeline", "Models")


@pytest.fixture
def types(typed: Typed) -> Types:
    """Runs a command about the catalogue, and reads its document."""
    return lambda *arguments: json.loads(typed(*arguments, *STACK, "--json"))


@pytest.mark.failure_mode("F63")
def test_a_rejection_is_listed_explained_and_redriven(catalogue: Catalogue, types: Types) -> None:
    """A message from the dead-letter queue has all attempts again, and the row counts the redrive."""
    key = "models/cli-poison/service-2.json.gz"
    version = catalogue.put(key, b"\x1f\x8bno gzip at all")
    letter = catalogue.rejected("cli-poison")

    def listed() -> Any:
        return next((row for row in types("list", "--status", "REJECTED")["rows"] if row["key"] == key), None)

    row = catalogue.aws.wait_until(listed, "the rejection is listed", timeout=TIMEOUT)
    assert row["reason"] == letter["MessageAttributes"]["reason"]["StringValue"]
    [state] = types("inspect", key)["states"]
    assert (state["agree"], state["s3"]["versionId"]) == (True, version)
    assert types("status")["rejected"] >= 1

    chosen = ("--prefix", key, "--reason")
    assert types("retry", key, "--dry-run")["redriven"]["matched"] == 1
    assert types("retry", *chosen, "no such reason", "--yes")["redriven"]["moved"] == 0
    moved = types("retry", *chosen, "NOT WHAT ITS NAME SAYS", "--yes")["redriven"]
    assert (moved["moved"], moved["failed"]) == (1, [])

    def again() -> bool:
        now = catalogue.ledger_row(key)
        return now["status"] == "REJECTED" and now.get("redrive_count") == 1

    catalogue.aws.wait_until(again, "the second round is rejected too", timeout=TIMEOUT)


@pytest.mark.failure_mode("F175")
@pytest.mark.failure_mode("F176")
def test_a_rejected_file_is_dismissed_and_tried_again(
    catalogue: Catalogue, types: Types, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both change the lists. While a redrive runs, a second one names its holder and moves nothing."""
    key = "models/cli-dismissed/service-2.json.gz"
    catalogue.put(key, b"\x1f\x8bno gzip at all")
    catalogue.rejected("cli-dismissed")

    def listed(*options: str) -> bool:
        return any(row["key"] == key for row in types("list", *options)["rows"])

    catalogue.aws.wait_until(lambda: listed("--status", "REJECTED"), "it is rejected", timeout=TIMEOUT)
    dismissed = types("dismiss", key, "--because", "a test file", "--yes")
    assert (dismissed["rows"], dismissed["messages"]) == (1, 1)
    assert (listed("--status", "REJECTED"), listed("--status", "dismissed")) == (False, True)

    call = Call(stack=STACK[1], pipeline=STACK[3])
    aws, deployed = call.open()
    lines = catalogue.aws.records(deployed.consumer_function)
    told = [(one["what"], one.get("result")) for one in lines if one.get("message") == "operation"]
    assert (f"dismiss {key}", "1 row, 1 dead-letter message") in told
    with redrive_lock(aws, deployed, "another operator"):
        assert commands.run(["retry", key, "--yes", *STACK]) == 1
        assert "by another operator on" in capsys.readouterr().err
    assert types("retry", key, "--yes")["reopened"] == 1
    catalogue.aws.wait_until(lambda: listed("--status", "REJECTED"), "it is rejected again", timeout=TIMEOUT)


@pytest.mark.failure_mode("F78")
def test_a_reprocess_runs_once_for_its_id(catalogue: Catalogue, types: Types) -> None:
    """The same call with the same id changes nothing; a new one runs the processor again."""
    key = "models/cli-again/service-2.json.gz"
    version = catalogue.put(key, model("1"))
    catalogue.settled(key, f"v#{version}")

    def served(request: str) -> bool:
        return catalogue.ledger_row(key).get("served_reprocess_id") == request

    first = types("retry", "--again", key, "--yes")["requestId"]
    catalogue.aws.wait_until(lambda: served(first), "the request is served", timeout=TIMEOUT)
    assert len(catalogue.effects(key)) == 2

    assert types("retry", "--again", key, "--id", first, "--yes")["again"]["sent"] == 1
    catalogue.drained()
    assert len(catalogue.effects(key)) == 2

    second = types("retry", "--again", "--prefix", "models/cli-again/", "--yes")
    assert second["again"]["sent"] == 1
    catalogue.aws.wait_until(lambda: served(second["requestId"]), "so is the prefix's", timeout=TIMEOUT)
    assert len(catalogue.effects(key)) == 3


def test_an_audit_by_hand_leaves_the_report_that_is_shown(catalogue: Catalogue, types: Types) -> None:
    """A dry run leaves none: the last report stays that of the last real run."""
    report = catalogue.audit()

    assert types("audit", "--last")["runId"] == report["runId"]
    looked = types("audit")
    assert (looked["dryRun"], looked["checked"] >= report["checked"]) == (True, True)
    assert types("audit", "--last")["runId"] == report["runId"]
    assert types("status")["audit"]["last"]["runId"] == report["runId"]


@pytest.mark.failure_mode("F192")
def test_status_knows_that_the_pipeline_is_deployed(types: Types, capsys: pytest.CaptureFixture[str]) -> None:
    """Its functions have the pipeline's tag. Retained resources alone do not make a deployed pipeline."""
    assert types("status")["pipeline"]
    assert commands.run(["status", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["pipelines"]
    assert all(one["deployed"] for one in listed if one["stacks"] == [STACK[1]])
    assert any(one["stacks"] == [STACK[1]] for one in listed)


def test_a_person_at_a_shell_sees_how_it_stands(catalogue: Catalogue) -> None:
    """The command as it is installed, with nothing but the environment of every AWS tool."""
    code = "import sys; from intake_ledger_cli import main; sys.argv[0] = 'intake-ledger'; main()"
    ran = subprocess.run(
        [sys.executable, "-c", code, "status", "--all", *STACK],
        env=catalogue.aws.environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert catalogue.bucket in ran.stdout
    assert "takes messages" in ran.stdout
