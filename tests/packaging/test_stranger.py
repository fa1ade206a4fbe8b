"""The app of a new user: an empty folder, the wheel, and the files and commands of docs/getting-started.md."""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "getting-started.md").read_text()
# A paragraph that begins with a file's name, and the block below it.
FILES = dict(re.findall(r"^`([\w./]+)`(?:(?!\n\n).)*\n\n```\w+\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^ {4}python (-m pytest.*)$", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel. It uses the dependencies of this environment, without a network."""
    environment = tmp_path_factory.mktemp("stranger") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    paths = {"base": str(environment), "platbase": str(environment)}
    site, scripts = (Path(sysconfig.get_path(name, "venv", paths)) for name in ("purelib", "scripts"))
    offline = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-index", "--ignore-installed")
    target = ("--target", str(site))
    subprocess.run([sys.executable, "-m", "pip", "install", *offline, *target, str(wheel)], check=True)
    # A line of a .pth file comes last on the path. Python reads no .pth files there, so no editable installation.
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return scripts / Path(sys.executable).name


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page."""
    home = tmp_path_factory.mktemp("billing")
    for name, text in FILES.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    return home


def run(python: Path, folder: Path, *arguments: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "VIRTUAL"))}
    # The CDK CLI of this checkout. The page installs it with npm.
    path = os.pathsep.join([str(python.parent), str(ROOT / "node_modules" / ".bin"), os.environ["PATH"]])
    done = subprocess.run(
        [str(python), *arguments], cwd=folder, env=clean | {"PATH": path}, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_has_every_file() -> None:
    """The pattern finds the files of the page."""
    assert sorted(FILES) == [
        "app.py",
        "cdk.json",
        "processors/invoices/invoices.py",
        "tests/test_deployed.py",
        "tests/test_invoices.py",
        "tests/test_stack.py",
    ]
    assert len(COMMANDS) == 2


def test_both_packages_come_from_the_wheel(python: Path, folder: Path) -> None:
    """It does not come from this checkout."""
    for package in ("cdk_intake_ledger", "intake_ledger"):
        output = run(python, folder, "-c", f"import {package}; print({package}.__file__)")
        assert Path(output.strip()).is_relative_to(python.parents[1])


def test_a_stranger_has_a_pipeline_that_is_tested_and_deployed(python: Path, folder: Path) -> None:
    """The page's commands in its order: the first writes the snapshot, then all tests pass on a local AWS."""
    for command in COMMANDS:
        output = run(python, folder, *command.split())
    assert "4 passed" in output
    assert "1 snapshot passed" in output
