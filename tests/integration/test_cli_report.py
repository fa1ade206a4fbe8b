"""F180: the page of `audit --html` shows a pipeline's state without scripts, without a network and without harm."""

import errno
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from botocore.client import BaseClient

from intake_ledger.protocol.row import Row, Status
from intake_ledger_cli.errors import CliError
from intake_ledger_cli.read import report_page
from intake_ledger_cli.read.files import replacing
from intake_ledger_cli.read.status import NotRead, PipelineStatus
from tests.unit.command.support import NAME, Site, client, make_message_site, make_site
from tests.unit.command.test_commands import Person, leave_report, sit  # noqa: F401 - a fixture
from tests.unit.support import HOUR, MINUTE

pytestmark = pytest.mark.usefixtures("dynamodb")
HOSTILE = "in/<script>alert(1)</script>\"'><img src=https://example.com/x onerror=alert(2)>\u202e.csv"
NEEDED = 4.5
"""The contrast of text that WCAG 2.2 demands at level AA (success criterion 1.4.3)."""
NEEDED_OF_SHAPES = 3.0
"""The contrast of bars and other shapes (success criterion 1.4.11)."""
MOST_REQUESTS = 60
SECTIONS = (
    "State",
    "Failed and rejected objects by reason and age",
    "Attempts, duplicates and times over time",
    "Hot keys",
    "Last audits",
)


class Outline(HTMLParser):
    """Elements, attributes and texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in ("meta", "br", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)


def replace_file(path: Path, content: str) -> None:
    with replacing(path) as part:
        part.write_text(content)


def now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


def fill(site: Site) -> Site:
    """Leave rows, metrics and 35 audits, as a pipeline under load does."""
    now = now_ms()
    ages = (MINUTE, 3 * HOUR, 50 * HOUR, 300 * HOUR)
    for n in range(12):
        at = now - ages[n % 4] - n * MINUTE
        status = Status.REJECTED if n % 3 else Status.FAILED
        code = ("unprocessable", "processor_timeout", "processor_error")[n % 3]
        row = Row(status, 1 + n, version_id=f"v{n}", reason=f"ValueError at line {n}", updated_at=at)
        site.row(f"in/customers/{n}/orders.csv", replace(row, reason_code=code))
    hostile = Row(Status.REJECTED, 90, version_id="v", reason=f"bad: {HOSTILE}", updated_at=now - 900 * HOUR)
    site.row(HOSTILE, replace(hostile, attempts=9))
    site.row("in/" + "long-name-" * 90, replace(hostile, attempts=4, reason="x" * 300))
    _measure(now)
    reports = "audit-reports-" + site.deployed.table
    client("s3").create_bucket(Bucket=reports, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    for n in range(35):
        begun = datetime.now(UTC) - timedelta(days=35 - n)
        report = leave_report(
            site,
            runId=f"run{n}",
            startedAt=int(begun.timestamp() * 1000),
            counts={"missing": n % 5},
            complete=n % 7 != 0,
            delivery=[f"the queue's policy lacks {HOSTILE}"] if n == 34 else [],
            summary=f"audit {n}: {n % 5} missing, among them {HOSTILE}" if n % 9 == 0 else f"audit {n}: 4 objects",
        )
        key = f"audit/{NAME}/{begun.date().isoformat()}/run{n}.json"
        client("s3").put_object(Bucket=reports, Key=key, Body=json.dumps(report).encode())
    site.more_for_audit |= {"INTAKE_REPORT_BUCKET": reports, "INTAKE_REPORT_PREFIX": "audit/"}
    return site


def _measure(now: int) -> None:
    metrics: list[Any] = []
    for n in range(46):
        at = datetime.fromtimestamp(now / 1000, UTC) - timedelta(minutes=30 * n + 5)
        own = {"Dimensions": [{"Name": "service", "Value": NAME}], "Timestamp": at}
        sums = {
            "Accepted": 40 + n * 7 % 30,
            "Retries": n % 9,
            "Committed": 38,
            "Rejected": n % 2,
            "LapsedLeases": n % 3,
            "Duplicates": n % 4,
            "Stale": n % 5,
        }
        metrics += [{**own, "MetricName": name, "Value": value, "Unit": "Count"} for name, value in sums.items()]
        metrics += [{**own, "MetricName": "CommitLag", "Value": 400 * (1 + n % 5) * k * k} for k in (1, 1, 2, 5)]
        metrics += [{**own, "MetricName": "DuplicateAge", "Value": value} for value in (62, 400, 22_162_000)]
    for start in range(0, len(metrics), 100):
        client("cloudwatch").put_metric_data(Namespace="IntakeLedger", MetricData=metrics[start : start + 100])


@pytest.fixture(autouse=True)
def percentiles(dynamodb: Any) -> Iterator[None]:
    """moto knows no percentiles. It answers with other statistics of the same values."""
    assert dynamodb
    events, event = client("cloudwatch").meta.events, "provide-client-params.cloudwatch.GetMetricData"

    def replaced(params: Any, **_: Any) -> Any:
        known = {"p50": "Minimum", "p99": "Average"}
        for query in params["MetricDataQueries"]:
            query["MetricStat"]["Stat"] = known.get(query["MetricStat"]["Stat"], query["MetricStat"]["Stat"])
        return params

    events.register(event, replaced)
    yield
    events.unregister(event, replaced)


@pytest.fixture
def full(sit: Callable[..., Person], tmp_path: Path) -> Path:  # noqa: F811
    """The page of a pipeline with everything."""
    person, path = sit(fill(make_site())), tmp_path / "report.html"
    person.types("audit", "--html", str(path))
    return path


@pytest.mark.failure_mode("F472")
def test_the_page_has_all_sections_with_their_data(full: Path) -> None:
    """State, reasons by count and age, attempts, lag, hot keys and exactly the last thirty audits."""
    text = Outline(full.read_text()).text
    places = [text.index(title) for title in SECTIONS]
    assert places == sorted(places)
    for wanted in ("Breaker", "unprocessable", "1 to 7 days", "Retries", "Stale", "6 hours", "All 14 rows were read"):
        assert wanted in text, wanted
    hot, audits = text[places[3] : places[4]], text[places[4] :]
    assert audits.count("audit ") >= report_page.AUDITS
    assert audits.index("audit 34") < audits.index("audit 33"), "the newest comes first"
    assert "audit 4:" not in audits
    assert hot.index("<script>") < hot.index("long-name"), "the key with the most attempts comes first"


@pytest.mark.failure_mode("F197")
def test_hot_keys_are_counted_by_attempts_and_not_by_fences(
    sit: Callable[..., Person],  # noqa: F811
    tmp_path: Path,
) -> None:
    """A fence follows the clock, so it counts nothing."""
    person = sit(make_site())
    row = Row(Status.PROCESSED, now_ms(), version_id="v", updated_at=now_ms())
    person.site.row("in/once", row)
    person.site.row("in/loop", replace(row, attempts=12))
    person.types("audit", "--html", str(tmp_path / "report.html"))
    hot = Outline((tmp_path / "report.html").read_text()).text.partition("Hot keys")[2].partition("Last audits")[0]
    assert re.search(r"in/loop +12 ", hot)
    assert "in/once" not in hot


@pytest.mark.failure_mode("F180")
def test_no_key_or_reason_becomes_an_element_or_an_attribute(full: Path) -> None:
    """Keys and reasons are of anyone who may upload. Characters that reorder text are shown as escape sequences."""
    page = full.read_text()
    outline = Outline(page)
    assert page.count("&lt;script&gt;") >= 3
    assert not outline.tags.keys() & {"script", "img", "iframe", "object", "embed", "link", "form", "a"}
    assert not [name for name, _ in outline.attributes if name.startswith("on")]
    assert "\u202e" not in page
    assert r"\u202e.csv" in page


def test_the_page_refers_to_no_other_file(full: Path) -> None:
    """It can be sent by mail and opened without a network. Its policy forbids scripts and requests, too."""
    page = full.read_text()
    outline = Outline(page)
    assert not [name for name, _ in outline.attributes if name in ("src", "href", "srcset", "data", "action")]
    assert re.search(r"url\(|@import", page) is None
    policy = next(value for name, value in outline.attributes if name == "content" and "src" in value)
    assert policy.startswith("default-src 'none'")


def test_without_data_each_section_says_so(sit: Callable[..., Person], tmp_path: Path) -> None:  # noqa: F811
    """An empty chart looks like a broken page."""
    person, path = sit(make_site()), tmp_path / "report.html"
    other = replace(person.site.deployed, pipeline="Quiet-1A2B3C4D")
    person.site.deployed = other
    sit(person.site).types("audit", "--html", str(path), "--exit-code")
    text = Outline(path.read_text()).text
    for told in (
        "No object is failed or rejected",
        "no attempts in the last 24 hours",
        "No key needed more than one attempt. All 0 rows were read.",
        "No audit has written a report yet.",
    ):
        assert told in text, told


def test_an_intake_of_messages_has_a_page_without_audits(sit: Callable[..., Person], tmp_path: Path) -> None:  # noqa: F811
    """It has no listing to compare with."""
    path = tmp_path / "report.html"
    sit(make_message_site(), audit=False).types("audit", "--html", str(path))
    assert "No audit has written a report yet. Only the last audit is known." in path.read_text()


def test_the_page_takes_a_bounded_number_of_requests(
    sit: Callable[..., Person],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sixteen partitions of the index, thirty audits and few others: the number does not grow with the rows."""
    person = sit(fill(make_site()))
    sent: Counter[str] = Counter()
    call = vars(BaseClient)["_make_api_call"]

    def noted(caller: Any, operation: str, arguments: Any) -> Any:
        sent[operation] += 1
        answer = call(caller, operation, {name: one for name, one in arguments.items() if name != "ExclusiveStartKey"})
        if operation == "Scan":
            answer["LastEvaluatedKey"] = {"pk": {"S": f"b/{sent[operation]}"}, "sk": {"S": "x"}}
        return answer

    monkeypatch.setattr(BaseClient, "_make_api_call", noted)
    person.types("audit", "--html", str(tmp_path / "report.html"))
    assert sent["GetObject"] == report_page.AUDITS
    assert sent["Scan"] <= 2 * report_page.SCANNED_PAGES
    assert sent.total() <= MOST_REQUESTS + report_page.AUDITS, sent


@pytest.mark.failure_mode("F195")
def test_a_device_and_a_link_are_not_replaced(tmp_path: Path) -> None:
    """A file in the place of `/dev/null` would grow with each command of the machine."""
    page, link, device = tmp_path / "page.html", tmp_path / "link.html", tmp_path / "device"
    page.write_text("the former page")
    link.symlink_to(page)
    replace_file(link, "the new page")
    assert (link.is_symlink(), page.read_text()) == (True, "the new page")
    os.mkfifo(device)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(device.read_text)
        replace_file(device, "the page")
        assert (device.is_fifo(), read.result(timeout=10)) == (True, "the page")


def test_a_full_disk_leaves_the_former_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is replaced in one step, and no part is left."""
    path = tmp_path / "report.html"
    replace_file(path, "the former one")

    def full_disk(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(CliError, match=r"report\.html: No space left on device: check disk space"):
        replace_file(path, "half of the new one")
    assert path.read_text() == "the former one"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_one_line(sit: Callable[..., Person], tmp_path: Path) -> None:  # noqa: F811
    """No traceback, and exit code 1. With --json, the options are wrong."""
    person = sit(make_site())
    person.types("audit", "--html", str(tmp_path / "nowhere" / "report.html"), ends=1)
    assert "No such file or directory" in person.complaint
    person.types("audit", "--html", str(tmp_path / "report.html"), "--json", ends=2)
    assert "omit --json" in person.complaint


def test_a_part_that_may_not_be_read_is_named(full: Path) -> None:
    """The others are shown."""
    assert full.exists()
    denied = NotRead("dynamodb:Query")
    parts: Any = dict.fromkeys((one.name for one in fields(PipelineStatus)), denied)
    nothing = PipelineStatus(**parts | {"at": now_ms(), "pause": None, "function": None, "options": {}})
    page = report_page.page_of(make_site().deployed, nothing, dict.fromkeys(SECTIONS[1:], denied))
    assert page.count("dynamodb:Query") > len(SECTIONS)
