"""The tag of committed versions: permissions, lifecycle rules, the alarm, and what synthesis refuses."""

from typing import Any

import pytest
from aws_cdk import Duration
from aws_cdk import aws_s3 as s3

from cdk_intake_ledger import FileSets, IntakePipeline, SetForm, Tag
from tests.synth.build import Json, new_stack, only, processor, refused, resources, statements, template_of, variables

DONE = Tag("intake", "done", expire_after=Duration.days(30))


@pytest.fixture(scope="module")
def template() -> Json:
    stack = new_stack()
    in_cold = s3.Transition(storage_class=s3.StorageClass.GLACIER_INSTANT_RETRIEVAL, transition_after=Duration.days(20))
    IntakePipeline(
        stack,
        "Tagged",
        processor=processor(),
        filters=[s3.NotificationKeyFilter(prefix="in/")],
        after_commit=Tag("intake", "done", expire_after=Duration.days(30), transitions=[in_cold]),
    )
    IntakePipeline(stack, "Plain", processor=processor())
    return template_of(stack)


def test_a_rule_of_the_bucket_is_for_the_tag_only(template: Json) -> None:
    rules = only(template, "AWS::S3::Bucket", "Tagged")["LifecycleConfiguration"]["Rules"]
    [rule] = [one for one in rules if "TagFilters" in one]
    assert rule == {
        "ExpirationInDays": 30,
        "Prefix": "in/",
        "Status": "Enabled",
        "TagFilters": [{"Key": "intake", "Value": "done"}],
        "Transitions": [{"StorageClass": "GLACIER_IR", "TransitionInDays": 20}],
    }


@pytest.mark.failure_mode("F534")
def test_a_rule_leaves_the_objects_of_other_pipelines_of_the_bucket_alone() -> None:
    """They may have the same tag: without an expiry, for parts of sets, or with `deletes`."""
    stack = new_stack()
    shared = s3.Bucket(stack, "Shared", versioned=True)
    for name, filters, tag in (
        ("A", (("a/", ".json"), ("a/b/", ".csv"), ("x/", None)), DONE),
        ("C", (("c/", None),), Tag("intake", "done", expire_after=Duration.days(365))),
        ("D", (("d/", None),), Tag("intake", "done")),
    ):
        keys = [s3.NotificationKeyFilter(prefix=prefix, suffix=suffix) for prefix, suffix in filters]
        IntakePipeline(
            stack, name, processor=processor(), bucket=shared, filters=keys, after_commit=tag, deletes=name == "D"
        )
    rules = only(template_of(stack), "AWS::S3::Bucket", "Shared")["LifecycleConfiguration"]["Rules"]
    assert [(one["Prefix"], one["ExpirationInDays"]) for one in rules] == [("a/", 30), ("x/", 30), ("c/", 365)]


def test_only_the_consumer_of_a_tagged_pipeline_may_set_tags(template: Json) -> None:
    found = [one for one in statements(template) if "Tagging" in str(one["Action"])]
    [statement] = found
    assert statement["Action"] == ["s3:GetObjectVersionTagging", "s3:PutObjectVersionTagging"]
    assert "/in/*" in str(statement["Resource"])
    assert statement in list(statements(template, "TaggedConsumer"))


def test_consumer_and_audit_know_the_tag(template: Json) -> None:
    for path in ("TaggedConsumer", "TaggedAudit"):
        assert variables(template, path)["INTAKE_AFTER_COMMIT"] == '["intake", "done"]'
    assert "INTAKE_AFTER_COMMIT" not in variables(template, "PlainConsumer")


def test_the_alarm_is_that_of_a_tagged_pipeline(template: Json) -> None:
    alarms = resources(template, "AWS::CloudWatch::Alarm").values()
    assert sum(one["Properties"].get("MetricName") == "TagsRefused" for one in alarms) == 1


@pytest.mark.parametrize(
    ("options", "rule", "text"),
    [
        ({"after_commit": Tag("aws:x", "y")}, "after-commit-tag", "AWS keeps the prefix"),
        ({"after_commit": Tag("a&b", "y")}, "after-commit-tag", "letters, digits"),
        (
            {"after_commit": Tag("a", "b", expire_after=Duration.days(17))},
            "after-commit-expiry-days",
            "expire_after is 17 days",
        ),
        (
            {"after_commit": Tag("a", "b", expire_after=Duration.hours(24 * 30 + 1))},
            "after-commit-expiry-days",
            "whole days",
        ),
        ({"after_commit": DONE, "deletes": True}, "after-commit-expiry-with-deletes", "empty the downstream"),
    ],
)
def test_what_would_lose_data_is_refused(options: dict[str, Any], rule: str, text: str) -> None:
    with refused(rule, text):
        IntakePipeline(new_stack(), "Orders", processor=processor(), **options)


def test_a_bucket_of_the_app_without_versions_is_refused() -> None:
    stack = new_stack()
    with refused("after-commit-needs-versions", "keeps no versions"):
        IntakePipeline(
            stack, "Orders", processor=processor(), bucket=s3.Bucket(stack, "Theirs"), after_commit=Tag("a", "b")
        )


def test_an_imported_bucket_takes_the_tag_and_no_rule() -> None:
    stack = new_stack()
    theirs = s3.Bucket.from_bucket_name(stack, "Theirs", "theirs")
    IntakePipeline(stack, "Orders", processor=processor(), bucket=theirs, after_commit=Tag("a", "b"))
    with refused("after-commit-rules-of-imported", "let its owner add"):
        IntakePipeline(stack, "Loads", processor=processor(), bucket=theirs, after_commit=DONE)


ARCHIVED = s3.Transition(storage_class=s3.StorageClass.GLACIER, transition_after=Duration.days(30))


@pytest.mark.parametrize(
    ("tag", "text"),
    [(DONE, "has expire_after"), (Tag("a", "b", transitions=[ARCHIVED]), "has transitions to an archive")],
)
def test_parts_of_sets_do_not_expire(tag: Tag, text: str) -> None:
    """An archived part cannot be read by a set that still waits."""
    stack = new_stack()
    parts = IntakePipeline(stack, "Parts", processor=processor(), after_commit=tag)
    with refused("after-commit-expiry-of-parts", text):
        FileSets(stack, "Loads", pipeline=parts, processor=processor(), form=SetForm.manifest("**/manifest.json"))
