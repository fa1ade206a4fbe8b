"""The delivery check of an intake of messages: its sources, their mappings and its rule, as planned."""

import json
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError

from intake_ledger.aws.queues import Queues
from intake_ledger.delivery_check.looked import Looked
from intake_ledger.delivery_check.sources import SourceCheck
from intake_ledger.messages.row_check import TICK_MS, is_due, tick
from intake_ledger.protocol.row import to_dynamodb
from tests.unit.command.support import NAME, client, make_message_site
from tests.unit.messages.support import SETTINGS
from tests.unit.support import HOUR, START

ARN = "arn:aws:{}:eu-central-1:111122223333:{}"
QUEUE, RULE = ARN.format("sqs", "Orders"), ARN.format("events", "rule/Bus/Placed")
SHARDS, CHANGES = ARN.format("kinesis", "stream/Orders"), ARN.format("dynamodb", "table/Orders/stream/1")
AGAIN = "run `cdk deploy Main --revert-drift`"
UPDATE = "run `aws lambda update-event-source-mapping --uuid"


def mapping(arn: str, **more: Any) -> dict[str, Any]:
    """Lambda's answer about a mapping."""
    name = arn.rsplit(":", 1)[1]
    answers = ["ReportBatchItemFailures"]
    return {"UUID": name, "State": "Enabled", "EventSourceArn": arn, "FunctionResponseTypes": answers} | more


@dataclass
class Aws:
    """Everything that the check looks at, as it should be."""

    sources: dict[str, str] = field(default_factory=lambda: {"queue": QUEUE})
    rule: str = ""
    stacks: dict[str, str] = field(default_factory=dict)
    has_workers: bool = False
    mappings: list[dict[str, Any]] = field(default_factory=list)
    stream_state: str = "ACTIVE"
    rule_state: str = "ENABLED"
    pause: dict[str, Any] = field(default_factory=dict)
    fails: dict[str, Exception] = field(default_factory=dict)
    called: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.mappings = self.mappings or [mapping(arn) for arn in self.sources.values()]

    def look(self) -> Looked:
        deployed = {"stack": "Main", "stacks": self.stacks, "sources": self.sources, "rule": self.rule}
        settings = replace(SETTINGS, has_workers=self.has_workers)
        return SourceCheck(settings, json.dumps(deployed), function="Consumer", make_client=lambda _: self).look()

    def problems(self) -> list[str]:
        looked = self.look()
        assert not looked.unknown
        return looked.problems

    def __getattr__(self, operation: str) -> Any:
        def call(**_: Any) -> dict[str, Any]:
            self.called.append(operation)
            if operation in self.fails:
                raise self.fails[operation]
            answers: dict[str, dict[str, Any]] = {
                "describe_rule": {"State": self.rule_state},
                "describe_stream": {"StreamDescription": {"StreamStatus": self.stream_state}},
                "describe_stream_summary": {"StreamDescriptionSummary": {"StreamStatus": self.stream_state}},
                "get_item": {"Item": to_dynamodb(self.pause)} if self.pause else {},
                "list_event_source_mappings": {"EventSourceMappings": self.mappings},
            }
            return answers.get(operation, {})

        return call


class OneMinute:
    """Lambda's context."""

    def get_remaining_time_in_millis(self) -> int:
        return 60_000


def error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "DescribeRule")


@pytest.mark.parametrize(
    ("sources", "rule"),
    [
        ({"queue": QUEUE}, ""),
        ({"queue": QUEUE}, RULE),
        ({"queue": QUEUE, "stream": SHARDS}, ""),
        ({"queue": QUEUE, "stream": CHANGES}, ""),
    ],
)
def test_a_delivery_as_planned_has_no_problem(sources: dict[str, str], rule: str) -> None:
    aws = Aws(sources=sources, rule=rule)
    assert aws.problems() == []
    assert len(aws.called) == len(sources) + bool(rule) + 1


@pytest.mark.failure_mode("F693")
@pytest.mark.parametrize("source", ["queue", "stream"])
def test_a_mapping_that_does_not_report_failures_by_item_is_a_problem(source: str) -> None:
    """Lambda would delete the messages that failed."""
    sources = {"queue": QUEUE, "stream": SHARDS}
    made = [mapping(arn, **({"FunctionResponseTypes": []} if name == source else {})) for name, arn in sources.items()]
    [problem] = Aws(sources=sources, mappings=made).problems()
    assert problem.startswith(f"the {source}'s event source mapping does not report failures by item")
    assert problem.endswith(AGAIN)


@pytest.mark.failure_mode("F693")
def test_a_mapping_that_is_off_is_a_problem_with_its_repair() -> None:
    [problem] = Aws(mappings=[mapping(QUEUE, State="Disabled")]).problems()
    assert problem == (
        f"the queue's event source mapping is Disabled, so that no message is processed: {UPDATE} Orders --enabled`"
    )


def test_a_pause_names_the_person() -> None:
    pause = {"paused_by": "ana", "because": "the downstream is down"}
    [problem] = Aws(mappings=[mapping(QUEUE, State="Disabled")], pause=pause).problems()
    assert problem.startswith("paused by ana because the downstream is down")


def test_workers_take_the_messages_in_place_of_the_mapping() -> None:
    assert Aws(mappings=[mapping(QUEUE, State="Disabled")], has_workers=True).problems() == []


@pytest.mark.failure_mode("F693")
def test_a_mapping_that_is_gone_is_a_problem() -> None:
    [problem] = Aws(mappings=[mapping(ARN.format("sqs", "Other"))]).problems()
    assert problem == f"the queue's event source mapping to Consumer is gone: {AGAIN}"


def test_a_filter_was_accepted_at_synthesis() -> None:
    """The template may have it by an override. It is a warning of the final check."""
    assert Aws(mappings=[mapping(QUEUE, FilterCriteria={"Filters": [{"Pattern": "{}"}]})]).problems() == []


@pytest.mark.failure_mode("F693")
@pytest.mark.parametrize(
    ("name", "arn", "operation", "code"),
    [
        ("queue", QUEUE, "get_queue_attributes", "AWS.SimpleQueueService.NonExistentQueue"),
        ("stream", SHARDS, "describe_stream_summary", "ResourceNotFoundException"),
        ("stream", CHANGES, "describe_stream", "ResourceNotFoundException"),
    ],
)
def test_a_source_that_is_gone_is_a_problem(name: str, arn: str, operation: str, code: str) -> None:
    """Its mapping stays enabled. A source of others has no stack of this app."""
    fails: dict[str, Exception] = {operation: error(code)}
    assert Aws(sources={name: arn}, fails=fails).problems() == [f"the {name} is gone: {AGAIN}"]
    [problem] = Aws(sources={name: arn}, fails=fails, stacks={name: ""}).problems()
    assert problem == f"the {name} is gone: put it back by hand, or deploy the stack that makes it"


@pytest.mark.failure_mode("F693")
def test_a_stream_that_was_switched_off_is_a_problem() -> None:
    """A table whose stream is enabled again has another stream."""
    [problem] = Aws(sources={"stream": CHANGES}, stream_state="DISABLED").problems()
    assert problem == f"the stream {CHANGES} is DISABLED, so that new records do not reach the ledger: {AGAIN}"


@pytest.mark.failure_mode("F693")
@pytest.mark.parametrize(
    ("rule", "option"), [(RULE, " --event-bus-name Bus"), (ARN.format("events", "rule/Placed"), "")]
)
def test_a_rule_that_is_disabled_or_gone_is_a_problem(rule: str, option: str) -> None:
    [problem] = Aws(rule=rule, rule_state="DISABLED").problems()
    assert problem == f"the EventBridge rule Placed is disabled: run `aws events enable-rule --name Placed{option}`"
    gone = Aws(rule=rule, fails={"describe_rule": error("ResourceNotFoundException")})
    assert gone.problems() == [f"the EventBridge rule is gone: {AGAIN}"]


def test_a_permission_that_lacks_is_a_problem_and_no_answer_is_unknown() -> None:
    refused = Aws(rule=RULE, fails={"describe_rule": error("AccessDeniedException")})
    [problem] = refused.problems()
    assert problem.endswith(f"could not be looked at, the function's role may not DescribeRule: {AGAIN}")
    silent = Aws(fails={"list_event_source_mappings": ConnectTimeoutError(endpoint_url="lambda")}).look()
    assert not silent.problems
    assert len(silent.unknown) == 1


def test_a_template_of_an_earlier_release_names_no_source() -> None:
    assert Aws(sources={}).problems() == []


@pytest.mark.usefixtures("dynamodb")
def test_the_rows_are_checked_at_the_first_tick_after_the_interval() -> None:
    """A tick may be a little early. The report of the last check has its time, also after `audit --resend`."""
    site = make_message_site()
    settings = replace(SETTINGS, table=site.deployed.table, bucket=site.deployed.bucket)

    def due(now: int) -> bool:
        return is_due(client("dynamodb"), settings, every_seconds=21_600, now=now)

    assert due(START)
    report = {"S": json.dumps({"startedAt": START})}
    key = {"pk": {"S": settings.bucket}, "sk": {"S": f"{settings.pipeline}@audit"}}
    client("dynamodb").put_item(TableName=settings.table, Item={**key, "last_report": report})
    assert not due(START + 6 * HOUR - TICK_MS)
    assert due(START + 6 * HOUR - 60_000)


@pytest.mark.failure_mode("F693")
@pytest.mark.usefixtures("dynamodb")
def test_each_tick_reports_the_delivery_and_a_dry_run_counts_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "IntakeLedger")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", NAME)
    deployed, aws = make_message_site().deployed, Aws(mappings=[mapping(QUEUE, State="Disabled")])
    settings = replace(SETTINGS, table=deployed.table, bucket=deployed.bucket, pipeline=NAME)
    queues = Queues(lambda: cast("Any", aws), settings.queue_url, "")

    def answer(**event: Any) -> dict[str, Any]:
        sources = SourceCheck(
            settings, json.dumps({"sources": aws.sources}), function="Consumer", make_client=lambda _: aws
        )
        return tick(settings, queues, lambda: START, OneMinute(), sources=sources, event=event)

    reports = [answer(dryRun=True), answer(everySeconds=21_600), answer(everySeconds=21_600), answer()]
    assert ["skipped" in report for report in reports] == [False, False, True, False]
    assert all("is Disabled" in report["delivery"][0] for report in reports)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    counted = [line["AuditDeliveryProblems"] for line in lines if "AuditDeliveryProblems" in line]
    assert counted == [[1.0]] * 3
