"""Whole pipelines: transactions, ordered sources, audits in parts, and the events of the demo."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest

from intake_ledger_suite.deployed import Deployed

KEYS = 10
_EVENTS = ("s3:ObjectCreated:*", "s3:ObjectRemoved:*")
pytestmark = pytest.mark.thorough
Evidence = Callable[[str], None]


@pytest.mark.changes(3)
def test_transactions_with_commits_have_one_effect_each(checks: Deployed) -> None:
    """Each of three versions of a key has one effect, in a transaction with its commit, although a worker is killed."""
    versions = [checks.put("Every", "versions/a.json", {"kill": n == 1}) for n in range(3)]
    for version in versions:
        checks.object_once("Every", "versions/a.json", version, seconds=600)


@pytest.mark.changes(6)
def test_fifo_messages_that_come_twice_have_one_effect_each(checks: Deployed) -> None:
    """Each identity comes twice."""
    key = checks.key("fifo")
    for copy in ("a", "b"):
        for n in range(3):
            checks.aws.client("sqs").send_message(
                QueueUrl=checks.out["FifoQueue"],
                MessageBody=json.dumps({"key": key, "identity": str(n)}),
                MessageGroupId=key.replace("/", "-"),
                MessageDeduplicationId=f"{key.replace('/', '-')}-{n}{copy}",
            )
    check_messages(checks, key, "FifoQueue")


@pytest.mark.changes(6)
def test_kinesis_records_that_come_twice_have_one_effect_each(checks: Deployed) -> None:
    """Each identity comes twice."""
    key = checks.key("kinesis")
    for _ in range(2):
        for n in range(3):
            data = json.dumps({"key": key, "identity": str(n)}).encode()
            checks.aws.client("kinesis").put_record(StreamName=checks.out["Stream"], Data=data, PartitionKey=key)
    check_messages(checks, key, "KinesisQueue")


def check_messages(checks: Deployed, key: str, queue: str) -> None:
    """Wait for the effects of three messages, and for no other."""
    for n in range(3):
        checks.once(f"messages/{key}", str(n))
    checks.drained(queue)
    assert checks.calls(f"messages/{key}") == {str(n): 1 for n in range(3)}


@pytest.mark.assumptions("S3-22", "LAM-02")
@pytest.mark.changes(KEYS * 8)
def test_wire_with_copies_losses_and_wrong_order_changes_nothing(checks: Deployed, evidence: Evidence) -> None:
    """S3's messages come twice, in the wrong order, late and never, and a worker is killed: as in the demo."""
    keys = [f"wire/{n}.json" for n in range(KEYS)]
    versions = dict[str, str]()
    with events_to(checks, "Latest", "Tap"):
        sent = [(key, checks.put("Latest", key)) for key in keys]
        versions = {key: checks.put("Latest", key, {"kill": key == keys[0]}) for key in keys}
        marker = checks.remove("Latest", keys[1])
        sent += [*versions.items(), (keys[1], marker)]
        bodies = tapped(checks, sent)
    forwarded = [bodies[one] for one in reversed(sent) if one != (keys[2], versions[keys[2]])]
    # Newest first, each twice, and once more when everything was handled.
    for again in (2, 1):
        for body in forwarded * again:
            checks.aws.client("sqs").send_message(QueueUrl=checks.out["LatestQueue"], MessageBody=body)
        checks.drained("LatestQueue", seconds=600)
    settle(checks)
    checks.command("Latest", "audit", "--resend")
    current = versions | {keys[1]: marker}
    if not checks.object_calls("Latest", keys[1]):
        # The marker's message came before the uploads' messages: the processor was told of neither.
        del current[keys[1]]
    for key, version in current.items():
        checks.object_once("Latest", key, version)
    effects = {key: checks.object_calls("Latest", key) for key in keys}
    assert [key for key, calls in effects.items() if set(calls.values()) - {1}] == [], effects
    again = checks.command("Latest", "audit")
    assert not any(again["counts"].values())
    evidence(f"{KEYS} keys are in their last state, no version had two effects, and an audit finds nothing")


@contextmanager
def events_to(checks: Deployed, pipeline: str, queue: str | None) -> Iterator[None]:
    """Send the events of a bucket to another queue, or nowhere, and to its own afterwards."""
    s3, bucket = checks.aws.client("s3"), checks.out[f"{pipeline}Bucket"]
    found = s3.get_bucket_notification_configuration(Bucket=bucket)
    before = {name: value for name, value in found.items() if name != "ResponseMetadata"}
    rules = [{"QueueArn": checks.arn_of(queue), "Events": list(_EVENTS)}] if queue else []
    configuration = {"QueueConfigurations": rules} if rules else {}
    try:
        s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=configuration)
        # S3 may use the former configuration for a moment.
        checks.pause(0 if checks.aws.is_local else 60)
        yield
    finally:
        s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=before)


def tapped(checks: Deployed, expected: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], str]:
    """Receive S3's messages, by key and version, until all have come."""
    found: dict[tuple[str, str], str] = {}
    sqs, url = checks.aws.client("sqs"), checks.out["Tap"]
    keys = {checks.key(key): key for key, _ in expected}

    def all_came() -> bool:
        for message in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
            for record in json.loads(message["Body"]).get("Records", ()):
                one = record["s3"]["object"]
                found[keys.get(one["key"], one["key"]), one["versionId"]] = message["Body"]
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return set(expected) <= set(found)

    checks.until(all_came, "S3 has sent a message about each operation", seconds=600)
    return found


@pytest.mark.assumptions("SFN-04", "SFN-05", "PY-01")
@pytest.mark.changes(KEYS)
def test_audit_duckdb_finds_lost_events(checks: Deployed, evidence: Evidence) -> None:
    """An audit in parts finds lost events with DuckDB, whose layer is for the functions' architecture."""
    check_audit(checks, "DuckDb", evidence)


@pytest.mark.assumptions("ATH-01", "ATH-02")
@pytest.mark.changes(KEYS)
@pytest.mark.only_on_aws("MiniStack's Athena does not read lists of files")
def test_audit_athena_finds_lost_events(checks: Deployed, evidence: Evidence) -> None:
    """An audit in parts finds lost events with Athena, over lists of files."""
    check_audit(checks, "Athena", evidence)


def check_audit(checks: Deployed, name: str, evidence: Evidence) -> None:
    """Lose the events of two objects of twelve, and let the audit find them."""
    for n in range(KEYS):
        checks.object_once(name, f"audited/{n}", checks.put(name, f"audited/{n}"))
    with events_to(checks, name, None):
        lost = {f"lost/{n}": checks.put(name, f"lost/{n}") for n in range(2)}
    settle(checks)
    report = checks.command(name, "audit", "--resend")
    assert sorted(one["key"] for one in report["findings"]) == sorted(map(checks.key, lost))
    for key, version in lost.items():
        checks.object_once(name, key, version)
    evidence(f"of {report['listed']} objects, the audit found the two whose events were lost")


def settle(checks: Deployed) -> None:
    """Wait until all objects are older than the settle time of one second. S3's dates have whole seconds."""
    checks.pause(4)
