"""Checks of whole pipelines: one of each kind of work, and the wire of the demo."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from intake_ledger_cli import audits
from intake_ledger_cli.acceptance.checking import Check, CheckFailed
from intake_ledger_cli.acceptance.world import World

_KEYS = 10
_EVENTS = ("s3:ObjectCreated:*", "s3:ObjectRemoved:*")


def every_version(world: World) -> str:
    """Three versions of a key, whose effects are transactions with the commits."""
    versions = [world.put("Every", "versions.json", {"kill": n == 1}) for n in range(3)]
    for version in versions:
        world.object_once("Every", "versions.json", version, seconds=600)
    return "each of three versions had one effect, in a transaction with its commit, although a worker was killed"


def fifo(world: World) -> str:
    """Messages of a FIFO queue, each identity twice."""
    url = world.pipeline("Fifo").queue_url
    for copy in ("a", "b"):
        for n in range(3):
            body, group = json.dumps({"key": "fifo", "identity": str(n)}), "fifo"
            world.aws.sqs.send_message(
                QueueUrl=url, MessageBody=body, MessageGroupId=group, MessageDeduplicationId=f"{n}{copy}"
            )
    return _messages(world, "fifo", "Fifo")


def kinesis(world: World) -> str:
    """Records of a stream, each identity twice."""
    stream = world.client("kinesis")
    for _ in range(2):
        for n in range(3):
            data = json.dumps({"key": "kinesis", "identity": str(n)}).encode()
            stream.put_record(StreamName=world.outputs["StreamName"], Data=data, PartitionKey="kinesis")
    return _messages(world, "kinesis", "Kinesis")


def _messages(world: World, key: str, intake: str) -> str:
    for n in range(3):
        world.once(f"messages/{key}", str(n))
    world.drained(world.pipeline(intake).queue_url)
    if (calls := world.calls(f"messages/{key}")) != {str(n): 1 for n in range(3)}:
        raise CheckFailed(f"the effects were {calls}")
    return "three messages, each sent twice, had one effect each"


def file_set(world: World) -> str:
    """A manifest before the last of its parts."""
    world.put("Latest", "sets/a/one.json")
    manifest = json.dumps(["one.json", "two.json"])
    bucket, key = world.pipeline("Latest").bucket, "sets/a/manifest.json"
    world.aws.s3.put_object(Bucket=bucket, Key=key, Body=manifest)
    world.put("Latest", "sets/a/two.json")
    world.once(f"{bucket}/{key}", "2 parts")
    return "a set with two parts had one effect, when the last part was committed"


def machine(world: World) -> str:
    """An execution of Step Functions for an object."""
    world.object_once("Machine", "work.json", world.put("Machine", "work.json"))
    return "the execution of an object had one effect"


def wire(world: World) -> str:
    """S3's messages twice, in the wrong order, late and lost, and a killed worker: as in the demo."""
    keys = [f"wire/{n}.json" for n in range(_KEYS)]
    deployed, versions = world.pipeline("Latest"), dict[str, str]()
    with _events_to(world, deployed.bucket, world.outputs["TapQueueUrl"]):
        sent = [(key, world.put("Latest", key)) for key in keys]
        versions = {key: world.put("Latest", key, {"kill": key == keys[0]}) for key in keys}
        marker = world.aws.s3.delete_object(Bucket=deployed.bucket, Key=keys[1])["VersionId"]
        sent += [*versions.items(), (keys[1], marker)]
        bodies = _tapped(world, sent)
    lost = {(keys[2], versions[keys[2]])}
    forwarded = [bodies[one] for one in reversed(sent) if one not in lost]
    # Newest first, each twice, and once more when everything was handled.
    for body in (*forwarded, *forwarded):
        world.aws.sqs.send_message(QueueUrl=deployed.queue_url, MessageBody=body)
    world.drained(deployed.queue_url, seconds=600)
    for body in forwarded:
        world.aws.sqs.send_message(QueueUrl=deployed.queue_url, MessageBody=body)
    world.drained(deployed.queue_url)
    _settle(world)
    audits.run_audit(world.aws, deployed, dry_run=False, sleep=time.sleep)
    current = versions | {keys[1]: marker}
    for key, version in current.items():
        world.object_once("Latest", key, version)
    for key in keys:
        if any(number != 1 for number in world.object_calls("Latest", key).values()):
            raise CheckFailed(f"{key} has the effects {world.object_calls('Latest', key)}")
    again = audits.run_audit(world.aws, deployed, dry_run=True, sleep=time.sleep)
    if any(again["counts"].values()):
        raise CheckFailed(f"an audit afterwards finds {again['counts']}")
    return f"{len(keys)} keys are in their last state, no version had two effects, and an audit finds nothing"


@contextmanager
def _events_to(world: World, bucket: str, queue_url: str | None) -> Iterator[None]:
    """Send the events of a bucket to another queue, or nowhere, and to its own afterwards."""
    s3: Any = world.aws.s3
    found = s3.get_bucket_notification_configuration(Bucket=bucket)
    before = {name: value for name, value in found.items() if name != "ResponseMetadata"}
    configuration: dict[str, Any] = {}
    if queue_url is not None:
        rule = {"QueueArn": world.arn_of(queue_url), "Events": list(_EVENTS)}
        configuration = {"QueueConfigurations": [rule]}
    try:
        s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=configuration)
        # S3 may use the former configuration for a moment.
        world.pause(0 if world.local else 60)
        yield
    finally:
        s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=before)


def _tapped(world: World, expected: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], str]:
    """Receive S3's messages, by key and version, until all have come."""
    found: dict[tuple[str, str], str] = {}
    url = world.outputs["TapQueueUrl"]

    def all_came() -> bool:
        for message in world.aws.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
            for record in json.loads(message["Body"]).get("Records", ()):
                one = record["s3"]["object"]
                found[one["key"], one["versionId"]] = message["Body"]
            world.aws.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return set(expected) <= set(found)

    world.until(all_came, "S3 has sent a message about each operation", seconds=600)
    return found


def duckdb(world: World) -> str:
    """An audit in parts, joined by DuckDB."""
    return _audited(world, "DuckDb")


def athena(world: World) -> str:
    """An audit in parts, joined by Athena over lists of files."""
    return _audited(world, "Athena")


def _audited(world: World, name: str) -> str:
    deployed = world.pipeline(name)
    for n in range(_KEYS):
        world.object_once(name, f"audited/{n}", world.put(name, f"audited/{n}"))
    with _events_to(world, deployed.bucket, None):
        lost = {f"lost/{n}": world.put(name, f"lost/{n}") for n in range(2)}
    _settle(world)
    report = audits.run_audit(world.aws, deployed, dry_run=False, sleep=time.sleep)
    if sorted(one["key"] for one in report["findings"]) != sorted(lost):
        raise CheckFailed(f"the audit found {report['findings']}")
    for key, version in lost.items():
        world.object_once(name, key, version)
    return f"of {report['listed']} objects, the audit found the two whose events were lost"


def _settle(world: World) -> None:
    """Wait until all objects are older than the settle time of one second. S3's dates have whole seconds."""
    world.pause(4)


CHECKS = (
    Check(
        name="wire",
        shows="Messages that come twice, late, in the wrong order or never, and a killed worker, change nothing.",
        run=wire,
        assumptions=("S3-22", "LAM-02"),
        changes=_KEYS * 8,
    ),
    Check(
        name="transactions",
        shows="Each version has one effect, in a transaction with its commit.",
        run=every_version,
        changes=3,
    ),
    Check(name="fifo", shows="Each message of a FIFO queue has one effect.", run=fifo, changes=6),
    Check(name="kinesis", shows="Each record of a stream has one effect.", run=kinesis, changes=6),
    Check(name="set", shows="A set has one effect, when it is complete.", run=file_set, changes=3),
    Check(
        name="machine",
        shows="The end of an execution wakes the message that waits for it.",
        run=machine,
        assumptions=("SFN-02",),
    ),
    Check(
        name="audit-duckdb",
        shows="An audit in parts finds lost events with DuckDB, whose layer is for the functions' architecture.",
        run=duckdb,
        assumptions=("SFN-04", "SFN-05", "PY-01"),
        changes=_KEYS,
    ),
)
ATHENA = Check(
    name="audit-athena",
    shows="An audit in parts finds lost events with Athena, over lists of files.",
    run=athena,
    assumptions=("ATH-01", "ATH-02"),
    changes=_KEYS,
    not_local="MiniStack's Athena does not read lists of files",
    only_aws=True,
)
