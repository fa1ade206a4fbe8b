"""The tag of committed versions, set by a deployed consumer, and by the audit's message after a worker's death."""

import pytest

from cdk_intake_ledger.testing import LocalAws
from tests.local.conftest import Outputs
from tests.local.support import TIMEOUT, Catalogue, Entry

KEY = "tagged.bin"


@pytest.fixture
def tagged(aws: LocalAws, outputs: Outputs) -> Catalogue:
    found = outputs["Local"]
    return Catalogue.of(aws, found, "Second", effects_table=found["EffectsTable"])


@pytest.mark.failure_mode("F545", "F547")
def test_the_audit_gets_a_missing_tag_set_and_an_expired_version_is_not_lost(tagged: Catalogue) -> None:
    """The row names both versions, as after the death of a worker. One of them was deleted for good meanwhile."""
    s3 = tagged.aws.client("s3")

    def tags(version: str) -> dict[str, str]:
        answer = s3.get_object_tagging(Bucket=tagged.bucket, Key=KEY, VersionId=version)
        return {tag["Key"]: tag["Value"] for tag in answer["TagSet"]}

    def upload(content: bytes) -> str:
        put = s3.put_object(Bucket=tagged.bucket, Key=KEY, Body=content, Tagging="team=sales")
        tagged.aws.wait_until(
            lambda: has_tag(f"v#{put['VersionId']}"), f"{put['VersionId']} has its tag", timeout=TIMEOUT
        )
        return str(put["VersionId"])

    def has_tag(identity: str) -> Entry:
        row = tagged.ledger_row(KEY)
        done = row.get("committed_state") == identity and "tagged_at" in row and "tags_pending" not in row
        return row if done else {}

    def findings() -> list[str]:
        return [one["why"] for one in tagged.audit(dry_run=True)["findings"] if one["key"] == KEY]

    def loses_tags() -> bool:
        """Again at each call, since the message of the deletion sets the tag too."""
        s3.delete_object_tagging(Bucket=tagged.bucket, Key=KEY, VersionId=current)
        tagged.aws.client("dynamodb").update_item(
            TableName=tagged.ledger,
            Key={"pk": {"S": f"{tagged.bucket}/{KEY}"}, "sk": {"S": tagged.ledger_row(KEY)["sk"]}},
            UpdateExpression="SET tags_pending = :names REMOVE tagged_at",
            ExpressionAttributeValues={":names": {"S": f"{expired} {current}"}},
        )
        return findings() == ["untagged"]

    expired, current = upload(b"first"), upload(b"second")
    assert tags(expired) == tags(current) == {"team": "sales", "intake": "done"}

    tagged.delete(KEY, expired)
    effects = tagged.effects(KEY)
    tagged.aws.wait_until(loses_tags, "the settle time is over", timeout=TIMEOUT)
    tagged.audit()
    tagged.aws.wait_until(lambda: has_tag(f"v#{current}"), "the tag is set again", timeout=TIMEOUT)
    assert tags(current) == {"intake": "done"}
    assert tagged.effects(KEY) == effects
    assert findings() == []
