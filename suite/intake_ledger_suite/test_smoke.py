"""One stack with each kind of work: real handlers, real notifications, the command and one audit."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from intake_ledger_suite.deployed import Deployed
from intake_ledger_suite.test_pipelines import events_to

FILES = {
    "in/plain.txt": "1",
    "in/copied.txt": "2",
    "in/fails.txt": "fails",
    "in/bad.txt": "bad",
    "in/deleted.txt": "3",
    "loads/a.csv": "A",
    "loads/manifest.json": json.dumps(["a.csv", "b.csv"]),
    "loads/b.csv": "B",
}
ORDERS = [("o-1", 1, 5), ("o-1", 1, 5), ("o-1", 2, 6), ("o-2", 3, 0)]
"""Key, identity and pieces: a copy, two messages of a key, and one that is rejected."""


@pytest.fixture(scope="module", autouse=True)
def versions(smoke: Deployed) -> Mapping[str, str]:
    """Send files and orders, and return the versions of the files."""
    found = {key: put(smoke, key, text) for key, text in FILES.items()}
    for key, identity, pieces in ORDERS:
        body = json.dumps({"order": smoke.key(key), "event": identity, "pieces": pieces})
        smoke.aws.client("sqs").send_message(QueueUrl=smoke.out["OrdersQueue"], MessageBody=body)
    return found


def put(smoke: Deployed, key: str, text: str, pipeline: str = "Files") -> str:
    """Upload a text, and return its version."""
    bucket = smoke.out[f"{pipeline}Bucket"]
    answer = smoke.aws.client("s3").put_object(Bucket=bucket, Key=smoke.key(key), Body=text.encode())
    return str(answer["VersionId"])


def effects(smoke: Deployed, key: str) -> Counter[str]:
    """Return the calls of a processor about a key, by their text."""
    return Counter(item["text"]["S"] for item in smoke.items(smoke.key(key)))


def has(smoke: Deployed, key: str, **calls: int) -> None:
    """Wait for these calls, and for no other."""
    expected = Counter({text.removeprefix("_"): number for text, number in calls.items()})
    smoke.until(lambda: effects(smoke, key).total() >= expected.total(), f"{key} has {expected}")
    assert effects(smoke, key) == expected


def row(smoke: Deployed, pipeline: str, key: str, status: str) -> Any:
    """Return the row of a key with this status, as the command shows it, awaited."""

    def found() -> Any:
        states = smoke.command(pipeline, "inspect", smoke.key(key))["states"]
        rows = [state["row"] for state in states if state["row"]]
        return next((row for row in rows if row["status"] == status), None)

    return smoke.until(found, f"{key} is {status}")


def test_a_file_is_processed_and_committed_once(smoke: Deployed, versions: Mapping[str, str]) -> None:
    has(smoke, "in/plain.txt", _1=1)
    found = row(smoke, "Files", "in/plain.txt", "PROCESSED")
    assert (found["version_id"], found["attempts"]) == (versions["in/plain.txt"], 1)


def test_a_copy_of_a_notification_runs_nothing(smoke: Deployed, versions: Mapping[str, str]) -> None:
    key, bucket = "in/copied.txt", smoke.out["FilesBucket"]
    row(smoke, "Files", key, "PROCESSED")
    thing = {"key": smoke.key(key), "size": 1, "versionId": versions[key], "sequencer": "00AB"}
    record = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": smoke.aws.region,
        "eventTime": "2026-11-21T12:00:00.000Z",
        "eventName": "ObjectCreated:Put",
        "s3": {
            "s3SchemaVersion": "1.0",
            "bucket": {"name": bucket, "arn": f"arn:aws:s3:::{bucket}"},
            "object": thing,
        },
    }
    body = json.dumps({"Records": [record]})
    smoke.aws.client("sqs").send_message(QueueUrl=smoke.out["FilesQueue"], MessageBody=body)
    smoke.drained("FilesQueue")
    assert effects(smoke, key) == Counter({"2": 1})


def test_a_failure_is_tried_again(smoke: Deployed) -> None:
    has(smoke, "in/fails.txt", fails=1)
    assert row(smoke, "Files", "in/fails.txt", "PROCESSED")["attempts"] == 2


def test_an_overwritten_and_deleted_file_ends_as_it_is(smoke: Deployed) -> None:
    key = "in/deleted.txt"
    put(smoke, key, "4")
    smoke.until(lambda: effects(smoke, key)["4"], "the newer version is processed")
    smoke.remove("Files", key)
    smoke.until(lambda: effects(smoke, key)["removed"], "the removal is told")
    smoke.drained("FilesQueue")
    assert max(effects(smoke, key).values()) == 1


def test_a_rejected_file_is_explained_repaired_and_redriven(smoke: Deployed, versions: Mapping[str, str]) -> None:
    key = "in/bad.txt"
    found = row(smoke, "Files", key, "REJECTED")
    assert (found["reason"], found["reason_code"]) == ("no invoice in it", "unprocessable")
    [state] = smoke.command("Files", "inspect", smoke.key(key))["states"]
    assert (state["agree"], state["s3"]["versionId"]) == (True, versions[key])
    assert smoke.command("Files", "status")["rejected"] >= 1

    def is_sent() -> bool:
        found = smoke.command("Files", "retry", smoke.key(key), "--yes")
        return bool(found["redriven"]["moved"] or found["reopened"])

    smoke.until(is_sent, "its message is moved")
    smoke.until(lambda: row(smoke, "Files", key, "REJECTED").get("redrive_count"), "it is rejected again")
    put(smoke, key, "good")
    has(smoke, key, good=1)


def test_a_set_of_files_is_processed_when_it_is_complete(smoke: Deployed) -> None:
    """Its manifest comes before the last of its parts."""
    key = "loads/manifest.json"
    smoke.until(lambda: effects(smoke, key)["A+B"], "the set is processed")
    smoke.drained("FilesQueue", "LoadsQueue")
    assert effects(smoke, key)["A+B"] == 1


def test_messages_are_processed_once_and_a_bad_one_is_rejected(smoke: Deployed) -> None:
    found = row(smoke, "Orders", "o-2", "REJECTED")
    assert (found["version_id"], found["reason"]) == ("3", "no pieces")
    has(smoke, "o-1", _1=1, _2=1)
    smoke.drained("OrdersQueue")
    assert effects(smoke, "o-1").total() == 2
    assert smoke.command("Orders", "status")["messageSource"] == "sqs"


@pytest.mark.assumptions("SFN-02")
def test_an_execution_commits_its_output(smoke: Deployed) -> None:
    """The end of an execution of a state machine wakes the message that waits for it."""
    machines, machine = smoke.aws.client("stepfunctions"), smoke.out["Machine"]
    before = len(machines.list_executions(stateMachineArn=machine)["executions"])
    put(smoke, "in/long.bin", "long", pipeline="Long")
    found = row(smoke, "Long", "in/long.bin", "PROCESSED")
    assert found["commit_id"] == f"work on {smoke.key('in/long.bin')}"
    executions = machines.list_executions(stateMachineArn=machine)["executions"]
    assert [one["status"] for one in executions] == ["SUCCEEDED"] * (before + 1)


def test_a_lost_event_is_found_by_the_audit(smoke: Deployed) -> None:
    key = "in/lost.txt"
    with events_to(smoke, "Files", None):
        put(smoke, key, "5")

    def found() -> bool:
        answer = smoke.aws.client("lambda").invoke(FunctionName=smoke.out["Audit"], Payload=b"{}")
        return bool(json.load(answer["Payload"]).get("resubmitted"))

    smoke.until(found, "the audit sends the lost event")
    has(smoke, key, _5=1)


def test_a_file_is_processed_again_when_a_person_asks(smoke: Deployed) -> None:
    key = "in/plain.txt"
    before = row(smoke, "Files", key, "PROCESSED")["fence"]
    smoke.command("Files", "retry", "--again", smoke.key(key), "--yes")
    has(smoke, key, _1=2)
    smoke.until(lambda: row(smoke, "Files", key, "PROCESSED")["fence"] > before, "its fence grows")


def test_rows_expire_by_the_tables_ttl(smoke: Deployed) -> None:
    table = smoke.out["FilesLedger"]
    ttl = smoke.aws.client("dynamodb").describe_time_to_live(TableName=table)["TimeToLiveDescription"]
    assert ttl == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"}


def test_the_consumer_writes_a_line_and_a_metric_for_each_decision(smoke: Deployed) -> None:
    function, key = smoke.out["FilesFunction"], smoke.key("in/fails.txt")

    def messages() -> list[str]:
        return [one["message"] for one in smoke.aws.records(function) if one.get("key") == key]

    smoke.until(lambda: messages()[-1:] == ["committed"], "the log has the commit")
    smoke.until(lambda: smoke.aws.metrics(function)["Committed"] >= len(FILES) - 2, "and the metric")
