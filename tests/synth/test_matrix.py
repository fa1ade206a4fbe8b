"""Each row of the matrix: the delivery, the resources that the pipeline makes, and the warnings."""

from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import App, Stack, Token

from cdk_intake_ledger.checks.reporting import WARNING_PREFIX
from cdk_intake_ledger.testing import logical_ids
from tests.synth import matrix as rows
from tests.synth.build import Json, resources, rules_in, template_of, warnings
from tests.synth.conftest import Matrix
from tests.synth.message_stack import message_intakes

PARTS = {
    "AWS::S3::Bucket": "Bucket195ECF73",
    "AWS::SQS::Queue": "QueueMessagesC89A072B",
    "AWS::DynamoDB::Table": "LedgerTableBA0CFD3B",
    "AWS::Logs::LogGroup": "ConsumerLogsB9A568AF",
}
"""Resources of a pipeline and their logical ids, which must not change. An existing resource replaces each."""

BUCKETS = {
    "own_bucket": "S3",
    "unversioned_bucket": "S3",
    "two_pipelines_on_a_bucket": "S3",
    "sibling_bucket": "EventBridge",
    "nested_beside_its_bucket": "EventBridge",
    "everything": "EventBridge",
    "imported_bucket": "CDK",
    "bucket_with_notifications": "CDK",
    "existing_delivery": "nothing",
}
"""Rows with an existing bucket, and the delivery of its events."""

EXISTING_RESOURCES = {
    "AWS::S3::Bucket": set(BUCKETS),
    "AWS::SQS::Queue": {"own_queue", "sibling_queue", "imported_queue", "existing_delivery", "everything"},
    "AWS::DynamoDB::Table": {"own_table", "imported_table", "shared_ledger", "everything"},
    "AWS::Logs::LogGroup": {"own_log_group", "everything"},
}

WARNINGS = {
    "everything": ["network-without-endpoints"],
    "in_a_vpc": ["network-without-endpoints"],
    "unversioned_bucket": ["bucket-not-versioned"],
    "imported_bucket": ["bucket-versioning-unknown", "bucket-lifecycle-unknown"],
    "existing_delivery": ["bucket-versioning-unknown", "bucket-lifecycle-unknown", "existing-delivery-unknown"],
    "imported_key": ["key-policy-unknown", "key-policy-unknown"],
    "imported_queue": ["queue-policy-unknown"],
    "imported_table": ["table-unknown"],
    "file_sets": ["network-without-endpoints", *["set-rows-expire"] * 3],
    "outputs": ["output-lifecycle-unknown"],
    "state_machine": ["set-rows-expire"],
    "durable_function": ["set-rows-expire"],
}
"""The rules whose warnings synthesis prints for a row. It prints none for the other rows."""

Row = Callable[[App], Stack]
ORDERS = [row for row in rows.ROWS if row not in (rows.example, message_intakes)]
"""The example's pipeline has another name; `test_pipeline.py` looks at it. `test_messages.py` looks at messages."""


def named(row: Row) -> str:
    return row.__name__


@pytest.fixture(params=ORDERS, ids=named)
def row(request: pytest.FixtureRequest) -> str:
    return str(request.param.__name__)


def delivery_of(template: Json) -> str:
    """The delivery of events, from the resources in the template."""
    if resources(template, "AWS::Events::Rule", "OrdersDelivery"):
        return "EventBridge"
    if resources(template, "Custom::S3BucketNotifications"):
        return "CDK"
    entries: list[Any] = [
        entry
        for bucket in resources(template, "AWS::S3::Bucket").values()
        for entry in bucket["Properties"].get("NotificationConfiguration", {}).get("QueueConfigurations", ())
    ]
    return "S3" if entries else "nothing"


def test_a_row_synthesises(matrix: Matrix, row: str) -> None:
    """The template has no cycle, and the consumer has an event source."""
    template = template_of(matrix.stacks[row])
    (source,) = resources(template, "AWS::Lambda::EventSourceMapping", "OrdersConsumer").values()
    assert source["Properties"]["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert delivery_of(template) == BUCKETS.get(row, "S3")


def test_what_is_existing_is_not_made_again(matrix: Matrix, row: str) -> None:
    """Other resources are made under their usual logical ids."""
    ids = logical_ids(matrix.stacks[row], *PARTS)
    is_new = {type_: f"Orders{name}" in ids.get(type_, ()) for type_, name in PARTS.items()}
    assert is_new == {type_: row not in EXISTING_RESOURCES[type_] for type_ in PARTS}


def test_what_cannot_be_checked_is_said(matrix: Matrix, row: str) -> None:
    """Only imported resources cause warnings."""
    ours = [text for text in warnings(matrix.stacks[row]) if f"[ack: {WARNING_PREFIX}:" in text]
    assert [rule for text in ours for rule in rules_in(text)] == WARNINGS.get(row, [])


def test_nothing_is_bound_to_a_region(matrix: Matrix) -> None:
    """Without an environment, account and region are references. An environment changes nothing else."""
    agnostic, fixed = (matrix.stacks[name] for name in ("default", "fixed_environment"))
    assert Token.is_unresolved(agnostic.region)
    assert (fixed.region, fixed.account) == (rows.FIXED.region, rows.FIXED.account)
    templates = [template_of(stack) for stack in (agnostic, fixed)]
    assert str(rows.FIXED.region) not in str(templates[0])
    assert str(rows.FIXED.account) not in str(templates[0])
    kinds = [[(name, resource["Type"]) for name, resource in template["Resources"].items()] for template in templates]
    assert kinds[0] == kinds[1]


def test_each_stage_has_a_pipeline_of_its_own(matrix: Matrix) -> None:
    """Two stages of a CDK pipeline have the same stack class and id, and their deployments share nothing."""
    stacks = [
        construct
        for construct in matrix.app.node.find_all()
        if isinstance(construct, Stack) and construct.node.id == "Intake"
    ]
    names = [
        next(iter(resources(template_of(stack), "AWS::Lambda::Function", "OrdersConsumer").values()))["Properties"][
            "Environment"
        ]["Variables"]["INTAKE_PIPELINE_NAME"]
        for stack in stacks
    ]
    assert len(set(names)) == len(names) == 2
