"""Facts that were recorded on AWS, against the stores in memory, moto, MiniStack and LocalStack.

Four independent implementations play the same scenarios. Where one differs, the recording decides. MiniStack behind
the corrections of the fault runs differs nowhere.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from cdk_intake_ledger.testing import MemoryDynamoDB
from intake_ledger.events.parser import Message, parse_message
from intake_ledger.protocol.change import Change
from intake_ledger_testing.events import eventbridge_event, s3_notification, sqs_record
from intake_ledger_testing.memory_outputs import MemoryOutputs
from intake_ledger_testing.memory_s3 import MemoryS3
from tests.truth import servers
from tests.truth.facts import Fact, MemoryVersions, Reads, Uploads, facts
from tests.truth.policies import Json

S3, READS, SQS = (facts(name)["fact"] for name in ("s3", "reads", "sqs"))
EVENTS, DYNAMODB = facts("events"), facts("dynamodb")
SERVERS = {"moto": servers.moto, "ministack": servers.ministack, "corrected": servers.corrected}
IMPLEMENTATIONS = ("memory", *SERVERS, "localstack")
WRONG = {
    ("moto", "upload-if-match"): "complete 4: ok",
    ("moto", "upload-after-put"): "complete 3: ok, complete 4: ok",
    ("moto", "upload-after-identical-put"): "complete 3: ok",
    ("moto", "upload-after-delete"): "complete 3: ok, complete 5: crash",
    ("moto", "new-upload-after-delete"): "complete 4: ok, complete 6: 412 PreconditionFailed",
    ("moto", "reads-marker"): "get 6: 404",
    ("moto", "reads-suspended"): "head 1: object none",
    ("ministack", "reads-suspended"): "head 1: object none",
    ("moto", "oversized-attributes"): "send 0: ok",
    ("moto", "empty-attribute"): "send 0: ok",
    ("moto", "visibility-batch-of-ten"): "hide batch 0: ReceiptHandleIsInvalid",
    ("moto", "deletion-batch-of-ten"): "delete batch 0: BatchEntryIdsNotDistinct",
    ("ministack", "upload-after-put"): "complete 4: ok, complete 6: 412 PreconditionFailed",
    ("ministack", "upload-after-identical-put"): "complete 3: ok, complete 5: 412 PreconditionFailed",
    ("ministack", "upload-after-delete"): "complete 5: ok",
    ("ministack", "new-upload-after-delete"): "complete 4: ok, complete 6: 412 PreconditionFailed",
    ("ministack", "oversized-attributes"): "send 0: ok",
    ("ministack", "empty-attribute"): "send 0: ok",
}
"""What an emulator does instead, by its name and the ID of the fact."""


@pytest.fixture(scope="module", params=IMPLEMENTATIONS)
def implementation(request: pytest.FixtureRequest) -> Iterator[tuple[str, servers.Implementation]]:
    name: str = request.param
    if name == "memory":
        yield name, servers.InMemory()
        return
    if name == "localstack":
        yield name, request.getfixturevalue("localstack")
        return
    with SERVERS[name]() as server:
        yield name, server


def differences(place: Any, fact: Fact) -> str:
    """The steps that gave another answer than AWS."""
    return ", ".join(
        f"{step['do']} {number}: {given}"
        for number, step in enumerate(fact["steps"])
        if (given := place.step(step)) != step["gives"]
    )


@pytest.mark.failure_mode("F413")
@pytest.mark.parametrize("fact", S3, ids=lambda fact: fact["id"])
def test_conditional_writes_are_answered_as_recorded(
    implementation: tuple[str, servers.Implementation], fact: Fact
) -> None:
    name, server = implementation
    assert differences(server.uploads(fact), fact) == WRONG.get((name, fact["id"]), "")


@pytest.mark.failure_mode("F413")
@pytest.mark.parametrize("fact", READS, ids=lambda fact: fact["id"])
def test_versions_are_read_as_documented(implementation: tuple[str, servers.Implementation], fact: Fact) -> None:
    name, server = implementation
    if name == "memory" and "suspended" in fact:
        pytest.skip("it has versions or none")
    assert differences(server.reads(fact), fact) == WRONG.get((name, f"reads-{fact['id']}"), "")


def test_a_moved_message_keeps_its_attributes(implementation: tuple[str, servers.Implementation]) -> None:
    """SQS moves a message to the dead-letter queue at its second receive."""
    _, server = implementation
    if not isinstance(server, servers.Server):
        pytest.skip("its tests are in tests/unit")
    target = server.queue()
    arn = server.sqs.get_queue_attributes(QueueUrl=target, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
    queue = server.queue(VisibilityTimeout="0", RedrivePolicy=policy)
    attributes = {"rejected_fence": {"DataType": "Number", "StringValue": "7"}}
    sent = server.sqs.send_message(QueueUrl=queue, MessageBody="body", MessageAttributes=attributes)
    for _ in range(2):
        server.sqs.receive_message(QueueUrl=queue)
    (moved,) = server.sqs.receive_message(QueueUrl=target, MessageAttributeNames=["All"])["Messages"]
    assert (moved["Body"], moved["MessageAttributes"]) == ("body", attributes)
    assert moved["MessageId"] == sent["MessageId"]


@pytest.mark.failure_mode("F413")
@pytest.mark.parametrize("fact", SQS, ids=lambda fact: fact["id"])
def test_messages_are_taken_as_recorded(implementation: tuple[str, servers.Implementation], fact: Fact) -> None:
    name, server = implementation
    assert differences(server.messages(), fact) == WRONG.get((name, fact["id"]), "")


@pytest.mark.failure_mode("F413")
@pytest.mark.parametrize("fact", DYNAMODB["fact"], ids=lambda fact: fact["id"])
def test_refused_writes_are_answered_as_recorded(
    implementation: tuple[str, servers.Implementation], fact: Fact
) -> None:
    """LocalStack has no DynamoDB of its own: it needs Java and a download."""
    name, server = implementation
    if name == "localstack":
        pytest.skip("no DynamoDB")
    client = server.client("dynamodb") if isinstance(server, servers.Server) else MemoryDynamoDB()
    assert refusal(client, fact) == (fact["code"], fact["shows"])


def refusal(client: Any, fact: Fact) -> tuple[str, Json]:
    """The code of a refused request, and what the answer shows besides."""
    place = {"TableName": "ledger"} if fact["operation"] == "put_item" else {}
    client.put_item(TableName="ledger", Item=DYNAMODB["row"])
    with pytest.raises(ClientError) as refused:
        getattr(client, fact["operation"])(**place, **fact["arguments"])
    answer: Any = refused.value.response
    reasons = [one["Code"] for one in answer.get("CancellationReasons", [])]
    return answer["Error"]["Code"], {"CancellationReasons": reasons} if reasons else {"Item": answer.get("Item")}


_EXAMPLES = {
    "eTag": "d41d8cd98f00b204e9800998ecf8427e",
    "etag": "d41d8cd98f00b204e9800998ecf8427e",
    "key": "a b+%",
    "sequencer": "0055AED6DCD90281E5",
    "size": 1,
    "version-id": "v1",
    "versionId": "v1",
}


def meaning(body: str) -> str:
    """The state that the runtime sees in an event."""
    (parsed,) = parse_message(body)
    if not isinstance(parsed, Change):
        return type(parsed).__name__.lower()
    return parsed.state.kind.value if parsed.state else "ask"


@pytest.mark.failure_mode("F413")
@pytest.mark.parametrize("fact", EVENTS["notification"], ids=lambda fact: f"{fact['event']} {len(fact['object'])}")
def test_a_notification_means_what_happened(fact: Fact) -> None:
    fields = {name: _EXAMPLES[name] for name in fact["object"]} | {"key": "a+b%2B%25"}
    record = json.loads(s3_notification("bucket", "key", event=fact["event"]))
    record["Records"][0]["s3"]["object"] = fields
    assert meaning(json.dumps(record)) == fact["means"]


@pytest.mark.parametrize("fact", EVENTS["bridge"], ids=lambda fact: f"{fact['type']} {len(fact['object'])}")
def test_an_event_of_eventbridge_means_what_happened(fact: Fact) -> None:
    event = json.loads(eventbridge_event("bucket", "key")) | {"detail-type": fact["type"]}
    event["detail"] = {
        "version": "0",
        "bucket": {"name": "bucket"},
        "object": {name: _EXAMPLES[name] for name in fact["object"]},
    } | fact["detail"]
    assert meaning(json.dumps(event)) == fact["means"]


def test_the_kit_has_the_recorded_fields() -> None:
    """Tests of processors rest on the kit's events. A field that AWS never sends would be a trap."""
    notifications = [set(fact["object"]) for fact in EVENTS["notification"]]
    body = s3_notification("bucket", "key", version_id="v1", etag="e", size=1, sequencer="00")
    assert set(json.loads(body)["Records"][0]["s3"]["object"]) in notifications
    made = json.loads(eventbridge_event("bucket", "key", etag="e", size=1, sequencer="00"))["detail"]["object"]
    assert set(made) in [set(fact["object"]) for fact in EVENTS["bridge"]]
    record = sqs_record("body", attributes={"fence": 6}, sent_at=0)
    assert set(record) <= set(EVENTS["mapping"]["record"])
    assert set(record["attributes"]) <= set(EVENTS["mapping"]["attributes"])
    assert record["messageAttributes"]["fence"].items() <= EVENTS["mapping"]["number"].items()


def test_a_recorded_record_is_read() -> None:
    record = sqs_record("{}") | {"messageAttributes": {"rejected_fence": EVENTS["mapping"]["number"]}}
    assert Message(record).body == "{}"


class StaleCompletions(MemoryOutputs):
    """Answers as MiniStack: it forgets writes during an upload."""

    def _overwrite(self, name: tuple[str, str]) -> None:
        del name


class LaggingHead(MemoryS3):
    """Shows the state before the newest one."""

    def head_object(self, **request: Any) -> dict[str, Any]:
        versions = self.keys.get(request["Key"], [])
        newest = [versions.pop()] if len(versions) > 1 and "VersionId" not in request else []
        try:
            return super().head_object(**request)
        finally:
            versions += newest


class NoReturnedRow(MemoryDynamoDB):
    """Refuses a write without the old item."""

    def put_item(self, **request: Any) -> Any:
        return super().put_item(**request | {"ReturnValuesOnConditionCheckFailure": "NONE"})


def fact_of(found: list[Fact], id: str) -> Fact:
    return next(one for one in found if one["id"] == id)


@pytest.mark.failure_mode("F413")
def test_a_wrong_answer_is_found() -> None:
    """Wrong assumptions, in copies of the stores in memory."""
    fact = fact_of(S3, "upload-after-put")
    assert differences(Uploads(StaleCompletions(), fact, memory=True), fact).startswith("complete 4: ok")
    fact = fact_of(READS, "marker")
    lagging = LaggingHead(clock=lambda: 0, versioned=True)
    assert differences(Reads(MemoryVersions(lagging), fact), fact) == "head 4: object 0"
    fact = fact_of(DYNAMODB["fact"], "returned-row")
    assert refusal(NoReturnedRow(), fact) == (fact["code"], {"Item": None})
