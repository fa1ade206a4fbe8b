"""uv reads nothing of pip's configuration. Its indexes are handed over, and what has no equal is refused."""

import base64
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from cdk_intake_ledger.bundling.wheels import WheelError, _uv_settings, install, parse_requirements
from tests.synth.build import rules_in
from tests.wheel_maker import WheelFolder, write_simple_index

CREDENTIALS = "Basic " + base64.b64encode(b"team:secret").decode()


class Handler(SimpleHTTPRequestHandler):
    """A package index with the pages of PEP 503, which needs a password for `/private`, and which is a proxy too."""

    seen: list[str]

    def do_GET(self) -> None:
        self.seen.append(self.path)
        self.path = self.path.removeprefix("http://packages.invalid")
        if self.path.startswith("/private") and self.headers.get("Authorization") != CREDENTIALS:
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        super().do_GET()

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


class Index:
    """Indexes below one address: `/public` with `one` 1.0, and `/private` with `one` 1.1 and `two` 1.0."""

    def __init__(self, folder: Path, server: ThreadingHTTPServer) -> None:
        self.folder = folder
        self.host = f"127.0.0.1:{server.server_port}"
        self.public = f"http://{self.host}/public/simple"
        self.private = f"http://team:secret@{self.host}/private/simple"
        self.seen: list[str] = []
        Handler.seen = self.seen


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    folder = tmp_path_factory.mktemp("served")
    for name, wheels in {"public": ("one-1.0",), "private": ("one-1.1", "two-1.0")}.items():
        (folder / name).mkdir()
        for wheel in wheels:
            distribution, version = wheel.split("-")
            WheelFolder(folder / name).add(distribution, version, requires=["one"] if distribution == "two" else [])
        write_simple_index(folder / name)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield Index(folder, server)
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def index(served: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """The index, with no settings of this machine: an empty home, no variables, empty caches."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_")) or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "UV_CACHE_DIR", "CDK_INTAKE_LEDGER_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    served.seen.clear()
    return served


def versions(*lines: str) -> list[str]:
    """Install these lines, and return the distributions with their versions."""
    folder = install(parse_requirements(lines), python="3.13", architecture="arm64")
    return sorted(path.name.removesuffix(".dist-info") for path in folder.glob("*.dist-info"))


def refused(*lines: str) -> str:
    with pytest.raises(WheelError) as caught:
        versions(*lines)
    (problem,) = caught.value.problems
    return problem


@pytest.mark.thorough
@pytest.mark.failure_mode("F420")
def test_the_index_is_the_one_of_pip(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of uv counts only if pip has no index."""
    monkeypatch.setenv("PIP_INDEX_URL", index.public)
    monkeypatch.setenv("UV_INDEX", index.private)
    assert rules_in(refused("one==1.1")) == ["wheels-missing"]
    assert versions("one==1.0") == ["one-1.0"]
    monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.delenv("UV_INDEX")
    # Settings of the app's own project, such as the release of uv, never count.
    monkeypatch.chdir(tmp_path)
    Path("uv.toml").write_text('required-version = "<0.1"\n')
    monkeypatch.setenv("UV_DEFAULT_INDEX", index.private)
    assert versions("one==1.1") == ["one-1.1"]


@pytest.mark.thorough
def test_of_several_indexes_each_version_counts(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default of uv is the first index that has the name."""
    monkeypatch.setenv("PIP_INDEX_URL", index.private)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", index.public)
    assert versions("one==1.0") == ["one-1.0"]
    assert versions("two==1.0") == ["one-1.1", "two-1.0"]


@pytest.mark.thorough
@pytest.mark.failure_mode("F420")
def test_an_index_in_the_file_replaces_those_of_the_settings(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a public index could answer for a private name. The address may contain a variable."""
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", index.private)
    monkeypatch.setenv("HOST_OF_INDEX", index.host)
    lines = ("--index-url http://${HOST_OF_INDEX}/public/simple", "one==1.1")
    assert rules_in(refused(*lines)) == ["wheels-missing"]
    assert versions(lines[0], f"--extra-index-url {index.private}", lines[1]) == ["one-1.1"]


@pytest.mark.thorough
def test_folders_of_wheels_and_no_index(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders are relative to the working directory. Missing ones are ignored, as in pip."""
    monkeypatch.chdir(index.folder)
    monkeypatch.setenv("PIP_INDEX_URL", index.private)
    monkeypatch.setenv("PIP_NO_INDEX", "true")
    monkeypatch.setenv("PIP_FIND_LINKS", f"public missing {index.private}/two/")
    assert rules_in(refused("one==1.1")) == ["wheels-missing"]
    assert versions("one==1.0", "two==1.0") == ["one-1.0", "two-1.0"]
    monkeypatch.setenv("PIP_NO_INDEX", "false")
    assert versions("one==1.1") == ["one-1.1"]


@pytest.mark.thorough
def test_credentials_are_taken_from_netrc(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a password never is in a message."""
    monkeypatch.setenv("PIP_INDEX_URL", index.private.replace("team:secret", "team:wrong-one"))
    problem = refused("one==1.1")
    assert rules_in(problem) == ["wheels-missing"]
    assert "wrong-one" not in problem
    monkeypatch.setenv("PIP_INDEX_URL", index.private.replace("team:secret@", ""))
    Path(os.environ["HOME"]).mkdir()
    netrc = Path(os.environ["HOME"], ".netrc")
    netrc.write_text("machine 127.0.0.1 login team password secret\n")
    netrc.chmod(0o600)
    assert versions("one==1.1") == ["one-1.1"]


@pytest.mark.thorough
def test_constraints_hold_for_what_is_not_pinned(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several files, relative to the working directory."""
    monkeypatch.chdir(index.folder)
    Path("first.txt").write_text("other<2\n")
    Path("second.txt").write_text("one<1.1\n")
    monkeypatch.setenv("PIP_INDEX_URL", index.private)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", index.public)
    monkeypatch.setenv("PIP_CONSTRAINT", "first.txt second.txt")
    assert versions("two==1.0") == ["one-1.0", "two-1.0"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "value", "variable"),
    [
        ("PIP_REQUIRE_HASHES", "1", "UV_REQUIRE_HASHES"),
        ("PIP_KEYRING_PROVIDER", "import", "UV_KEYRING_PROVIDER"),
        ("PIP_PRE", "1", "UV_PRERELEASE"),
        ("PIP_UPLOADED_PRIOR_TO", "2026-01-01", "UV_EXCLUDE_NEWER"),
    ],
)
def test_a_setting_without_an_equal_is_refused_with_the_variable_of_uv(
    index: Index, monkeypatch: pytest.MonkeyPatch, name: str, value: str, variable: str
) -> None:
    """Who has set the variable has said it to uv."""
    monkeypatch.setenv("PIP_INDEX_URL", index.public)
    monkeypatch.setenv(name, value)
    problem = refused("one==1.0")
    assert f"Set {variable} too" in problem
    assert rules_in(problem) == ["pip-setting"]
    monkeypatch.setenv(variable, "given")
    assert _uv_settings(parse_requirements([]))[1][variable] == "given"


@pytest.mark.thorough
def test_a_proxy_is_used(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host of the index is known to the proxy only."""
    monkeypatch.setenv("PIP_INDEX_URL", "http://packages.invalid/public/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    assert rules_in(refused("one==1.0")) == ["wheels-missing"]
    monkeypatch.setenv("PIP_PROXY", f"http://{index.host}")
    assert versions("one==1.0") == ["one-1.0"]
    assert "http://packages.invalid/public/simple/one/" in index.seen


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "value", "variable"),
    [
        ("PIP_CERT", "own.pem", "SSL_CERT_FILE"),
        ("REQUESTS_CA_BUNDLE", "own.pem", "SSL_CERT_FILE"),
        ("PIP_CLIENT_CERT", "own.pem", "SSL_CLIENT_CERT"),
        ("PIP_TRUSTED_HOST", "a.example:8443 b.example", "UV_INSECURE_HOST"),
    ],
)
def test_settings_that_need_another_network(
    index: Index, monkeypatch: pytest.MonkeyPatch, name: str, value: str, variable: str
) -> None:
    for other in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.chdir(index.folder)
    Path("own.pem").touch()
    monkeypatch.setenv(name, value)
    _, environment = _uv_settings(parse_requirements([]))
    assert environment[variable] in (value, str(index.folder / value))


@pytest.mark.failure_mode("F420")
@pytest.mark.parametrize("has_pip", [True, False])
def test_a_private_index_in_a_file_of_pip_is_asked_alone(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_pip: bool
) -> None:
    """Without pip nothing reads the file, so the public index is not asked either. A variable of uv does not add it."""
    monkeypatch.delenv("PIP_CONFIG_FILE")
    folder = Path(os.environ["HOME"], ".config", "pip")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder.parent))
    folder.mkdir(parents=True)
    (folder / "pip.conf").write_text(f"[global]\nindex-url = {index.private}\n[install]\ntimeout = 9\n")
    monkeypatch.setenv("UV_INDEX", index.public)
    if has_pip:
        assert versions("two==1.0") == ["one-1.1", "two-1.0"]
        assert rules_in(refused("one==1.0")) == ["wheels-missing"]
        return
    run = subprocess.run

    def without_pip(command: list[str], **options: Any) -> Any:
        return run([sys.executable, "-c", "exit(1)"] if "pip" in command[:3] else command, **options)

    monkeypatch.setattr(subprocess, "run", without_pip)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    problem = refused("two==1.0")
    assert f"{folder / 'pip.conf'}" in problem
    assert rules_in(problem) == ["pip-settings"]


@pytest.mark.thorough
def test_a_file_that_cannot_be_read_is_named(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the wheels could come from another index."""
    (tmp_path / "pip.conf").write_text("index-url = http://example.org\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    problem = refused("one==1.0")
    assert str(tmp_path / "pip.conf") in problem
    assert rules_in(problem) == ["pip-settings"]
