"""uv reads nothing of pip's configuration. Each setting that decides on wheels or the network is translated."""

import base64
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread

import pytest

from cdk_intake_ledger.bundling import WheelError, install, parse_requirements
from tests.inside.constructs import pip_settings, uv_settings
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


@pytest.mark.failure_mode("F420")
def test_the_index_is_the_one_of_pip(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of uv counts only if pip has no index."""
    monkeypatch.setenv("PIP_INDEX_URL", index.public)
    monkeypatch.setenv("UV_INDEX", index.private)
    assert rules_in(refused("one==1.1")) == ["wheel-missing"]
    assert versions("one==1.0") == ["one-1.0"]
    monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.delenv("UV_INDEX")
    # Settings of the app's own project, such as the release of uv, never count.
    monkeypatch.chdir(tmp_path)
    Path("uv.toml").write_text('required-version = "<0.1"\n')
    monkeypatch.setenv("UV_DEFAULT_INDEX", index.private)
    assert versions("one==1.1") == ["one-1.1"]


def test_of_several_indexes_each_version_counts(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default of uv is the first index that has the name."""
    monkeypatch.setenv("PIP_INDEX_URL", index.private)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", index.public)
    assert versions("one==1.0") == ["one-1.0"]
    assert versions("two==1.0") == ["one-1.1", "two-1.0"]


@pytest.mark.failure_mode("F420")
def test_an_index_in_the_file_replaces_those_of_the_settings(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a public index could answer for a private name. The address may contain a variable."""
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", index.private)
    monkeypatch.setenv("HOST_OF_INDEX", index.host)
    lines = ("--index-url http://${HOST_OF_INDEX}/public/simple", "one==1.1")
    assert rules_in(refused(*lines)) == ["wheel-missing"]
    assert versions(lines[0], f"--extra-index-url {index.private}", lines[1]) == ["one-1.1"]


def test_folders_of_wheels_and_no_index(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders are relative to the working directory. Missing ones are ignored, as in pip."""
    monkeypatch.chdir(index.folder)
    monkeypatch.setenv("PIP_INDEX_URL", index.private)
    monkeypatch.setenv("PIP_NO_INDEX", "true")
    monkeypatch.setenv("PIP_FIND_LINKS", f"public missing {index.private}/two/")
    assert rules_in(refused("one==1.1")) == ["wheel-missing"]
    assert versions("one==1.0", "two==1.0") == ["one-1.0", "two-1.0"]
    monkeypatch.setenv("PIP_NO_INDEX", "false")
    assert versions("one==1.1") == ["one-1.1"]


def test_credentials_are_taken_from_netrc(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a password never is in a message."""
    monkeypatch.setenv("PIP_INDEX_URL", index.private.replace("team:secret", "team:wrong-one"))
    problem = refused("one==1.1")
    assert rules_in(problem) == ["index-unreachable"]
    assert "wrong-one" not in problem
    monkeypatch.setenv("PIP_INDEX_URL", index.private.replace("team:secret@", ""))
    Path(os.environ["HOME"]).mkdir()
    netrc = Path(os.environ["HOME"], ".netrc")
    netrc.write_text("machine 127.0.0.1 login team password secret\n")
    netrc.chmod(0o600)
    assert versions("one==1.1") == ["one-1.1"]


def test_constraints_hold_for_what_is_not_pinned(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several files, relative to the working directory."""
    monkeypatch.chdir(index.folder)
    Path("first.txt").write_text("other<2\n")
    Path("second.txt").write_text("one<1.1\n")
    monkeypatch.setenv("PIP_INDEX_URL", index.private)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", index.public)
    monkeypatch.setenv("PIP_CONSTRAINT", "first.txt second.txt")
    assert versions("two==1.0") == ["one-1.0", "two-1.0"]


@pytest.mark.parametrize(("name", "value"), [("PIP_REQUIRE_HASHES", "1"), ("PIP_TIMEOUT", "soon")])
def test_a_setting_that_is_not_met_is_named(
    index: Index, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """Missing hashes and a wrong time are errors."""
    monkeypatch.setenv("PIP_INDEX_URL", index.public)
    monkeypatch.setenv(name, value)
    assert re.search("`--require-hashes` mode|UV_HTTP_TIMEOUT", refused("one==1.0"))


def test_a_proxy_is_used(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host of the index is known to the proxy only."""
    monkeypatch.setenv("PIP_INDEX_URL", "http://packages.invalid/public/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    assert rules_in(refused("one==1.0")) == ["index-unreachable"]
    monkeypatch.setenv("PIP_PROXY", f"http://{index.host}")
    assert versions("one==1.0") == ["one-1.0"]
    assert "http://packages.invalid/public/simple/one/" in index.seen


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("PIP_CERT", "own.pem", ("SSL_CERT_FILE", "own.pem")),
        ("REQUESTS_CA_BUNDLE", "own.pem", ("SSL_CERT_FILE", "own.pem")),
        ("PIP_CLIENT_CERT", "client.pem", ("SSL_CLIENT_CERT", "client.pem")),
        ("PIP_DEFAULT_TIMEOUT", "2.5", ("UV_HTTP_TIMEOUT", "3")),
        ("PIP_RETRIES", "7", ("UV_HTTP_RETRIES", "7")),
        ("PIP_TRUSTED_HOST", "a.example:8443 b.example", ("--allow-insecure-host", "b.example")),
        ("PIP_KEYRING_PROVIDER", "import", ("UV_KEYRING_PROVIDER", "subprocess")),
        ("PIP_PRE", "1", ("--prerelease=allow", "--no-config")),
        ("PIP_UPLOADED_PRIOR_TO", "2026-01-01", ("UV_EXCLUDE_NEWER", "2026-01-01")),
    ],
)
def test_settings_that_need_another_network(
    index: Index, monkeypatch: pytest.MonkeyPatch, name: str, value: str, expected: tuple[str, str]
) -> None:
    """Under uv's names, which uv accepts."""
    for variable in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(index.folder)
    monkeypatch.setenv(name, value)
    arguments, environment = uv_settings([("find-links", str(index.folder / "public"))])
    given = [*pairwise(arguments), *environment.items()]
    path = str(index.folder / expected[1])
    assert expected in given or (expected[0], path) in given


CONFIGURED = {
    "machine": {"global": {"index-url": "http://machine", "timeout": "1", "retries": "1", "cert": "machine.pem"}},
    "legacy": {"global": {"index-url": "http://legacy", "proxy": "legacy"}},
    "user": {"global": {"Index_Url": "http://user", "extra-index-url": "\n  http://a\n  http://b"}},
    "site": {"install": {"timeout": "2"}, "global": {"timeout": "3", "retries": ""}, "list": {"cert": "none.pem"}},
    "chosen": {"global": {"index-url": "http://chosen", "constraint": "c.txt"}},
}


@pytest.mark.failure_mode("F420")
@pytest.mark.parametrize("chosen", [False, True])
def test_the_files_are_read_as_pip_reads_them(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: bool
) -> None:
    """Each place, with its precedence: pip itself is asked."""
    home = Path(os.environ["HOME"])
    places = {
        "machine": Path(os.environ["XDG_CONFIG_DIRS"], "pip"),
        "legacy": home / ".pip",
        "user": Path(os.environ["XDG_CONFIG_HOME"], "pip"),
        "chosen": tmp_path / "chosen",
        "site": tmp_path / "site",
    }
    for place, sections in CONFIGURED.items():
        places[place].mkdir(parents=True)
        lines = [f"[{name}]\n" + "".join(f"{k} = {v}\n" for k, v in keys.items()) for name, keys in sections.items()]
        (places[place] / "pip.conf").write_text("".join(lines))
    monkeypatch.delenv("PIP_CONFIG_FILE")
    if chosen:
        monkeypatch.setenv("PIP_CONFIG_FILE", str(places["chosen"] / "pip.conf"))
    monkeypatch.setenv("PIP_CERT", "variable.pem")
    monkeypatch.setattr(sys, "prefix", str(places["site"]))
    told = subprocess.run(
        [sys.executable, "-c", ASK_PIP, str(places["site"])], check=True, capture_output=True, text=True
    )
    assert told.stdout.splitlines() == [f"{name}={value!r}" for name, value in sorted(pip_settings().items())]


ASK_PIP = """
import sys
from pip._internal.cli.parser import ConfigOptionParser
sys.prefix = sys.argv[1]
parser = ConfigOptionParser(name="install", isolated=False)
parser.config.load()
found = {name.removeprefix("--"): value.strip() for name, value in parser._get_ordered_configuration_items()}
found.pop("config-file", None)
print(*(f"{name}={value!r}" for name, value in sorted(found.items())), sep="\\n")
"""


def test_a_file_that_cannot_be_read_is_named(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the wheels could come from another index."""
    (tmp_path / "pip.conf").write_text("index-url = http://example.org\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    problem = refused("one==1.0")
    assert str(tmp_path / "pip.conf") in problem
    assert rules_in(problem) == ["pip-settings"]
