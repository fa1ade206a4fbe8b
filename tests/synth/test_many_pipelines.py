"""Many pipelines in one stack: shared layers, and the recipe with nested stacks."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from constructs import IConstruct, Node

from cdk_intake_ledger import (
    AuditOptions,
    AuditScale,
    IntakeLedger,
    IntakePipeline,
    MessageIntake,
    MessageSource,
    MonitoringOptions,
)
from tests.settings import THOROUGH
from tests.synth.build import new_app, new_stack, processor, resources, template_of
from tests.synth.test_existing_delivery import ALL, Owned
from tests.synth.test_recipes import INTRODUCTION, recipe, snippets

NAME = "A hundred pipelines in one stack"
PAGE = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text()
MAX_RESOURCES, MAX_BYTES = 500, 1_000_000
"""https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html"""
TEAMS, GROUP = 100, 10


@pytest.mark.failure_mode("F224")
def test_all_functions_of_a_stack_share_one_layer() -> None:
    """Pipelines and intakes of messages. Pipelines whose audit runs in parts share DuckDB too."""
    stack = new_stack()
    for name in ("Orders", "Returns"):
        audit = AuditOptions(scale=AuditScale.shards())
        IntakePipeline(stack, name, processor=processor(), audit=audit)
    MessageIntake(stack, "Events", source=MessageSource.sqs(), key="k", identity="i", processor=processor())
    template = template_of(stack)
    runtime, duckdb = sorted(resources(template, "AWS::Lambda::LayerVersion"), reverse=True)
    assert runtime.startswith("IntakeLedgerRuntime")
    assert duckdb.startswith("IntakeLedgerDuckDB")
    used = [
        layer["Ref"]
        for function in resources(template, "AWS::Lambda::Function").values()
        for layer in function["Properties"].get("Layers", [])
    ]
    assert set(used) == {runtime, duckdb}
    assert used.count(runtime) == 7


def test_the_checks_of_an_app_read_its_tree_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one reading for each intake, the time grows with the square of their number."""
    owned, find_all, reads = Owned(), Node.find_all, list[str]()
    stack = owned.stack
    outputs = s3.Bucket(stack, "Outputs")

    def reading(node: Node, *order: Any) -> list[IConstruct]:
        reads.append(node.path)
        return find_all(node, *order)

    for number in range(3):
        IntakePipeline(stack, f"Orders{number}", processor=processor()).grant_output(outputs, f"out/{number}/")
        source = MessageSource.sqs()
        MessageIntake(stack, f"Events{number}", source=source, key="k", identity="i", processor=processor())
    owned.notify(*ALL)
    monkeypatch.setattr(Node, "find_all", reading)
    owned.pipeline()
    assert reads.count("") == 1


def test_a_pipeline_that_is_renamed_or_removed_leaves_the_layer_of_the_others() -> None:
    """The logical ID does not depend on the pipeline that makes it."""

    def layer(*names: str) -> set[str]:
        stack = new_stack()
        for name in names:
            IntakePipeline(stack, name, processor=processor())
        return set(resources(template_of(stack), "AWS::Lambda::LayerVersion"))

    assert layer("Orders") == layer("Returns", "Orders")


@pytest.mark.thorough
@pytest.mark.failure_mode("F224")
def test_the_recipe_for_a_hundred_pipelines_stays_within_cloudformations_limits(tmp_path: Path) -> None:
    """The nested stacks differ in names only, so a quick run takes two of the ten."""
    count = TEAMS if THOROUGH else 2 * GROUP
    app = new_app(outdir=str(tmp_path))
    stack = new_stack("Stack", app)
    names: dict[str, Any] = {"self": stack, "teams": [f"team-{number:03}" for number in range(count)]}
    exec(snippets(INTRODUCTION) + recipe(NAME), names)
    app.synth()
    nested = {path.name: path.read_text() for path in tmp_path.glob("*.nested.template.json")}
    assert len(nested) == count / GROUP
    sizes = {name: len(json.loads(text)["Resources"]) for name, text in nested.items()}
    # 22 of each pipeline and its rule, and the layer.
    assert set(sizes.values()) == {GROUP * 23 + 1}
    assert max(sizes.values()) <= MAX_RESOURCES
    assert max(map(len, nested.values())) <= MAX_BYTES
    parent = json.loads((tmp_path / "Stack.template.json").read_text())["Resources"]
    of_parent = len(parent) - len(nested)
    assert of_parent + TEAMS / GROUP <= MAX_RESOURCES


def lean(stack: Stack, *, alarms: list[str]) -> Callable[[str], IntakePipeline]:
    """Pipelines on resources of the stack."""
    bucket = s3.Bucket(stack, "Bucket", versioned=True)
    ledger = IntakeLedger(stack, "Ledger")
    monitoring = MonitoringOptions(alarms=alarms, log_group=logs.LogGroup(stack, "Log"))
    return lambda name: IntakePipeline(
        stack,
        name,
        bucket=bucket,
        ledger=ledger,
        monitoring=monitoring,
        filters=[s3.NotificationKeyFilter(prefix=f"{name}/")],
        processor=processor(),
    )


MAKERS: list[Callable[[Stack], Callable[[str], IntakePipeline]]] = [
    lambda stack: lambda name: IntakePipeline(stack, name, processor=processor()),
    lambda stack: lean(stack, alarms=["AuditMissing", "DeadLetters", "OldestMessage"]),
    lambda stack: lean(stack, alarms=[]),
]
ROWS = re.findall(r"^\| (?:with|the same).*? \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)


def test_the_recipe_has_a_row_for_each_choice() -> None:
    assert len(ROWS) == len(MAKERS)


@pytest.mark.parametrize(("make", "row"), list(zip(MAKERS, ROWS, strict=False)))
def test_each_row_of_the_recipe_is_right(
    make: Callable[[Stack], Callable[[str], IntakePipeline]], row: tuple[str, str]
) -> None:
    """Each pipeline adds the same number of resources, and the rest belongs to the stack."""
    each, fit = map(int, row)
    stack = new_stack()
    add = make(stack)
    for name in ("First", "Second"):
        add(name)
    ids = list(template_of(stack)["Resources"])
    first, second = (sum(id_.startswith(name) for id_ in ids) for name in ("First", "Second"))
    assert (first, second) == (each, each)
    assert (MAX_RESOURCES - (len(ids) - first - second)) // each == fit


def test_cdk_refuses_a_stack_with_too_many_resources_and_names_their_types() -> None:
    """So the library needs no check of its own. The limit is lower here, to make fewer pipelines."""
    stack = new_stack(app=new_app(context={"@aws-cdk/core:stackResourceLimit": 35}))
    IntakePipeline(stack, "Orders", processor=processor())
    with pytest.raises(RuntimeError, match=r"greater than allowed maximum of 35.*AWS::CloudWatch::Alarm \(\d+\)"):
        template_of(stack)
