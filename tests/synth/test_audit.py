"""What the audit is told of the delivery, and what it may look at."""

from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger import IntakePipeline, IntakeQueue
from intake_ledger.settings import Delivery, audit_settings
from tests.synth.build import actions, new_app, new_stack, processor, statements, template_of, variables


def test_f46_a_bucket_of_another_stack_is_delivered_from_by_a_rule() -> None:
    """F46: the audit looks at the rule there, and may; elsewhere at the bucket's notifications."""
    app = new_app()
    theirs, ours = new_stack("Theirs", app), new_stack("Ours", app)
    IntakePipeline(ours, "Orders", processor=processor(), bucket=s3.Bucket(theirs, "Bucket", versioned=True))
    template = template_of(ours)
    assert audit_settings(variables(template, "OrdersAudit")).delivery is Delivery.EVENTBRIDGE
    given = {action for one in statements(template, "OrdersAuditRole") for action in actions(one)}
    assert given >= {"events:DescribeRule", "events:ListRuleNamesByTarget", "events:TestEventPattern"}


def test_f46_the_audit_may_see_whether_the_queues_key_is_enabled() -> None:
    """F46: that, and S3's notifications."""
    stack = new_stack()
    queue = IntakeQueue(stack, "Buffer", encryption_key=kms.Key(stack, "Key"))
    IntakePipeline(stack, "Orders", processor=processor(), queue=queue)
    template = template_of(stack)
    assert audit_settings(variables(template, "OrdersAudit")).delivery is Delivery.S3
    given = {action for one in statements(template, "OrdersAuditRole") for action in actions(one)}
    assert given >= {"kms:DescribeKey", "s3:GetBucketNotification"}
    assert not [action for action in given if action.startswith("events:")]
