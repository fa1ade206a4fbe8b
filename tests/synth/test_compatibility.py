"""The oldest supported releases of dependencies. All other tests use the newest ones."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, Lowest
from tests.synth.build import Json
from tests.synth.conftest import Matrix

STATEFUL = {"AWS::S3::Bucket", "AWS::DynamoDB::Table", "AWS::SQS::Queue", "AWS::Logs::LogGroup", "AWS::KMS::Key"}

CDKS_OWN = "NotificationsHandler"
"""Part of the logical ids of CDK's handler, whose policy has moved between these releases."""


@pytest.fixture(scope="module")
def pairs(matrix: Matrix, lowest: Lowest | None) -> dict[str, tuple[Json, Json]]:
    """Resources of the oldest and of the newest CDK, by the template's name."""
    if lowest is None:
        pytest.fail("the oldest CDK has an environment of its own: make build/lowest/.ready")
    folders = (lowest.templates(), matrix.directory)
    names = [{path.relative_to(folder) for path in folder.rglob("*.template.json")} for folder in folders]
    assert names[0] == names[1]
    read = [{str(name): json.loads((folder / name).read_text()) for name in names[0]} for folder in folders]
    return {name: (read[0][name].get("Resources", {}), read[1][name].get("Resources", {})) for name in read[0]}


@pytest.mark.thorough
def test_the_oldest_cdk_makes_the_same_resources(pairs: dict[str, tuple[Json, Json]]) -> None:
    """Logical ids and types are the same in each row."""
    for name, templates in pairs.items():
        old, new = (
            {id_: resource["Type"] for id_, resource in version.items() if CDKS_OWN not in id_} for version in templates
        )
        assert old == new, name


@pytest.mark.thorough
def test_an_update_of_the_cdk_replaces_nothing_that_holds_data(pairs: dict[str, tuple[Json, Json]]) -> None:
    """No property of these resources differs, and the templates have some of each type."""
    seen = set()
    for name, (old, new) in pairs.items():
        for id_, resource in old.items():
            if resource["Type"] in STATEFUL:
                assert new[id_] == resource, f"{name}: {id_}"
                seen.add(resource["Type"])
    assert seen == STATEFUL


def test_the_oldest_is_what_the_package_says() -> None:
    """The environment has the lower bounds of the dependencies."""
    project: Any = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds = dict(re.match(r"([\w-]+)>=([\d.]+)", requirement).groups() for requirement in project["dependencies"])  # type: ignore[union-attr,misc]
    pinned = (ROOT / "scripts" / "lowest-requirements.txt").read_text()
    pins = dict(re.findall(r"^([\w-]+)==([\d.]+)(?: |$)", pinned, re.MULTILINE))
    for name, bound in bounds.items():
        assert pins[name].startswith(bound), name
    assert Path(ROOT / "Makefile").read_text().count("build/lowest") == 1
