"""The example stack, deployed by the CDK CLI: S3 notifies, SQS delivers, Lambda runs the real handlers."""

import json
from collections import Counter

import pytest
from examples.lost_event import events_are_lost

from tests.known import known
from tests.local.support import Catalogue, model


def test_a_new_object_is_processed_by_lambda_after_the_notification_of_s3(catalogue: Catalogue) -> None:
    """An upload becomes a row of the catalogue and a settled row of the ledger, and the log says how."""
    key = "models/new/service-2.json.gz"
    version = catalogue.put(key, model("2020-01-01", operations=3))

    row = catalogue.settled(key, f"v#{version}")

    kept = known(catalogue.row("new"))
    assert (kept["version_id"], kept["api_version"], kept["operations"]) == (version, "2020-01-01", 3)
    assert row["commit_id"] == "new 2020-01-01"
    assert (row["attempts"], catalogue.effect(key, version)["event"]) == (1, "ObjectCreated:Put")
    catalogue.drained()
    assert [record["message"] for record in catalogue.decisions(key)] == ["committed"]
    assert catalogue.aws.metrics(catalogue.function)["Committed"] >= 1


@pytest.mark.failure_mode("F09")
def test_the_ledger_expires_by_seconds_and_the_table_knows_it(catalogue: Catalogue) -> None:
    """F09, F94: the row of an object has no expiry where removals are told. When the object is gone, `expires_at` is a
    number of seconds some weeks ahead, and TTL is switched on for that attribute.
    """
    key = "models/expiring/service-2.json.gz"
    assert "expires_at" not in catalogue.settled(key, f"v#{catalogue.put(key, model('1'))}")
    row = catalogue.settled(key, f"v#{catalogue.delete(key)}")

    ahead = int(row["expires_at"]) - int(row["updated_at"]) // 1000

    assert 30 * 86_400 < ahead < 40 * 86_400
    ttl = catalogue.aws.client("dynamodb").describe_time_to_live(TableName=catalogue.ledger)["TimeToLiveDescription"]
    assert ttl == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"}


def test_an_overwritten_object_ends_at_its_newest_version(catalogue: Catalogue) -> None:
    """After several versions in quick succession, the row shows the last one."""
    key = "models/overwritten/service-2.json.gz"
    versions = [catalogue.put(key, model(f"v{n}")) for n in range(6)]

    catalogue.settled(key, f"v#{versions[-1]}")

    kept = known(catalogue.row("overwritten"))
    assert kept["version_id"] == versions[-1]
    assert max(Counter(effect["version"] for effect in catalogue.effects(key)).values()) == 1


@pytest.mark.failure_mode("F49")
def test_a_deleted_object_goes_and_an_undeleted_one_comes_back(catalogue: Catalogue) -> None:
    """A delete marker removes the row; taking the marker away is a removal event, and yet brings the row back."""
    key = "models/deleted/service-2.json.gz"
    version = catalogue.put(key, model("1"))
    catalogue.settled(key, f"v#{version}")

    marker = catalogue.delete(key)
    catalogue.settled(key, f"v#{marker}")
    assert catalogue.row("deleted") is None

    catalogue.delete(key, marker)
    catalogue.settled(key, f"v#{version}")
    assert catalogue.row("deleted") is not None
    assert [effect["kind"] for effect in catalogue.effects(key)].count("created") == 2


@pytest.mark.failure_mode("F51")
def test_deleting_the_newest_version_for_good_brings_the_one_before_back(catalogue: Catalogue) -> None:
    """No event says that the older version is current again; the row shows it all the same."""
    key = "models/rolled-back/service-2.json.gz"
    older = catalogue.put(key, model("old"))
    catalogue.settled(key, f"v#{older}")
    newer = catalogue.put(key, model("new"))
    catalogue.settled(key, f"v#{newer}")

    catalogue.delete(key, newer)

    catalogue.settled(key, f"v#{older}")
    kept = known(catalogue.row("rolled-back"))
    assert kept["api_version"] == "old"


@pytest.mark.failure_mode("F50")
def test_deleting_an_old_version_for_good_changes_nothing(catalogue: Catalogue) -> None:
    """The newer version stays, and is not processed again."""
    key = "models/trimmed/service-2.json.gz"
    older = catalogue.put(key, model("old"))
    catalogue.settled(key, f"v#{older}")
    newer = catalogue.put(key, model("new"))
    catalogue.settled(key, f"v#{newer}")

    catalogue.delete(key, older)

    catalogue.drained()
    assert catalogue.ledger_row(key)["committed_state"] == f"v#{newer}"
    assert [effect["version"] for effect in catalogue.effects(key)].count(newer) == 1
    assert catalogue.row("trimmed") is not None


def test_a_message_that_comes_twice_has_no_second_effect(catalogue: Catalogue) -> None:
    """Copies of a notification, sent after the change was committed, are acknowledged, and leave the row as it is."""
    key = "models/twice/service-2.json.gz"
    version = catalogue.put(key, model("1"))
    row = catalogue.settled(key, f"v#{version}")

    catalogue.send(catalogue.event(key, version), catalogue.event(key, version))

    catalogue.drained()
    assert catalogue.ledger_row(key) == row
    assert len(catalogue.effects(key)) == 1


@pytest.mark.failure_mode("F27")
def test_garbage_goes_to_the_dead_letters_with_its_reason_and_harms_no_neighbour(catalogue: Catalogue) -> None:
    """The consumer rejects a message that is not an S3 event, and processes the messages around it."""
    keys = [f"models/neighbour-{n}/service-2.json.gz" for n in range(4)]
    marker = "garbage-7f3a"
    catalogue.send(marker, *(catalogue.event(key, "none such") for key in keys), f'{{"half": "{marker}-json"}}')
    versions = {key: catalogue.put(key, model("1")) for key in keys}

    for key, version in versions.items():
        catalogue.settled(key, f"v#{version}")

    for word in (marker, f"{marker}-json"):
        letter = catalogue.rejected(word)
        assert letter["MessageAttributes"]["reason"]["StringValue"]


@pytest.mark.failure_mode("F29")
def test_a_message_about_another_bucket_is_refused(catalogue: Catalogue) -> None:
    """It is set aside with both buckets' names."""
    body = json.loads(catalogue.event("models/foreign/service-2.json.gz", "v"))
    body["Records"][0]["s3"]["bucket"]["name"] = "somebody-elses"
    catalogue.send(json.dumps(body))

    reason = catalogue.rejected("somebody-elses")["MessageAttributes"]["reason"]["StringValue"]

    assert "somebody-elses" in reason
    assert catalogue.bucket in reason


def test_a_poison_file_is_rejected_with_the_reason_of_the_processor(catalogue: Catalogue) -> None:
    """`Unprocessable` puts the message aside and marks the row; a copy of the message does not start it again (F76)."""
    key = "models/poison/service-2.json.gz"
    version = catalogue.put(key, b"\x1f\x8bno gzip at all")

    letter = catalogue.rejected("models/poison/")

    attributes = {name: value["StringValue"] for name, value in letter["MessageAttributes"].items()}
    assert "not what its name says" in attributes["reason"]
    assert (attributes["bucket"], attributes["version_id"]) == (catalogue.bucket, version)
    row = catalogue.aws.wait_until(
        lambda: row if (row := catalogue.ledger_row(key)).get("status") == "REJECTED" else {}, "the row is rejected"
    )
    assert "not what its name says" in row["reason"]
    catalogue.send(catalogue.event(key, version))
    catalogue.drained()
    assert catalogue.ledger_row(key) == row
    assert catalogue.effects(key) == []


@pytest.mark.failure_mode("F46")
def test_an_object_whose_message_was_never_sent_is_found_by_the_audit(catalogue: Catalogue) -> None:
    """Nothing arrives while the notification is off; a dry run tells, a real run repairs, the next is content."""
    key = "models/lost/service-2.json.gz"
    with events_are_lost(catalogue.aws.client("s3"), catalogue.bucket):
        version = catalogue.put(key, model("1"))

    def told() -> list[str]:
        return [finding["why"] for finding in catalogue.audit(dry_run=True)["findings"] if finding["key"] == key]

    assert catalogue.aws.wait_until(told, "the settle time is over") == ["missing"]
    assert catalogue.ledger_row(key) == {}
    catalogue.audit()
    catalogue.settled(key, f"v#{version}")
    assert catalogue.effect(key, version)["event"] == "IntakeLedger:Audit"
    assert key not in [finding["key"] for finding in catalogue.audit(dry_run=True)["findings"]]
