"""Records the deployed tests: a plugin of pytest that keeps the templates, and the reader of all that was recorded.

`make deployed` records, at no cost that can be measured, and `make truth` reads. The requests are written by
`hook/sitecustomize.py`, the templates and the names of their resources by this module.
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

import pytest

from cdk_intake_ledger.testing import LocalAws
from tests.local import cloudformation
from tests.truth.hook.sitecustomize import REQUESTS

RECORDED = REQUESTS.parent
STACKS = RECORDED / "stacks"
COMPLETE = RECORDED / "complete"
Json = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """A request of botocore: who made it, and how it ended."""

    function: str
    command: str
    callers: list[str]
    service: str
    operation: str
    parameters: Json
    status: int
    error: str


@dataclass(frozen=True)
class Deployed:
    """A template, and the physical ID of each of its resources."""

    name: str
    template: Json
    ids: dict[str, str]


def requests() -> Iterator[Request]:
    """All recorded requests. A process that was killed may have left half of a line."""
    for path in sorted(REQUESTS.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                yield Request(**json.loads(line))
            except ValueError:
                continue


@cache
def deployed() -> list[Deployed]:
    """All recorded deployments, in their order."""
    return [Deployed(**json.loads(path.read_text())) for path in sorted(STACKS.glob("*.json"))]


def pytest_configure(config: pytest.Config) -> None:
    """Record from here on."""
    del config
    shutil.rmtree(RECORDED, ignore_errors=True)
    REQUESTS.mkdir(parents=True)
    STACKS.mkdir()
    numbers = count(1)
    deploy = LocalAws.deploy

    def kept(aws: LocalAws, app: str, *stacks: str, **options: Any) -> Any:
        outputs = deploy(aws, app, *stacks, **options)
        _keep(aws, next(numbers))
        return outputs

    LocalAws.deploy = kept  # type: ignore[assignment,method-assign] # for all tests of this process
    put = cloudformation.deploy

    def put_and_kept(aws: LocalAws, what: Any, stack: str, template: Json, assets: Any) -> dict[str, str]:
        outputs = put(aws, what, stack, template, assets)
        _write(aws, next(numbers), stack, template)
        return outputs

    cloudformation.deploy = put_and_kept


def pytest_sessionfinish(exitstatus: int) -> None:
    """Half of a recording is none."""
    if not exitstatus:
        COMPLETE.touch()


def _keep(aws: LocalAws, number: int) -> None:
    assembly = max(aws.directory.glob("cdk.out.*"), key=lambda path: path.stat().st_mtime_ns)
    for path in sorted(assembly.rglob("manifest.json")):
        for name, artifact in json.loads(path.read_text()).get("artifacts", {}).items():
            if artifact["type"] == "aws:cloudformation:stack":
                template = json.loads((path.parent / artifact["properties"]["templateFile"]).read_text())
                _write(aws, number, artifact["properties"].get("stackName", name), template)


def _write(aws: LocalAws, number: int, stack: str, template: Json) -> None:
    client = aws.client("cloudformation")
    try:
        found = client.describe_stack_resources(StackName=stack)["StackResources"]
    except client.exceptions.ClientError:
        return  # synthesized, and not deployed
    ids = {one["LogicalResourceId"]: one["PhysicalResourceId"] for one in found}
    (STACKS / f"{number:03}.{stack}.json").write_text(json.dumps({"name": stack, "template": template, "ids": ids}))
