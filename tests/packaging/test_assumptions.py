"""The page of assumptions: each line has a place in the code, a source, and a test that exists."""

import ast
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from scripts import assumptions_page

ROOT = Path(__file__).parents[2]
TABLE = tomllib.loads(assumptions_page.TABLE.read_text())
ROWS = TABLE["assumption"]


def is_defined(place: str) -> bool:
    """True if a module has a definition of a name. Both are in the place, with a colon between them."""
    module, _, name = place.partition(":")
    for root in ("lambda_src", "constructs", "tools"):
        path = ROOT.joinpath(root, *module.split("."))
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return has(ast.parse(file.read_text()).body, [part for part in name.split(".") if part])
    return False


def has(body: Iterable[ast.stmt], names: list[str]) -> bool:
    """True if the statements define the first name, and its body the others."""
    if not names:
        return True
    found = [node for node in body if names[0] in defined_by(node)]
    return bool(found) and has(getattr(found[0], "body", []), names[1:])


def defined_by(node: ast.stmt) -> list[str]:
    """The names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets: list[Any] = [*getattr(node, "targets", []), getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def is_test(here: str) -> bool:
    """True if a file has a test of this name."""
    path, _, name = here.partition("#")
    return re.search(rf"^ *def {name}\(", (ROOT / path).read_text(), re.MULTILINE) is not None


def test_the_page_is_generated() -> None:
    assert assumptions_page.PAGE.read_text() == assumptions_page.page(), "python -m scripts.assumptions_page --write"


def test_the_tests_of_the_suite_name_lines_that_exist() -> None:
    shown = assumptions_page.suite()
    assert len(shown) > 25
    assert set(shown) <= {row["id"] for row in ROWS}


CASE = (
    """<testcase name="{name}">{end}<properties><property name="assumptions" value="{ids}"/></properties></testcase>"""
)


def report(*cases: str, local: str = "False") -> ET.Element:
    about = f'<properties><property name="local" value="{local}"/></properties>'
    suite = f'<testsuite timestamp="2027-01-15T08:00:00+00:00">{about}{"".join(cases)}</testsuite>'
    return ET.fromstring(f"<testsuites>{suite}</testsuites>")


def test_only_a_run_on_aws_becomes_a_result() -> None:
    """A test that was skipped there leaves the line as it is."""
    cases = [
        CASE.format(name="one", ids="A-1 A-2", end=""),
        CASE.format(name="two", ids="A-2", end="<failure/>"),
        CASE.format(name="three", ids="A-3", end="<skipped/>"),
    ]
    found = {"A-1": "passed 2027-01-15", "A-2": "failed 2027-01-15"}
    assert assumptions_page.results(report(*cases)) == found
    assert assumptions_page.results(report(*reversed(cases))) == found
    with pytest.raises(ValueError, match="of a local AWS"):
        assumptions_page.results(report(local="True"))


def test_each_line_has_its_own_number() -> None:
    ids = [row["id"] for row in ROWS]
    assert len(ids) == len(set(ids))
    assert len(ids) > 80
    assert {row["source"] for row in ROWS} == set(TABLE["sources"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_place_and_test_of_a_line_exist(row: dict[str, Any]) -> None:
    """An assumption without a check is "read"."""
    assert row["places"]
    assert [place for place in row["places"] if not is_defined(place)] == []
    assert row["here"] == "read" or is_test(row["here"])
    assert row["result"].startswith(("holds", "only on AWS"))
    assert row["here"] != "read" or row["result"] == "only on AWS"


def test_a_place_that_has_moved_is_noticed() -> None:
    module, _, name = ROWS[0]["places"][0].partition(":")
    assert is_defined(f"{module}:{name}")
    assert not is_defined(f"{module}:{name}s")
    assert not is_defined(f"{module}s:{name}")
    assert not is_test("tests/packaging/test_assumptions.py#test_nothing")
