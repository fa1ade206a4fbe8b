"""The page that a reviewer reads before anyone may deploy is the template."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger import AuditOptions, AuditScale, Delivery, Engine, IntakePipeline
from tests.synth.build import Json, new_stack, processor, template_of, template_with

ALARM = "AWS::CloudWatch::Alarm"
PAGE = Path(__file__).parents[2] / "docs" / "template.md"


def types(template: Json) -> dict[str, str]:
    """The types of resources by their logical ids, less what CDK adds."""
    return {
        # The page of the alarms has a line for each.
        "OrdersMonitoring" if resource["Type"] == ALARM else re.sub("[0-9A-F]{8}$", "", name): resource["Type"]
        for name, resource in template["Resources"].items()
    }


def test_every_resource_is_on_the_page() -> None:
    """Each once, with a reason, and nothing that is not there any more."""
    deployed = sorted((type_, name) for name, type_ in types(template_with()).items())
    rows = re.findall(r"^\| `(AWS::[\w:]+)` \| `(\w+)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert sorted((type_, name) for type_, name, _ in rows) == deployed


def theirs(stack: Stack) -> s3.IBucket:
    return s3.Bucket.from_bucket_name(stack, "Theirs", "theirs")


@pytest.mark.parametrize(
    ("option", "options"),
    [
        ("`delivery=EVENTBRIDGE`", lambda _: {"delivery": Delivery.EVENTBRIDGE}),
        (
            "`audit=AuditOptions(report_bucket=...)` or `report_prefix`",
            lambda stack: {"audit": AuditOptions(report_bucket=theirs(stack))},
        ),
        (
            "`audit=AuditOptions(scale=AuditScale.shards())` or `.inventory(...)`",
            lambda _: {"audit": AuditOptions(scale=AuditScale.shards())},
        ),
        (
            "`scale=AuditScale.shards(engine=ATHENA)` or `.inventory(..., engine=ATHENA)`",
            lambda _: {"audit": AuditOptions(scale=AuditScale.shards(engine=Engine.ATHENA))},
        ),
    ],
)
def test_what_an_option_adds_is_on_the_page(option: str, options: Callable[[Stack], dict[str, Any]]) -> None:
    """Each resource is named in the option's row, and no other."""
    stack = new_stack()
    IntakePipeline(stack, "Orders", processor=processor(), **options(stack))
    ours = {name for name in types(template_of(stack)) if name.startswith(("Orders", "IntakeLedger"))}
    added = ours - set(types(template_with()))
    [row] = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {option} | ")]
    assert set(re.findall(r"`((?:Orders|IntakeLedger)\w+)`", row)) == added
