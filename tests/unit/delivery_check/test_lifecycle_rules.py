"""Lifecycle rules that remove or archive objects whose messages may still wait, as S3's API shows them."""

from typing import Any

import pytest

from intake_ledger.delivery_check.lifecycle import early_ends
from intake_ledger.outputs.output import TOMBSTONE_TAG
from intake_ledger.protocol.settings import KeyFilter

DAY = 86_400
LIFE = 18 * DAY
"""Four days in the queue, and fourteen in the dead-letter queue."""


def rule(*, filter_: Any = None, status: str = "Enabled", **deeds: Any) -> dict[str, Any]:
    return {"ID": "r", "Status": status, "Filter": {"Prefix": ""} if filter_ is None else filter_} | deeds


def expires(days: int = 17, **more: Any) -> dict[str, Any]:
    return rule(Expiration={"Days": days}, **more)


def found(*rules: dict[str, Any], filters: tuple[KeyFilter, ...] = (), every_version: bool = False) -> list[str]:
    return [end.text for end in early_ends(rules, filters=filters, life_seconds=LIFE, every_version=every_version)]


@pytest.mark.failure_mode("F242")
def test_a_rule_that_removes_objects_before_their_messages_is_found() -> None:
    """To the day."""
    assert found(expires(17)) == ["removes objects after 17 days"]
    assert found(expires(1)) == ["removes objects after 1 day"]
    assert found(expires(18)) == []
    assert found(expires(1, status="Disabled")) == []


@pytest.mark.failure_mode("F242")
@pytest.mark.parametrize(
    ("storage", "early"),
    [("GLACIER", True), ("DEEP_ARCHIVE", True), ("GLACIER_IR", False), ("STANDARD_IA", False)],
)
def test_an_archive_that_s3_does_not_read_is_found(storage: str, early: bool) -> None:
    deed = rule(Transitions=[{"Days": 0, "StorageClass": storage}])
    assert found(deed) == (["archives objects after 0 days"] if early else [])
    assert not found(rule(Transitions=[{"Days": 18, "StorageClass": storage}]))


@pytest.mark.failure_mode("F242")
def test_a_date_is_early_for_each_later_object() -> None:
    """S3 goes on after the date, also one of years ago or to come."""
    text = "from a date on, and then each new object at once"
    assert found(rule(Expiration={"Date": "2099-01-01T00:00:00Z"})) == [f"removes objects {text}"]
    archive = {"Date": "2020-01-01T00:00:00Z", "StorageClass": "GLACIER"}
    assert found(rule(Transitions=[archive])) == [f"archives objects {text}"]


@pytest.mark.failure_mode("F242")
@pytest.mark.parametrize(
    ("prefix", "early"), [("", True), ("in/", True), ("in/new/", True), ("i", True), ("out/", False), ("in2/", False)]
)
def test_a_prefix_is_judged_against_the_filters(prefix: str, early: bool) -> None:
    """In each form of a filter, and the former one without a filter. A suffix excludes no prefix."""
    filters = (KeyFilter("in/", ".csv"), KeyFilter("docs/"))
    forms: list[dict[str, Any]] = [
        {"Filter": {"Prefix": prefix}},
        {"Filter": {"And": {"Prefix": prefix, "ObjectSizeGreaterThan": 500}}},
        {"Filter": None, "Prefix": prefix},
    ]
    for form in forms:
        assert bool(found(expires() | form, filters=filters)) is early, form
    assert found(expires(filter_={"Prefix": prefix})), "a pipeline without filters processes each key"


@pytest.mark.failure_mode("F242")
@pytest.mark.parametrize(
    ("sizes", "early"),
    [
        ({"ObjectSizeGreaterThan": 1_000_000}, True),
        ({"ObjectSizeLessThan": 1}, True),
        ({"ObjectSizeGreaterThan": 10, "ObjectSizeLessThan": 12}, True),
        ({"ObjectSizeGreaterThan": 10, "ObjectSizeLessThan": 11}, False),
    ],
)
def test_objects_may_have_each_size(sizes: dict[str, int], early: bool) -> None:
    """Only an interval without a size is for no object."""
    assert bool(found(expires(filter_={"And": sizes}))) is early


@pytest.mark.failure_mode("F242")
def test_tags_are_named_and_the_pipelines_own_is_exempt() -> None:
    name, _, value = TOMBSTONE_TAG.partition("=")
    own, other = {"Key": name, "Value": value}, {"Key": "state", "Value": "done"}
    assert found(expires(filter_={"Tag": own})) == []
    assert found(expires(filter_={"And": {"Prefix": "in/", "Tags": [own]}})) == []
    for filter_ in ({"Tag": other}, {"And": {"Prefix": "", "Tags": [other]}}):
        [end] = early_ends([expires(filter_=filter_)], filters=(), life_seconds=LIFE, every_version=False)
        assert end.tags == ("state=done",)


@pytest.mark.failure_mode("F242")
def test_every_version_reads_versions_below_a_delete_marker() -> None:
    """So the removal of the current version does no harm, and an archive of an overwritten one does."""
    archived = rule(NoncurrentVersionTransitions=[{"NoncurrentDays": 1, "StorageClass": "GLACIER"}])
    assert (found(expires(), every_version=True), found(archived)) == ([], [])
    assert found(archived, every_version=True) == ["archives overwritten versions after 1 day"]
    for every_version in (True, False):
        versions = rule(NoncurrentVersionExpiration={"NoncurrentDays": 17})
        assert found(versions, every_version=every_version) == ["removes overwritten versions after 17 days"]


@pytest.mark.failure_mode("F242")
def test_other_deeds_take_no_object_away() -> None:
    abort = {"DaysAfterInitiation": 1}
    assert not found(rule(Expiration={"ExpiredObjectDeleteMarker": True}, AbortIncompleteMultipartUpload=abort))
