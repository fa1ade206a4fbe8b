"""Each error of the environment ends a command with its exit code and one line, which names the fix (F178)."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    InvalidRegionError,
    NoCredentialsError,
    NoRegionError,
    SSLError,
    TokenRetrievalError,
)
from botocore.parsers import ResponseParserError

from intake_ledger_cli import commands
from intake_ledger_cli.aws.clients import Aws
from tests.unit.command.support import STACK, FakeCloudFormation, denied, make_site
from tests.unit.command.test_commands import Person, sit  # noqa: F401 - a fixture

pytestmark = pytest.mark.usefixtures("dynamodb")
URL = "https://cloudformation.eu-nowhere-1.amazonaws.com/"
PROGRAM = "from intake_ledger_cli import main; main()"


def client_error(code: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "ListStackResources")


ERRORS: list[tuple[BaseException, int, str]] = [
    (EndpointConnectionError(endpoint_url=URL), 1, "check the network, the region and AWS_ENDPOINT_URL"),
    (ConnectTimeoutError(endpoint_url=URL), 1, "check the network, the region and AWS_ENDPOINT_URL"),
    (
        SSLError(endpoint_url=URL, error=ValueError("wrong version number")),
        1,
        "check the network, the region and AWS_ENDPOINT_URL",
    ),
    (
        ResponseParserError("Unable to parse response (syntax error: line 1), invalid XML received:\nb'<html>'"),
        1,
        "the endpoint did not answer as AWS does: check the network and AWS_ENDPOINT_URL",
    ),
    (InvalidRegionError(region_name="eu nowhere"), 1, "eu nowhere"),
    (NoRegionError(), 1, "use --region, or set AWS_REGION"),
    (NoCredentialsError(), 1, "no AWS credentials: use --profile"),
    (TokenRetrievalError(provider="sso", error_msg="Token has expired"), 1, "Token has expired"),
    (client_error("ExpiredToken", "The security token has expired"), 1, "log in again (aws sso login)"),
    (client_error("InvalidClientTokenId", "The security token is invalid"), 1, "log in again (aws sso login)"),
    (client_error("SignatureDoesNotMatch", "The signature does not match"), 1, "log in again (aws sso login)"),
    (client_error("ValidationError", f"Stack with id {STACK} does not exist"), 1, "check --stack, --region and --prof"),
    (client_error("Throttling", "Rate exceeded"), 1, "ListStackResources failed: Throttling: Rate exceeded"),
    (
        denied("cloudformation:ListStackResources", "ListStackResources"),
        1,
        "allowed: cloudformation:ListStackResources",
    ),
    (OSError(errno.ENOSPC, "No space left on device"), 1, "No space left on device: check disk space and permissions"),
]


@pytest.mark.failure_mode("F178")
@pytest.mark.parametrize(("error", "code", "said"), ERRORS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("output", [(), ("--json",)])
def test_an_error_is_one_line_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    said: str,
    output: tuple[str, ...],
) -> None:
    """Standard output stays empty, so that a program reads no half document."""

    class Failing(FakeCloudFormation):
        def paginate(self, **_: str) -> Any:
            raise error

    monkeypatch.setattr(Aws, "cloudformation", Failing({}))
    assert commands.run(["status", "--stack", STACK, *output]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    [line] = captured.err.splitlines()
    assert line.startswith("intake-ledger: ")
    assert said in line
    assert len(line) < 400


@pytest.mark.failure_mode("F178")
def test_ctrl_c_has_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    class Interrupted(FakeCloudFormation):
        def paginate(self, **_: str) -> Any:
            raise KeyboardInterrupt

    monkeypatch.setattr(Aws, "cloudformation", Interrupted({}))
    assert commands.run(["status", "--stack", STACK]) == 130
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.failure_mode("F178")
@pytest.mark.parametrize("options", [("status",), ("list", "--csv"), ("list", "--json"), ("list",)])
def test_a_full_disk_is_one_line(
    sit: Callable[..., Person],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
) -> None:
    """`/dev/full` refuses each write, as a full disk does."""
    person = sit(make_site())
    person.site.reject("in/a.csv", "no invoice")
    with Path("/dev/full").open("w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert commands.run([*options, "--stack", STACK]) == 1
    assert capsys.readouterr().err == "intake-ledger: No space left on device: check disk space and permissions\n"


@pytest.mark.failure_mode("F178")
def test_a_page_on_a_full_disk_keeps_the_former_one(
    sit: Callable[..., Person],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    person, page = sit(make_site()), tmp_path / "intake.html"
    page.write_text("the former page")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    person.types("audit", "--html", str(page), ends=1)
    [line] = person.complaint.splitlines()
    assert "No space left on device: check disk space and permissions" in line
    assert [path.read_text() for path in tmp_path.iterdir()] == ["the former page"]


def run_process(stdout: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True, check=False
    )


@pytest.mark.failure_mode("F178")
def test_the_process_ends_quietly_if_its_reader_has_ended() -> None:
    """As `intake-ledger --version | true`. Python would report the closed pipe at its end."""
    reader, writer = os.pipe()
    os.close(reader)
    done = run_process(writer, "--version")
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.failure_mode("F178")
def test_the_process_reports_a_full_disk_in_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = run_process(full.fileno(), "--version")
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["intake-ledger: No space left on device: check disk space and permissions"]
