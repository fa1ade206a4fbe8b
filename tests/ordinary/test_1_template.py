"""The stack of app.py: the five parts of a default pipeline, and a snapshot of the whole template."""

import pytest
from app import Billing as BillingStack
from aws_cdk import App
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.json import JSONSnapshotExtension

from cdk_intake_ledger.testing import logical_ids, stable_template
from tests.synth.build import Json, only, resources, template_of


@pytest.fixture(scope="module")
def stack() -> BillingStack:
    return BillingStack(App(builtin_cloud_formation_validation=False), "Billing")


@pytest.fixture(scope="module")
def template(stack: BillingStack) -> Json:
    return template_of(stack)


def test_the_bucket_keeps_versions(template: Json) -> None:
    bucket = only(template, "AWS::S3::Bucket", "Invoices")
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}


def test_the_queue_has_a_dead_letter_queue(template: Json) -> None:
    """Failed messages go there after the last receive, and rejected ones at once, with their reason."""
    queues = resources(template, "AWS::SQS::Queue", "Invoices")
    assert len(queues) == 2
    [(target, receives)] = [
        (policy["deadLetterTargetArn"]["Fn::GetAtt"][0], policy["maxReceiveCount"])
        for queue in queues.values()
        if (policy := queue["Properties"].get("RedrivePolicy"))
    ]
    assert target in queues
    assert receives > 1


def test_the_ledger_is_a_table_with_a_time_to_live(template: Json) -> None:
    table = only(template, "AWS::DynamoDB::Table", "Invoices")
    assert table["TimeToLiveSpecification"] == {"AttributeName": "expires_at", "Enabled": True}
    assert table["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"] is True


def test_the_consumer_reads_the_queue_and_returns_single_messages(template: Json) -> None:
    mapping = only(template, "AWS::Lambda::EventSourceMapping", "Invoices")
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["FunctionName"]["Ref"].startswith("InvoicesConsumer")


def test_the_audit_has_a_schedule(template: Json) -> None:
    schedule = only(template, "AWS::Scheduler::Schedule", "Invoices")
    assert schedule["ScheduleExpression"] == "rate(15 minutes)"
    assert schedule["Target"]["Arn"]["Fn::GetAtt"][0].startswith("InvoicesAudit")


def test_bucket_and_tables_are_not_replaced(stack: BillingStack) -> None:
    """With another logical ID, CloudFormation makes a new, empty one."""
    assert logical_ids(stack, "AWS::S3::Bucket", "AWS::DynamoDB::Table") == {
        "AWS::DynamoDB::Table": ["InvoicesLedgerTableD07A2DA1", "Totals8BD25B11"],
        "AWS::S3::Bucket": ["InvoicesBucketB61C805D"],
    }


def test_the_template_is_the_one_that_was_looked_at(stack: BillingStack, snapshot: SnapshotAssertion) -> None:
    """Each change of the default template is visible. `pytest tests/ordinary --snapshot-update` accepts it."""
    assert stable_template(stack) == snapshot(extension_class=JSONSnapshotExtension)
