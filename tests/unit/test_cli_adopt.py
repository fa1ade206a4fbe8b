"""F97: a renamed pipeline adopts its old rows, messages and dead-letter messages, with moto's DynamoDB, SQS and S3."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto.backends import get_backend

from intake_ledger import ObjectChange, Unprocessable
from intake_ledger.ledger import LedgerTable
from intake_ledger.protocol import (
    PIPELINE_TAG,
    Ordering,
    Row,
    RowKey,
    State,
    StateKind,
    Status,
    from_dynamodb,
    review_partition,
    row_attributes,
    row_from_attributes,
    row_key,
    ulid,
)
from intake_ledger.requests import (
    Command,
    Entry,
    RequestBatch,
    Stop,
    batch_item,
    batch_key,
    packed,
    queried_batches,
    read_stop,
    redriven,
)
from tests.inside.command import Aws, commands, drain
from tests.inside.objects import composition
from tests.settings import THOROUGH
from tests.unit.cli_support import ASKING, STACK, FakeCloudFormation, FakeLambda, FakeSts, Site, client, make_site
from tests.unit.support import notification, record

if TYPE_CHECKING:
    from tests.inside.command import DeployedPipeline

pytestmark = pytest.mark.usefixtures("dynamodb")
NEW = "Intake-Billing-Invoices-4E5F6071"
_NUMBERS = count(1)
EFFECTS: list[tuple[str, str | None]] = []
BROKEN = {"in/bad.csv"}


def process(change: ObjectChange) -> str:
    """The processor of both pipelines."""
    if change.key in BROKEN:
        raise Unprocessable("no invoice in it")
    EFFECTS.append((change.key, change.version_id))
    return change.key


@dataclass
class Context:
    """Lambda's context."""

    def get_remaining_time_in_millis(self) -> int:
        return 60_000


@dataclass
class Renamed:
    """A former pipeline and its successor on one bucket."""

    old: Site
    new: Site
    reads: Callable[..., Any]
    monkeypatch: pytest.MonkeyPatch
    arguments: list[str] = field(default_factory=list)

    @property
    def former(self) -> str:
        return self.old.deployed.name

    def adopt(self, *arguments: str, ends: int = 0, former: str = "") -> Any:
        return self.reads("adopt", "--from", former or self.former, *self.arguments, *arguments, ends=ends)

    def upload(self, site: Site, *keys: str) -> None:
        """Upload objects, and send S3's events to the queue of a pipeline."""
        for key, version in zip(keys, site.put(*keys), strict=True):
            self.notify(site, key, version)

    def notify(self, site: Site, key: str, version: str, bucket: str | None = None) -> None:
        state = State(StateKind.OBJECT, version, "e", 1)
        now = int(time.time() * 1000)
        body = notification(record(key, state, bucket=bucket or site.deployed.bucket, at=now))
        client("sqs").send_message(QueueUrl=site.deployed.queue_url, MessageBody=body)

    def consume(self, site: Site) -> None:
        """Run the consumer until the queue is empty."""
        for name, value in (
            site.environment()
            | {
                "INTAKE_PROCESSOR": f"{__name__}:process",
                "INTAKE_PROCESSING_TIMEOUT_SECONDS": "10",
                "INTAKE_MAX_ATTEMPTS": "3",
                "INTAKE_MIN_BACKOFF_SECONDS": "0",
                "INTAKE_MAX_BACKOFF_SECONDS": "0",
                "INTAKE_MAX_EVENT_AGE_SECONDS": "21600",
                "INTAKE_CLOCK_SKEW_SECONDS": "1",
                "POWERTOOLS_SERVICE_NAME": site.deployed.name,
                "POWERTOOLS_METRICS_NAMESPACE": "IntakeLedger",
            }
        ).items():
            self.monkeypatch.setenv(name, value)
        composition.make_consumer.cache_clear()
        sqs, url = client("sqs"), site.deployed.queue_url
        while messages := sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"], AttributeNames=["All"]
        ).get("Messages"):
            records = [_record(one) for one in messages]
            failed = composition.handler({"Records": records}, Context())["batchItemFailures"]
            assert failed == []
            for one in messages:
                sqs.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])

    def rows(self, site: Site, pipeline: str) -> dict[str, Row]:
        """A pipeline's rows by key."""
        items = client("dynamodb").scan(TableName=site.deployed.table, ConsistentRead=True)["Items"]
        contents = [from_dynamodb(item) for item in items if item["sk"]["S"].startswith(f"{pipeline}@")]
        return {one["pk"].partition("/")[2]: row for one in contents if (row := row_from_attributes(one)) is not None}

    def write(self, site: Site, key: str, row: Row, **more: Any) -> None:
        """A row as another release may have written it."""
        deployed = site.deployed
        place = row_key(deployed.name, deployed.ordering, deployed.bucket, key, row.identity)
        put(deployed.table, place, row, **more)


def stored_rows(site: Site) -> list[Any]:
    """The items of the table that are rows. The others are records of operations."""
    return [item for item in client("dynamodb").scan(TableName=site.deployed.table)["Items"] if "status" in item]


def put(table: str, place: RowKey, row: Row, **more: Any) -> None:
    item: Any = {"pk": {"S": place.pk}, "sk": {"S": place.sk}, **more}
    for name, value in row_attributes(row).items():
        item[name] = {"N": str(value)} if isinstance(value, int) else {"S": str(value)}
    client("dynamodb").put_item(TableName=table, Item=item)


def _redrive_policy(deployed: "DeployedPipeline") -> None:
    """Set the queue's redrive policy as the construct does."""
    sqs = client("sqs")
    attributes_ = sqs.get_queue_attributes(QueueUrl=deployed.dead_letter_url, AttributeNames=["QueueArn"])["Attributes"]
    policy = {"deadLetterTargetArn": attributes_["QueueArn"], "maxReceiveCount": 300}
    sqs.set_queue_attributes(QueueUrl=deployed.queue_url, Attributes={"RedrivePolicy": json.dumps(policy)})


def _record(message: Any) -> dict[str, Any]:
    """Convert a message to the form that Lambda passes."""
    attributes_ = message.get("MessageAttributes", {})
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message["Attributes"],
        "messageAttributes": {
            name: {"stringValue": one["StringValue"], "dataType": one["DataType"]} for name, one in attributes_.items()
        },
    }


@pytest.fixture
def rename(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Renamed]:
    """Make a former pipeline and its successor with the same bucket."""
    EFFECTS.clear()
    BROKEN.clear()
    BROKEN.add("in/bad.csv")

    def make(
        ordering: Ordering = Ordering.LATEST,
        *,
        shared_table: bool = False,
        shared_queues: bool = False,
        tags: bool = True,
    ) -> Renamed:
        old, number = make_site(ordering), next(_NUMBERS)
        former = f"Intake-Invoices-{number:08X}"
        old.deployed = replace(old.deployed, name=former)
        sqs = client("sqs")
        deployed = replace(old.deployed, name=NEW)
        if not shared_table:
            deployed = replace(deployed, table=make_site(ordering).deployed.table)
        if not shared_queues:
            deployed = replace(
                deployed,
                queue_url=sqs.create_queue(QueueName=f"successor-{number}")["QueueUrl"],
                dead_letter_url=sqs.create_queue(QueueName=f"successor-dead-{number}")["QueueUrl"],
            )
        if tags:
            if not shared_table:
                arn = client("dynamodb").describe_table(TableName=old.deployed.table)["Table"]["TableArn"]
                client("dynamodb").tag_resource(ResourceArn=arn, Tags=[{"Key": PIPELINE_TAG, "Value": former}])
            if not shared_queues:
                for url in (old.deployed.queue_url, old.deployed.dead_letter_url):
                    sqs.tag_queue(QueueUrl=url, Tags={PIPELINE_TAG: former})
        _redrive_policy(old.deployed)
        new = Site(deployed)
        functions = FakeLambda({"consumer": new.environment()})
        monkeypatch.setattr(Aws, "cloudformation", FakeCloudFormation({STACK: [("AWS::Lambda::Function", "consumer")]}))
        monkeypatch.setattr(Aws, "functions", functions)
        monkeypatch.setattr(Aws, "tagging", boto3.client("resourcegroupstaggingapi"))
        for name in ("dynamodb", "s3", "sqs"):
            monkeypatch.setattr(Aws, name, client(name))
        monkeypatch.setattr(Aws, "sts", FakeSts())
        monkeypatch.setattr(drain, "WAIT_SECONDS", 0)

        def reads(*arguments: str, ends: int = 0) -> Any:
            capsys.readouterr()
            sure = ("--yes",) if arguments[0] in ASKING else ()
            try:
                code = commands.run([*arguments, *sure, "--stack", STACK, "--json"])
            finally:
                captured = capsys.readouterr()
            assert code == ends, captured
            return json.loads(captured.out) if captured.out else captured.err

        return Renamed(old, new, reads, monkeypatch)

    return make


TEN = [f"in/{number}.csv" for number in range(10)]


@pytest.mark.failure_mode("F97")
@pytest.mark.parametrize(("shared_table", "shared_queues"), [(False, False), (True, False), (True, True)])
def test_ten_queued_and_one_rejected_end_as_they_would_have(
    rename: Callable[..., Renamed], shared_table: bool, shared_queues: bool
) -> None:
    """The ten are processed once, the rejected one can be redriven, the committed one is a duplicate."""
    renamed = rename(shared_table=shared_table, shared_queues=shared_queues)
    old, new = renamed.old, renamed.new
    renamed.upload(old, "in/done.csv", "in/bad.csv")
    renamed.consume(old)
    assert [key for key, _ in EFFECTS] == ["in/done.csv"]
    before = renamed.rows(old, renamed.former)
    assert before["in/bad.csv"].status is Status.REJECTED
    renamed.upload(old, *TEN)

    result = renamed.adopt()

    assert result["complete"]
    assert (result["rows"]["moved"], result["deadLetters"]["moved"]) == (2, 1)
    assert shared_queues or result["queue"]["moved"] == 10
    assert renamed.rows(old, renamed.former) == {}
    after = renamed.rows(new, NEW)
    place = row_key(NEW, Ordering.LATEST, new.deployed.bucket, "in/bad.csv", None)
    assert after == {
        "in/done.csv": before["in/done.csv"],
        "in/bad.csv": replace(before["in/bad.csv"], needs_review=review_partition(NEW, place)),
    }
    renamed.notify(new, "in/done.csv", str(after["in/done.csv"].version_id))
    renamed.consume(new)
    assert Counter(key for key, _ in EFFECTS) == Counter([*TEN, "in/done.csv"])

    assert [row["key"] for row in renamed.reads("list", "--status", "REJECTED")["rows"]] == ["in/bad.csv"]
    BROKEN.clear()
    assert renamed.reads("redrive")["moved"] == 1
    renamed.consume(new)
    row = renamed.rows(new, NEW)["in/bad.csv"]
    assert (row.status, row.redrive_count) == (Status.PROCESSED, 1)
    assert row.fence > before["in/bad.csv"].fence
    assert Counter(key for key, _ in EFFECTS) == Counter([*TEN, "in/done.csv", "in/bad.csv"])
    assert renamed.adopt()["rows"]["moved"] == 0


class Dies(Exception):  # noqa: N818
    """The process is killed."""


class Mortal:
    """A client whose process dies after one of its calls."""

    def __init__(self, real: Any, life: "Iterator[bool]") -> None:
        self._real, self._life = real, life

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if name in ("meta", "get_paginator") or not callable(found):
            return found

        def call(*plain_: Any, **arguments: Any) -> Any:
            dies = next(self._life)
            try:
                return found(*plain_, **arguments)
            finally:
                if dies:
                    raise Dies

        return call


@pytest.mark.failure_mode("F97")
@pytest.mark.parametrize("shared_table", [False, True])
def test_requests_and_stops_of_people_move_too(rename: Callable[..., Renamed], shared_table: bool) -> None:
    renamed = rename(shared_table=shared_table)
    old, new, id_ = renamed.old.deployed, renamed.new.deployed, ulid(1, 1)
    batch = RequestBatch(id_, "1", Command.REPROCESS, 1, [Entry("in/a")])
    table = LedgerTable(client("dynamodb"), old.table)
    table.write(batch_key(old.name, batch), batch_item(batch, made_at=1))
    stop = Stop(id_, 1, "me", "the wrong prefix")
    table.write(stop.key(old.name), stop.item)
    renamed.adopt()
    assert read_stop(LedgerTable(client("dynamodb"), new.table), new.name, id_) == stop
    assert list(queried_batches(client("dynamodb"), new.table, new.name)) == [batch]
    assert list(queried_batches(client("dynamodb"), old.table, old.name)) == []


@pytest.mark.failure_mode("F97")
def test_a_redriven_message_can_still_be_stopped(rename: Callable[..., Renamed]) -> None:
    """Its attribute has the ID of the operation, and the name of the pipeline."""
    renamed, id_ = rename(), ulid(1, 1)
    texts = {"pipeline": renamed.former, "rejected_fence": "7", "reason": "no invoice in it"}
    attributes = {name: {"DataType": "String", "StringValue": text} for name, text in texts.items()}
    client("sqs").send_message(
        QueueUrl=renamed.old.deployed.queue_url, MessageBody="{}", MessageAttributes=packed(id_, attributes)
    )
    renamed.adopt()
    [message] = client("sqs").receive_message(QueueUrl=renamed.new.deployed.queue_url, MessageAttributeNames=["All"])[
        "Messages"
    ]
    found = redriven(message["MessageAttributes"]["intake_request"]["StringValue"])
    assert found is not None
    assert (found.request_id, found.attributes["pipeline"]) == (id_, renamed.new.deployed.name)


@pytest.mark.failure_mode("F97")
def test_a_call_that_is_killed_anywhere_is_repeated(rename: Callable[..., Renamed]) -> None:
    """After each of its requests (in the short form each fourth one); the next call completes the work."""
    for dies_at in count(step=1 if THOROUGH else 4):
        renamed = rename()
        old, new = renamed.old, renamed.new
        bucket = old.deployed.bucket
        old.reject("in/a", "no invoice in it")
        renamed.write(old, "in/b", Row(Status.PROCESSED, 7, version_id="v", committed_state="v#v"))
        renamed.write(new, "in/b", Row(Status.PROCESSED, 9, version_id="w", committed_state="v#w"))
        first = {"pk": {"S": bucket}, "sk": {"S": f"{renamed.former}@audit"}, "first_run_at": {"N": "5"}}
        client("dynamodb").put_item(TableName=old.deployed.table, Item=first)
        old.dead_letter("{}", reason="why", pipeline=renamed.former, rejected_fence=7)
        renamed.notify(old, "in/c", "v")
        lives = iter([*[False] * dies_at, True, *[False] * 1000])
        with pytest.MonkeyPatch.context() as patch:
            for name in ("dynamodb", "sqs"):
                patch.setattr(Aws, name, Mortal(client(name), lives))
            try:
                renamed.adopt()
                survived = True
            except Dies:
                survived = False
        for url in (old.deployed.queue_url, old.deployed.dead_letter_url):
            _show_again(url)
        result = renamed.adopt()
        assert result["complete"]
        rows = renamed.rows(new, NEW)
        assert {key: row.fence for key, row in rows.items()} == {"in/a": rows["in/a"].fence, "in/b": 9}
        assert renamed.rows(old, renamed.former) == {}
        assert _item(new, f"{NEW}@audit")["first_run_at"] == 5
        copies = new.messages()
        assert 1 <= len(copies) <= 2
        assert {one["body"] for one in copies} == {copies[0]["body"]}
        dead_letters = _dead_letter_attributes(new)
        assert 1 <= len(dead_letters) <= 2
        assert all(one == {"reason": "why", "pipeline": NEW, "rejected_fence": "7"} for one in dead_letters)
        if survived:
            assert (len(copies), len(dead_letters)) == (1, 1)
            break
    assert dies_at > 10


def _show_again(url: str) -> None:
    """Let the visibility timeout of all messages end."""
    backend = get_backend("sqs")["123456789012"]["eu-central-1"]
    for message in backend.get_queue(url.rsplit("/", 1)[-1])._messages:
        message.visible_at = 0


def _item(site: Site, sk: str) -> dict[str, Any]:
    key: Any = {"pk": {"S": site.deployed.bucket}, "sk": {"S": sk}}
    return from_dynamodb(client("dynamodb").get_item(TableName=site.deployed.table, Key=key).get("Item", {}))


def _dead_letter_attributes(site: Site) -> list[dict[str, str]]:
    sqs, url, found = client("sqs"), site.deployed.dead_letter_url, []
    while batch := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]).get(
        "Messages"
    ):
        found += [{name: one["StringValue"] for name, one in it["MessageAttributes"].items()} for it in batch]
    return found


class TestRows:
    def test_what_the_successor_wrote_is_newer(self, rename: Callable[..., Renamed]) -> None:
        """The successor's row stays, and its next fence is above the old row's fence."""
        renamed = rename()
        renamed.write(renamed.old, "in/a", Row(Status.REJECTED, 9, version_id="v", reason="old", updated_at=1))
        renamed.write(renamed.new, "in/a", Row(Status.PROCESSED, 3, version_id="w", committed_state="v#w"))
        assert renamed.adopt()["rows"] == {
            "moved": 0, "superseded": 1, "held": 0, "laterFormat": 0, "ofOtherBuckets": {},
        }  # fmt: skip
        row = renamed.rows(renamed.new, NEW)["in/a"]
        assert (row.status, row.version_id, row.fence) == (Status.PROCESSED, "w", 10)
        assert renamed.rows(renamed.old, renamed.former) == {}

    def test_what_the_successor_works_on_keeps_its_fence(self, rename: Callable[..., Renamed]) -> None:
        """A new fence would refuse the successor's commit. The old row waits for the next call."""
        renamed = rename()
        renamed.write(renamed.old, "in/a", Row(Status.FAILED, 9, version_id="v"))
        claim = Row(Status.PROCESSING, 3, version_id="w", lease_owner="x", lease_until=2**50)
        renamed.write(renamed.new, "in/a", claim)
        assert renamed.adopt(ends=1)["rows"]["held"] == 1
        assert renamed.rows(renamed.new, NEW)["in/a"] == claim
        assert "in/a" in renamed.rows(renamed.old, renamed.former)

    def test_what_an_old_worker_holds_is_left_to_it(self, rename: Callable[..., Renamed]) -> None:
        """The old worker may commit until its lease ends. Another row is moved in the meantime."""
        renamed = rename()
        for key, until in (("in/a", 2**50), ("in/b", 1)):
            renamed.write(
                renamed.old, key, Row(Status.PROCESSING, 9, version_id="v", lease_owner="x", lease_until=until)
            )
        result = renamed.adopt(ends=1)
        assert (result["rows"]["held"], result["rows"]["moved"], result["complete"]) == (1, 1, False)
        assert set(renamed.rows(renamed.old, renamed.former)) == {"in/a"}

    def test_a_row_that_changes_meanwhile_is_not_lost(self, rename: Callable[..., Renamed]) -> None:
        """An old worker commits between the read and the move. The row is moved by the next call."""
        renamed = rename()
        renamed.write(renamed.old, "in/a", Row(Status.FAILED, 9, version_id="v"))
        real = client("dynamodb")

        class Late:
            def __getattr__(self, name: str) -> Any:
                return getattr(real, name)

            def transact_write_items(self, **arguments: Any) -> Any:
                renamed.write(
                    renamed.old, "in/a", Row(Status.PROCESSED, 10, version_id="v", committed_state="v#v", updated_at=5)
                )
                return real.transact_write_items(**arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Aws, "dynamodb", Late())
            assert renamed.adopt(ends=1)["rows"]["held"] == 1
        assert renamed.adopt()["rows"]["moved"] == 1
        assert renamed.rows(renamed.new, NEW)["in/a"].status is Status.PROCESSED

    @pytest.mark.failure_mode("F113")
    def test_what_a_later_release_wrote_stays(self, rename: Callable[..., Renamed]) -> None:
        """This release does not understand the row."""
        renamed = rename()
        renamed.write(renamed.old, "in/a", Row(Status.FAILED, 9, version_id="v", format=99))
        result = renamed.adopt(ends=1)
        assert (result["rows"]["laterFormat"], result["rows"]["moved"]) == (1, 0)

    def test_what_is_not_known_is_kept(self, rename: Callable[..., Renamed]) -> None:
        """Unknown attributes of other types are copied too."""
        renamed = rename()
        row = Row(Status.PROCESSED, 9, version_id="v", committed_state="v#v")
        renamed.write(renamed.old, "in/a", row, late_writes={"SS": ["v#1", "v#2"]}, expires_at={"N": "99"})
        renamed.adopt()
        [item] = stored_rows(renamed.new)
        assert item["late_writes"]["SS"] == ["v#1", "v#2"]
        assert item["sk"]["S"] == f"{NEW}@latest"

    def test_each_version_has_its_row(self, rename: Callable[..., Renamed]) -> None:
        """In EVERY_VERSION the sort key has the version, or a hash of a long version, which includes the pipeline's
        name.
        """
        renamed = rename(Ordering.EVERY_VERSION)
        for version in ("short", "l" * 990, "l" * 1_010, "l" * 1_024):
            renamed.write(
                renamed.old,
                version,
                Row(Status.FAILED, 9, version_id=version, needs_review=f"{renamed.former}#waiting"),
            )
        assert renamed.adopt()["rows"]["moved"] == 4
        deployed = renamed.new.deployed
        for item in stored_rows(renamed.new):
            key, version = item["pk"]["S"].partition("/")[2], item["version_id"]["S"]
            place = row_key(NEW, Ordering.EVERY_VERSION, deployed.bucket, key, f"v#{version}")
            assert (item["pk"]["S"], item["sk"]["S"]) == (place.pk, place.sk)
            assert item["needs_review"]["S"] == f"{NEW}#waiting"

    def test_more_rows_than_a_transaction_takes(self, rename: Callable[..., Renamed]) -> None:
        """Another pipeline's rows stay, although its name begins with the same characters."""
        renamed = rename(shared_table=True)
        for number in range(60):
            renamed.write(renamed.old, f"in/{number}", Row(Status.PROCESSED, 9, version_id="v", committed_state="v#v"))
        theirs = row_key(f"{renamed.former}-b", Ordering.LATEST, renamed.old.deployed.bucket, "in/1", None)
        put(renamed.old.deployed.table, theirs, Row(Status.PROCESSED, 9, version_id="v"))
        assert renamed.adopt("--dry-run")["rows"]["moved"] == 60
        assert len(renamed.rows(renamed.old, renamed.former)) == 60
        assert renamed.adopt()["rows"]["moved"] == 60
        assert len(renamed.rows(renamed.new, NEW)) == 60
        assert len(renamed.rows(renamed.old, f"{renamed.former}-b")) == 1

    @pytest.mark.parametrize(("mine", "kept"), [(None, 5), (3, 3), (9, 5)])
    def test_the_audit_goes_on_from_its_first_run(
        self, rename: Callable[..., Renamed], mine: int | None, kept: int
    ) -> None:
        """The audit judges uploads between its first run and the rename. Items of old runs are deleted."""
        renamed, dynamodb = rename(), client("dynamodb")
        bucket = renamed.old.deployed.bucket
        places = ((bucket, "@audit"), (bucket, "@audit#rows#1"), (f"{bucket}#run#rows#001", "@audit#all"))
        for pk, sk in (*places, (bucket, "@ledger")):
            item = {"pk": {"S": pk}, "sk": {"S": f"{renamed.former}{sk}"}}
            if sk == "@audit":
                item["first_run_at"] = {"N": "5"}
            dynamodb.put_item(TableName=renamed.old.deployed.table, Item=item)
        if mine is not None:
            item = {"pk": {"S": bucket}, "sk": {"S": f"{NEW}@audit"}, "first_run_at": {"N": str(mine)}}
            dynamodb.put_item(TableName=renamed.new.deployed.table, Item=item)
        renamed.adopt()
        assert _item(renamed.new, f"{NEW}@audit")["first_run_at"] == kept
        assert dynamodb.scan(TableName=renamed.old.deployed.table)["Items"] == []

    def test_an_audit_that_runs_is_waited_for(self, rename: Callable[..., Renamed]) -> None:
        renamed = rename()
        place = {"pk": {"S": renamed.old.deployed.bucket}, "sk": {"S": f"{renamed.former}@audit"}}
        item: Any = place | {"lease_until": {"N": str(2**50)}}
        client("dynamodb").put_item(TableName=renamed.old.deployed.table, Item=item)
        assert renamed.adopt(ends=1)["rows"]["held"] == 1


class TestMessages:
    def test_dead_letters_keep_what_is_known_of_them(self, rename: Callable[..., Renamed]) -> None:
        """Only the pipeline's name changes. Messages of other pipelines stay."""
        renamed = rename()
        renamed.old.dead_letter("{}", reason="why", pipeline=renamed.former, key="in/a", attempts=3, rejected_fence=7)
        renamed.old.dead_letter("garbage", reason="theirs", pipeline="Other")
        result = renamed.adopt()["deadLetters"]
        assert (result["moved"], result["ofOthers"]) == (1, {"Other": 1})
        assert _dead_letter_attributes(renamed.new) == [
            {"reason": "why", "pipeline": NEW, "key": "in/a", "attempts": "3", "rejected_fence": "7"}
        ]
        assert renamed.old.visible(renamed.old.deployed.dead_letter_url) == 1

    def test_what_is_hidden_makes_it_incomplete(self, rename: Callable[..., Renamed]) -> None:
        """An old worker has the message, or it waits for a later attempt. The next call moves it."""
        renamed = rename()
        renamed.upload(renamed.old, "in/a")
        url = renamed.old.deployed.queue_url
        client("sqs").receive_message(QueueUrl=url, VisibilityTimeout=600)
        assert renamed.adopt(ends=1)["queue"]["hidden"] == 1
        _show_again(url)
        assert renamed.adopt()["queue"]["moved"] == 1

    def test_objects_of_an_old_bucket_stay_and_are_listed(self, rename: Callable[..., Renamed]) -> None:
        """The successor would reject messages about these objects."""
        renamed = rename()
        other = make_site()
        other.put(*(f"in/{number:02}" for number in range(25)))
        theirs = other.deployed.bucket
        renamed.notify(renamed.old, "in/00", "v", bucket=theirs)
        renamed.upload(renamed.old, "in/ours")
        place = row_key(renamed.former, Ordering.LATEST, theirs, "in/01", None)
        put(renamed.old.deployed.table, place, Row(Status.REJECTED, 9, version_id="v"))
        result = renamed.adopt()
        assert (result["queue"]["moved"], result["queue"]["ofOtherBuckets"]) == (1, {theirs: 1})
        assert (result["rows"]["moved"], result["rows"]["ofOtherBuckets"]) == (0, {theirs: 1})
        [bucket] = result["oldBuckets"]
        assert (bucket["bucket"], bucket["objects"], bucket["keys"][:2]) == (theirs, 25, ["in/00", "in/01"])
        assert len(bucket["keys"]) == 20
        assert renamed.old.visible(renamed.old.deployed.queue_url) == 1

    def test_an_old_bucket_is_found_by_its_tag(
        self, rename: Callable[..., Renamed], capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The bucket is found even if no row and no message names it."""
        renamed = rename()
        other = make_site()
        other.put("in/old.csv")
        tags: Any = {"TagSet": [{"Key": PIPELINE_TAG, "Value": renamed.former}]}
        client("s3").put_bucket_tagging(Bucket=other.deployed.bucket, Tagging=tags)
        assert [one["keys"] for one in renamed.adopt()["oldBuckets"]] == [["in/old.csv"]]
        assert commands.run(["adopt", "--from", renamed.former, "--yes", "--stack", STACK]) == 0
        assert "in/old.csv" in capsys.readouterr().out


class TestFinding:
    def test_what_is_given_is_not_looked_for(self, rename: Callable[..., Renamed]) -> None:
        """The resources of a deleted stack may have no tags."""
        renamed = rename(tags=False)
        renamed.upload(renamed.old, "in/a")
        renamed.write(renamed.old, "in/b", Row(Status.FAILED, 9, version_id="v"))
        assert renamed.adopt()["queue"] is None
        old = renamed.old.deployed
        renamed.arguments += [
            "--from-table", old.table, "--from-queue", old.queue_url, "--from-dead-letter-queue", old.dead_letter_url,
        ]  # fmt: skip
        result = renamed.adopt()
        assert (result["queue"]["moved"], result["rows"]["moved"], result["deadLetters"]["moved"]) == (1, 1, 0)

    def test_two_with_the_same_tag(self, rename: Callable[..., Renamed]) -> None:
        """The person has to select one."""
        renamed = rename()
        url = client("sqs").create_queue(QueueName="another-of-it")["QueueUrl"]
        client("sqs").tag_queue(QueueUrl=url, Tags={PIPELINE_TAG: renamed.former})
        assert "--from-dead-letter-queue" in renamed.adopt(ends=1)
        client("sqs").delete_queue(QueueUrl=url)

    def test_who_is_alive_is_left_alone(self, rename: Callable[..., Renamed]) -> None:
        """The command refuses the pipeline's name, a name in the same stack, and a queue that a function reads."""
        renamed = rename()
        functions: Any = Aws.functions
        renamed.upload(renamed.old, "in/a")
        assert "current name" in renamed.adopt(ends=1, former=NEW)
        functions.readers = ["arn:aws:lambda:eu-central-1:1:function:other"]
        assert f"{renamed.former} still runs: other takes messages" in renamed.adopt(ends=1)
        functions.readers = []
        functions.environments["older"] = renamed.old.environment()
        stack: Any = Aws.cloudformation
        stack.stacks[STACK].append(("AWS::Lambda::Function", "older"))
        assert "is deployed in the same stack" in renamed.adopt("--pipeline", NEW, ends=1)
        assert renamed.old.visible(renamed.old.deployed.queue_url) == 1


def test_a_person_reads_what_became_of_it(rename: Callable[..., Renamed], capsys: pytest.CaptureFixture[str]) -> None:
    """The output has counts, and asks for another call."""
    renamed = rename()
    renamed.upload(renamed.old, "in/a")
    renamed.write(renamed.old, "in/b", Row(Status.PROCESSING, 9, version_id="v", lease_until=2**50))
    renamed.old.dead_letter("{}", reason="why", pipeline=renamed.former)
    assert commands.run(["adopt", "--from", renamed.former, "--yes", "--stack", STACK]) == 1
    result = capsys.readouterr().out
    for words in (
        "1 messages moved",
        "1 dead-letter messages moved",
        "1 rows not moved: a worker",
        "run the command again",
    ):
        assert words in result
