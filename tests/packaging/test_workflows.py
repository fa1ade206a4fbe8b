"""Workflows, issue templates and pre-commit: valid YAML, commands that exist, actions that cannot change."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.packaging.test_links import ROOT, unknown_targets

WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))
TEMPLATES = sorted(path for path in ROOT.glob(".github/ISSUE_TEMPLATE/*.yml") if path.stem != "config")
FILES = [*WORKFLOWS, *sorted(ROOT.glob(".github/ISSUE_TEMPLATE/*.yml")), ROOT / ".pre-commit-config.yaml"]


def values(node: Any, name: str) -> Iterator[Any]:
    """Values of this name, at any depth."""
    if isinstance(node, dict):
        yield from ([node[name]] if name in node else [])
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from values(item, name)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_file_is_yaml_with_commands_of_the_makefile(path: Path) -> None:
    """A workflow runs on another machine, so that a wrong name would be seen late."""
    content = yaml.safe_load(path.read_text())
    assert isinstance(content, dict)
    commands = [command for name in ("run", "entry") for command in values(content, name)]
    targets = [target for command in commands for target in re.findall(r"\bmake ([^\n;&|]+)", command)]
    assert not unknown_targets((target.split()[0], tuple(re.findall(r"(\w+)=", target))) for target in targets)
    for command in commands:
        assert not command.startswith(".venv/") or command.split()[0] in {".venv/bin/ruff", ".venv/bin/mypy"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_each_action_is_pinned_by_its_commit(path: Path) -> None:
    """A tag can be moved to other code. The comment says which version the commit is."""
    used = re.findall(r"uses: (.+)", path.read_text())
    assert used
    assert [
        action for action in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)
    ] == []


def test_nothing_is_published_that_was_not_tested() -> None:
    """The wheel is built once. Its tests and its publication take that file."""
    jobs = yaml.safe_load((ROOT / ".github/workflows/wheel.yml").read_text())["jobs"]
    assert (jobs["test"]["needs"], jobs["publish"]["needs"]) == ("build", "test")
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    for name in ("test", "publish"):
        assert any("download-artifact" in action for action in values(jobs[name], "uses"))
    tested = jobs["test"]["strategy"]["matrix"]
    least = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert (f">={tested['python'][0]}", tested["node"]) == (least, ["20", "22", "24"])


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_has_what_github_asks_for(path: Path) -> None:
    """GitHub leaves out a form with a part that it does not know."""
    form = yaml.safe_load(path.read_text())
    assert {"name", "description", "body"} <= form.keys()
    for part in form["body"]:
        assert part["type"] in {"markdown", "textarea", "input", "dropdown", "checkboxes"}
        assert part["type"] == "markdown" or ("id" in part and "label" in part["attributes"])


@pytest.mark.parametrize("version", ["3.12", "3.13", "3.14"])
def test_each_python_of_the_matrix_reads_the_sources(version: str) -> None:
    """The GitHub matrix runs all tests. This machine may lack a Python, and the skip says so."""
    matrix = yaml.safe_load((ROOT / ".github/workflows/wheel.yml").read_text())["jobs"]["test"]["strategy"]["matrix"]
    assert version in matrix["python"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]
    parse = (
        "import ast, pathlib, sys\n"
        f"assert sys.version.startswith('{version}.')\n"
        "for root in sys.argv[1:]:\n"
        "    for path in pathlib.Path(root).rglob('*.py'):\n"
        "        ast.parse(path.read_text(encoding='utf-8'), str(path))\n"
    )
    python = sys.executable if sys.version.startswith(f"{version}.") else f"python{version}"
    roots = [str(ROOT / name) for name in ("lambda_src", "constructs", "tools")]
    try:
        subprocess.run([python, "-c", "pass"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"Python {version} is not on this machine; the matrix of .github/workflows/wheel.yml runs it")
    done = subprocess.run([python, "-W", "error", "-c", parse, *roots], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
