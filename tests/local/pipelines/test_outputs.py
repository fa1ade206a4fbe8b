"""Outputs on the local AWS, which checks the conditions of completed uploads too, and the buckets in memory."""

import random
from typing import TYPE_CHECKING, Any, cast

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from cdk_intake_ledger.testing import LocalAws
from intake_ledger import Output, OutputError, Overtaken
from intake_ledger.outputs.conditional_put import source_of
from intake_ledger_testing.memory_outputs import MemoryOutputs
from tests.protocol.output_rounds import play
from tests.protocol.output_writers import BUCKET, Way

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_s3 import S3Client

FENCE = 1_767_225_600_000
ROUNDS = range(15)
MIB = 1024 * 1024

conditions = st.sampled_from([{}, {"IfNoneMatch": "*"}, {"IfMatch": "seen"}, {"IfMatch": "other"}])
steps = st.lists(
    st.tuples(st.sampled_from(["put_object", "complete_multipart_upload", "delete_object"]), conditions), max_size=8
)


@pytest.fixture(scope="module")
def s3(aws: LocalAws) -> "Iterator[S3Client]":
    client = aws.client("s3")
    client.create_bucket(Bucket=BUCKET)
    yield client
    for stored in client.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        client.delete_object(Bucket=BUCKET, Key=stored["Key"])
    client.delete_bucket(Bucket=BUCKET)


def output(s3: "S3Client", key: str, fence: int = FENCE, *, look_first: bool = False) -> Output:
    return Output(s3, BUCKET, key, fence=fence, source=source_of("in/a", None), look_first=look_first)


@pytest.mark.parametrize("seed", ROUNDS)
def test_readers_see_the_result_of_the_highest_fence_after_each_round(s3: "S3Client", seed: int) -> None:
    assert not play(seed, Way.OUTPUT, s3).wrong


def test_the_rounds_find_a_plain_put(s3: "S3Client") -> None:
    assert any(play(seed, Way.PLAIN, s3).wrong for seed in ROUNDS)


def test_a_large_output_is_uploaded_in_parts_under_its_condition(s3: "S3Client") -> None:
    """The first guess is wrong: S3 refuses to complete the upload, and completes it with the ETag that it shows."""
    dice = random.Random(1)
    chunks = [str(FENCE + 1).encode(), *(dice.randbytes(MIB) for _ in range(17))]
    output(s3, "large").put(str(FENCE).encode())
    output(s3, "large", FENCE + 1).put(iter(chunks), content_type="text/plain")
    stored = s3.get_object(Bucket=BUCKET, Key="large")
    assert stored["Body"].read() == b"".join(chunks)
    assert stored["ETag"].endswith('-3"')
    assert stored["ContentType"] == "text/plain"
    assert stored["Metadata"] == {"intake-fence": f"{FENCE + 1}.1", "intake-source": source_of("in/a", None)}


def test_a_late_upload_is_refused_and_aborted(s3: "S3Client") -> None:
    output(s3, "late", FENCE + 1).put(str(FENCE + 1).encode())
    with pytest.raises(Overtaken):
        output(s3, "late").put(str(FENCE).encode() + bytes(9 * MIB))
    with pytest.raises(OutputError, match="does not contain the fence"):
        output(s3, "late", FENCE + 2).put(bytes(9 * MIB))
    assert s3.get_object(Bucket=BUCKET, Key="late")["Body"].read() == str(FENCE + 1).encode()
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=BUCKET, Prefix="late")


def test_a_tombstone_has_the_tag_that_expires_it(s3: "S3Client") -> None:
    """On S3, the next put removes the tag. The local AWS keeps it."""
    output(s3, "removed").remove()
    assert s3.get_object_tagging(Bucket=BUCKET, Key="removed")["TagSet"] == [{"Key": "intake-tombstone", "Value": "1"}]
    assert "intake-removed" in s3.head_object(Bucket=BUCKET, Key="removed")["Metadata"]
    output(s3, "removed", FENCE + 1, look_first=True).put(str(FENCE + 1).encode())
    assert "intake-removed" not in s3.head_object(Bucket=BUCKET, Key="removed")["Metadata"]


@settings(max_examples=25, deadline=None)
@given(plan=steps)
def test_the_buckets_in_memory_answer_as_the_local_aws(s3: "S3Client", plan: list[tuple[str, dict[str, str]]]) -> None:
    s3.delete_object(Bucket=BUCKET, Key="same")
    assert answers(cast("Any", MemoryOutputs()), plan) == answers(s3, plan)


def answers(client: Any, plan: list[tuple[str, dict[str, str]]]) -> list[object]:
    """S3's answers to the requests: ETags, or the status and code of errors."""
    where = {"Bucket": BUCKET, "Key": "same"}
    seen, found = '"none"', list[object]()
    for number, (operation, condition) in enumerate(plan):
        conditions = {name: {"seen": seen, "other": f'"{"0" * 32}"'}.get(one, one) for name, one in condition.items()}
        try:
            if operation == "delete_object":
                client.delete_object(**where)
            elif operation == "put_object":
                client.put_object(**where, Body=b"%d" % number, **conditions)
            else:
                target = where | {"UploadId": client.create_multipart_upload(**where)["UploadId"]}
                part = {
                    "PartNumber": 1,
                    "ETag": client.upload_part(**target, PartNumber=1, Body=b"%d" % number)["ETag"],
                }
                client.complete_multipart_upload(**target, MultipartUpload={"Parts": [part]}, **conditions)
            seen = client.head_object(**where)["ETag"]
            found.append(seen)
        except ClientError as error:
            found.append((error.response["ResponseMetadata"]["HTTPStatusCode"], error.response["Error"]["Code"]))
            if operation == "complete_multipart_upload":
                client.abort_multipart_upload(**target)
    return found
