"""Events of CloudTrail about calls of S3's API. A rule may send them instead of the events of S3."""

import pytest

from cdk_intake_ledger.testing import DeadLetter, LocalPipeline, events
from intake_ledger import Commit
from intake_ledger.events.parser import Ignored, Unparseable, parse_message
from intake_ledger.protocol.change import Change
from intake_ledger_testing.local_settings import BUCKET

KEY = "in/a b+c.csv"
KEYED = {"key": KEY}


def delivered(body: str) -> list[DeadLetter]:
    """The dead-letter messages after the delivery of an event."""
    pipeline = LocalPipeline(lambda _: Commit("done"))
    pipeline.send(body)
    pipeline.run()
    assert not pipeline.calls
    return list(pipeline.dead_letters)


@pytest.mark.failure_mode("F241")
@pytest.mark.parametrize("call", ["PutObject", "PostObject", "CopyObject", "CompleteMultipartUpload", "DeleteObject"])
def test_a_write_of_an_object_is_dead_lettered_with_the_way_out(call: str) -> None:
    """It was acknowledged, so each upload of such a rule was lost until the audit."""
    [copy] = delivered(events.cloudtrail_event(BUCKET, call, KEYED))
    assert copy.attributes["reason_code"] == "unparseable_message"
    assert f"the event is the call {call}" in str(copy.attributes["reason"])
    assert "turn on EventBridge for the bucket" in str(copy.attributes["reason"])
    [change] = parse_message(copy.body)
    assert isinstance(change, Change)
    assert change.key == KEY, "`retry KEY` finds it"


@pytest.mark.failure_mode("F241")
def test_a_deletion_of_many_objects_names_no_key() -> None:
    [found] = parse_message(events.cloudtrail_event(BUCKET, "DeleteObjects"))
    assert isinstance(found, Unparseable)
    assert "names no keys" in found.why
    assert "Object Created" in found.why
    assert len(delivered(events.cloudtrail_event(BUCKET, "DeleteObjects"))) == 1


@pytest.mark.failure_mode("F241")
@pytest.mark.parametrize(
    ("call", "parameters"),
    [
        ("GetObject", KEYED),
        ("HeadObject", KEYED),
        ("ListObjects", {}),
        ("PutObjectTagging", KEYED),
        ("PutObjectAcl", KEYED),
        ("UploadPart", KEYED),
        ("CreateMultipartUpload", KEYED),
        ("AbortMultipartUpload", KEYED),
        ("RestoreObject", KEYED),
        ("PutBucketLifecycle", {}),
        ("DeleteBucket", {}),
    ],
)
def test_reads_and_calls_on_buckets_are_acknowledged(call: str, parameters: dict[str, str]) -> None:
    [found] = parse_message(events.cloudtrail_event(BUCKET, call, parameters))
    assert found == Ignored(f"the call {call} changes no content")
    assert not delivered(events.cloudtrail_event(BUCKET, call, parameters))


@pytest.mark.failure_mode("F241")
def test_a_write_that_s3_refused_is_acknowledged() -> None:
    assert not delivered(events.cloudtrail_event(BUCKET, "PutObject", KEYED, error="AccessDenied"))


@pytest.mark.failure_mode("F241")
def test_a_write_without_a_key_is_dead_lettered() -> None:
    [copy] = delivered(events.cloudtrail_event(BUCKET, "PutObject"))
    assert "key is missing" in str(copy.attributes["reason"])
