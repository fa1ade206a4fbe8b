"""The app of a new user: an empty folder, the wheel, and the files and commands of docs/getting-started.md."""

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "getting-started.md").read_text()
# A paragraph that begins with a file's name, and the block below it.
FILES = dict(re.findall(r"^`([\w./]+)`(?:(?!\n\n).)*\n\n```\w+\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^ {4}(pytest.*)$", PAGE, re.MULTILINE)


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
    # As pip writes it. Python does not add the current folder to the path of a script.
    script = scripts / "pytest"
    script.write_text(
        f"#!{scripts / Path(sys.executable).name}\nfrom pytest import console_main\nraise SystemExit(console_main())\n"
    )
    script.chmod(0o755)
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
    hidden = ("PYTHON", "PYTEST", "VIRTUAL", "JSII")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
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
        "pytest.ini",
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
        name, *arguments = command.split()
        output = run(python, folder, str(python.with_name(name)), *arguments)
    assert "4 passed" in output
    assert "1 snapshot passed" in output


@pytest.mark.failure_mode("F216")
def test_no_test_prints_the_banner_of_node(python: Path, folder: Path) -> None:
    """jsii prints ten lines about Node.js 20 at each start, unless the plugin of pytest silences them."""
    variables = "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "JSII_SILENCE_WARNING_DEPRECATED_NODE_VERSION"
    test = folder / "tests" / "test_banner.py"
    test.write_text(f"import os\ndef test_node():\n    for one in {variables}: assert '20' in os.environ[one]\n")
    command = str(python.with_name("pytest"))
    assert "1 passed" in run(python, folder, command, "tests/test_banner.py")
    with pytest.raises(AssertionError, match="KeyError"):
        run(python, folder, command, "-p", "no:cdk_intake_ledger", "tests/test_banner.py")
    test.unlink()


@pytest.mark.failure_mode("F217")
def test_an_old_python_is_refused_in_one_line(wheel: Path, tmp_path: Path) -> None:
    """pip looks at `requires-python` before it looks for dependencies."""
    target = ("--target", str(tmp_path), "--python-version", "3.11", "--only-binary", ":all:")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        *target,
        f"{wheel}[local]",
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    (line,) = [one for one in done.stderr.splitlines() if one.startswith("ERROR")]
    assert "requires a different Python: 3.11" in line
    assert "not in '>=3.12'" in line


def test_the_extra_for_this_machine_has_the_versions_that_the_tests_use() -> None:
    """The start page is tested with these releases only. The pin of boto3 fits the pin of ministack."""
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    locked = {one.name: one.specifier for one in map(Requirement, filter(lambda line: "==" in line, lines))}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in map(Requirement, project["optional-dependencies"]["local"]):
        (pin,) = locked[requirement.name]
        assert pin.version in requirement.specifier, requirement
