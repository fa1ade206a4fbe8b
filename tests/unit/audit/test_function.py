"""The audit's handler, with S3, SQS, DynamoDB and CloudWatch in moto."""

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from benchmarks import cost
from botocore.exceptions import ClientError
from moto.core.utils import utcnow

from intake_ledger.audit import backlog
from intake_ledger.audit import function as audit
from intake_ledger.audit.backlog import Backlog
from intake_ledger.audit.one_function import AuditInOneFunction
from intake_ledger.delivery_check.check import DeliveryCheck
from intake_ledger.delivery_check.looked import Looked
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.ledger.row_history import RowHistoryRecord
from intake_ledger.protocol.settings_audit import audit_settings
from tests.unit.command.support import client, shared_client
from tests.unit.support import create_table, execute_without_partiql

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_NUMBERS = count(1)


@dataclass
class Context:
    remaining: int = 900_000

    def get_remaining_time_in_millis(self) -> int:
        return self.remaining


@dataclass
class LiveAudit:
    bucket: str
    queue: str
    table: str

    def upload(self, *keys: str) -> None:
        for key in keys:
            client("s3").put_object(Bucket=self.bucket, Key=key, Body=b"x")

    def audit(self, *, remaining: int = 900_000, **event: Any) -> dict[str, Any]:
        return audit.handler(event, Context(remaining))

    def last(self) -> dict[str, Any] | None:
        """The report that was left in the run's item, if one was."""
        key = {"pk": {"S": self.bucket}, "sk": {"S": "p@audit"}}
        item = client("dynamodb").get_item(TableName=self.table, Key=key).get("Item", {})
        return json.loads(item["last_report"]["S"]) if "last_report" in item else None

    def receive(self) -> list[str]:
        """The keys of the messages in the queue, which is empty then."""
        sqs, keys = client("sqs"), []
        while messages := sqs.receive_message(QueueUrl=self.queue, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                keys.append(json.loads(message["Body"])["intakeLedger"]["key"])
                sqs.delete_message(QueueUrl=self.queue, ReceiptHandle=message["ReceiptHandle"])
        return sorted(keys)


@pytest.fixture
def deployed(dynamodb: "DynamoDBClient", monkeypatch: pytest.MonkeyPatch) -> LiveAudit:
    number = next(_NUMBERS)
    bucket, table = f"uploads-{number}", f"ledger-function-{number}"
    create_table(dynamodb, table)
    s3 = client("s3")
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    queue = client("sqs").create_queue(QueueName=f"messages-{number}")["QueueUrl"]
    for name, value in {
        "PIPELINE_NAME": "p",
        "BUCKET_NAME": bucket,
        "TABLE_NAME": table,
        "QUEUE_URL": queue,
        "ORDERING": "LATEST",
        "DELETES": "true",
        "RETENTION_SECONDS": "3024000",
        "CLOCK_SKEW_SECONDS": "120",
        "SETTLE_SECONDS": "0",
        "LOOK_BACK_SECONDS": "1209600",
        "AUDIT_MAX_RESUBMISSIONS": "3",
    }.items():
        monkeypatch.setenv(f"INTAKE_{name}", value)
    monkeypatch.setattr(boto3, "client", shared_client)
    monkeypatch.setattr(LedgerTable, "_execute", execute_without_partiql)
    # moto would deliver S3's notifications.
    monkeypatch.setattr(DeliveryCheck, "look", lambda _: Looked())
    # Powertools keeps one logger for a name, and with it the stream of the test that came first.
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", f"p-{number}")
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "IntakeLedger")
    return LiveAudit(bucket, queue, table)


def metrics(out: str) -> dict[str, float]:
    """The metrics that were written, the last value of each."""
    metrics: dict[str, float] = {}
    for line in out.splitlines():
        content = json.loads(line)
        for group in content.get("_aws", {}).get("CloudWatchMetrics", ()):
            metrics |= {metric["Name"]: content[metric["Name"]][0] for metric in group["Metrics"]}
    return metrics


def test_a_run_finds_resubmits_and_tells(deployed: LiveAudit, capsys: pytest.CaptureFixture[str]) -> None:
    """The report, the messages, the metrics and the line for people."""
    deployed.upload("in/a", "in/b")
    report = deployed.audit()
    assert report["counts"] == {"missing": 2, "overtaken": 0, "unsettled": 0, "untagged": 0, "removed": 0}
    assert report["summary"] == "2 of 2 objects never reached the ledger; oldest 0 minutes; resubmitted"
    assert deployed.receive() == ["in/a", "in/b"]
    assert deployed.last() == report
    written = metrics(capsys.readouterr().out)
    assert len(written) == cost.AUDIT_METRICS, "docs/cost.md has their price"
    assert written == {
        "AuditRuns": 1,
        "AuditIncomplete": 0,
        "AuditDeliveryProblems": 0,
        "AuditCheckedKeys": 2,
        "AuditUnjudgedKeys": 0,
        "AuditFindings": 2,
        "AuditResubmitted": 2,
    }


def test_a_dry_run_leaves_no_trace(deployed: LiveAudit, capsys: pytest.CaptureFixture[str]) -> None:
    """No mark, no message, no metric, no baseline, no lock."""
    deployed.upload("in/a")
    report = deployed.audit(dryRun=True)
    assert (
        report["summary"] == "1 of 1 objects never reached the ledger; oldest 0 minutes; dry run, nothing resubmitted"
    )
    assert deployed.last() is None
    assert deployed.receive() == []
    assert metrics(capsys.readouterr().out) == {}
    assert client("dynamodb").scan(TableName=deployed.table)["Items"] == []


@pytest.mark.failure_mode("F46")
def test_broken_delivery_is_told_in_every_run(
    deployed: LiveAudit, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the line for people, in the report, and as a metric for an alarm, though nothing was lost yet."""
    monkeypatch.setattr(DeliveryCheck, "look", lambda _: Looked(["the key is Disabled"]))
    report = deployed.audit()
    assert report["summary"] == "0 objects agree with the ledger; the key is Disabled"
    assert report["delivery"] == ["the key is Disabled"]
    assert metrics(capsys.readouterr().out)["AuditDeliveryProblems"] == 1


class TestTick:
    """F117: the delivery is checked at each tick, whether a run is due or not."""

    @pytest.fixture
    def told(self, monkeypatch: pytest.MonkeyPatch) -> Looked:
        looked = Looked()
        monkeypatch.setattr(DeliveryCheck, "look", lambda _: looked)
        return looked

    @pytest.mark.failure_mode("F117")
    def test_a_tick_without_a_run_tells(
        self, deployed: LiveAudit, told: Looked, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """In the answer, in the log, and as metrics for the alarm."""
        assert deployed.audit(everySeconds=86_400)["complete"]
        capsys.readouterr()
        told.problems, told.unknown = ["the rule is disabled"], ["unknown: a condition"]
        said = deployed.audit(everySeconds=86_400)
        assert said["delivery"] == ["the rule is disabled", "unknown: a condition"]
        assert "skipped" in said
        out = capsys.readouterr().out
        assert metrics(out) == {"AuditDeliveryProblems": 1, "AuditDeliveryUnknown": 1}
        lines = [json.loads(line) for line in out.splitlines()]
        assert {"the rule is disabled", "unknown: a condition"} <= {line.get("problem") for line in lines}
        told.problems, told.unknown = [], []
        deployed.audit(everySeconds=86_400)
        assert metrics(capsys.readouterr().out) == {"AuditDeliveryProblems": 0}

    @pytest.mark.failure_mode("F117")
    def test_a_tick_of_an_audit_in_parts_tells(
        self, deployed: LiveAudit, told: Looked, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Its state machine begins at each tick too, and ends where no run is due."""
        assert deployed.audit(everySeconds=86_400)["complete"]
        capsys.readouterr()
        told.problems = ["the rule is disabled"]
        plan: dict[str, Any] = {"step": "plan", "run": "r", "leaseSeconds": 60, "parts": 2, "segments": 1}
        said = deployed.audit(**plan, input={"everySeconds": 86_400})
        assert ("skipped" in said, said["delivery"]) == (True, ["the rule is disabled"])
        assert metrics(capsys.readouterr().out) == {"AuditDeliveryProblems": 1}

    @pytest.mark.failure_mode("F117")
    def test_a_deleted_resource_is_told_and_no_run_begins(
        self, deployed: LiveAudit, told: Looked, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A run would crash at it, at each tick."""
        client("dynamodb").delete_table(TableName=deployed.table)
        told.problems, told.gone = ["the table is gone: deploy"], ["the table"]
        said = deployed.audit(everySeconds=86_400)
        assert said == {"skipped": "the table is gone", "delivery": ["the table is gone: deploy"]}
        assert metrics(capsys.readouterr().out) == {"AuditDeliveryProblems": 1}


class TestFormerNames:
    """F97: a table that outlived a rename has rows under the former name."""

    @staticmethod
    def leave(deployed: LiveAudit, name: str, *, report: int = 5, **more: Any) -> None:
        """The run's item of a pipeline."""
        for sk in ("@audit", "@audit#rows#0"):
            place = {"pk": {"S": deployed.bucket}, "sk": {"S": f"{name}{sk}"}}
            item: Any = place | {"last_report": {"S": json.dumps({"startedAt": report})}} | more
            client("dynamodb").put_item(TableName=deployed.table, Item=item)

    @pytest.mark.failure_mode("F97")
    def test_the_first_run_reports_them(self, deployed: LiveAudit) -> None:
        """With the fix; in a dry run too."""
        for name in ("o", "p-b", "pb"):
            self.leave(deployed, name)
        for said in (deployed.audit(dryRun=True), deployed.audit(everySeconds=60)):
            names = [problem.rpartition("name=")[2] for problem in said["delivery"] if "under the name" in problem]
            assert names == ["o", "p-b", "pb"]

    def test_who_is_deployed_is_no_former_name(self, deployed: LiveAudit, monkeypatch: pytest.MonkeyPatch) -> None:
        """The app names its own pipelines; another app's has an audit later than the first one here."""
        monkeypatch.setenv("INTAKE_OTHER_PIPELINES", "o,q")
        self.leave(deployed, "o")
        self.leave(deployed, "r", report=2**50)
        self.leave(deployed, "s", lease_until={"N": str(2**50)})
        assert not any("under the name" in problem for problem in deployed.audit()["delivery"])


@pytest.mark.failure_mode("F42")
@pytest.mark.failure_mode("F724")
def test_the_first_tick_counts_as_a_run(deployed: LiveAudit, capsys: pytest.CaptureFixture[str]) -> None:
    """Once, before the first run. `AuditMissing` has two intervals from it, also if that run takes a day."""
    ran = []
    for event in ({"dryRun": True}, {"everySeconds": 86_400}, {"everySeconds": 86_400}):
        deployed.audit(**event)
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        ran.append([line["AuditRuns"] for line in lines if "AuditRuns" in line])
    assert ran == [[], [[1.0], [1.0]], []]


def test_out_of_time_the_next_tick_begins_anew(deployed: LiveAudit, capsys: pytest.CaptureFixture[str]) -> None:
    """Before the interval ends. A run that has not read everything does not count."""
    deployed.upload("in/a")
    report = deployed.audit(remaining=10_000, everySeconds=86_400)
    assert (report["complete"], report["stopped"].partition(",")[0]) == (False, "out of time before all was read")
    told = metrics(capsys.readouterr().out)
    assert (told["AuditRuns"], told["AuditIncomplete"]) == (0, 1)
    assert deployed.audit(everySeconds=86_400)["complete"]
    assert deployed.receive() == ["in/a"]


def test_the_rest_of_a_budget_waits_for_the_next_run(deployed: LiveAudit) -> None:
    """Three messages a run: the interval is what limits the flood."""
    deployed.upload(*(f"in/{number}" for number in range(5)))
    report = deployed.audit(everySeconds=86_400)
    assert report["summary"].endswith("3 resubmitted; the budget is used up, the rest is left for the next run")
    assert len(deployed.receive()) == 3
    assert "skipped" in deployed.audit(everySeconds=86_400)
    again = deployed.audit()
    assert again["runId"] != report["runId"]


@pytest.mark.failure_mode("F31")
def test_a_run_that_was_held_back_is_repeated_at_the_next_tick(deployed: LiveAudit) -> None:
    """Moto's CloudWatch knows nothing of the queue, so its message may be minutes old."""
    deployed.upload("in/a")
    client("sqs").send_message(QueueUrl=deployed.queue, MessageBody='{"intakeLedger": {"key": "other"}}')
    report = deployed.audit(everySeconds=86_400)
    assert (report["resubmitted"], report["complete"]) == (0, True)
    assert "the queue is 0.2 hours behind" in report["summary"]
    assert deployed.receive() == ["other"]
    assert deployed.audit(everySeconds=86_400)["resubmitted"] == 1


@pytest.mark.failure_mode("F31")
def test_without_cloudwatch_nothing_is_sent_into_a_queue_that_is_not_empty(
    deployed: LiveAudit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its messages may be of any age; found and told all the same."""
    deployed.upload("in/a")
    one = Backlog(1, None)
    monkeypatch.setattr(backlog, "look", lambda *_, **__: one)
    report = deployed.audit(everySeconds=86_400)
    assert (report["counts"]["missing"], report["resubmitted"]) == (1, 0)
    assert deployed.receive() == []


def test_after_an_error_the_next_tick_begins_anew(deployed: LiveAudit, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for the lease of a run that is over."""
    deployed.upload("in/a")
    with monkeypatch.context() as patch:
        patch.setattr(AuditInOneFunction, "run", _fails)
        with pytest.raises(RuntimeError):
            deployed.audit(everySeconds=86_400)
    assert deployed.audit(everySeconds=86_400)["complete"]


def _fails(*_: object, **__: object) -> None:
    raise RuntimeError("S3 is out")


@pytest.mark.failure_mode("F94")
def test_the_audit_of_a_complete_ledger_compares_all(deployed: LiveAudit, monkeypatch: pytest.MonkeyPatch) -> None:
    """F94, F95: objects of any age, after the consumer has recorded that it keeps the rows."""
    deployed.upload("in/old")
    real = audit._now
    monkeypatch.setattr(audit, "_now", lambda: real() + 40 * 86_400_000)
    monkeypatch.setenv("INTAKE_KEEP_ROWS", "true")
    assert deployed.audit(dryRun=True)["counts"]["missing"] == 0
    table = LedgerTable(client("dynamodb"), deployed.table)
    RowHistoryRecord(audit_settings(os.environ), table, audit._now).begin()
    assert deployed.audit(dryRun=True)["counts"]["missing"] == 1
    monkeypatch.setenv("INTAKE_SKIP_EXISTING", "true")
    assert deployed.audit(dryRun=True)["counts"]["missing"] == 0, "it is older than the pipeline"
    monkeypatch.setenv("INTAKE_SKIP_EXISTING", "false")
    monkeypatch.setenv("INTAKE_KEEP_ROWS", "false")
    assert deployed.audit(dryRun=True)["counts"]["missing"] == 0


class TestBaseline:
    """F41: the first deployment over a full bucket."""

    @pytest.fixture
    def deployed(self, deployed: LiveAudit, monkeypatch: pytest.MonkeyPatch) -> LiveAudit:
        monkeypatch.setenv("INTAKE_SKIP_EXISTING", "true")
        return deployed

    @pytest.mark.failure_mode("F41")
    def test_what_was_there_before_is_left_alone(self, deployed: LiveAudit, monkeypatch: pytest.MonkeyPatch) -> None:
        """For good. A lost object that is younger than the first run is found."""
        deployed.upload("in/old")
        real = audit._now
        monkeypatch.setattr(audit, "_now", lambda: real() + 60_000)
        assert deployed.audit()["counts"]["missing"] == 0
        assert deployed.audit()["counts"]["missing"] == 0
        monkeypatch.setattr("moto.s3.models.utcnow", _later())
        deployed.upload("in/new")
        monkeypatch.setattr(audit, "_now", lambda: real() + 600_000)
        assert [finding["key"] for finding in deployed.audit()["findings"]] == ["in/new"]

    @pytest.mark.failure_mode("F41", "F39", "F74")
    def test_a_row_tells_more_than_a_date(self, deployed: LiveAudit, monkeypatch: pytest.MonkeyPatch) -> None:
        """A key of which the ledger knows is compared, however old its state."""
        deployed.upload("in/rolled-back")
        row = {
            "pk": {"S": f"{deployed.bucket}/in/rolled-back"},
            "sk": {"S": "p@latest"},
            "status": {"S": "PROCESSED"},
            "fence": {"N": "1"},
            "version_id": {"S": "newer"},
            "committed_state": {"S": "v#newer"},
            "updated_at": {"N": "1"},
        }
        client("dynamodb").put_item(TableName=deployed.table, Item=row)
        client("dynamodb").put_item(TableName=deployed.table, Item=row | {"pk": {"S": f"{deployed.bucket}/in/removed"}})
        real = audit._now
        monkeypatch.setattr(audit, "_now", lambda: real() + 60_000)
        assert {finding["key"] for finding in deployed.audit()["findings"]} == {"in/rolled-back", "in/removed"}


def _later() -> Any:
    return lambda: utcnow() + timedelta(minutes=5)


class TestReports:
    """A report of each run in a bucket."""

    @pytest.fixture
    def reports(self, deployed: LiveAudit, monkeypatch: pytest.MonkeyPatch) -> str:
        del deployed
        name = f"reports-{next(_NUMBERS)}"
        client("s3").create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        monkeypatch.setenv("INTAKE_REPORT_BUCKET", name)
        monkeypatch.setenv("INTAKE_REPORT_PREFIX", "audits/")
        return name

    def test_when_a_run_ends_its_report_is_written(self, deployed: LiveAudit, reports: str) -> None:
        """With the day and the run in its key."""
        deployed.upload("in/ä")
        returned = deployed.audit()
        s3 = client("s3")
        (written,) = s3.list_objects_v2(Bucket=reports)["Contents"]
        day = datetime.fromtimestamp(returned["startedAt"] / 1000, UTC).date()
        assert written["Key"] == f"audits/p/{day}/{returned['runId']}.json"
        content = json.load(s3.get_object(Bucket=reports, Key=written["Key"])["Body"])
        assert (content.pop("pipeline"), content.pop("bucket")) == ("p", deployed.bucket)
        assert content.pop("endedAt") >= content["startedAt"]
        assert content.pop("summary").startswith("1 of 1 objects never reached the ledger")
        assert content == {name: value for name, value in returned.items() if name != "summary"}

    def test_a_run_that_only_looks_writes_none(self, deployed: LiveAudit, reports: str) -> None:
        """It changes nothing."""
        deployed.upload("in/a")
        deployed.audit(dryRun=True)
        assert client("s3").list_objects_v2(Bucket=reports)["KeyCount"] == 0
        deployed.audit()
        assert client("s3").list_objects_v2(Bucket=reports)["KeyCount"] == 1

    def test_a_bucket_that_refuses_it_stops_nothing_else(
        self, deployed: LiveAudit, reports: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The run is over and reported. The invocation fails, so that an alarm goes off."""
        monkeypatch.setenv("INTAKE_REPORT_BUCKET", f"{reports}-gone")
        deployed.upload("in/a")
        with pytest.raises(ClientError, match="NoSuchBucket"):
            deployed.audit()
        assert metrics(capsys.readouterr().out)["AuditRuns"] == 1
        assert deployed.receive() == ["in/a"]
        monkeypatch.setenv("INTAKE_REPORT_BUCKET", reports)
        assert deployed.audit()["complete"], "nobody holds the run any more"


class TestBackfill:
    """F41: existing objects, if the option says so."""

    @pytest.fixture
    def deployed(self, deployed: LiveAudit, monkeypatch: pytest.MonkeyPatch) -> LiveAudit:
        for name in ("SKIP_EXISTING", "BACKFILL"):
            monkeypatch.setenv(f"INTAKE_{name}", "true")
        monkeypatch.setenv("INTAKE_BACKFILL_RATE", "1")
        # The objects are older than the pipeline, and the marks of a run hold until the next one.
        monkeypatch.setenv("INTAKE_SETTLE_SECONDS", "3600")
        real = audit._now
        monkeypatch.setattr(audit, "_now", lambda: real() + 7_200_000)
        return deployed

    @pytest.mark.failure_mode("F41")
    def test_a_backfill_goes_on_at_each_tick(self, deployed: LiveAudit, monkeypatch: pytest.MonkeyPatch) -> None:
        """With the messages of a quarter of an hour, until nothing is left; then the interval counts."""
        monkeypatch.setattr(audit, "BURST_SECONDS", 2)
        deployed.upload("in/a", "in/b", "in/c")
        first = deployed.audit(everySeconds=86_400)
        assert (first["resubmitted"], first["complete"]) == (2, False)
        assert "the next tick begins a run for the rest" in first["summary"]
        sent = deployed.receive()
        second = deployed.audit(everySeconds=86_400)
        assert (second["resubmitted"], second["complete"]) == (1, True)
        assert sorted([*sent, *deployed.receive()]) == ["in/a", "in/b", "in/c"]
        assert "skipped" in deployed.audit(everySeconds=86_400)
        deployed.upload("in/of before too")
        assert deployed.audit()["counts"]["missing"] == 0, "the backfill is over"

    @pytest.mark.failure_mode("F41")
    def test_while_messages_wait_none_are_sent(self, deployed: LiveAudit, monkeypatch: pytest.MonkeyPatch) -> None:
        """The next tick looks again."""
        monkeypatch.setattr(audit, "BURST_SECONDS", 1)
        client("sqs").send_message(QueueUrl=deployed.queue, MessageBody='{"intakeLedger": {"key": "waits"}}')
        deployed.upload("in/a")
        assert "the backfill waits" in deployed.audit(everySeconds=86_400)["skipped"]
        assert deployed.receive() == ["waits"]
        assert deployed.audit(everySeconds=86_400)["resubmitted"] == 1
