"""The app of a new user: an empty folder, Python, Node.js, and the files and commands of docs/getting-started.md."""

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import threading
import tomllib
from collections.abc import Iterator, Mapping
from email import message_from_bytes
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import copy, which
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from cdk_intake_ledger.testing import LocalAws
from tests.packaging.test_pins import pins
from tests.wheel_maker import needed, repack, write_simple_index

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "getting-started.md").read_text()
# A paragraph that begins with a file's name, and the block below it.
FILES = dict(re.findall(r"^`([\w./]+)`(?:(?!\n\n).)*\n\n```\w+\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
BLOCKS = [block.replace("    ", "", 1) for block in re.findall(r"(?<=\n\n)(?: {4}\S.*\n)+", PAGE)]
INSTALL, SNAPSHOT, TEST, DEPLOY, OPERATE = BLOCKS
(FROM_CHECKOUT,) = re.findall(r'`(pip install "\.\./[^`]+)`', PAGE)
ACTIVATE = ". .venv/bin/activate"
BANNER = "end-of-life"
NODE = Path(which("node") or "node").parent


@pytest.fixture(scope="module")
def packages(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a package index with the wheel, and the distributions of this environment that it needs."""
    folder = tmp_path_factory.mktemp("index")
    copy(wheel, folder)
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        requires = message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    for installed in needed([*requires, *build], ("local", "cli"), {}).values():
        repack(installed, folder)
    return write_simple_index(folder)


class Registry(SimpleHTTPRequestHandler):
    """A registry of npm that has one package."""

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a registry of npm with the CDK CLI of this checkout."""
    folder = tmp_path_factory.mktemp("registry")
    cli = ROOT / "node_modules" / "aws-cdk"
    with tarfile.open(folder / "aws-cdk.tgz", "w:gz", compresslevel=1) as archive:
        archive.add(cli, "package")
    package = json.loads((cli / "package.json").read_text())
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Registry, directory=str(folder))) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        digest = hashlib.sha1((folder / "aws-cdk.tgz").read_bytes(), usedforsecurity=False).hexdigest()
        package["dist"] = {"tarball": f"{address}/aws-cdk.tgz", "shasum": digest}
        about = {"name": "aws-cdk", "dist-tags": {}, "versions": {package["version"]: package}}
        (folder / "aws-cdk").write_text(json.dumps(about))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield address
        server.shutdown()


class Shell:
    """Runs blocks of the page in the user's folder, with Python, Node.js and the two indexes."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self.folder = folder
        self.variables = dict(variables)

    def failed(self, block: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run commands until a failure, and return their output."""
        return subprocess.run(
            ["bash", "-ec", block],
            cwd=self.folder,
            env=self.variables | variables,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, block: str, **variables: str) -> str:
        """Run commands that do not fail, and return their output."""
        done = self.failed(block, **variables)
        assert done.returncode == 0, done.stdout
        return done.stdout


@pytest.fixture(scope="module")
def shell(packages: str, registry: str, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """The files of the page, and an environment that its commands make."""
    home = tmp_path_factory.mktemp("stranger")
    folder = home / "billing"
    folder.mkdir()
    variables = {
        "PATH": os.pathsep.join([f"{sys.base_prefix}/bin", str(NODE), "/usr/bin", "/bin"]),
        "HOME": str(home),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": packages,
        "PIP_COMPILE": "0",  # half a minute less: most modules of the CDK are never imported
        "npm_config_registry": registry,
        "npm_config_cache": str(home / "npm"),
        "npm_config_audit": "false",
        "npm_config_update_notifier": "false",
    }
    user = Shell(folder, variables)
    user.run(INSTALL)
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return user


def test_the_page_has_every_file() -> None:
    """The pattern finds the files of the page."""
    assert sorted(FILES) == [
        "app.py",
        "cdk.json",
        "processors/invoices/invoices.py",
        "pytest.ini",
        "tests/test_deployed.py",
        "tests/test_invoices.py",
        "tests/test_stack.py",
    ]


@pytest.mark.thorough
def test_both_packages_come_from_the_wheel(shell: Shell) -> None:
    """They do not come from this checkout."""
    for package in ("cdk_intake_ledger", "intake_ledger"):
        output = shell.run(f"{ACTIVATE}; python -c 'import {package}; print({package}.__file__)'")
        assert Path(output.strip()).is_relative_to(shell.folder)


@pytest.mark.thorough
def test_a_stranger_has_a_pipeline_that_is_tested_and_deployed(shell: Shell) -> None:
    """The page's commands in its order: the first writes the snapshot, then all tests pass on a local AWS."""
    written = shell.run(f"{ACTIVATE}\n{SNAPSHOT}")
    assert "1 snapshot generated" in written
    output = shell.run(f"{ACTIVATE}\n{TEST}")
    assert "4 passed" in output
    assert "1 snapshot passed" in output
    assert BANNER not in written + output


@pytest.mark.thorough
def test_a_stranger_deploys_to_an_account_and_operates_the_pipeline(shell: Shell) -> None:
    """The local AWS plays the account."""
    with LocalAws() as aws:
        account = {name: value for name, value in aws.environment.items() if name.startswith(("AWS", "CDK"))}
        # The CLI asks a person to confirm.
        output = shell.run(f"{ACTIVATE}\n{DEPLOY}", **account, CDK_REQUIRE_APPROVAL="never")
        assert "Billing.InvoicesBucket" in output
        assert BANNER not in output
        assert "Billing" in shell.run(f"{ACTIVATE}\n{OPERATE}", **account)


@pytest.mark.thorough
@pytest.mark.failure_mode("F216")
def test_no_test_prints_the_banner_of_node(shell: Shell) -> None:
    """jsii prints ten lines about Node.js 20 at each start, unless the plugin of pytest silences them."""
    variables = "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "JSII_SILENCE_WARNING_DEPRECATED_NODE_VERSION"
    test = shell.folder / "tests" / "test_banner.py"
    test.write_text(f"import os\ndef test_node():\n    for one in {variables}: assert '20' in os.environ[one]\n")
    command = f"{ACTIVATE}; pytest tests/test_banner.py"
    assert "1 passed" in shell.run(command)
    assert "KeyError" in shell.failed(f"{command} -p no:cdk_intake_ledger").stdout
    test.unlink()
    if shell.run("node --version").startswith("v20."):
        assert BANNER in shell.run(f"{ACTIVATE}; python -c 'import constructs'")


@pytest.mark.thorough
@pytest.mark.failure_mode("F217")
def test_an_old_python_is_refused_at_once(shell: Shell) -> None:
    """pip reads `requires-python` in the index. It downloads nothing, and looks for no dependencies."""
    (command,) = re.findall(r"pip install .*", INSTALL)
    old = "--target old --python-version 3.11 --only-binary :all:"
    done = shell.failed(f"{ACTIVATE}; {command} {old} --disable-pip-version-check")
    assert done.returncode == 1
    first, *others = [line for line in done.stdout.splitlines() if not line.startswith("Looking in")]
    assert first.startswith("ERROR: Ignored the following versions that require a different python version: ")
    assert first.endswith(" Requires-Python >=3.12")
    assert all(line.startswith("ERROR: ") for line in others)


@pytest.mark.thorough
def test_a_checkout_can_be_installed_instead(shell: Shell) -> None:
    """pip builds the wheel, with the runtime layer, in an environment that it makes for the build."""
    (shell.folder.parent / "cdk-intake-ledger").symlink_to(ROOT, target_is_directory=True)
    before = shell.run(f"{ACTIVATE}; pip freeze")
    shell.run(f"{ACTIVATE}; {FROM_CHECKOUT}")
    after = shell.run(f"{ACTIVATE}; pip freeze")
    ours = "cdk-intake-ledger @ file://"
    assert (ours in before, ours in after) == (False, True)
    built = shell.folder.glob(".venv/lib/python*/site-packages/cdk_intake_ledger/functions/runtime_layer.zip")
    assert len(list(built)) == (sys.version_info[:2] == (3, 13))


def test_the_extra_for_this_machine_has_the_versions_that_the_tests_use() -> None:
    """The start page is tested with these releases only. The pin of boto3 fits the pin of ministack."""
    locked = pins(ROOT / "requirements.txt")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in map(Requirement, project["optional-dependencies"]["local"]):
        (pin,) = locked[requirement.name][0].specifier
        assert pin.version in requirement.specifier, requirement
