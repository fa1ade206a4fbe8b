"""The options of tests on an account, and the results of checks that a local AWS cannot show. STS is a thread here."""

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from textwrap import dedent
from threading import Thread
from xml.etree import ElementTree as ET

import pytest

from intake_ledger_testing import pytest_plugin

ACCOUNT = "111122223333"
IDENTITY = (
    '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>'
    f"<Arn>arn:aws:iam::{ACCOUNT}:user/a</Arn><UserId>A</UserId><Account>{ACCOUNT}</Account>"
    "</GetCallerIdentityResult></GetCallerIdentityResponse>"
)
PLUGIN = pytest_plugin.__name__
SUITE = str(Path(__file__).parents[2] / "suite")
ASKING = f"""
    from {PLUGIN} import ask

    def pytest_collection_finish(session):
        ask(session.config, "creates a stack")
"""


class Sts(BaseHTTPRequestHandler):
    """Answers each request with the identity of the caller."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(IDENTITY.encode())

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    server = HTTPServer(("127.0.0.1", 0), Sts)
    Thread(target=server.serve_forever, daemon=True).start()
    proxies = {"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "AWS_PROFILE", "PYTEST_ADDOPTS"}
    yield {name: value for name, value in os.environ.items() if name not in proxies} | {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "a",
        "PYTHONPATH": SUITE,
        # Other plugins take most of the time.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    server.shutdown()
    server.server_close()


class Pytest:
    """pytest in a process of its own, in a folder with one module of tests and a conftest."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder, self._environment = folder, environment

    def write(self, test: str, conftest: str = "") -> None:
        (self._folder / "test_one.py").write_text(dedent(test))
        (self._folder / "conftest.py").write_text(dedent(conftest))

    def run(self, *arguments: str, stdin: int = subprocess.DEVNULL) -> tuple[int, str]:
        """Return exit code and output."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", PLUGIN, *arguments]
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=self._environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout


@pytest.fixture
def own(tmp_path: Path, environment: dict[str, str]) -> Pytest:
    made = Pytest(tmp_path, environment)
    made.write("def test_it(): pass")
    return made


@contextmanager
def answering(text: str) -> Iterator[int]:
    """A terminal at which a person has typed an answer."""
    person, terminal = pty.openpty()
    os.write(person, text.encode())
    try:
        yield terminal
    finally:
        os.close(terminal)
        os.close(person)


@pytest.mark.failure_mode("F750")
def test_without_an_account_the_names_of_the_options_are_free(own: Pytest) -> None:
    """Whoever installs the wheel may have such options."""
    own.write(
        "def test_it(request): assert request.config.getoption('--keep') == 'mine'",
        "def pytest_addoption(parser): parser.addoption('--keep'); parser.addoption('--run')",
    )
    assert own.run("--keep", "mine")[0] == 0
    own.write("def test_it(): pass")
    code, said = own.run("--cleanup")
    assert (code, "unrecognized arguments: --cleanup" in said) == (4, True)


@pytest.mark.failure_mode("F751")
def test_credentials_of_another_account_are_refused(own: Pytest) -> None:
    code, said = own.run("--aws-account", "444455556666")
    assert code == 4
    assert f"the credentials are of the account {ACCOUNT}, and not of 444455556666" in said
    assert own.run("--aws-account", ACCOUNT)[0] == 0


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--cleanup", "--keep"), "--cleanup deletes, and --keep does not"),
        (("--run", "mine"), "'mine' is no ID of a run"),
    ],
)
def test_options_that_make_no_sense_are_refused(own: Pytest, options: tuple[str, ...], reason: str) -> None:
    code, said = own.run("--aws-account", ACCOUNT, *options)
    assert code == 4
    assert reason in said


@pytest.mark.failure_mode("F752")
@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 2)])
def test_the_question_reads_the_terminal_although_pytest_captures_input(own: Pytest, answer: str, code: int) -> None:
    own.write("def test_it(): pass", ASKING)
    with answering(answer) as terminal:
        found, said = own.run("--aws-account", ACCOUNT, stdin=terminal)
    assert found == code, said
    assert f"creates a stack ({ACCOUNT}, eu-central-1)" in said


@pytest.mark.failure_mode("F752")
def test_without_a_terminal_nothing_begins_unless_told_so(own: Pytest) -> None:
    own.write("def test_it(): pass", ASKING)
    code, said = own.run("--aws-account", ACCOUNT)
    assert (code, "there is no terminal to ask at: use --yes" in said) == (4, True)
    assert own.run("--aws-account", ACCOUNT, "--yes")[0] == 0


@pytest.mark.failure_mode("F461")
def test_sigterm_runs_the_teardown(own: Pytest, tmp_path: Path) -> None:
    """pytest alone would end at once, and leave the stack."""
    own.write("""
        import os, signal, pytest

        @pytest.fixture(scope="session")
        def stack():
            yield
            open("deleted", "w").close()

        def test_it(stack):
            os.kill(os.getpid(), signal.SIGTERM)

        def test_next(stack):
            open("next", "w").close()
    """)
    code, said = own.run("--aws-account", ACCOUNT)
    assert (code, (tmp_path / "deleted").exists(), (tmp_path / "next").exists()) == (143, True, False), said


CHECKS = """
    import pytest

    @pytest.mark.assumptions("S3-02", "S3-03")
    def test_holds(evidence): evidence("405")

    @pytest.mark.only_on_aws("no policies", steps=True)
    def test_steps(evidence): evidence("ran")

    @pytest.mark.only_on_aws("no policies", steps=True)
    def test_fails(): assert False

    @pytest.mark.only_on_aws("no such request")
    def test_not_at_all(): assert False, "it ran"
"""


def results(own: Pytest, folder: Path, conftest: str = "") -> dict[str, tuple[str, list[str]]]:
    """The result, its message, and the properties of each test, by its name."""
    own.write(CHECKS, f"from intake_ledger_suite.conftest import *\n{dedent(conftest)}")
    own.run("--junitxml=report.xml")
    found = {}
    for case in ET.parse(folder / "report.xml").iter("testcase"):
        told = next((one for one in case if one.tag != "properties"), None)
        properties = [one.attrib["value"] for one in case.iter("property")]
        result = "passed" if told is None else f"{told.tag}: {told.attrib['message'].partition(chr(10))[0]}"
        found[case.attrib["name"]] = (result, properties)
    return found


@pytest.mark.failure_mode("F460")
def test_a_check_that_a_local_aws_cannot_show_is_not_here(own: Pytest, tmp_path: Path) -> None:
    """Its steps run if they can, and fail if they do. The report has assumptions and evidence."""
    assert results(own, tmp_path) == {
        "test_holds": ("passed", ["S3-02 S3-03", "405"]),
        "test_steps": ("skipped: not here: no policies. Its steps ran", ["ran"]),
        "test_fails": ("failure: assert False", []),
        "test_not_at_all": ("skipped: not here: no such request", []),
    }


@pytest.mark.failure_mode("F460")
def test_the_same_checks_pass_or_fail_on_aws(own: Pytest, tmp_path: Path) -> None:
    found = results(
        own,
        tmp_path,
        """
        import intake_ledger_suite.conftest as suite
        suite._is_local = lambda config: False
        """,
    )
    assert {name: result.partition(":")[0] for name, (result, _) in found.items()} == {
        "test_holds": "passed",
        "test_steps": "passed",
        "test_fails": "failure",
        "test_not_at_all": "failure",
    }


def test_a_cleanup_runs_no_test(own: Pytest, tmp_path: Path) -> None:
    own.write(
        "def test_it(): open('ran', 'w').close()",
        """
        from cdk_intake_ledger.testing import AccountAws
        AccountAws.runs = lambda aws: ["0a1b2c3d", "4e5f6a7b"]
        AccountAws.remove = lambda aws, run: open(f"deleted-{run}", "w").close()
        """,
    )
    code, said = own.run("--aws-account", ACCOUNT, "--run", "0a1b2c3d", "--cleanup", "--yes")
    assert (code, [one.name for one in tmp_path.glob("deleted-*")]) == (0, ["deleted-0a1b2c3d"]), said
    assert not (tmp_path / "ran").exists()
