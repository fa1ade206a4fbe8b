"""The breaker after a repair (F392), and a function that cannot start (F393), as `status` and `inspect` show them."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.protocol.row import Row, RowKey, Status, breaker_key, rate_key, success_key, to_dynamodb
from intake_ledger_cli.app import now_ms
from intake_ledger_cli.aws import consumer_log, reading
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.read.status import Alarm
from intake_ledger_cli.show.status_table import alarms_text
from tests.unit.command.support import NAME, Site, client, denied, make_message_site, make_site, new_consumer_log
from tests.unit.command.test_commands import Person, sit
from tests.unit.support import HOUR, MINUTE, START

__all__ = ["sit"]
pytestmark = pytest.mark.usefixtures("dynamodb")
LOST_MODULE = "[ERROR] Runtime.ImportModuleError: Unable to import module 'index': No module named 'pandas'"


class Metrics:
    """CloudWatch with values of the last hour: for each label the minutes before now, each with a value of 1."""

    def __init__(self, minutes: Mapping[str, list[int]]) -> None:
        self._minutes = minutes

    def get_metric_data(self, **request: Any) -> Any:
        assert len(request["MetricDataQueries"]) <= 500  # the limit of one request
        now = datetime.now(UTC).timestamp()
        found = {
            label: [datetime.fromtimestamp(now - 60 * one, UTC) for one in minutes]
            for label, minutes in self._minutes.items()
        }
        return {
            "MetricDataResults": [
                {"Label": label, "Timestamps": times, "Values": [1.0] * len(times)} for label, times in found.items()
            ]
        }

    def describe_alarms(self, **_: Any) -> Any:
        return {"MetricAlarms": []}


def put(site: Site, key: RowKey, **content: Any) -> None:
    item = to_dynamodb({"pk": key.pk, "sk": key.sk, **content})
    client("dynamodb").put_item(TableName=site.deployed.table, Item=item)


@pytest.mark.failure_mode("F392")
@pytest.mark.parametrize(
    ("opened", "minutes", "status"),
    [
        pytest.param(None, {}, "closed", id="never opened"),
        pytest.param(8, {"Committed": [1, 2, 3]}, "closed", id="commits of a new deployment"),
        pytest.param(8, {"Committed": [1], "Failed": [0, 1]}, "closed", id="a broken file among good ones"),
        pytest.param(8, {"Committed": [7], "Failed": [1]}, "open", id="it failed again"),
        pytest.param(8, {"Committed": [9], "Failed": [1]}, "open", id="a commit before it opened"),
        pytest.param(8, {"BreakerOpen": [2]}, "open", id="messages are held back"),
        pytest.param(1, {}, "open", id="a moment ago"),
        pytest.param(8, {}, "unknown", id="nothing was seen"),
        pytest.param(50, {"Failed": [20]}, "unknown", id="nothing was seen since the last failure"),
    ],
)
def test_the_breaker_is_judged_by_the_last_success(
    sit: Callable[..., Person],
    monkeypatch: pytest.MonkeyPatch,
    opened: int | None,
    minutes: dict[str, list[int]],
    status: str,
) -> None:
    person = sit(make_site())
    if opened is not None:
        at = now_ms() - opened * MINUTE
        put(person.site, breaker_key(NAME), opened_at=at, next_probe_at=at + MINUTE, reason="KeyError at invoices:42")
    monkeypatch.setattr(Aws, "cloudwatch", Metrics(minutes))
    assert person.reads("status")["breaker"]["status"] == status
    shown = person.types("status", "--all", "--exit-code", ends=3 if status == "open" else 0)
    assert f"Breaker  {status}" in shown
    if status == "open":
        assert "the last failure" in shown


@pytest.mark.failure_mode("F392")
def test_successes_of_rows_and_items_count_without_cloudwatch(
    sit: Callable[..., Person], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller without `cloudwatch:GetMetricData` sees the shared success, and the failed rows."""
    person = sit(make_site())
    site, now = person.site, now_ms()

    class Closed(Metrics):
        def get_metric_data(self, **_: Any) -> Any:
            raise denied("cloudwatch:GetMetricData", "GetMetricData")

    monkeypatch.setattr(Aws, "cloudwatch", Closed({}))
    put(site, breaker_key(NAME), opened_at=now - HOUR, next_probe_at=now - HOUR)
    assert person.reads("status")["breaker"]["status"] == "unknown"
    site.row("in/a", Row(Status.FAILED, 1, version_id="v1", updated_at=now - MINUTE))
    assert person.reads("status")["breaker"]["status"] == "open"
    put(site, success_key(NAME), last_success_at=now - MINUTE // 2)
    assert person.reads("status")["breaker"]["status"] == "closed"


def test_the_item_of_the_rate_is_read_with_the_others(
    sit: Callable[..., Person], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An option costs `status` no request of its own."""
    asked = list[list[RowKey]]()
    get_items = LedgerTable.get_items

    def recorded(table: LedgerTable, keys: list[RowKey]) -> dict[RowKey, dict[str, Any]]:
        asked.append(keys)
        return get_items(table, keys)

    monkeypatch.setattr(LedgerTable, "get_items", recorded)
    site = make_site()
    sit(site, consumer=site.environment() | {"INTAKE_MAX_RATE": "20"}).reads("status")
    assert [breaker_key(NAME) in keys for keys in asked if rate_key(NAME) in keys] == [True]


@pytest.mark.failure_mode("F510")
def test_the_rate_and_its_line_are_shown(sit: Callable[..., Person]) -> None:
    """The limit from the variables of the function, and the line from the item that the workers share."""
    site = make_site()
    assert sit(site).reads("status")["rate"] is None
    person = sit(site, consumer=site.environment() | {"INTAKE_MAX_RATE": "20"})
    assert "Rate  at most 20 starts a second, 100 at once\n" in person.types("status", "--all")
    put(site, rate_key(NAME), starts_until=1, places_until=(now_ms() + HOUR) * 1_000)
    shown = person.reads("status")["rate"]
    assert shown["perSecond"] == 20
    assert shown["burst"] == 100
    assert shown["inLine"] == pytest.approx(20 * 3_600, rel=0.01)
    assert "in line, the last one in 59" in person.types("status")
    person.functions.environments["consumer"]["INTAKE_MAX_RATE"] = "fast"
    person.types("status", ends=1)
    assert "the function consumer cannot run: INTAKE_MAX_RATE is 'fast'" in person.complaint


def write_lines(*lines: str) -> None:
    new_consumer_log()
    logs = client("logs")
    logs.create_log_stream(logGroupName="/aws/lambda/consumer", logStreamName="2026/11/25/[$LATEST]1")
    events = [{"timestamp": now_ms(), "message": one} for one in lines]
    logs.put_log_events(logGroupName="/aws/lambda/consumer", logStreamName="2026/11/25/[$LATEST]1", logEvents=events)


@pytest.mark.failure_mode("F393")
def test_an_import_error_is_in_the_status(sit: Callable[..., Person], monkeypatch: pytest.MonkeyPatch) -> None:
    person = sit(make_site())
    monkeypatch.setattr(Aws, "cloudwatch", Metrics({"Errors": [1, 2], "Throttles": [3]}))
    write_lines(LOST_MODULE)
    shown = person.types("status", "--exit-code", ends=3)
    assert "cannot start  deploy code and variables that work" in shown
    assert "2 failed invocations, 1 throttled invocation" in shown
    assert "No module named 'pandas'" in shown
    document = person.reads("status")
    assert (document["lastHour"]["functionErrors"], document["function"]["atStart"]) == (2, True)


@pytest.mark.failure_mode("F393")
def test_without_a_row_the_errors_since_the_upload_are_shown(sit: Callable[..., Person]) -> None:
    person = sit(make_site())
    person.site.put("in/a")
    write_lines(LOST_MODULE, LOST_MODULE)
    shown = person.types("inspect", "in/a")
    assert "2 failed starts or invocations, the last" in shown
    assert "No module named 'pandas'" in shown
    assert person.reads("inspect", "in/a")["consumerErrors"]["atStart"]
    assert person.reads("inspect", "in/a", "--no-logs")["consumerErrors"] is None
    assert person.reads("inspect", "in/none")["consumerErrors"] is None


@pytest.mark.failure_mode("F393")
def test_a_message_without_a_row_shows_the_errors_of_the_last_hour(sit: Callable[..., Person]) -> None:
    person = sit(make_message_site(), audit=False)
    write_lines(LOST_MODULE)
    assert person.reads("inspect", "o-7")["consumerErrors"]["number"] == 1


TIMED_OUT = "2026-11-25T06:00:00.000Z 6f1d Task timed out after 60.00 seconds"
PROCESSOR = """[ERROR] KeyError: 'WAREHOUSE_URL'
Traceback (most recent call last):
\xa0\xa0File "/opt/python/a.py", line 87, in make_consumer"""
LINES: list[tuple[list[str], int, bool, str]] = [
    ([LOST_MODULE, "INIT_REPORT Init Duration: 229.22 ms\tPhase: init\tStatus: error"], 1, True, "'pandas'"),
    (["[ERROR] Runtime.UserCodeSyntaxError: Syntax error in module 'invoices': invalid syntax"], 1, True, "invoices"),
    (["[ERROR] Runtime.HandlerNotFound: Handler 'handler' missing on module 'index'"], 1, True, "index"),
    (["[ERROR] SettingsError: the environment variable INTAKE_TABLE_NAME is not set"], 1, True, "INTAKE_TABLE_NAME"),
    ([PROCESSOR], 1, True, "WAREHOUSE_URL"),
    (["[ERROR] KeyError: 'Records'\nTraceback (most recent call last):"], 1, False, "Records"),
    (
        [
            "INIT_REPORT Init Duration: 10008.12 ms\tPhase: init\tStatus: timeout",
            "INIT_REPORT Init Duration: 60045.69 ms\tPhase: invoke\tStatus: error\tError Type: Runtime.Unknown",
            TIMED_OUT,
        ],
        1,
        True,
        "Phase: init",
    ),
    (
        ["INIT_REPORT Init Duration: 112.40 ms\tPhase: invoke\tStatus: error\tError Type: Runtime.ExitError"],
        1,
        True,
        "",
    ),
    ([TIMED_OUT, TIMED_OUT], 2, False, "Task timed out"),
    (["RequestId: 6f1d Error: Runtime exited with error: signal: killed"], 1, False, "killed"),
]
"""Lines of Lambda about failed invocations, their number, whether the function could not start, and a text to show."""


@pytest.mark.failure_mode("F393")
@pytest.mark.parametrize(("lines", "number", "at_start", "shown"), LINES)
def test_each_line_of_lambda_is_found_and_judged(
    sit: Callable[..., Person], lines: list[str], number: int, at_start: bool, shown: str
) -> None:
    terms = [one.strip('?"') for one in consumer_log.ERRORS.split(" ?")]
    assert all(any(term in line for term in terms) for line in lines)
    person = sit(make_site())
    person.site.put("in/a")
    write_lines(*lines)
    found = person.reads("inspect", "in/a")["consumerErrors"]
    assert (found["number"], found["atStart"], shown in found["text"]) == (number, at_start, True)


@pytest.mark.failure_mode("F393")
def test_the_filter_leaves_the_lines_of_the_consumer_out() -> None:
    terms = [one.strip('?"') for one in consumer_log.ERRORS.split(" ?")]
    line = '{"level":"ERROR","message":"Failed","key":"in/a","reason":"KeyError at invoices:42","status":"error"}'
    assert not any(term in line for term in terms)


@pytest.mark.failure_mode("F394")
@pytest.mark.parametrize(
    ("service", "method", "line"),
    [("cloudwatch", "get_metric_data", "Last hour"), ("sqs", "get_queue_attributes", "Queue")],
)
def test_a_part_that_aws_throttles_is_unknown_and_the_others_are_shown(
    sit: Callable[..., Person], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, service: str, method: str, line: str
) -> None:
    """On the page of `audit --html` too."""
    person = sit(make_site())
    person.site.reject("in/a", "no amount")
    real: Any = client(service)

    class Throttled:
        def __getattr__(self, name: str) -> Any:
            throttled = (method, "get_paginator") if service == "cloudwatch" else (method,)
            return self._refuse if name in throttled else getattr(real, name)

        def _refuse(self, *_: Any, **__: Any) -> Any:
            raise ClientError({"Error": {"Code": "ThrottlingException", "Message": "later"}}, "AnOperation")

    monkeypatch.setattr(Aws, service, Throttled())
    shown = person.types("status")
    assert re.search(rf"{line} +unknown: AnOperation was answered with ThrottlingException", shown)
    assert "need a person, see: list --status REJECTED" in shown
    document = person.reads("status")
    part = document["lastHour" if service == "cloudwatch" else "queue"]
    assert part == {"unknown": "AnOperation was answered with ThrottlingException"}
    page = tmp_path / "report.html"
    person.types("audit", "--html", str(page))
    assert "unknown: AnOperation was answered with ThrottlingException" in page.read_text()


@pytest.mark.failure_mode("F394")
def test_a_throttled_list_shows_the_rows_before(sit: Callable[..., Person], monkeypatch: pytest.MonkeyPatch) -> None:
    """It says why it stopped and how it goes on. Without a row, it is an error as before."""
    person, real = sit(make_site()), client("dynamodb")
    for number in range(9):
        person.site.reject(f"in/{number}", "no amount", at=START + number)

    class Throttled:
        answers = 1

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def get_paginator(self, name: str) -> Any:
            return self

        def paginate(self, **request: Any) -> Any:
            request |= {"PaginationConfig": {"PageSize": 2}}
            for number, page in enumerate(real.get_paginator("query").paginate(**request)):
                if number == self.answers:
                    raise ClientError({"Error": {"Code": "ThrottlingException", "Message": "later"}}, "Query")
                yield page

    throttled = Throttled()
    monkeypatch.setattr(Aws, "dynamodb", throttled)
    monkeypatch.setattr(reading, "review_partitions", lambda name: [f"{name}#0"])
    for item in real.scan(TableName=person.site.deployed.table)["Items"]:
        real.put_item(TableName=person.site.deployed.table, Item=item | {"needs_review": {"S": f"{NAME}#0"}})
    found = person.reads("list")
    assert 0 < len(found["rows"]) < 9
    assert found["why"] == "Query failed: ThrottlingException: later"
    assert found["after"]
    assert "(Query failed: ThrottlingException: later), and rows may follow: go on with --after" in person.types("list")
    assert sum(one["rows"] for one in person.reads("list", "--by-reason")["reasons"]) == len(found["rows"])
    throttled.answers = 0
    person.types("list", ends=1)
    assert "ThrottlingException" in person.complaint


@pytest.mark.failure_mode("F394")
@pytest.mark.parametrize(
    ("command", "service", "method"),
    [
        (("audit", "--resend"), "functions", "invoke"),
        (("pause", "--because", "a move", "--yes"), "functions", "update_event_source_mapping"),
        (("resume",), "functions", "update_event_source_mapping"),
    ],
    ids=["audit", "pause", "resume"],
)
def test_a_command_that_fails_has_its_failure_in_the_record(
    sit: Callable[..., Person],
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    service: str,
    method: str,
) -> None:
    person = sit(make_site())
    real: Any = getattr(Aws, service)

    class Failing:
        def __getattr__(self, name: str) -> Any:
            return self._refuse if name == method else getattr(real, name)

        def _refuse(self, **_: Any) -> Any:
            raise ClientError({"Error": {"Code": "InternalError", "Message": "no"}}, "AnOperation")

    monkeypatch.setattr(Aws, service, Failing())
    person.types(*command, ends=1)
    [operation] = person.reads("operations")["operations"]
    assert operation["what"].startswith(command[0])
    assert operation["result"].startswith("failed: ")
    assert "InternalError" in operation["result"]


@pytest.mark.failure_mode("F394")
def test_insufficient_data_is_not_green() -> None:
    alarms = [Alarm("a", "OK", ""), Alarm("b", "INSUFFICIENT_DATA", "")]
    shown = alarms_text(make_site().deployed, alarms)
    assert (shown.plain, shown.style) == ("none of 2 in ALARM, 1 with insufficient data", "yellow")
    assert alarms_text(make_site().deployed, alarms[:1]).style == "green"
