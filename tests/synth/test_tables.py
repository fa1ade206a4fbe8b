"""An existing table as the ledger."""

from typing import Any

import pytest
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms

from cdk_intake_ledger import IntakeLedger, IntakePipeline
from tests.synth.build import new_stack, processor, refused, resources, statements, template_of, warned, warnings

TEXT, NUMBER = dynamodb.AttributeType.STRING, dynamodb.AttributeType.NUMBER


def own_table(stack: Any, *, pk: str = "pk", index: str | None = "needs_review", **options: Any) -> dynamodb.Table:
    """An existing table. Options make it unfit."""
    fitting: dict[str, Any] = {
        "partition_key": dynamodb.Attribute(name=pk, type=TEXT),
        "sort_key": dynamodb.Attribute(name="sk", type=TEXT),
        "time_to_live_attribute": "expires_at",
    }
    table = dynamodb.Table(stack, "Own", **(fitting | options))
    if index:
        table.add_global_secondary_index(
            index_name=index,
            partition_key=dynamodb.Attribute(name="needs_review", type=TEXT),
            sort_key=dynamodb.Attribute(name="updated_at", type=NUMBER),
        )
    return table


def test_an_own_table_is_the_ledger() -> None:
    """The pipeline creates no table. Functions and readers get permissions on the existing table and its key."""
    stack = new_stack()
    table = own_table(
        stack,
        encryption=dynamodb.TableEncryption.CUSTOMER_MANAGED,
        encryption_key=kms.Key(stack, "Key"),
    )
    pipeline = IntakePipeline(stack, "Orders", processor=processor(), ledger=IntakeLedger(stack, "Ledger", table=table))
    pipeline.grant_read_ledger(iam.Role(stack, "Reader", assumed_by=iam.AccountRootPrincipal()))
    template = template_of(stack)
    assert pipeline.table is table
    (name,) = resources(template, "AWS::DynamoDB::Table")
    for path in ("OrdersConsumer", "OrdersAuditRole", "Reader"):
        found = list(statements(template, path))
        assert {"Fn::GetAtt": [name, "Arn"]} in [one for s in found for one in _listed(s["Resource"])]
        assert "kms:Decrypt" in str(found)
    assert not warnings(stack)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


@pytest.mark.failure_mode("F09")
@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"pk": "id"}, "table-keys"),
        ({"sort_key": None}, "table-keys"),
        ({"sort_key": dynamodb.Attribute(name="sk", type=NUMBER)}, "table-key-types"),
        ({"time_to_live_attribute": None}, "table-time-to-live"),
        ({"time_to_live_attribute": "ttl"}, "table-time-to-live"),
        ({"index": None}, "table-index"),
        ({"index": "other"}, "table-index"),
    ],
)
def test_a_table_that_is_no_ledger_is_refused(options: dict[str, Any], rule: str) -> None:
    """With another time to live, rows would never expire, or always. With other keys, rows would not be found."""
    stack = new_stack()
    ledger = IntakeLedger(stack, "Ledger", table=own_table(stack, **options))
    with refused(rule):
        IntakePipeline(stack, "Orders", processor=processor(), ledger=ledger)
        template_of(stack)


def test_what_an_imported_table_must_be_is_said() -> None:
    """Synthesis cannot see its keys, so a warning names them."""
    stack = new_stack()
    table = dynamodb.Table.from_table_name(stack, "Theirs", "ledger")
    IntakePipeline(stack, "Orders", processor=processor(), ledger=IntakeLedger(stack, "Ledger", table=table))
    template = template_of(stack)
    assert not resources(template, "AWS::DynamoDB::Table")
    assert ["time to live by expires_at" in text for text in warned(stack, "table-unknown")] == [True]


def test_the_key_of_a_table_that_is_there_belongs_to_it() -> None:
    """An option without effect is an error."""
    stack = new_stack()
    ledger = IntakeLedger(stack, "Ledger", table=own_table(stack), encryption_key=kms.Key(stack, "Key"))
    with refused("key-of-existing-table", "encryption_key is set for an existing table"):
        IntakePipeline(stack, "Orders", processor=processor(), ledger=ledger)
