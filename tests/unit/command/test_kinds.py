"""F164: each command on each kind of pipeline. It says the kind's own facts, or names the kind and the way out."""

import io
import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from intake_ledger.protocol.change import Origin
from intake_ledger.protocol.row import Row, Status
from intake_ledger_cli import commands
from intake_ledger_cli.act import forgetting
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.kinds import PipelineKind, kind_of
from tests.unit.command.forget_support import with_variables
from tests.unit.command.support import (
    NAME,
    PARTS,
    SET_PATTERN,
    FakeSts,
    Site,
    make_message_site,
    make_set_site,
    make_site,
)
from tests.unit.command.test_commands import Person, leave_report, sit
from tests.unit.command.test_executions import MACHINE, FakeStepFunctions
from tests.unit.support import HOUR, MINUTE

__all__ = ["sit"]
pytestmark = pytest.mark.usefixtures("dynamodb")
_sleep = time.sleep
PAGE = Path(__file__).parents[3] / "docs" / "operating.md"
COLUMNS = {
    "objects": PipelineKind.OBJECTS,
    "executions": PipelineKind.EXECUTIONS,
    "workers": PipelineKind.WORKERS,
    "messages": PipelineKind.MESSAGES,
    "sets": PipelineKind.SETS,
}
"""The kinds as the table on the operating page names them."""
SOURCES = ("sqs", "fifo", "kinesis", "dynamodb", "eventbridge")
KEYS = {PipelineKind.MESSAGES: "o-7", PipelineKind.SETS: "loads/7/manifest.json"}
FORMS = [
    ("manifest", SET_PATTERN, "loads/7/manifest.json"),
    ("marker", "exports/*/_SUCCESS", "exports/7/_SUCCESS"),
    ("quiet", "drops/*/", "drops/eu/"),
]

ARGUMENTS: dict[str, tuple[str, ...]] = {
    "status": ("status",),
    "list": ("list",),
    "list --status": ("list", "--status", "REJECTED"),
    "list --status waiting": ("list", "--status", "waiting"),
    "list --status stuck": ("list", "--status", "stuck"),
    "list --status removed": ("list", "--status", "removed"),
    "list --status rejected-rows": ("list", "--status", "rejected-rows"),
    "list --by-reason": ("list", "--by-reason"),
    "list --csv": ("list", "--csv"),
    "list --prefix": ("list", "--prefix", "l", "--older-than", "1s"),
    "list --status running": ("list", "--status", "running"),
    "inspect": ("inspect", "KEY"),
    "wait": ("wait", "--prefix", "KEY", "--expect", "9", "--until", "0s"),
    "retry": ("retry", "KEY", "--dry-run"),
    "retry --again": ("retry", "--again", "--prefix", "KEY"),
    "dismiss": ("dismiss", "KEY", "--because", "a test file", "--yes"),
    "audit": ("audit",),
    "audit --resend": ("audit", "--resend"),
    "audit --last": ("audit", "--last"),
    "audit --html": ("audit", "--html", "FILE"),
    "export": ("export", "ROWS"),
    "rehearse": ("rehearse", "--code", "FOLDER"),
    "pause": ("pause", "--because", "a move", "--yes"),
    "resume": ("resume",),
    "retry --waiting": ("retry", "--waiting", "--yes"),
    "operations": ("operations",),
    "forget": ("forget", "KEY.gone", "--because", "a request", "--yes"),
    "release": ("release", "KEY.held", "--because", "a dead worker", "--yes"),
}
READING = {"status", "list", "inspect", "wait", "audit --last", "audit --html", "export", "operations", "rehearse"}
"""Commands that change nothing, with all forms of `list`. They share a pipeline of each kind."""
ENDS = {"wait": 4, "audit": 3, "rehearse": 1}
"""Exit codes of commands that do not end with 0: the object is not committed, the audit has findings, and there is no
commit to rehearse."""
WITHOUT_JSON = ("list --csv", "audit --html")


def cells() -> dict[tuple[str, PipelineKind], str]:
    """The table of the operating page: the difference of a kind, by command and kind."""
    _, _, rest = PAGE.read_text().partition("## Which command knows which kind\n")
    section = rest.partition("\n## ")[0]
    head, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*", section, re.MULTILINE)
    ]
    assert head == ["command", "of", "difference"]
    return {
        (command, COLUMNS[name]): text
        for commands_, names, text in rows
        for command in re.findall("`(.+?)`", commands_)
        for name in names.split(", ")
    }


CELLS = cells()
CASES = [pytest.param(command, kind, id=f"{command}-{name}") for command in ARGUMENTS for name, kind in COLUMNS.items()]


def now() -> int:
    return time.time_ns() // 1_000_000


def site_of(kind: PipelineKind) -> Site:
    if kind is PipelineKind.MESSAGES:
        return make_message_site()
    if kind is PipelineKind.SETS:
        return make_set_site()
    site = make_site()
    if kind is PipelineKind.EXECUTIONS:
        return Site(with_variables(site.deployed, INTAKE_STATE_MACHINE=MACHINE))
    return Site(with_variables(site.deployed, INTAKE_WORKERS="true")) if kind is PipelineKind.WORKERS else site


def fill(site: Site, key: str) -> None:
    """A rejected row, a row that waits, a failed row and a lapsed claim, and the last report."""
    if site.deployed.message_source is None:
        site.put(key)
    at = now() - HOUR
    failed = Row(Status.FAILED, 3, version_id="v1", updated_at=at, retry_at=now() + HOUR, reason="timed out")
    site.reject(key, "no amount", version="v0", at=at)
    site.row(f"{key}.failed", failed)
    site.row(f"{key}.waits", replace(failed, waiting_since=at, reason="no rates yet"))
    held = replace(failed, status=Status.PROCESSING, lease_until=now() + HOUR, lease_owner="w", retry_at=None)
    site.row(f"{key}.held", held)
    site.row(f"{key}.lapsed", replace(failed, status=Status.PROCESSING, lease_until=at, retry_at=None))
    leave_report(site)


@cache
def shared_site(kind: PipelineKind) -> Site:
    """A filled pipeline, for commands that change nothing."""
    site = site_of(kind)
    fill(site, KEYS.get(kind, "in/a"))
    return site


@pytest.fixture
def seat(sit: Callable[..., Person], monkeypatch: pytest.MonkeyPatch) -> Callable[[Site], Person]:
    """Create a person with a pipeline of a kind, whose mapping is as deployed."""
    monkeypatch.setattr(Aws, "sts", FakeSts())
    monkeypatch.setattr(Aws, "machines", FakeStepFunctions())

    def with_site(site: Site) -> Person:
        person = sit(site, audit=site.deployed.audit_function is not None)
        person.functions.mappings = 2 if site.deployed.reads_stream else 1
        person.functions.source = "Disabled" if site.deployed.setting("has_workers") else "Enabled"
        report = leave_report(site)
        person.functions.answer = {"Payload": io.BytesIO(json.dumps(report).encode())}
        return person

    return with_site


@pytest.mark.failure_mode("F164")
@pytest.mark.parametrize(("command", "kind"), CASES)
def test_each_command_knows_each_kind_as_the_page_says(
    seat: Callable[[Site], Person],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: str,
    kind: PipelineKind,
) -> None:
    """A difference that begins with "no" is a refusal in one line, with code 2. Other commands end as `ENDS` says."""
    refused = CELLS.get((command, kind), "").startswith("no:")
    shared = refused or command in READING or command.startswith("list")
    site, key = shared_site(kind) if shared else site_of(kind), KEYS.get(kind, "in/a")
    assert kind_of(site.deployed) is kind
    monkeypatch.setattr(time, "sleep", _interrupt)
    monkeypatch.setattr(forgetting.Forgetting, "wait", lambda _: None)
    words = {
        "KEY": key,
        "FILE": str(tmp_path / "page.html"),
        "ROWS": str(tmp_path / "rows.csv"),
        "FOLDER": str(tmp_path),
    }
    arguments = [words.get(one, one.replace("KEY.", f"{key}.")) for one in ARGUMENTS[command]]
    for form in ((), ("--json",)) if command not in WITHOUT_JSON else ((),):
        if not shared:
            fill(site, key)
        person = seat(site)
        if not refused:
            shown = person.types(*arguments, *form, ends=ENDS.get(command, 0))
            assert json.loads(shown) if form else shown
            continue
        assert person.types(*arguments, *form, ends=2) == ""
        [line] = person.complaint.splitlines()
        assert line.startswith(f"intake-ledger: `{command}` is not for {NAME}, which is {kind.value}: ")
        assert person.functions.updated == []


def _interrupt(seconds: float) -> None:
    """Interrupt the command. A thread of a local AWS in this process sleeps as before."""
    if threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt
    _sleep(seconds)


@pytest.mark.failure_mode("F164")
def test_each_command_that_is_for_a_pipeline_is_tried_with_each_kind() -> None:
    named = {command.partition(" ")[0] for command in ARGUMENTS}
    registered = {one.name or str(getattr(one.callback, "__name__", "")) for one in commands.app.registered_commands}
    assert named == registered - {"template"}
    assert {command for command, _ in CELLS} <= set(ARGUMENTS)


class TestWorkers:
    def test_status_does_not_call_their_pipeline_stopped(self, seat: Callable[[Site], Person]) -> None:
        person = seat(site_of(PipelineKind.WORKERS))
        assert "workers outside of Lambda take messages" in " ".join(person.types("status", "--exit-code").split())
        document = person.reads("status")
        assert (document["kind"], document["consumer"]) == ("workers", "Disabled")
        person.functions.source = "Enabled"
        assert "and also the function, take messages" in " ".join(person.types("status").split())


@pytest.mark.parametrize("kind", [PipelineKind.OBJECTS, PipelineKind.MESSAGES, PipelineKind.SETS])
class TestBesideTheKind:
    """Each kind may have workers and a state machine, also both."""

    @pytest.mark.parametrize("command", ["pause", "resume"])
    def test_a_function_beside_workers_is_not_started(
        self, seat: Callable[[Site], Person], kind: PipelineKind, command: str
    ) -> None:
        site = site_of(kind)
        person = seat(Site(with_variables(site.deployed, INTAKE_WORKERS="true", INTAKE_STATE_MACHINE=MACHINE)))
        person.types(*ARGUMENTS[command], ends=2)
        assert "with the service that runs them" in person.complaint
        assert person.functions.updated == []

    def test_running_executions_are_listed(self, seat: Callable[[Site], Person], kind: PipelineKind) -> None:
        site = site_of(kind)
        person = seat(Site(with_variables(site.deployed, INTAKE_WORKERS="true", INTAKE_STATE_MACHINE=MACHINE)))
        assert person.reads("list", "--status", "running")["executions"] == []


class TestMessages:
    @pytest.mark.parametrize("source", SOURCES)
    def test_a_pause_stops_each_mapping_of_the_source(self, seat: Callable[[Site], Person], source: str) -> None:
        """An intake of a stream has a second mapping, for redriven records."""
        person = seat(make_message_site(source))
        is_stream = source in ("kinesis", "dynamodb")
        person.types("pause", "--because", "a move", "--yes")
        assert f"Messages wait in the {'stream' if is_stream else 'queue'}" in " ".join(person.complaint.split())
        assert person.functions.updated == (["uuid-1", "uuid-2"] if is_stream else ["uuid-1"])
        assert person.functions.source == "Disabled"
        person.types("resume")
        assert person.functions.source == "Enabled"
        person.functions.mappings = 3
        person.types("pause", "--because", "a move", "--yes", ends=1)
        assert "has 3 event source mappings" in person.complaint

    @pytest.mark.failure_mode("F164")
    @pytest.mark.parametrize("source", SOURCES)
    def test_retry_now_makes_rows_due_and_sends_no_message(self, seat: Callable[[Site], Person], source: str) -> None:
        """A message of the command would have neither key nor identity, so it would be a dead letter."""
        site = make_message_site(source)
        fill(site, "o-7")
        person = seat(site)
        assert "due now 2" in " ".join(person.types("retry", "--waiting").split())
        assert "will try 2 messages at their next delivery" in person.complaint
        assert site.messages() == []
        assert person.reads("retry", "--waiting")["due"]["retried"] == 0

    def test_the_audit_checks_the_rows_in_the_function_of_the_intake(self, seat: Callable[[Site], Person]) -> None:
        person = seat(make_message_site())
        person.types("audit", ends=3)
        assert person.functions.invoked == [{"function": "consumer", "checkRows": True, "dryRun": True}]

    def test_a_key_may_be_any_text(self, seat: Callable[[Site], Person]) -> None:
        site = make_message_site()
        site.reject("s3://not-a-bucket/x", "no amount", version="e1")
        [state] = seat(site).reads("inspect", "s3://not-a-bucket/x")["states"]
        assert state["row"]["version_id"] == "e1"

    def test_csv_has_the_identity(self, seat: Callable[[Site], Person]) -> None:
        site = make_message_site()
        site.reject("o-7", "no amount", version="e1")
        head, line = seat(site).types("list", "--csv").splitlines()
        assert head.endswith(",key,identity")
        assert line.endswith(",o-7,e1")


class TestSets:
    def test_status_names_the_parts_and_the_last_audit_of_sets(self, seat: Callable[[Site], Person]) -> None:
        shown = " ".join(seat(make_set_site()).types("status").split())
        assert f"sets of parts of {PARTS}" in shown
        assert "Last audit" in shown
        assert "no audit has counted" not in shown
        assert "Last tick" not in shown

    def test_the_audit_runs_in_the_function_of_the_sets(self, seat: Callable[[Site], Person]) -> None:
        person = seat(make_set_site())
        person.types("audit", ends=3)
        assert person.functions.invoked == [{"function": "consumer", "auditSets": True, "dryRun": True}]

    @pytest.mark.parametrize(("form", "pattern", "key"), FORMS)
    @pytest.mark.parametrize("select", ["key", "prefix"])
    def test_a_set_is_requested_once_with_the_id(
        self, seat: Callable[[Site], Person], form: str, pattern: str, key: str, select: str
    ) -> None:
        site = make_set_site(form, pattern)
        folder = key[: key.rfind("/") + 1]
        site.put(f"{folder}a.csv", f"{folder}b.csv", *([] if form == "quiet" else [key]))
        site.reject(key, "no amount")
        person = seat(site)
        chosen = {"key": (key,), "prefix": ("--prefix", folder)}[select]
        assert person.reads("retry", "--again", *chosen, "--dry-run")["again"]["sent"] == 1
        assert site.changes() == []
        document = person.reads("retry", "--again", *chosen)
        [change] = site.changes()
        assert (change.key, change.origin, change.state) == (key, Origin.REPROCESS, None)
        assert change.reprocess_id == document["requestId"]

    @pytest.mark.parametrize(("form", "pattern", "key"), FORMS)
    @pytest.mark.parametrize("command", [("retry", "--again"), ("inspect",)])
    def test_a_part_is_not_taken_for_a_set(
        self, seat: Callable[[Site], Person], command: tuple[str, ...], form: str, pattern: str, key: str
    ) -> None:
        """For a marker and a folder, the line names the key of the set."""
        site = make_set_site(form, pattern)
        part = f"{key[: key.rfind('/') + 1]}a.csv"
        site.put(part)
        person = seat(site)
        person.types(*command, part, ends=2)
        assert (pattern if form == "manifest" else f"use the key of the set, {key}") in person.complaint
        assert site.changes() == []
        person.types(*command, "elsewhere", ends=2)
        assert pattern in person.complaint

    def test_a_set_that_s3_does_not_have_is_refused(self, seat: Callable[[Site], Person]) -> None:
        site = make_set_site()
        site.put("loads/7/manifest.json.bak", "loads/8/manifest.json")
        person = seat(site)
        person.types("retry", "--again", "loads/8/manifest.json", "loads/7/manifest.json", ends=1)
        assert "S3 has no object loads/7/manifest.json" in person.complaint
        person.types("retry", "--again", "loads/8/manifest.json", "--version-id", "v", ends=2)
        assert "--version-id v cannot be used" in person.complaint
        assert site.changes() == []


@pytest.mark.failure_mode("F164")
def test_an_older_row_is_listed_with_its_age(seat: Callable[[Site], Person]) -> None:
    """The filters on prefix and age are those of objects for each kind."""
    for kind in PipelineKind:
        site, key = site_of(kind), KEYS.get(kind, "in/a")
        site.reject(key, "no amount", at=now() - MINUTE)
        person = seat(site)
        assert [row["key"] for row in person.reads("list", "--prefix", key, "--older-than", "30s")["rows"]] == [key]
        assert person.reads("list", "--prefix", key, "--older-than", "1h")["rows"] == []
