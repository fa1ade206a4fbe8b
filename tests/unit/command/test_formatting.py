"""Texts, IDs and rate limits of the command line, which are pure functions."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    ProfileNotFound,
    UnauthorizedSSOTokenError,
)
from hypothesis import given
from hypothesis import strategies as st

from intake_ledger.audit.diff import Finding, Line, Window, judge
from intake_ledger.audit.report import Pass, Report
from intake_ledger.events.parser import own_message
from intake_ledger.protocol import row as row_changes
from intake_ledger.protocol.change import ABSENT, Origin, State, StateKind
from intake_ledger.protocol.row import STORED_STATUSES, Ordering, Row, Status
from intake_ledger.protocol.ulids import RANDOM_BITS, is_ulid, made_at, ulid
from intake_ledger_cli.act.sender import RateLimit
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.aws.reading import ObjectRow
from intake_ledger_cli.aws.s3_listing import ListedVersion
from intake_ledger_cli.errors import CliError, describe_error
from intake_ledger_cli.read.audit_commands import report_table
from intake_ledger_cli.read.inspection import compare, row_content
from intake_ledger_cli.show import formatting, json_output, render
from intake_ledger_cli.show.console import console, escape, many
from tests.unit.command.support import denied
from tests.unit.support import DAY, HOUR, MINUTE, RETENTION, SECOND, START, created, one_change

DEPLOYED = DeployedPipeline(
    pipeline="p", bucket="b", bucket_owner=None, table="t", queue_url="q", dead_letter_url="d", deletes=True,
    ordering=Ordering.LATEST, retention_seconds=RETENTION // 1000, clock_skew_seconds=0, consumer_function="c",
    audit_function="a", alarms=(), machines=(), reports=None, directory_markers=True,
)  # fmt: skip
V1 = State(StateKind.OBJECT, "v1", "e1", 1_204, START - HOUR)
V2 = State(StateKind.OBJECT, "v2", "e2", 5, START - MINUTE)
ROW = Row(Status.PROCESSED, 7, version_id="v1", etag="e1", committed_state="v#v1", commit_id="inv-7", committed_fence=7)


def told_of(row: Row) -> dict[str, str]:
    """The lines of a row by label."""
    lines = render.fields("row", row_content(row, START), START)
    labels, texts = (map(str, column.cells) for column in lines.columns)
    return dict(zip(labels, texts, strict=True))


def test_a_row_tells_its_tag() -> None:
    """A missing tag names its versions. Pipelines without `after_commit` have no such line."""
    versions = " ".join(f"v{number}" for number in range(12))
    missing = told_of(replace(ROW, tags_pending=versions))["tag is missing at"]
    assert missing.startswith("v0, v1, v2")
    assert "v9 and 2 more  the next message of the key sets it" in missing
    assert told_of(replace(ROW, tagged_at=START - HOUR))["tag set"].endswith(", 1 hour ago")
    assert not {"tag set", "tag is missing at"} & set(told_of(ROW))


@pytest.mark.failure_mode("F471")
@pytest.mark.parametrize(
    ("claimed", "sequencer"), [(V1, "0055AED6DCD90281E5"), (V2, "")], ids=["its state", "a later one"]
)
def test_a_row_names_the_event_that_woke_its_attempt(claimed: State, sequencer: str) -> None:
    """The attempt is for the state that S3 shows. The sequencer of the event is that of another state then."""
    row = row_changes.claimed(None, created(V1), claimed, owner="w", now=START, lease_until=START + HOUR)
    later = row_changes.claimed(row, created(V1), claimed, owner="x", now=START, lease_until=START + HOUR)
    for each in (row, later):
        told = told_of(each)
        assert (told["woken by"], told["event ID"]) == ("ObjectCreated:Put", "79104EXAMPLEB723")
        assert told.get("sequencer", "") == sequencer
    repair = one_change(own_message(Origin.AUDIT, "b", "k"))
    by_audit = row_changes.claimed(row, repair, claimed, owner="w", now=START, lease_until=START + HOUR)
    assert told_of(by_audit)["woken by"] == "IntakeLedger:Audit"


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [
        (0, "less than a second"),
        (SECOND, "1 second"),
        (59_999, "59 seconds"),
        (MINUTE, "1 minute"),
        (2 * HOUR + 1, "2 hours"),
        (1_500 * DAY, "1,500 days"),
    ],
)
def test_a_span_is_told_in_its_largest_unit(milliseconds: int, said: str) -> None:
    assert formatting.duration(milliseconds) == said


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (replace(ROW, status=Status.PROCESSING, lease_until=START + MINUTE), "attempt 1 is running, its lease ends 20"),
        (replace(ROW, status=Status.PROCESSING, lease_until=START), "attempt 1 died or timed out"),
        (replace(ROW, status=Status.FAILED, attempts=2, retry_at=START + MINUTE), "will be retried, next attempt 20"),
        (replace(ROW, status=Status.FAILED, retry_at=START), "failed and will be retried"),
        (replace(ROW, status=Status.FAILED, waiting_since=START), "waits since 2026-11-18"),
        (replace(ROW, status=Status.REJECTED, attempts=5), "after 5 attempts: retry it"),
        (ROW, "PROCESSED after 1 attempt"),
        (replace(ROW, attempts=0, settled_as="removal"), "recorded without an attempt"),
        (replace(ROW, attempts=0), "processed before a removal that was undone"),
    ],
)
def test_each_status_is_told_with_what_follows(row: Row, said: str) -> None:
    assert said in told_of(row)["Ledger"]


def test_a_row_is_told_without_what_it_has_not() -> None:
    told = told_of(ROW)
    assert (told["committed state"], told["commit ID"], told["committed fence"]) == ("v#v1", "inv-7", "7")
    assert not {"reason", "redrives", "expires", "reprocess"} & set(told)
    asked_for = replace(ROW, redrive_count=2, served_reprocess_id="01K", reason="x", expires_at=START // 1000 + 86_400)
    told = told_of(asked_for)
    assert (told["redrives"], told["reprocess"]) == ("2  accepted again after a rejection", "01K")
    assert told["expires"].endswith("in 1 day")


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (V1, "an object, 1,204 bytes, version v1, since "),
        (State(StateKind.OBJECT, None, "e9"), "an object, ETag e9"),
        (State(StateKind.MARKER, "m1"), "removed: a delete marker, version m1"),
        (State(StateKind.DELETED, "v9"), "version v9 was permanently deleted"),
        (ABSENT, "no object"),
    ],
)
def test_each_state_is_told(state: State, said: str) -> None:
    assert formatting.describe_state(state, START).startswith(said)


STATES = st.sampled_from([V1, V2, State(StateKind.MARKER, "m1", created_at=START - HOUR), ABSENT])
ROWS = st.none() | st.builds(
    lambda status, seen, lease, committed, late_writes: Row(
        status,
        7,
        version_id=seen.version_id,
        etag=seen.etag,
        kind=seen.kind,
        lease_until=lease,
        committed_state=seen.identity if status is Status.PROCESSED else committed,
        late_writes=late_writes,
    ),
    st.sampled_from(STORED_STATUSES),
    STATES,
    st.sampled_from([None, START - 1, START + 1]),
    st.sampled_from([None, "v#v1", "v#v2"]),
    st.frozensets(st.sampled_from(["v#v1", "v#v2"])),
)


@given(
    row=ROWS,
    state=STATES,
    deletes=st.booleans(),
    age=st.sampled_from([0, 2 * RETENTION, 4 * RETENTION]),
    all_rows_since=st.sampled_from([None, 0, START - 3 * RETENTION, START - MINUTE]),
)
def test_inspect_and_the_audit_agree_about_what_agrees(
    row: Row | None, state: State, deletes: bool, age: int, all_rows_since: int | None
) -> None:
    """`inspect` reports a difference exactly if an audit without a settle time would resubmit the key."""
    created_at = None if state.created_at is None else state.created_at - age
    shown = replace(state, created_at=created_at)
    since = START - RETENTION
    known_since = since if all_rows_since is None else min(since, all_rows_since)
    window = Window(settled_before=START, known_since=known_since, removals_since=since)
    verdict = judge(row, shown, window, now=START, deletes=deletes)
    finding = verdict if isinstance(verdict, Finding) else None
    agree, why = formatting.agreement(row, shown, replace(DEPLOYED, deletes=deletes), START, all_rows_since)
    assert agree is (finding is None), why


@pytest.mark.failure_mode("F96")
def test_a_late_write_is_told() -> None:
    """The late write is in the text and in the JSON output, which has no sets."""
    row = replace(ROW, late_writes=frozenset({"v#v0"}))
    assert told_of(row)["late writes"] == "v#v0"
    [found] = compare([ObjectRow("k", row)], [ListedVersion(V1, current=True)], DEPLOYED, START, None)
    assert not found.agree
    assert "a late worker" in found.why
    told = json.loads(json.dumps(json_output.document(found)))
    assert told["row"]["late_writes"] == ["v#v0"]


def test_in_every_version_each_version_has_its_own_row() -> None:
    """The newest version comes first, and rows without a version in S3 come last."""
    deployed = replace(DEPLOYED, ordering=Ordering.EVERY_VERSION)
    gone = replace(ROW, version_id="v0", committed_state="v#v0")
    half_done = replace(ROW, version_id="v-1", status=Status.FAILED)
    deleted = replace(ROW, kind=StateKind.DELETED, version_id="v9", committed_state="d#v9")
    entries = [ObjectRow("k", row) for row in (gone, ROW, half_done, deleted)]
    found = compare(entries, [ListedVersion(V2, current=True), ListedVersion(V1, current=False)], deployed, START, None)
    rows = [(one.row.version_id if one.row else None, one.agree) for one in found]
    assert rows == [(None, False), ("v1", True), ("v0", True), ("v-1", False), ("v9", True)]


def test_without_s3_nothing_is_said_of_agreement() -> None:
    [found] = compare([ObjectRow("k", ROW)], None, DEPLOYED, START, None)
    assert (found.s3, found.agree) == (None, None)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (CliError("as it is"), "as it is"),
        (denied("sqs:SendMessage", "SendMessageBatch"), "not allowed: sqs:SendMessage; the pipeline's grant_redrive"),
        (denied("dynamodb:Query", "Query"), "not allowed: dynamodb:Query; the pipeline's grant_read_ledger"),
        (denied("cloudformation:ListStackResources", "X"), "not allowed: cloudformation:ListStackResources; docs/"),
        (ClientError({"Error": {"Code": "403", "Message": "Forbidden"}}, "HeadObject"), "not allowed: HeadObject"),
        (ClientError({"Error": {"Code": "ExpiredToken", "Message": "m"}}, "X"), "have expired or are not valid here"),
        (ClientError({"Error": {"Code": "Throttling", "Message": "slow"}}, "X"), "X failed: Throttling: slow"),
        (ProfileNotFound(profile="me"), "--profile"),
        (NoCredentialsError(), "no AWS credentials: use --profile"),
        (NoRegionError(), "no AWS region: use --region"),
        (UnauthorizedSSOTokenError(), "log in again"),
        (EndpointConnectionError(endpoint_url="https://x"), "check the network, the region and AWS_ENDPOINT_URL"),
    ],
)  # fmt: skip
def test_each_error_is_one_line_with_the_fix(error: Any, said: str) -> None:
    text = describe_error(error)
    assert said in text
    assert "\n" not in text


def test_what_others_wrote_cannot_move_the_cursor() -> None:
    """A key may contain any character."""
    assert escape("a\x1b[31mb\r\nä b") == "a\\x1b[31mb\\r\\nä b"


TIMES, RANDOM = st.integers(0, 2**48 - 1), st.integers(0, 2**RANDOM_BITS - 1)


@given(st.tuples(TIMES, RANDOM), st.tuples(TIMES, RANDOM))
def test_ulids_sort_as_their_times(one: tuple[int, int], other: tuple[int, int]) -> None:
    """The ledger compares IDs as text."""
    assert (one < other) is (ulid(*one) < ulid(*other))
    assert is_ulid(ulid(*one))
    assert made_at(ulid(*one)) == one[0]


def test_a_ulid_is_the_one_of_the_specification() -> None:
    """The time of the example in the specification: 01ARYZ6S41 is 1469918176385."""
    assert ulid(1_469_918_176_385, 0) == "01ARYZ6S41" + "0" * 16


@pytest.mark.parametrize("text", ["", "01", "81ARYZ6S410000000000000000", "01ARYZ6S41000000000000000l"])
def test_what_is_no_ulid_is_told_apart(text: str) -> None:
    assert not is_ulid(text)


@pytest.mark.parametrize(("per_second", "together"), [(0.5, 1), (3.0, 3), (50.0, 10)])
def test_a_rate_is_kept_over_time(per_second: float, together: int) -> None:
    """A hundred messages take the right time, and low rates do not send bursts."""
    clock, slept = [100.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    rate = RateLimit(per_second, clock=lambda: clock[0], sleep=sleep)
    assert rate.batch_size == together
    for _ in range(100 // together):
        rate.wait_for(together)
        clock[0] += 0.01
    sent = 100 // together * together
    assert clock[0] - 100.0 == pytest.approx((sent - together) / per_second, abs=0.02)


@pytest.mark.failure_mode("F116")
def test_a_report_is_shown_with_all_its_lines() -> None:
    """Each line with a count is in its group with its number, and each part of a resumed run is listed."""
    report = Report("1", START)
    report.passes = [Pass(START - HOUR, START - MINUTE, 100), Pass(START - SECOND, START, 20)]
    numbers = {line: number for number, line in enumerate(Line, 1)}
    report.lines.update(numbers)
    report.unlisted.update(leased=1_000)
    terminal = console()
    with terminal.capture() as capture:
        terminal.print(report_table(report.as_json(START), None, START), width=1_000)
    shown = capture.get()
    for line, number in numbers.items():
        alone = line in (Line.AGREES, Line.RESUBMITTED, Line.REJECTED)
        text = f"{number:,}" if alone else f"{number:,} {line.text}"
        assert re.search(rf"\b{text}\b", shown), line
    assert "rows: 1,000: 1,000 with a worker" in shown
    assert "100 listed within 59 minutes, 2026" in shown


def test_a_report_of_an_older_release_is_shown_without_lines() -> None:
    content = Report("1", START).as_json(START)
    for name in ("lines", "unlisted", "passes"):
        del content[name]
    terminal = console()
    with terminal.capture() as capture:
        terminal.print(report_table(content, None, START))
    assert "Waiting" not in capture.get()


@pytest.mark.parametrize(("number", "said"), [(0, "0 rows"), (1, "1 row"), (2_000, "2,000 rows")])
def test_one_of_several_has_no_plural(number: int, said: str) -> None:
    assert many(number, "rows") == said


def printed(parent: str, content: dict[str, Any]) -> str:
    """What `view` prints in a pipe that is wide enough."""
    terminal = console()
    with terminal.capture() as capture:
        terminal.print(*render.view(parent, content, START), width=1_000)
    return "\n".join(re.sub(" {2,}", "  ", line).strip() for line in capture.get().splitlines())


def test_a_result_is_shown_by_its_fields() -> None:
    """Empty fields are left out, numbers have their unit, and a hint follows a value that is not empty."""
    shown = printed(
        "release",
        {"key": "a\x1b[31m", "leaseUntil": START + HOUR, "fence": 1_000, "woken": False, "rows": 0, "why": ""},
    )
    assert shown.splitlines() == [
        r"key  a\x1b[31m",
        "lease until  2026-11-18T12:06:40Z, in 1 hour",
        "fence  1000",
        "tried now  no, when its source delivers its message",
    ]
    assert "moved but not deleted  2  the ledger ignores the second copy" in printed("redriven", {"undeleted": 2})


def test_a_list_is_a_table_with_what_needs_a_person_first() -> None:
    """A long table is cut, and says so. A column without a value is left out."""
    choices = [{"key": f"k{number}", "choice": "now", "why": ""} for number in range(60)]
    shown = printed("retry", {"choices": [*choices, {"key": "held", "choice": "leave", "why": ""}]})
    assert shown.splitlines()[1:5] == ["choices", "key  choice", "held  leave", "k0  now"]
    assert shown.endswith("and 11 more, see --json")


@pytest.mark.parametrize(
    ("value", "said", "style"),
    [
        ({"denied": "sqs:GetQueueAttributes"}, "not allowed: sqs:GetQueueAttributes", "dim"),
        ({"unknown": "it was throttled"}, "unknown: it was throttled", "yellow"),
        ({"waiting": 2, "hidden": 0}, "2 waiting  see: retry --prefix '' --dry-run", "bold red"),
    ],
)
def test_a_part_that_was_not_read_is_no_trouble_of_the_pipeline(value: Any, said: str, style: str) -> None:
    """It has its own style, and no hint."""
    line = render.line("status", "deadLetters", value, START)
    assert line.plain == said
    assert style in {str(span.style) for span in line.spans}
    assert ("bold red" in {str(span.style) for span in line.spans}) is ("waiting" in value)


@pytest.mark.parametrize(
    ("parent", "name", "value", "said"),
    [
        ("audit", "sending", {"sent": 0, "of": 5000}, "0 sent, of at most 5,000 messages"),
        ("redriven", "ofOthers", {"invoices": 1}, "1 invoices"),
        ("status", "groups", [{"group": f"g{n}", "heldBy": "a"} for n in range(12)], "; and 2 more"),
    ],
)
def test_a_line_has_each_number_and_name(parent: str, name: str, value: Any, said: str) -> None:
    assert said in render.line(parent, name, value, START).plain


def test_a_table_of_texts_says_that_it_was_cut() -> None:
    shown = [*render.view("ForgetAgainResult", {"left": {f"k{n}": "in use" for n in range(60)}}, START)]
    assert "and 10 more, see --json" in str(shown[-1])
