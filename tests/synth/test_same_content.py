"""Copies in place: the setting, the permission, and what synthesis refuses."""

from typing import Any

import pytest
from aws_cdk import Duration
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_stepfunctions as sfn

from cdk_intake_ledger import IntakePipeline, Ordering, Processor, SameContent
from tests.synth.build import new_stack, processor, refused, statements, template_of, variables

MONTH = SameContent(hold=Duration.days(30))


@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize(
    ("same_content", "known"),
    [
        (MONTH, "[2592000, null]"),
        (SameContent(hold=Duration.hours(1), metadata="sha256"), '[3600, "sha256"]'),
        (None, None),
    ],
)
def test_the_functions_know_it_and_may_ask_whether_the_table_was_restored(
    same_content: SameContent | None,
    known: str | None,
    deletes: bool,
) -> None:
    stack = new_stack()
    IntakePipeline(stack, "Orders", processor=processor(), same_content=same_content, deletes=deletes)
    template = template_of(stack)
    for path in ("OrdersConsumer", "OrdersAudit"):
        assert variables(template, path).get("INTAKE_SAME_CONTENT") == known
    of_table = [
        one["Action"] for one in statements(template, "OrdersConsumer") if "dynamodb:UpdateItem" in one["Action"]
    ]
    assert [one.count("dynamodb:DescribeTable") for one in of_table] == [int(deletes or same_content is not None)]


@pytest.mark.parametrize(
    ("options", "rule", "text"),
    [
        ({"same_content": SameContent(hold=Duration.millis(9))}, "same-content", "shorter than a second"),
        ({"same_content": SameContent(hold=Duration.days(1), metadata="X-Y")}, "same-content", "'X-Y'"),
        ({"same_content": MONTH, "ordering": Ordering.EVERY_VERSION}, "same-content-every-version", "EVERY_VERSION"),
    ],
)
def test_what_cannot_know_copies_is_refused(options: dict[str, Any], rule: str, text: str) -> None:
    with refused(rule, text):
        IntakePipeline(new_stack(), "Orders", processor=processor(), **options)


def test_a_bucket_without_versions_is_refused() -> None:
    stack = new_stack()
    with refused("same-content-needs-versions", "Theirs keeps no versions"):
        IntakePipeline(stack, "Orders", processor=processor(), bucket=s3.Bucket(stack, "Theirs"), same_content=MONTH)


def test_executions_are_refused() -> None:
    stack = new_stack()
    machine = sfn.StateMachine(
        stack,
        "Work",
        definition_body=sfn.DefinitionBody.from_chainable(sfn.Pass(stack, "Pass")),
        timeout=Duration.hours(1),
    )
    elsewhere = Processor.from_state_machine(machine, timeout=Duration.hours(1), longest_task=Duration.minutes(10))
    with refused("same-content-executions", "executions do the work"):
        IntakePipeline(stack, "Orders", processor=elsewhere, same_content=MONTH)
