"""The history of attempts that `inspect` shows, with links to the lines of the log."""

import io
import json
import logging
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

import pytest
from botocore.exceptions import ClientError

from intake_ledger.ledger.ledger import Claim
from intake_ledger.observability.powertools import PowertoolsTelemetry
from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.reasons import OutcomeKind, Reason, ReasonCode
from intake_ledger.protocol.row import Row, RowKey, Status
from intake_ledger.protocol.verdict import Ruling, Verdict
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.consumer_log import LogGroup, key_pattern
from intake_ledger_cli.read import history
from tests.unit.command.support import NAME, denied, make_message_site, make_site
from tests.unit.command.test_commands import Person, sit  # noqa: F401 - a fixture
from tests.unit.support import HOUR, MINUTE, START, created

pytestmark = pytest.mark.usefixtures("dynamodb")
KEY = 'in/ä "1"*.csv'
GROUP = "/aws/lambda/consumer"


@dataclass
class FakeLogs:
    """A log group. Each answer has one line, and says that more lines follow."""

    lines: list[str]
    error: ClientError | None = None
    endless: bool = False
    requests: list[dict[str, Any]] = field(default_factory=list)

    def filter_log_events(self, **request: Any) -> dict[str, Any]:
        self.requests.append(request)
        if self.error:
            raise self.error
        number = int(request.get("nextToken", "0"))
        events = [
            {"message": line, "timestamp": START + place, "eventId": f"e{place}", "logStreamName": "2026/[$LATEST]a"}
            for place, line in enumerate(self.lines[number : number + 1], number)
            if request["startTime"] <= START + place <= request["endTime"]
        ]
        more = self.endless or number + 1 < len(self.lines)
        return {"events": events} | ({"nextToken": str(number + 1)} if more else {})


def lines_of_two_attempts(monkeypatch: pytest.MonkeyPatch, key: str = KEY, *, first_ends: bool = True) -> list[str]:
    """The lines that the consumer writes about a failed attempt and a committed one, and about another key."""
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "IntakeLedger")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", NAME)
    telemetry, written = PowertoolsTelemetry(), io.StringIO()
    for handler in logging.getLogger(NAME).handlers:
        monkeypatch.setattr(handler, "stream", written)
    with redirect_stdout(written):  # the metrics
        for name in (key, "in/other.csv"):
            state = State(StateKind.OBJECT, "v1")
            change = created(state, key=name)
            first = Row(Status.PROCESSING, 7, version_id="v1", attempts=1, lease_until=START, updated_at=START)
            row_key = RowKey(f"b/{name}", f"{NAME}@latest")
            if first_ends:
                claim = Claim(row_key, change, state, first, None, "why")
                telemetry.decided(change, claim, now=START)
                reason = Reason(ReasonCode.PROCESSOR_ERROR, "KeyError at invoices:42")
                telemetry.ended(claim, OutcomeKind.FAILED, reason, duration_ms=20)
                first = replace(first, status=Status.FAILED, lease_until=None)
            second = replace(first, status=Status.PROCESSING, fence=9, attempts=2, lease_until=START)
            claim = Claim(row_key, change, state, second, first, "why")
            telemetry.decided(change, claim, now=START)
            telemetry.ended(claim, OutcomeKind.COMMITTED, duration_ms=1_500)
    return ["START RequestId: 1", *written.getvalue().splitlines(), "END RequestId: 1", '["no object"]']


@pytest.fixture
def person(sit: Callable[..., Person]) -> Person:  # noqa: F811
    person = sit(make_site())
    row = Row(Status.PROCESSED, 9, version_id="v1", attempts=2, first_claimed_at=START, updated_at=START + MINUTE)
    person.site.row(KEY, row)
    return person


def logs(monkeypatch: pytest.MonkeyPatch, *arguments: Any, **named: Any) -> FakeLogs:
    found = FakeLogs(*arguments, **named)
    monkeypatch.setattr(Aws, "logs", found)
    return found


def test_the_attempts_are_those_of_the_consumers_lines(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt has its outcome, its reason and the link to its last line. Lines of other keys do not count."""
    logs(monkeypatch, lines_of_two_attempts(monkeypatch))
    found = person.reads("inspect", KEY)["history"]
    assert [(one["attempt"], one["fence"], one["outcome"], one["durationMs"]) for one in found["attempts"]] == [
        (1, 7, "Failed", 20),
        (2, 9, "Committed", 1_500),
    ]
    assert found["attempts"][0]["reasonCode"] == "processor_error"
    assert found["attempts"][0]["link"].endswith(f"$3Fstart$3D{START + 1}$26refEventId$3De1")
    assert (found["complete"], found["why"]) == (True, "")
    shown = person.types("inspect", KEY)
    assert "attempt 1  Failed after 20 ms" in shown
    assert "KeyError at invoices:42" in shown
    assert "attempt 2  Committed after 1 second" in shown
    assert "https://eu-central-1.console.aws.amazon.com/cloudwatch/" in shown


def test_an_attempt_without_an_end_is_told(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its worker died without a line. The claim that took over names it."""
    logs(monkeypatch, lines_of_two_attempts(monkeypatch, first_ends=False))
    first, second = person.reads("inspect", KEY)["history"]["attempts"]
    assert (first["attempt"], first["fence"], first["versionId"], first["outcome"]) == (1, 7, "v1", None)
    assert first["link"].endswith("$26refEventId$3De1")
    assert (second["attempt"], second["outcome"]) == (2, "Committed")
    assert "attempt 1  no end in the log" in person.types("inspect", KEY)


def test_an_attempt_that_only_the_row_shows_is_told(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that runs, or has died just now, has no line about its first attempt."""
    logs(monkeypatch, [])
    row = Row(Status.PROCESSING, 7, version_id="v1", attempts=1, lease_until=START + MINUTE, updated_at=START)
    person.site.row("in/runs.csv", row)
    [attempt] = person.reads("inspect", "in/runs.csv")["history"]["attempts"]
    assert (attempt["attempt"], attempt["fence"], attempt["versionId"], attempt["outcome"]) == (1, 7, "v1", None)
    assert attempt["link"] == ""
    assert "attempt 1  no end in the log" in person.types("inspect", "in/runs.csv")


def test_an_attempt_begins_at_its_claim(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line of an ordinary claim is written at its end."""
    lines = lines_of_two_attempts(monkeypatch)
    logs(monkeypatch, lines)
    first, _ = person.reads("inspect", KEY)["history"]["attempts"]
    assert first["at"] == START + 1 - 20


@pytest.mark.failure_mode("F194")
def test_the_waits_of_a_day_are_one_line(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait spends no attempt, and a row that only waited has a history too. JSON has each wait."""
    row = Row(Status.FAILED, 9, version_id="v1", waiting_since=START, updated_at=START, retry_at=START + MINUTE)
    person.site.row("in/set.csv", row)
    told = {"service": NAME, "key": "in/set.csv", "attempt": 1, "version_id": "v1"}
    reasons = ["2 of 3 parts are missing"] * 2 + ["1 of 3 parts are missing"] * 3
    lines = [
        told | {"message": "waiting", "fence": fence, "reason": reason, "duration_ms": 5}
        for fence, reason in enumerate(reasons, 1)
    ]
    logs(monkeypatch, [json.dumps(line) for line in lines])
    assert len(person.reads("inspect", "in/set.csv")["history"]["attempts"]) == len(reasons)
    shown = person.types("inspect", "in/set.csv")
    assert "2 waits: 2 of 3 parts are missing" in shown
    assert "3 waits: 1 of 3 parts are missing" in shown
    assert "attempt 1" not in shown


@pytest.mark.failure_mode("F178")
@pytest.mark.parametrize(
    ("error", "why"),
    [
        (denied("logs:FilterLogEvents", "FilterLogEvents"), "not allowed: logs:FilterLogEvents"),
        (
            ClientError({"Error": {"Code": "ResourceNotFoundException"}}, "FilterLogEvents"),
            f"there is no log group {GROUP}",
        ),
        (
            ClientError({"Error": {"Code": "ThrottlingException"}}, "FilterLogEvents"),
            "CloudWatch Logs answered ThrottlingException",
        ),
    ],
)
def test_without_the_log_the_row_and_the_link_are_shown(
    person: Person, monkeypatch: pytest.MonkeyPatch, error: ClientError, why: str
) -> None:
    """The link has the filter and the time of the row. A person with more rights can open it."""
    logs(monkeypatch, [], error=error)
    found = person.reads("inspect", KEY)["history"]
    assert (found["why"], found["complete"], found["attempts"]) == (why, False, [])
    link = unquote(unquote(found["link"].partition("#")[2].replace("$", "%")))
    assert link.startswith(f"logsV2:log-groups/log-group/{GROUP}/log-events?filterPattern={key_pattern(KEY)}&start=")
    shown = person.types("inspect", KEY)
    assert why in shown
    assert found["link"] in shown
    assert "PROCESSED after 2 attempts" in shown


@pytest.mark.failure_mode("F178")
def test_a_busy_log_is_searched_in_a_bounded_number_of_requests(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = logs(monkeypatch, lines_of_two_attempts(monkeypatch), endless=True)
    result = person.reads("inspect", KEY)["history"]
    assert len(found.requests) == history.REQUESTS
    assert (result["complete"], len(result["attempts"])) == (False, 2)
    assert "stopped after 20 requests to CloudWatch Logs" in person.types("inspect", KEY)


def test_the_time_that_is_searched_is_that_of_the_row(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is older than a week is searched for the last week of it."""
    found = logs(monkeypatch, [])
    person.types("inspect", KEY)
    request, later = found.requests
    assert (later["startTime"], later["endTime"]) == (request["endTime"] + 1, request["endTime"] + history.REPEATS_MS)
    assert (request["startTime"], request["endTime"]) == (START - MINUTE, START + 16 * MINUTE)
    assert request["logGroupName"] == GROUP
    row = Row(Status.FAILED, 9, version_id="v1", attempts=2, first_claimed_at=START - 720 * HOUR, updated_at=START)
    person.site.row("in/long.csv", row)
    result = person.reads("inspect", "in/long.csv")["history"]
    assert found.requests[-2]["endTime"] - found.requests[-2]["startTime"] == history.LONGEST_MS
    assert result["why"] == "only the last 7 days were searched"


def test_no_logs_are_read_without_a_need(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key without an attempt has no history, and a person can switch it off."""
    found = logs(monkeypatch, [])
    assert person.reads("inspect", "in/never.csv")["history"] is None
    assert person.reads("inspect", KEY, "--no-logs")["history"] is None
    assert found.requests == []


def test_a_log_group_of_the_functions_settings_is_taken(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    found = logs(monkeypatch, [])
    asked = person.functions.get_function_configuration

    def configured(**request: str) -> dict[str, Any]:
        return asked(**request) | {"LoggingConfig": {"LogGroup": "Intake-Log"}}

    monkeypatch.setattr(person.functions, "get_function_configuration", configured, raising=False)
    person.types("inspect", KEY)
    assert found.requests[0]["logGroupName"] == "Intake-Log"


class TestLinks:
    def test_a_pattern_is_encoded_as_the_console_encodes_it(self) -> None:
        """Percent-encoding twice, with dollar signs."""
        link = LogGroup(Aws(region="eu-west-1"), "/my/log group").lines('{ $.key = "a" }', 1, 2)
        assert link == (
            "https://eu-west-1.console.aws.amazon.com/cloudwatch/home?region=eu-west-1#logsV2:log-groups/log-group/"
            "$252Fmy$252Flog$2520group/log-events$3FfilterPattern$3D$257B$2520$2524.key$2520$253D$2520$2522a$2522$2520"
            "$257D$26start$3D1$26end$3D2"
        )

    @pytest.mark.parametrize(
        ("region", "host"),
        [
            ("cn-north-1", "console.amazonaws.cn"),
            ("us-gov-west-1", "console.amazonaws-us-gov.com"),
            ("mars-1", "console.aws.amazon.com"),
        ],
    )
    def test_each_partition_has_its_own_console(self, region: str, host: str) -> None:
        assert f"https://{region}.{host}/" in LogGroup(Aws(region=region), "g").lines("s", 1, 2)

    def test_a_pattern_is_valid_for_each_key(self) -> None:
        """CloudWatch takes 1,024 bytes. The longest keys are cut, and the lines are compared."""
        assert key_pattern('a"b\\c') == r'{ $.key = "a\"b\\c" }'
        for key in ("ä" * 512, "x" * 1_024, '"' * 1_024):
            pattern = key_pattern(key)
            assert len(pattern.encode()) <= 1_024
            assert pattern.endswith('*" }')
            text = json.loads(pattern.removeprefix("{ $.key = ").removesuffix(" }")).removesuffix("*")
            assert key.startswith(text)
            assert len(text) > 400


def test_the_log_of_workers_is_said_not_to_be_searched(
    sit: Callable[..., Person],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A link to the function's log would show nothing."""
    site = make_site()
    site.row(KEY, Row(Status.PROCESSED, 9, version_id="v1", first_claimed_at=START, updated_at=START + MINUTE))
    person = sit(site, consumer=site.environment() | {"INTAKE_WORKERS": "true"})
    logs(monkeypatch, [])
    found = person.reads("inspect", KEY)["history"]
    assert (found["complete"], found["link"], found["attempts"]) == (False, "", [])
    shown = person.types("inspect", KEY)
    assert "workers outside of Lambda write to the log of their own service" in shown
    assert "All log lines" not in shown


@pytest.mark.failure_mode("F394")
def test_the_attempts_of_messages_are_those_of_each_identity(
    sit: Callable[..., Person],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two messages of a key may have claims with one fence, in one millisecond."""
    person = sit(make_message_site(), audit=False)
    for identity in ("e-1", "e-2"):
        row = Row(Status.PROCESSED, 7, version_id=identity, first_claimed_at=START, updated_at=START + MINUTE)
        person.site.row(KEY, row)
    line = {"service": NAME, "key": KEY, "fence": 7, "attempt": 1, "duration_ms": 20}
    ends = [("e-1", "failed"), ("e-2", "committed"), ("e-1", "committed")]
    written = [
        json.dumps(line | {"version_id": identity, "message": end, "fence": 7 + place // 2})
        for place, (identity, end) in enumerate(ends)
    ]
    logs(monkeypatch, written)
    found = person.reads("inspect", KEY)["history"]["attempts"]
    assert [(one["versionId"], one["outcome"]) for one in found] == [
        ("e-1", "Failed"),
        ("e-1", "Committed"),
        ("e-2", "Committed"),
    ]
    shown = person.types("inspect", KEY)
    assert shown.index("message e-1") < shown.index("Failed after 20 ms") < shown.index("message e-2")


@pytest.mark.failure_mode("F472")
def test_the_messages_that_changed_nothing_have_their_gaps(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the event, another event of the same state, and an event of an older state, as in the log."""
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "IntakeLedger")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", NAME)
    telemetry, written = PowertoolsTelemetry(), io.StringIO()
    for handler in logging.getLogger(NAME).handlers:
        monkeypatch.setattr(handler, "stream", written)
    row = Row(
        Status.PROCESSED,
        9,
        version_id="v1",
        committed_state="v#v1",
        event_id="79104EXAMPLEB723",
        first_claimed_at=START,
        updated_at=START,
    )
    person.site.row(KEY, row)
    copy = created(State(StateKind.OBJECT, "v1"), key=KEY)
    for change, verdict, now in (
        (copy, Verdict.DUPLICATE, START + 62),
        (replace(copy, event_id="OTHER"), Verdict.DUPLICATE, START + 22_162_000),
        (replace(created(State(StateKind.OBJECT, "v0"), key=KEY), event_id="OLD"), Verdict.STALE, START + MINUTE),
    ):
        telemetry.decided(change, Ruling(verdict, "why", row), now=now)
    # A letter that the SQS console has moved without its attributes.
    no = replace(row, status=Status.REJECTED, committed_state=None)
    telemetry.decided(copy, Ruling(Verdict.REJECTED, "this state was rejected", no), now=START + 2 * MINUTE)
    logs(monkeypatch, written.getvalue().splitlines())
    found = person.reads("inspect", KEY)["history"]
    assert [
        (one["verdict"], one["sinceCommitMs"], one["eventAgeMs"], one["copy"], one["versionId"])
        for one in found["repeats"]
    ] == [
        ("DUPLICATE", 62, 62, True, "v1"),
        ("DUPLICATE", 22_162_000, 22_162_000, False, "v1"),
        ("STALE", None, MINUTE, False, "v0"),
        ("REJECTED", None, 2 * MINUTE, True, "v1"),
    ]
    assert found["repeatsUntil"] == START + 15 * MINUTE + history.REPEATS_MS
    shown = person.types("inspect", KEY)
    assert "4 messages changed nothing" in shown
    assert "DUPLICATE  62 ms after the commit (ObjectCreated:Put, event 79104EXAMPLEB723)" in shown
    assert "DUPLICATE  6 hours after the commit" in shown
    assert "STALE  1 minute after its event" in shown
