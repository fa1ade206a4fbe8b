"""The page of assumptions: each line has a place in the code, a source, and a test that exists."""

import ast
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from scripts import assumptions_page

from tests.inside.acceptance import CHECKS

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


def test_the_checks_of_the_acceptance_command_are_on_its_page_and_name_lines_that_exist() -> None:
    assert assumptions_page.ACCEPTANCE.read_text() == assumptions_page.acceptance()
    checked = {id_: check.name for check in CHECKS for id_ in check.assumptions}
    assert set(checked) <= {row["id"] for row in ROWS}
    lines = {line.split("|")[1].strip(): line for line in assumptions_page.page().splitlines() if line.startswith("| ")}
    assert [id_ for id_, name in checked.items() if f"[`{name}`](acceptance.md#checks)" not in lines[id_]] == []


def test_only_a_run_on_aws_becomes_a_result() -> None:
    """A check that was not run there leaves the line as it is."""
    outcomes = [{"name": "one", "result": "passed"}, {"name": "two", "result": "not here"}]
    report = {"local": False, "startedAt": 1_800_000_000_000, "outcomes": outcomes}
    assert assumptions_page.results(report) == {"one": "passed 2027-01-15"}
    with pytest.raises(ValueError, match="of a local AWS"):
        assumptions_page.results(report | {"local": True})


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
