"""Incidents that a person repairs with the command alone: the verdict of `status` names the next command.

The commands and the consumer are real, and S3, SQS and DynamoDB are moto's.
tests/local/operations/test_drills.py has incidents of a deployed stack.
"""

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from intake_ledger import Unprocessable
from intake_ledger.consumer import composition
from intake_ledger.consumer.consumer import Consumer
from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.row import Row, Status
from intake_ledger_cli.app import now_ms
from tests.unit.command.support import Site, client, make_message_site, make_site
from tests.unit.command.test_commands import Person, sit
from tests.unit.support import HOUR, MINUTE, notification, record

__all__ = ["sit"]
pytestmark = pytest.mark.usefixtures("dynamodb")
SETTINGS = {
    "INTAKE_PROCESSOR": "incident_code:process",
    "INTAKE_PROCESSING_TIMEOUT_SECONDS": "60",
    "INTAKE_MAX_ATTEMPTS": "12",
    "INTAKE_MIN_BACKOFF_SECONDS": "15",
    "INTAKE_MAX_BACKOFF_SECONDS": "900",
    "INTAKE_MAX_EVENT_AGE_SECONDS": "21600",
}
CONTEXT: Any = SimpleNamespace(get_remaining_time_in_millis=lambda: 600_000, aws_request_id="r", function_name="f")


class Incident:
    """A pipeline of a kind with a consumer, and the person who repairs it."""

    def __init__(self, person: Person, monkeypatch: pytest.MonkeyPatch, read_log: Callable[[], Any]) -> None:
        self.person, self.site, self._read_log = person, person.site, read_log
        self.calls: list[str] = []
        """Keys for which the processor was called."""
        self.broken = False
        """True while the code of the processor rejects all."""
        monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "incidents")
        monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", self.site.deployed.name)
        monkeypatch.setitem(sys.modules, "incident_code", SimpleNamespace(process=self._process))
        environment = self.site.environment() | SETTINGS
        parts = composition.make_parts(environment)
        runner = composition.make_runner(environment, parts.services)
        self._consumer = Consumer(parts.services, parts.kind, runner)

    def _process(self, item: Any, **_: Any) -> None:
        self.calls.append(item.key)
        if self.broken:
            raise Unprocessable("no amount")

    def upload(self, key: str) -> None:
        """Upload an object. Its event is in the queue."""
        [version] = self.site.put(key)
        size = client("s3").head_object(Bucket=self.site.deployed.bucket, Key=key)
        state = State(StateKind.OBJECT, version, size["ETag"].strip('"'), 1)
        self.send(notification(record(key, state, bucket=self.site.deployed.bucket)))

    def send(self, body: str) -> None:
        """Send a message to the queue."""
        client("sqs").send_message(QueueUrl=self.site.deployed.queue_url, MessageBody=body)

    def work(self) -> None:
        """Let the consumer take all messages that are visible."""
        sqs, url = client("sqs"), self.site.deployed.queue_url
        wanted = {
            "QueueUrl": url,
            "MaxNumberOfMessages": 10,
            "AttributeNames": ["All"],
            "MessageAttributeNames": ["All"],
        }
        while found := sqs.receive_message(**wanted).get("Messages"):
            records = [
                {
                    "messageId": one["MessageId"],
                    "receiptHandle": one["ReceiptHandle"],
                    "body": one["Body"],
                    "attributes": one["Attributes"],
                    "messageAttributes": {
                        name: {"stringValue": value["StringValue"], "dataType": value["DataType"]}
                        for name, value in one.get("MessageAttributes", {}).items()
                    },
                    "eventSource": "aws:sqs",
                }
                for one in found
            ]
            answer = self._consumer.handle({"Records": records}, CONTEXT)
            failed = {one["itemIdentifier"] for one in answer["batchItemFailures"]}
            for one in found:
                if one["MessageId"] not in failed:
                    sqs.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])
        self._read_log()

    def purge(self, url: str) -> None:
        """Delete all messages of a queue."""
        client("sqs").purge_queue(QueueUrl=url)

    def next_command(self) -> str:
        """The command of the verdict, or `OK`."""
        first = self.person.types("status").splitlines()[0]
        return first.rpartition(" -> intake-ledger ")[2] if " -> intake-ledger " in first else first

    def types(self, command: str) -> str:
        """Type a command, with a reason if it asks for one, and let the consumer work. Returns its output."""
        names = shlex.split(command)
        because = ("--because", "the incident") if names[0] in ("dismiss", "release", "retry", "resume") else ()
        shown = self.person.types(*names, *(() if "--dry-run" in names else because), yes="--dry-run" not in names)
        self.work()
        return shown


@pytest.fixture
def stage(
    sit: Callable[..., Person], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Incident]:
    def staged(site: Site | None = None) -> Incident:
        return Incident(sit(site or make_site()), monkeypatch, capsys.readouterr)

    return staged


def test_files_that_a_bug_rejected(stage: Callable[..., Incident]) -> None:
    """The reasons come first. One is repaired, and its files are tried again."""
    incident = stage()
    incident.broken = True
    incident.upload("in/a")
    incident.upload("in/b")
    incident.work()
    assert incident.next_command() == "list --by-reason"
    assert "no amount" in incident.types("list --by-reason")
    incident.broken = False
    assert "moved back to the queue  2" in incident.types("retry --reason 'no amount' --dry-run")
    incident.types("retry --reason 'no amount'")
    assert (incident.next_command(), incident.calls) == ("OK", ["in/a", "in/b"] * 2)


def test_dead_letters_that_have_expired(stage: Callable[..., Incident]) -> None:
    """Rejected rows without a dead letter are opened, once each."""
    incident = stage()
    incident.broken = True
    incident.upload("in/a")
    incident.work()
    incident.purge(incident.site.deployed.dead_letter_url)
    incident.broken = False
    command = incident.next_command()
    assert "reopen" in incident.types(command)
    assert incident.calls == ["in/a"]
    incident.types(command.removesuffix(" --dry-run"))
    assert (incident.next_command(), incident.calls) == ("OK", ["in/a"] * 2)


@pytest.mark.parametrize("status", [Status.FAILED, Status.PROCESSING], ids=["failed", "a dead worker's"])
def test_a_purged_queue(stage: Callable[..., Incident], status: Status) -> None:
    """A row that waits gets a message. A dead worker's row is on the list of stuck ones, which names it."""
    incident = stage()
    [version] = incident.site.put("in/a")
    at = now_ms() - HOUR
    row = Row(status, at, version_id=version, etag="e", attempts=1, updated_at=at, retry_at=now_ms() + HOUR)
    if status is Status.PROCESSING:
        row = replace(row, lease_until=now_ms() - MINUTE, lease_owner="dead", retry_at=None)
    incident.site.row("in/a", row)
    if status is Status.FAILED:
        assert incident.next_command() == "retry --waiting"
        incident.types("retry --waiting")
    else:
        assert "in/a" in incident.types("list --status stuck")
        incident.types("retry in/a")
    assert (incident.next_command(), incident.calls) == ("OK", ["in/a"])


def test_a_forgotten_pause(stage: Callable[..., Incident]) -> None:
    """The verdict says who has paused the pipeline and why."""
    incident = stage()
    incident.person.types("pause", "--because", "the warehouse is being moved", "--yes")
    incident.upload("in/a")
    assert "because the warehouse is being moved" in incident.person.types("status").splitlines()[0]
    command = incident.next_command()
    assert command == "resume"
    incident.person.functions.source = "Enabled"
    assert "Paused" not in incident.person.types("status"), "a deployment has enabled the mapping"
    incident.person.functions.source = "Disabled"
    incident.types(command)
    assert (incident.next_command(), incident.calls) == ("OK", ["in/a"])


def order(identity: str, pieces: int | None) -> str:
    return json.dumps({"order": "o-1", "id": identity, "pieces": pieces})


def test_a_rejected_message_that_comes_corrected(stage: Callable[..., Incident]) -> None:
    """Its dead letter is chosen by its ID, and it alone opens the row."""
    incident = stage(make_message_site())
    incident.broken = True
    incident.send(order("e1", None))
    incident.work()
    incident.send(order("e1", 3))
    incident.work()
    incident.broken = False
    assert incident.next_command() == "list --by-reason"
    found = incident.person.reads("retry", "--prefix", "", "--dry-run")["redriven"]
    [corrected] = found["closed"]
    assert corrected["reasonCode"] == "identity_rejected"
    incident.types(f"retry --letter {corrected['id']}")
    assert incident.calls == ["o-1"] * 2
    assert incident.next_command() == "retry --prefix '' --dry-run"
    [former] = incident.person.reads("retry", "--prefix", "", "--dry-run")["redriven"]["deadLetters"]
    assert former["reason"] == "no amount"
    incident.types(f"dismiss --letter {former['id']}")
    assert (incident.next_command(), incident.calls) == ("OK", ["o-1"] * 2)


@pytest.mark.failure_mode("F757")
def test_garbage_in_the_dead_letter_queue(stage: Callable[..., Incident]) -> None:
    """A retry would bring it back. It is deleted by its ID, and leaves the others."""
    incident = stage()
    incident.broken = True
    incident.send("no event of S3")
    incident.upload("in/a")
    incident.work()
    [garbage] = incident.person.reads("retry", "--reason", "unparseable_message", "--dry-run")["redriven"][
        "deadLetters"
    ]
    incident.types(f"dismiss --letter {garbage['id']}")
    incident.broken = False
    incident.types(incident.next_command().replace("list --by-reason", "retry --prefix ''"))
    assert (incident.next_command(), incident.calls) == ("OK", ["in/a"] * 2)


def test_messages_that_were_purged(stage: Callable[..., Incident]) -> None:
    """Nothing else has their content: the verdict names their source."""
    incident = stage(make_message_site())
    at = now_ms() - HOUR
    incident.site.row("o-1", Row(Status.FAILED, at, version_id="e1", attempts=1, updated_at=at, retry_at=at + MINUTE))
    assert incident.next_command().endswith("-> send them again from their source")
    incident.send(order("e1", 3))
    incident.work()
    assert (incident.next_command(), incident.calls) == ("OK", ["o-1"])


def test_a_restore_from_before_a_retry(stage: Callable[..., Incident], monkeypatch: pytest.MonkeyPatch) -> None:
    """The row is rejected again, and its letter was served: nothing starts it without `--again`."""
    incident = stage()
    incident.broken = True
    incident.upload("in/a")
    incident.work()
    table, dynamodb = incident.site.deployed.table, client("dynamodb")
    restored = dynamodb.scan(TableName=table)["Items"]
    incident.broken = False
    incident.types("retry in/a")
    for item in restored:
        dynamodb.put_item(TableName=table, Item=item)
    described = dynamodb.describe_table(TableName=table)
    described["Table"]["RestoreSummary"] = {"RestoreDateTime": datetime.now(UTC)}
    monkeypatch.setattr(dynamodb, "describe_table", lambda **_: described)
    command = incident.next_command()
    assert command == "retry --prefix '' --dry-run"
    assert "the table was restored since its rejection" in incident.types(command)
    incident.types(command.removesuffix(" --dry-run"))
    assert incident.calls == ["in/a"] * 2
    incident.types("retry in/a --again")
    assert (incident.next_command(), incident.calls) == ("OK", ["in/a"] * 3)


def test_a_wrong_operation_is_stopped(stage: Callable[..., Incident]) -> None:
    """Committed files are asked for again by mistake. The verdict is OK, and names the command that stops it."""
    incident = stage()
    for key in ("in/a", "in/b"):
        incident.upload(key)
    incident.work()
    incident.person.types("retry", "--again", "--prefix", "in/", "--because", "by mistake")
    ok, running = incident.person.types("status").splitlines()[:2]
    assert ok == "OK"
    stop = running.rpartition(" -> intake-ledger ")[2]
    assert stop.startswith("operations stop ")
    incident.types(f"{stop} --because mistake")
    assert (incident.next_command(), incident.calls) == ("OK", ["in/a", "in/b"])


def test_a_test_file_is_dismissed(stage: Callable[..., Incident]) -> None:
    incident = stage()
    incident.broken = True
    incident.upload("in/test")
    incident.work()
    incident.types("dismiss in/test")
    assert (incident.next_command(), incident.calls) == ("OK", ["in/test"])
