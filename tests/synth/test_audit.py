"""Delivery settings in the environment of the audit, and its permissions."""

import json
from typing import Any

import pytest
from aws_cdk import Duration, NestedStack, Stack, Stage
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs

from cdk_intake_ledger import (
    AuditOptions,
    Existing,
    IntakePipeline,
    IntakeQueue,
)
from intake_ledger.delivery_check.deployed import Deployed
from intake_ledger.protocol.settings_audit import Delivery, Reports, audit_settings
from tests.synth.build import (
    actions,
    new_app,
    new_stack,
    only,
    processor,
    refused,
    resources,
    statements,
    template_of,
    template_with,
    variables,
)


@pytest.mark.failure_mode("F46")
def test_a_bucket_of_another_stack_is_delivered_from_by_a_rule() -> None:
    """The audit looks at the rule there, and may; elsewhere at the bucket's notifications."""
    app = new_app()
    theirs, ours = new_stack("Theirs", app), new_stack("Ours", app)
    IntakePipeline(ours, "Orders", processor=processor(), bucket=s3.Bucket(theirs, "Bucket", versioned=True))
    template = template_of(ours)
    assert audit_settings(variables(template, "OrdersAudit")).delivery is Delivery.EVENTBRIDGE
    given = {action for one in statements(template, "OrdersAuditRole") for action in actions(one)}
    assert given >= {
        "events:DescribeRule", "events:ListRuleNamesByTarget", "events:ListTargetsByRule", "events:TestEventPattern",
    }  # fmt: skip


@pytest.mark.failure_mode("F46")
def test_the_audit_may_see_whether_the_queues_key_can_be_used() -> None:
    """Its state, its policy, and S3's notifications."""
    stack = new_stack()
    queue = IntakeQueue(stack, "Buffer", encryption_key=kms.Key(stack, "Key"))
    IntakePipeline(stack, "Orders", processor=processor(), queue=queue)
    template = template_of(stack)
    assert audit_settings(variables(template, "OrdersAudit")).delivery is Delivery.S3
    given = {action for one in statements(template, "OrdersAuditRole") for action in actions(one)}
    assert given >= {"kms:DescribeKey", "kms:GetKeyPolicy", "s3:GetBucketNotification"}
    assert not [action for action in given if action.startswith("events:")]


class TestReports:
    """A report of each run, where the team wants it."""

    @pytest.mark.parametrize(
        ("options", "key"),
        [
            ({}, "/audit/StackOrders*"),
            ({"report_prefix": ""}, "/StackOrders*"),
            ({"report_prefix": "intake?/$"}, "/intake${?}/${$}StackOrders*"),
        ],
    )
    def test_the_audit_may_write_them_and_nothing_beside(self, options: dict[str, Any], key: str) -> None:
        """One action, on the keys of this pipeline's reports alone."""
        stack = new_stack()
        bucket = s3.Bucket(stack, "Reports", encryption_key=kms.Key(stack, "Key"))
        pipeline = IntakePipeline(
            stack, "Orders", processor=processor(), audit=AuditOptions(report_bucket=bucket, **options)
        )
        template = template_of(stack)
        (writing,) = [one for one in statements(template, "OrdersAuditRole") if actions(one) == ["s3:PutObject"]]
        (reports,) = resources(template, "AWS::S3::Bucket", "Reports")
        expected = key.replace("StackOrders", f"{pipeline.name}/")
        assert writing["Resource"] == {"Fn::Join": ["", [{"Fn::GetAtt": [reports, "Arn"]}, expected]]}
        assert ["kms:GenerateDataKey"] in [actions(one) for one in statements(template, "OrdersAuditRole")]
        told = audit_settings(variables(template, "OrdersAudit")).reports
        assert told == Reports("reference", options.get("report_prefix", "audit/"), "reference")

    def test_without_a_wish_there_are_none(self) -> None:
        """Nor the permission."""
        template = template_with()
        assert audit_settings(variables(template, "OrdersAudit")).reports is None
        assert not [one for one in statements(template, "OrdersAuditRole") if "s3:PutObject" in actions(one)]

    @pytest.mark.failure_mode("F71")
    @pytest.mark.parametrize(
        ("prefix", "wanted"),
        [("audit/", {"prefix": "in/"}), ("", {"suffix": ".csv"}), ("in/reports/", {"prefix": "in/", "suffix": ".csv"})],
    )
    def test_beside_the_intake_they_may_lie_in_its_bucket(self, prefix: str, wanted: dict[str, Any]) -> None:
        """By prefix, or by suffix."""
        stack = new_stack()
        pipeline = IntakePipeline(
            stack,
            "Orders",
            processor=processor(),
            filters=[s3.NotificationKeyFilter(**wanted)],
            audit=AuditOptions(report_prefix=prefix),
        )
        template = template_of(stack)
        (bucket,) = resources(template, "AWS::S3::Bucket", "Orders")
        (writing,) = [one for one in statements(template, "OrdersAuditRole") if actions(one) == ["s3:PutObject"]]
        key = f"/{prefix}{pipeline.name}/*"
        assert writing["Resource"] == {"Fn::Join": ["", [{"Fn::GetAtt": [bucket, "Arn"]}, key]]}

    @pytest.mark.failure_mode("F71")
    @pytest.mark.parametrize(
        ("prefix", "wanted"),
        [("audit/", None), ("in/reports/", {"prefix": "in/"}), ("", {"suffix": ".json"}), ("", {"prefix": "in/"})],
    )
    def test_inside_it_they_are_refused(self, prefix: str, wanted: dict[str, Any] | None) -> None:
        """Each report would be processed."""
        with refused("reports-are-processed", r"the audit's reports.*another report_bucket"):
            IntakePipeline(
                new_stack(),
                "Orders",
                processor=processor(),
                filters=[s3.NotificationKeyFilter(**wanted)] if wanted else None,
                audit=AuditOptions(report_prefix=prefix),
            )

    @pytest.mark.failure_mode("F71")
    def test_nor_under_another_name_of_the_same_bucket(self) -> None:
        """The bucket itself, or the same one imported once more."""
        stack = new_stack()
        theirs = s3.Bucket(stack, "Theirs", versioned=True)
        for number, (intake, reports) in enumerate(
            [
                (theirs, theirs),
                (s3.Bucket.from_bucket_name(stack, "In", "inbox"), s3.Bucket.from_bucket_name(stack, "Out", "inbox")),
            ]
        ):
            options: dict[str, Any] = {"processor": processor(), "bucket": intake}
            with refused("reports-are-processed", "reports"):
                IntakePipeline(stack, f"Orders{number}", audit=AuditOptions(report_bucket=reports), **options)
        other = s3.Bucket.from_bucket_name(stack, "Else", "reports")
        IntakePipeline(stack, "Fine", audit=AuditOptions(report_bucket=other), **options)


class TestBackfill:
    """F41: objects from before the pipeline, by choice."""

    @pytest.mark.failure_mode("F41")
    def test_the_audits_runs_are_the_backfill(self) -> None:
        """At the rate of the team."""
        stack = new_stack()
        options = AuditOptions(existing=Existing.BACKFILL, backfill_rate=2)
        IntakePipeline(
            stack, "Orders", processor=processor(), bucket=s3.Bucket(stack, "Full", versioned=True), audit=options
        )
        settings = audit_settings(variables(template_of(stack), "OrdersAudit"))
        assert (settings.backfills, settings.backfill_rate, settings.skips_existing) == (True, 2, True)

    def test_rates_without_effect_are_refused(self) -> None:
        """A backfill that was not requested, and an audit with one part."""
        for rule, options in (
            ("backfill-rate-needs-backfill", AuditOptions(backfill_rate=2)),
            ("resubmit-rate-needs-parts", AuditOptions(resubmit_rate=1_000)),
        ):
            with refused(rule, "it would have no effect"):
                IntakePipeline(new_stack(), "Orders", processor=processor(), audit=options)

    @pytest.mark.failure_mode("F41")
    def test_the_baseline_is_the_default(self) -> None:
        """Nothing is sent without a request."""
        stack = new_stack()
        IntakePipeline(stack, "Orders", processor=processor(), bucket=s3.Bucket(stack, "Full", versioned=True))
        assert list(resources(template_of(stack), "AWS::Scheduler::Schedule")) != []
        assert not audit_settings(variables(template_of(stack), "OrdersAudit")).backfills


class TestDeployed:
    """F117: the settings that the audit is told."""

    @staticmethod
    def told(stack: Stack) -> dict[str, Any]:
        """The variable in JSON, each reference replaced by its logical id or its attribute."""
        (audit,) = resources(template_of(stack), "AWS::Lambda::Function", "OrdersAudit").values()
        value = audit["Properties"]["Environment"]["Variables"]["INTAKE_DEPLOYED"]
        parts = value["Fn::Join"][1] if isinstance(value, dict) else [value]
        content = "".join(
            one if isinstance(one, str) else str(next(iter(one.values()))).replace('"', "") for one in parts
        )
        Deployed.read(content)
        return dict(json.loads(content))

    @pytest.mark.failure_mode("F117")
    def test_they_are_the_templates(self) -> None:
        """Of the pipeline's own resources. They follow from the options."""
        stack = new_stack()
        IntakePipeline(stack, "Orders", processor=processor())
        template = template_of(stack)
        told = self.told(stack)
        queue = only(template, "AWS::SQS::Queue", "OrdersQueueMessages")
        dead = only(template, "AWS::SQS::Queue", "OrdersQueueDeadLetters")
        assert told["stack"] == "Stack"
        assert "stacks" not in told
        assert "custom" not in told
        assert told["timeout"] == only(template, "AWS::Lambda::Function", "OrdersConsumer")["Timeout"]
        assert (told["visibility"], told["retention"]) == (queue["VisibilityTimeout"], queue["MessageRetentionPeriod"])
        assert told["receives"] == queue["RedrivePolicy"]["maxReceiveCount"]
        assert told["dead_retention"] == dead["MessageRetentionPeriod"]
        (source,) = resources(template, "AWS::Lambda::EventSourceMapping")
        assert told["mapping"] == source

    @pytest.mark.failure_mode("F117")
    def test_of_imported_resources_only_what_the_team_says(self) -> None:
        """And the repair names no stack for them."""
        stack = new_stack()
        queue = IntakeQueue(
            stack,
            "Queue",
            queue=sqs.Queue.from_queue_arn(stack, "Messages", "arn:aws:sqs:eu-central-1:111122223333:a"),
            dead_letter_queue=sqs.Queue.from_queue_arn(stack, "Dead", "arn:aws:sqs:eu-central-1:111122223333:b"),
            visibility_timeout=Duration.minutes(20),
            retention=Duration.days(4),
            dead_letter_retention=Duration.days(14),
        )
        bucket = s3.Bucket.from_bucket_name(stack, "In", "inbox")
        IntakePipeline(stack, "Orders", processor=processor(), bucket=bucket, queue=queue)
        told = self.told(stack)
        assert told["stacks"] == {"bucket": "", "queue": "", "dead": ""}
        assert (told["visibility"], told["retention"], told["dead_retention"]) == (1_200, 345_600, 1_209_600)
        assert told["custom"] is True
        assert (told["dead_arn"], told["receives"]) == ("arn:aws:sqs:eu-central-1:111122223333:b", 300)

    @pytest.mark.failure_mode("F117")
    def test_a_resource_of_another_stack_is_repaired_there(self) -> None:
        """The stack's path, also within a stage, and the outermost one of nested stacks."""
        app = new_app()
        stage = Stage(app, "Prod")
        theirs, ours = Stack(stage, "Theirs"), Stack(stage, "Ours")
        bucket = s3.Bucket(theirs, "Bucket", versioned=True)
        nested = NestedStack(ours, "Deeper")
        IntakePipeline(nested, "Orders", processor=processor(), bucket=bucket)
        told = self.told(nested)
        assert (told["stack"], told["stacks"]) == ("Prod/Ours", {"bucket": "Prod/Theirs"})
