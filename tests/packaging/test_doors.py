"""Tests import names from the doors of the packages. Only the modules of `tests/inside` import from behind a door.

So a module can move to another place, and at most one module of `tests/inside` changes.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {
    "cdk_intake_ledger": ROOT / "constructs",
    "intake_ledger": ROOT / "lambda_src",
    "intake_ledger_cli": ROOT / "tools",
    "intake_ledger_testing": ROOT / "tools",
}
PUBLIC = ("intake_ledger.once", "intake_ledger.outputs.sql", "intake_ledger.contract")
"""Modules that users import, and the one whose data all packages share."""
DOTTED = re.compile(rf"(?<![\w.])(?:{'|'.join(SOURCES)})(?:\.\w+)+")
PATH = re.compile(rf"\b(?:{'|'.join(SOURCES)})(?:/\w+)+\.(?:py|sql)\b")


def behind_doors(source: str) -> Iterator[str]:
    """Modules behind a door that a text imports or names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                yield from hidden(f"{node.module}.{alias.name}")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield from hidden(alias.name)
        elif isinstance(node, ast.Attribute):
            yield from hidden(ast.unparse(node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for found in DOTTED.findall(node.value):
                yield from hidden(found)
            yield from filter(is_hidden_file, PATH.findall(node.value))


def hidden(dotted: str) -> Iterator[str]:
    """The module behind a door that a dotted name leads to, if any."""
    parts = dotted.split(".")
    for number in range(2, len(parts) + 1):
        module = ".".join(parts[:number])
        door = ".".join(parts[: number - 1])
        if parts[0] not in SOURCES or not is_module(module) or parts[number - 1] in shown(door):
            return
        if not is_door(module):
            yield module
            return


def is_hidden_file(path: str) -> bool:
    return not path.endswith("__init__.py") and (SOURCES[path.partition("/")[0]] / path).is_file()


def file_of(module: str) -> Path:
    """The file of a module, or the folder of a package."""
    return SOURCES[module.partition(".")[0]].joinpath(*module.split("."))


def is_module(module: str) -> bool:
    return file_of(module).with_suffix(".py").is_file() or (file_of(module) / "__init__.py").is_file()


def is_door(module: str) -> bool:
    """True for packages below the root, and for the modules of users."""
    return module in PUBLIC or (module.count(".") == 1 and (file_of(module) / "__init__.py").is_file())


@cache
def shown(door: str) -> frozenset[str]:
    """The names in the `__all__` of a door."""
    tree = ast.parse((file_of(door) / "__init__.py").read_text())
    lists = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and any(isinstance(one, ast.Name) and one.id == "__all__" for one in node.targets)
    ]
    return frozenset(name for one in lists for name in ast.literal_eval(one))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from intake_ledger.audit.diff import judge", ["intake_ledger.audit.diff"]),
        ("from intake_ledger.audit import diff", ["intake_ledger.audit.diff"]),
        ("from intake_ledger_cli.act import redrive", ["intake_ledger_cli.act.redrive"]),
        ("import intake_ledger.garbage as garbage", ["intake_ledger.garbage"]),
        ("import cdk_intake_ledger\ncdk_intake_ledger.pipeline_checks.CHECKS", ["cdk_intake_ledger.pipeline_checks"]),
        ("patch.setattr('intake_ledger.audit.look.PAUSES', ())", ["intake_ledger.audit.look"]),
        ("f'import sys, intake_ledger.consumer.composition; {1}'", ["intake_ledger.consumer.composition"]),
        ("ROOT / 'tools/intake_ledger_cli/show/status_table.py'", ["intake_ledger_cli/show/status_table.py"]),
        ("from intake_ledger.ledger import Ledger", []),
        ("from intake_ledger.executions import decide", []),
        ("from intake_ledger import protocol, once", []),
        ("import intake_ledger.once\npatch.setattr('intake_ledger.once.ledger_client', None)", []),
        ("from intake_ledger.outputs.sql import schema", []),
        ("from cdk_intake_ledger.testing import LocalPipeline", []),
        ("'intake_ledger.consumer.handler'", []),
        ("'intake_ledger/__init__.py'", []),
    ],
)
def test_what_is_behind_a_door(source: str, found: list[str]) -> None:
    """Imports, attributes, and dotted names and paths in texts. A door is a package, or a module of users."""
    assert sorted(set(behind_doors(source))) == found


def test_tests_stay_before_the_doors() -> None:
    """Import the name from its package, or from a module of `tests/inside`, and add it there if needed."""
    tests = ROOT / "tests"
    wrong = [
        f"{path.relative_to(ROOT)} reaches into {module}"
        for path in sorted(tests.rglob("*.py"))
        if path != Path(__file__) and tests / "inside" not in path.parents
        for module in sorted(set(behind_doors(path.read_text())))
    ]
    assert wrong == []


@pytest.mark.failure_mode("F746")
def test_an_app_needs_no_boto3() -> None:
    """A machine that synthesizes may have none. The runtime's modules that the constructs import send no request."""
    program = """
        import importlib, pkgutil, sys
        sys.modules.update(boto3=None, botocore=None)
        import cdk_intake_ledger as door
        for one in pkgutil.walk_packages(door.__path__, door.__name__ + "."):
            importlib.import_module(one.name)
    """
    ended = subprocess.run([sys.executable, "-c", dedent(program)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
