"""F390: `wait` ends when everything under a prefix is committed, and says why if it does not."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError

from intake_ledger.protocol.row import Ordering, Row, Status
from intake_ledger_cli.app import now_ms
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.errors import UsageError
from intake_ledger_cli.read.waiting import parse_until
from tests.unit.command.support import Site, client, denied, make_set_site, make_site
from tests.unit.command.test_commands import Person, sit
from tests.unit.support import HOUR, MINUTE, START

__all__ = ["sit"]
pytestmark = pytest.mark.usefixtures("dynamodb")


def commit(site: Site, key: str, version: str, *, fence: int = START) -> None:
    etag = client("s3").head_object(Bucket=site.deployed.bucket, Key=key)["ETag"].strip('"')
    row = Row(Status.PROCESSED, START, version_id=version, etag=etag, updated_at=START)
    site.row(key, replace(row, committed_state=row.identity, committed_fence=fence))


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """Steps between two looks. When none is left, the clock passes the time limit."""
    steps: list[Callable[[], object]] = []
    late = [0]

    wait = time.sleep

    def sleep(seconds: float) -> None:
        if threading.current_thread() is not threading.main_thread():
            wait(seconds)  # a thread that another test has left
        elif steps:
            steps.pop(0)()
        else:
            late[0] += HOUR * 48

    monkeypatch.setattr(time, "sleep", sleep)
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + late[0] * 1_000_000)
    return steps


@pytest.mark.failure_mode("F390")
def test_it_ends_with_0_when_all_expected_keys_are_committed(
    sit: Callable[..., Person], ticks: list[Callable[[], object]]
) -> None:
    site = make_site()
    person = sit(site)
    [first] = site.put("loads/7/a")
    commit(site, "loads/7/a", first)
    site.put("loads/8/other")

    def second() -> None:
        [version] = site.put("loads/7/b")
        ticks.append(lambda: commit(site, "loads/7/b", version))

    ticks.append(second)
    found = person.reads("wait", "--prefix", "loads/7/", "--expect", "2", "--until", "1h")
    assert (found["outcome"], found["committed"], found["expected"]) == ("committed", 2, 2)
    assert ticks == []


@pytest.mark.failure_mode("F390")
def test_an_empty_prefix_does_not_succeed(sit: Callable[..., Person], ticks: list[Callable[[], object]]) -> None:
    person = sit(make_site())
    person.types("wait", "--prefix", "loads/7/", ends=2)
    assert "needs --expect or --marker" in person.complaint
    person.site.put("loads/7/_SUCCESS_not_yet")
    found = person.reads("wait", "--prefix", "loads/9/", "--expect", "1", "--until", "1m", ends=4)
    assert (found["outcome"], found["committed"], found["missing"]) == ("missing", 0, [])


def test_a_marker_must_be_there_and_need_not_be_processed(
    sit: Callable[..., Person], ticks: list[Callable[[], object]]
) -> None:
    """The manifests of the pipeline's sets have no rows."""
    site = make_site()
    target = {"name": "Loads", "queueUrl": "https://queue", "form": "manifest", "pattern": "loads/*/manifest.json"}
    person = sit(site, consumer=site.environment() | {"INTAKE_SETS": json.dumps([target])})
    [version] = site.put("loads/7/a")
    commit(site, "loads/7/a", version)
    arguments = ("wait", "--prefix", "loads/7/", "--marker", "loads/7/manifest.json", "--until", "1m")
    assert "marker  loads/7/manifest.json\nmarker found  no\n" in person.types(*arguments, ends=4)
    ticks.append(lambda: site.put("loads/7/manifest.json"))
    assert person.reads(*arguments[:-2])["markerFound"]


@pytest.mark.failure_mode("F390")
def test_a_rejection_ends_it_with_1_and_a_repair_goes_on(
    sit: Callable[..., Person], ticks: list[Callable[[], object]]
) -> None:
    """A new upload or a dismissal ends a rejection."""
    site = make_site()
    person = sit(site)
    one, two = site.put("loads/7/a", "loads/7/b")
    commit(site, "loads/7/a", one)
    site.reject("loads/7/b", "no amount", version=two)
    arguments = ("wait", "--prefix", "loads/7/", "--expect", "1", "--until", "1m")
    found = person.reads(*arguments, ends=1)
    assert [(one["key"], one["status"], one["why"]) for one in found["rejected"]] == [
        ("loads/7/b", "REJECTED", "no amount")
    ]
    [three] = site.put("loads/7/b")
    assert [one["versionId"] for one in person.reads(*arguments, ends=4)["missing"]] == [three]
    site.reject("loads/7/b", "no amount", version=three)
    person.types("dismiss", "loads/7/b", "--because", "a test file")
    assert person.reads(*arguments)["committed"] == 1
    person.types(*arguments[:3], "--expect", "2", "--until", "1m", ends=4)


def test_at_the_time_limit_it_says_what_is_missing_and_why(
    sit: Callable[..., Person], ticks: list[Callable[[], object]]
) -> None:
    site = make_site()
    person = sit(site)
    _, two = site.put("loads/7/a", "loads/7/b")
    failed = Row(Status.FAILED, 3, version_id=two, reason="KeyError at invoices:42", reason_code="processor_error")
    site.row("loads/7/b", failed)
    shown = person.types("wait", "--prefix", "loads/7/", "--expect", "2", "--until", "1m", ends=4)
    assert "loads/7/a  no row  the ledger has no row" in shown
    assert "loads/7/b  FAILED  KeyError at invoices:42" in shown


def test_each_version_and_each_removal_counts_where_they_are_processed(
    sit: Callable[..., Person], ticks: list[Callable[[], object]]
) -> None:
    site = make_site(Ordering.EVERY_VERSION, deletes=True)
    person = sit(site)
    [one] = site.put("loads/7/a")
    [two] = site.put("loads/7/a")
    commit(site, "loads/7/a", two)
    arguments = ("wait", "--prefix", "loads/7/", "--expect", "1", "--until", "1m")
    assert [found["versionId"] for found in person.reads(*arguments, ends=4)["missing"]] == [one]
    commit(site, "loads/7/a", one)
    person.reads(*arguments)
    client("s3").delete_object(Bucket=site.deployed.bucket, Key="loads/7/a")
    assert len(person.reads(*arguments, ends=4)["missing"]) == 1


def test_sets_are_committed_in_their_present_state(
    sit: Callable[..., Person], ticks: list[Callable[[], object]]
) -> None:
    site = make_set_site("marker", "exports/*/_SUCCESS")
    person = sit(site, audit=False)
    site.put("exports/7/a.csv", "exports/7/_SUCCESS")
    arguments = ("wait", "--prefix", "exports/7/", "--marker", "exports/7/_SUCCESS", "--until", "1m")
    [missing] = person.reads(*arguments, ends=4)["missing"]
    assert missing["key"] == "exports/7/_SUCCESS"
    state = person.reads("inspect", "exports/7/_SUCCESS")["state"]
    version = state.removeprefix("v#")
    row = Row(Status.PROCESSED, START, version_id=version, updated_at=START)
    assert row.identity == state
    site.row("exports/7/_SUCCESS", replace(row, committed_state=state, committed_fence=START))
    assert person.reads(*arguments)["committed"] == 1


@pytest.mark.failure_mode("F390")
def test_its_requests_grow_with_the_keys_under_the_prefix(
    sit: Callable[..., Person], ticks: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at 150 keys is one listing and two reads. Former patterns, and committed states, are read once."""
    site = make_site()
    person = sit(site)
    keys = [f"loads/7/{number:03d}" for number in range(150)]
    for key, version in zip(keys, site.put(*keys), strict=True):
        if key != keys[0]:
            commit(site, key, version)
        else:
            ticks.append(lambda version=version: commit(site, keys[0], version))  # type: ignore[misc]
    seen: list[str] = []
    call = vars(BaseClient)["_make_api_call"]

    def noted(caller: Any, operation: str, arguments: Any) -> Any:
        seen.append(operation)
        return call(caller, operation, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", noted)
    person.reads("wait", "--prefix", "loads/7/", "--expect", "150")
    looks = [one for one in seen if one in ("ListObjectVersions", "BatchGetItem", "GetItem", "Query", "Scan")]
    assert looks.count("ListObjectVersions") == 2
    assert looks.count("BatchGetItem") == 3
    assert looks.count("GetItem") == 1, "the former patterns of `exclude`"
    assert looks.count("Query") == 2, "the requests of people"
    assert len(looks) == 8


def test_throttling_is_no_outcome_and_a_denial_ends_it(
    sit: Callable[..., Person], ticks: list[Callable[[], object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    site = make_site()
    person = sit(site)
    [version] = site.put("loads/7/a")
    commit(site, "loads/7/a", version)
    throttled = ClientError({"Error": {"Code": "SlowDown", "Message": "later"}}, "ListObjectVersions")
    errors: Iterator[Exception | None] = iter([throttled, None])
    s3: Any = client("s3")

    class Unsure:
        def get_paginator(self, operation: str) -> Any:
            if error := next(errors):
                raise error
            return s3.get_paginator(operation)

    monkeypatch.setattr(Aws, "s3", Unsure())
    arguments = ("wait", "--prefix", "loads/7/", "--expect", "1", "--until", "1h")
    ticks.append(lambda: None)
    assert person.reads(*arguments)["outcome"] == "committed"
    errors = iter([throttled, throttled])
    assert "SlowDown" in person.reads(*arguments, ends=4)["error"]
    errors = iter([denied("s3:ListBucketVersions", "ListObjectVersions")])
    person.types(*arguments, ends=1)
    assert "not allowed: s3:ListBucketVersions" in person.complaint


PREFIX = ("wait", "--prefix", "loads/7/", "--expect", "1", "--until", "1m")


def asked(person: Person, *command: str) -> str:
    """Give a command that sends requests. Returns its ID."""
    person.types(*command, "--yes")
    newest: str = person.reads("operations")["operations"][0]["requestId"]
    return newest


def refused(site: Site, version: str) -> Row:
    """A rejection, with its copy."""
    row = Row(Status.REJECTED, START, version_id=version, reason="no amount", rejected_fence=START)
    site.row("loads/7/a", row)
    site.dead_letter("{}", key="loads/7/a", rejected_fence=START, pipeline=site.deployed.name)
    return row


def by_id(request_id: str) -> tuple[str, ...]:
    return "wait", "--id", request_id, "--until", "1m"


def again(site: Site, key: str, version: str, request_id: str, status: Status = Status.PROCESSED) -> None:
    """The row after an attempt for a request."""
    seen = Row(status, now_ms(), version_id=version, updated_at=now_ms(), reprocess_id=request_id, retry_at=1)
    if status is Status.PROCESSED:
        seen = replace(seen, served_reprocess_id=request_id, committed_state=seen.identity, committed_fence=now_ms())
    site.row(key, seen)


@pytest.mark.failure_mode("F643")
def test_a_reprocess_is_waited_for_and_not_the_commit_before_it(
    sit: Callable[..., Person], ticks: list[Callable[[], object]]
) -> None:
    """The old commit is there. The attempt fails once."""
    site = make_site()
    person = sit(site)
    [version] = site.put("loads/7/a")
    commit(site, "loads/7/a", version)
    request_id = asked(person, "retry", "--again", "--prefix", "loads/7/")
    [missing] = person.reads(*PREFIX, ends=4)["missing"]
    assert (missing["status"], missing["why"]) == ("PROCESSED", f"its request {request_id} is not served")
    assert person.reads(*by_id(request_id), ends=4)["outcome"] == "missing"
    again(site, "loads/7/a", version, request_id, Status.FAILED)
    assert person.reads(*PREFIX, ends=4)["outcome"] == "missing"
    ticks.append(lambda: again(site, "loads/7/a", version, request_id))
    found = person.reads(*by_id(request_id))
    assert (found["outcome"], found["committed"], found["servedBefore"]) == ("committed", 1, 0)
    assert person.reads(*PREFIX)["outcome"] == "committed"


@pytest.mark.failure_mode("F643")
def test_a_redrive_is_waited_for_and_not_the_rejection_before_it(
    sit: Callable[..., Person], ticks: list[Callable[[], object]]
) -> None:
    site = make_site()
    person = sit(site)
    [version] = site.put("loads/7/a")
    refused(site, version)
    person.reads(*PREFIX, ends=1)
    request_id = asked(person, "retry", "--prefix", "")
    [missing] = person.reads(*PREFIX, ends=4)["missing"]
    assert missing["why"] == f"its request {request_id} is not served"
    no = Row(Status.REJECTED, START, version_id=version, reason="no amount again", rejected_fence=START + 1)
    ticks.append(lambda: site.row("loads/7/a", no))
    [rejected] = person.reads(*by_id(request_id), ends=1)["rejected"]
    assert rejected["why"] == "no amount again"
    assert person.reads(*PREFIX, ends=1)["outcome"] == "rejected"
    commit(site, "loads/7/a", version)
    assert person.reads(*by_id(request_id))["committed"] == 1
    person.reads(*PREFIX)


@pytest.mark.failure_mode("F643")
@pytest.mark.parametrize("end", ["void", "stopped", "lost"])
def test_a_request_that_will_not_be_served_ends_the_wait(
    sit: Callable[..., Person], ticks: list[Callable[[], object]], end: str
) -> None:
    site = make_site()
    person = sit(site)
    [version] = site.put("loads/7/a")
    if end == "lost":
        row = refused(site, version)
        request_id = asked(person, "retry", "--prefix", "")
        site.row("loads/7/a", replace(row, reason_code="copy_lost"))
        assert person.reads(*by_id(request_id), ends=1)["outcome"] == "lost"
        assert person.reads(*PREFIX, ends=1)["outcome"] == "rejected"
        return
    commit(site, "loads/7/a", version)
    request_id = asked(person, "retry", "--again", "--prefix", "loads/7/")
    if end == "stopped":
        person.types("operations", "stop", request_id, "--because", "wrong", "--yes")
        found = person.reads(*by_id(request_id), ends=1)
        assert (found["outcome"], found["withdrawn"]) == ("stopped", 1)
    else:
        [version] = site.put("loads/7/a")
        commit(site, "loads/7/a", version, fence=now_ms() + HOUR)
        found = person.reads(*by_id(request_id))
        assert (found["outcome"], found["void"], found["committed"]) == ("committed", 1, 0)
    assert person.reads(*PREFIX)["outcome"] == "committed"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("wait", "--until", "1m"), "exactly one of"),
        (("wait", "--id", "X", "--expect", "1"), "omit --expect"),
    ],
)
def test_a_wait_is_for_a_prefix_or_an_operation(
    sit: Callable[..., Person], arguments: tuple[str, ...], problem: str
) -> None:
    person = sit(make_site())
    person.types(*arguments, ends=2)
    assert problem in person.complaint


def test_an_unknown_operation_is_an_error(sit: Callable[..., Person]) -> None:
    person = sit(make_site())
    person.types(*by_id("01KAPX3RGT3AD491WZZFYQT0R6"), ends=1)
    assert "--id 01KAPX3RGT3AD491WZZFYQT0R6 is none of" in person.complaint


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("06:00", "2026-11-25T06:00:00Z"),
        ("04:59", "2026-11-26T04:59:00Z"),
        ("2026-11-25T05:30:00Z", "2026-11-25T05:30:00Z"),
        ("90m", "2026-11-25T06:30:00Z"),
    ],
)
def test_a_time_limit_is_a_time_of_day_a_time_or_an_age(text: str, until: str) -> None:
    assert parse_until(text, _ms("2026-11-25T05:00:00Z")) == _ms(until)


@pytest.mark.parametrize("text", ["24:00", "tomorrow", "2026-11-25T04:00:00Z", ""])
def test_another_time_limit_is_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError, match="--until"):
        parse_until(text, _ms("2026-11-25T05:00:00Z") + MINUTE)


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000)


@pytest.mark.failure_mode("F643")
@pytest.mark.parametrize("end", [Status.PROCESSED, Status.REJECTED])
def test_a_retry_waits_and_prints_one_document(
    sit: Callable[..., Person], ticks: list[Callable[[], object]], end: Status
) -> None:
    site = make_site()
    person = sit(site)
    [version] = site.put("loads/7/a")
    refused(site, version)
    no = Row(Status.REJECTED, START, version_id=version, reason="no amount again", rejected_fence=START + 1)
    ticks.append(lambda: commit(site, "loads/7/a", version) if end is Status.PROCESSED else site.row("loads/7/a", no))
    found = person.reads("retry", "loads/7/a", "--wait", ends=int(end is Status.REJECTED))
    assert (found["redriven"]["moved"], found["waited"]["outcome"]) == (
        1,
        "committed" if end is Status.PROCESSED else "rejected",
    )


@pytest.mark.parametrize("end", [Status.PROCESSED, Status.REJECTED])
def test_a_release_waits_for_the_next_attempt(
    sit: Callable[..., Person], ticks: list[Callable[[], object]], end: Status
) -> None:
    site = make_site()
    person = sit(site)
    held = Row(Status.PROCESSING, 1, version_id="v1", lease_owner="w", lease_until=now_ms() + HOUR, updated_at=START)
    site.row("loads/7/a", held)
    ticks.append(lambda: site.row("loads/7/a", Row(end, START, version_id="v2")))
    ended = int(end is Status.REJECTED)
    person.types("release", "loads/7/a", "--because", "it was stopped", "--wait", "--yes", ends=ended)
    assert ("is REJECTED" in person.complaint) is bool(ended)
