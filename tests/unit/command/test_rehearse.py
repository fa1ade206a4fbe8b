"""`rehearse`: new code runs on the files that were committed, without effects."""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from botocore.client import BaseClient
from botocore.response import StreamingBody

from intake_ledger.consumer.composition import Platform, make_parts, make_runner
from intake_ledger.consumer.consumer import Consumer
from intake_ledger.observability.telemetry import Telemetry
from intake_ledger.protocol.change import StateKind
from intake_ledger.protocol.row import Row, Status
from intake_ledger_cli.aws.reading import read_rows
from intake_ledger_cli.rehearsal import walls
from intake_ledger_testing.context import LambdaContext
from intake_ledger_testing.events import s3_notification, sqs_event
from intake_ledger_testing.memory_s3 import s3_error
from tests.unit.command.rehearsed import CASES, CSV, HEAD, MAIN, Case
from tests.unit.command.support import Site, client, make_message_site, make_set_site, make_site
from tests.unit.command.test_commands import Person, sit
from tests.unit.support import START

__all__ = ["sit"]
pytestmark = [pytest.mark.usefixtures("dynamodb"), pytest.mark.quiet_tables]
OUTPUTS = "rehearsed-outputs"
COUNTS = """
def process(change):
    return str(sum(1 for row in change.csv_rows()))
"""


def variables(site: Site) -> dict[str, str]:
    return site.environment() | {
        "INTAKE_PROCESSOR": "main:process",
        "INTAKE_PROCESSING_TIMEOUT_SECONDS": "30",
        "INTAKE_MAX_ATTEMPTS": "12",
        "INTAKE_MIN_BACKOFF_SECONDS": "15",
        "INTAKE_MAX_BACKOFF_SECONDS": "900",
        "INTAKE_MAX_EVENT_AGE_SECONDS": "21600",
        "INTAKE_REJECTS": f"{OUTPUTS}/rejects/",
        "OUTPUTS": OUTPUTS,
    }


def code(folder: Path, **modules: str) -> Path:
    """A folder with modules."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(HEAD + source)
    return folder


def of_cases(folder: Path, cases: Sequence[Case], *, changed: bool = False) -> Path:
    """The processors of the table, or all of them with their changes."""
    for case in cases:
        assert case.source.count(case.old) >= 1, case.name
        source = case.source.replace(case.old, case.new) if changed else case.source
        code(folder, **{f"p_{case.name}": source})
    return code(folder, main=MAIN)


class Deployed(Platform):
    """The deployed function, whose processor is in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def processor(self, settings: Any) -> Callable[[Any], Any]:
        del settings
        return self._process

    def telemetry(self, kind: Any, settings: Any) -> Telemetry:
        del kind, settings
        return Telemetry()

    def _process(self, change: Any) -> Any:
        named = self._folder / f"p_{change.key.partition('/')[0]}.py"
        spec = spec_from_file_location("deployed", named)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.process(change)


@pytest.fixture
def person(sit: Callable[..., Person], monkeypatch: pytest.MonkeyPatch) -> Person:
    site = make_site()
    s3 = client("s3")
    if OUTPUTS not in [one["Name"] for one in s3.list_buckets()["Buckets"]]:
        s3.create_bucket(Bucket=OUTPUTS, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        attribute: Any = {"AttributeName": "file", "AttributeType": "S"}
        schema: Any = [{"AttributeName": "file", "KeyType": "HASH"}]
        client("dynamodb").create_table(
            TableName="totals", KeySchema=schema, AttributeDefinitions=[attribute], BillingMode="PAY_PER_REQUEST"
        )
    for one in s3.list_objects_v2(Bucket=OUTPUTS).get("Contents", []):
        s3.delete_object(Bucket=OUTPUTS, Key=one["Key"])
    for name, value in variables(site).items():
        monkeypatch.setenv(name, value)
    return sit(site, consumer=variables(site))


def upload(person: Person, folder: Path, *files: tuple[str, bytes]) -> None:
    """Upload files, and let the deployed function process them."""
    site = person.site
    parts = make_parts(os.environ, platform=Deployed(folder))
    consumer = Consumer(parts.services, parts.kind, make_runner(os.environ, parts.services, platform=Deployed(folder)))
    for key, content in files:
        put = client("s3").put_object(Bucket=site.deployed.bucket, Key=key, Body=content)
        body = s3_notification(
            site.deployed.bucket, key, version_id=put["VersionId"], etag=put["ETag"].strip('"'), size=len(content)
        )
        answer = consumer.handle(sqs_event(body), LambdaContext())
        rows = read_rows(client("dynamodb"), site.deployed, key)
        assert answer == {"batchItemFailures": []}, (key, [row.row.reason for row in rows])
        assert [row.row.status for row in rows] == [Status.PROCESSED]


def whys(found: Any) -> dict[str, tuple[str, str]]:
    return {one["key"].partition("/")[0]: (one["outcome"], one["why"]) for one in found["files"]}


class TestTheTable:
    """The twenty processors and more: changes are flagged, and code that is the same never is."""

    @pytest.fixture
    def old(self, person: Person, tmp_path: Path) -> Path:
        folder = of_cases(tmp_path / "old", CASES)
        upload(person, folder, *((f"{case.name}/a.csv", case.content) for case in CASES))
        return folder

    @pytest.mark.failure_mode("F774")
    def test_code_that_is_the_same_never_differs(self, person: Person, tmp_path: Path, old: Path) -> None:
        same = of_cases(tmp_path / "same", CASES)
        found = person.reads("rehearse", "--code", str(same), "--old-code", str(old))
        assert found["files"] == []
        assert found["same"] == len(CASES)
        alone = person.reads("rehearse", "--code", str(same), ends=3)
        doubtful = {case.name: case.same_alone for case in CASES if case.same_alone != "same"}
        assert {name: kind for name, (kind, _) in whys(alone).items()} == doubtful

    def test_old_code_that_was_not_deployed_decides_nothing(self, person: Person, tmp_path: Path) -> None:
        """Also code that cannot do here what it did then: both fail in the same way."""
        upload(person, code(tmp_path / "old", p_one=COUNTS, main=MAIN), ("one/a.csv", CSV))
        for source, shown in (
            ("\ndef process(change):\n    return '7'\n", "result: 3 -> 7"),
            ("\ndef process(change):\n    return os.environ['NONE']\n", "committed -> fails with KeyError: 'NONE'"),
        ):
            folder = str(code(tmp_path / "other", p_one=source, main=MAIN))
            found = whys(person.reads("rehearse", "--code", folder, "--old-code", folder, ends=3))
            assert found == {"one": ("undecided", f"the old code does not give what was committed ({shown})")}

    @pytest.mark.failure_mode("F774")
    def test_each_change_is_flagged(self, person: Person, tmp_path: Path, old: Path) -> None:
        changed = of_cases(tmp_path / "changed", CASES, changed=True)
        found = whys(person.reads("rehearse", "--code", str(changed), "--old-code", str(old), ends=3))
        assert {case.name: found.get(case.name, ("same",))[0] for case in CASES} == dict.fromkeys(
            (case.name for case in CASES), "differs"
        )
        assert [(case.name, found[case.name][1]) for case in CASES if case.shown not in found[case.name][1]] == []
        alone = whys(person.reads("rehearse", "--code", str(changed), ends=3))
        assert {name: kind for name, (kind, _) in alone.items()} == {case.name: case.alone for case in CASES}


def rehearsed(person: Person, tmp_path: Path, source: str, *, ends: int = 3, old: str = COUNTS, **more: str) -> Any:
    """Rehearse a new processor of one file, whose old one gives its number of rows."""
    folder = code(tmp_path / "old", p_one=old, main=MAIN)
    upload(person, folder, ("one/a.csv", CSV))
    new = code(tmp_path / "new", p_one=source, main=MAIN, **more)
    return person.reads("rehearse", "--code", str(new), ends=ends)


TRIES = {
    "http": ("import urllib.request; urllib.request.urlopen('http://example.com')", "look up the host example.com"),
    "an address": ("import socket; socket.create_connection(('127.0.0.1', 9))", "look up the host 127.0.0.1"),
    "a socket": ("import socket; socket.socket().connect(('127.0.0.1', 9))", "connect to 127.0.0.1:9"),
    "a datagram": (
        "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
        "send to 127.0.0.1:9",
    ),
    "a server": ("import socket; socket.socket().bind(('127.0.0.1', 0))", "listen at 127.0.0.1:0"),
    "a Unix socket": ("import socket; socket.socket(socket.AF_UNIX).connect('/x')", "open a Unix socket"),
    "AWS": ("import boto3; boto3.client('sqs').list_queues()", "look up the host sqs.eu-central-1.amazonaws.com"),
    "another object": (
        "import boto3; boto3.client('s3').get_object(Bucket='prices', Key='k')",
        "look up the host prices.s3.eu-central-1.amazonaws.com",
    ),
    "a program": ("import subprocess; subprocess.run(['true'])", "start the program true"),
    "a shell": ("import os; os.system('true')", "start the program true"),
    "a fork": ("import os; os.fork()", "start a process"),
    "a spawn": ("import os; os.posix_spawn('/bin/true', ['true'], {})", "start the program /bin/true"),
    "a signal": ("import os; os.kill(os.getppid(), 0)", "send a signal to process"),
    "a database": ("import sqlite3; sqlite3.connect('totals.db')", "write to"),
    "a file": ("open('totals.csv', 'w').write('x')", "write to"),
    "a file of another": ("open(os.environ['THEIRS'], 'a').write('x')", "write to"),
    "a removed file": ("os.remove(__file__)", "write to"),
    "a moved file": ("os.rename(__file__, '/tmp/moved')", "write to"),
    "a thread": (
        "import socket, threading; t = threading.Thread(target=socket.getfqdn, args=('a.b',)); t.start(); t.join()",
        "look up the host a.b",
    ),
}


class TestWalls:
    """F770: code that has effects which cannot be captured is refused, and has none."""

    @pytest.mark.failure_mode("F770")
    def test_each_try_is_refused_although_the_code_swallows_it(self, person: Person, tmp_path: Path) -> None:
        theirs = tmp_path / "theirs"
        theirs.write_text("")
        person.functions.environments["consumer"]["THEIRS"] = str(theirs)
        source = (
            "\ndef process(change):\n    try:\n        {}\n    except BaseException:\n        pass\n    return '3'\n"
        )
        names = {name: f"t{number}" for number, name in enumerate(TRIES)}
        old = {f"p_{module}": COUNTS for module in names.values()}
        upload(person, code(tmp_path / "old", **old), *((f"{module}/a.csv", CSV) for module in names.values()))
        new = {f"p_{names[name]}": source.format(statement) for name, (statement, _) in TRIES.items()}
        found = person.reads("rehearse", "--code", str(code(tmp_path / "new", **new, main=MAIN)), ends=1)
        lines = whys(found)
        assert {kind for kind, _ in lines.values()} == {"refused"}
        expected = {module: f"the new code tried to {TRIES[name][1]}" for name, module in names.items()}
        assert {module: why for module, (_, why) in lines.items() if not why.startswith(expected[module])} == {}
        assert [name for name, module in names.items() if f"(p_{module}.py:7)" not in lines[module][1]] == ["a thread"]
        assert found["refused"] == len(TRIES)
        assert person.complaint.startswith(f"intake-ledger: no answer for {len(TRIES)} files: the new code tried to ")
        assert theirs.read_text() == ""
        assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(
            [*(f"{one}.py" for one in new), "main.py"]
        )

    @pytest.mark.failure_mode("F770")
    @pytest.mark.parametrize(
        "statement",
        [
            "import psycopg; psycopg.connect('host=127.0.0.1 port=9 dbname=x')",
            "import ctypes; ctypes.CDLL(None).system(b'true')",
            "import ctypes; ctypes.CDLL(None).connect(0, None, 0)",
        ],
    )
    def test_code_in_c_is_ended_by_the_kernel(self, person: Person, tmp_path: Path, statement: str) -> None:
        source = f"\ndef process(change):\n    try:\n        {statement}\n    finally:\n        return '3'\n"
        [(kind, why)] = whys(rehearsed(person, tmp_path, source, ends=1)).values()
        assert kind == "refused"
        assert why.startswith("the new code tried to connect or start a program in code that is not Python")
        # The library blocks signals while it starts a program, so that the kernel leaves no trace.
        assert why.endswith("(p_one.py:7)") is ("system" not in statement)

    @pytest.mark.failure_mode("F770")
    def test_an_import_that_tries_is_refused(self, person: Person, tmp_path: Path) -> None:
        source = "\nimport boto3\n\nboto3.client('ssm').get_parameter(Name='x')\n"
        code(tmp_path / "new", p_one=source, main="import p_one\nprocess = print\n")
        upload(person, code(tmp_path / "old", p_one=COUNTS, main=MAIN), ("one/a.csv", CSV))
        person.types("rehearse", "--code", str(tmp_path / "new"), ends=1)
        assert "tried at its import to look up the host ssm.eu-central-1.amazonaws.com (p_one.py:7)" in person.complaint

    def test_the_code_gets_no_credentials(
        self, person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_SESSION_TOKEN", "secret-token")
        source = """
def process(change):
    import botocore.session

    names = botocore.session.get_session().get_credentials()
    hidden = {"AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"} & set(os.environ)
    return f"{names.access_key} {names.token} {hidden} {os.listdir(os.path.expanduser('~'))}"
"""
        [(_, why)] = whys(rehearsed(person, tmp_path, source)).values()
        assert why == "result: 3 -> rehearsal None set() []"

    @pytest.mark.failure_mode("F771")
    def test_a_frame_of_the_code_is_no_request(self, person: Person, tmp_path: Path) -> None:
        """The pipe to the parent has no frame that names an object, and a false frame ends the process."""
        source = """
def process(change):
    text = b'{"open": {"bucket": "b", "key": "k"}}'
    for descriptor in range(3, 32):
        try:
            os.write(descriptor, len(text).to_bytes(4, "big") + text)
        except OSError:
            pass
    return "3"
"""
        [(kind, why)] = whys(rehearsed(person, tmp_path, source)).values()
        assert kind == "differs"
        assert why == "committed -> dies with what it sent is no answer"

    def test_a_thread_that_goes_on_is_seen_at_the_next_file(self, person: Person, tmp_path: Path) -> None:
        source = """
import socket
import threading

gate = threading.Event()
late = threading.Thread(target=lambda: gate.wait() and socket.getfqdn("a.b"))


def process(change):
    if not late.is_alive() and not gate.is_set():
        late.start()
        gate.set()
        return "3"
    late.join()
    return "3"
"""
        upload(person, code(tmp_path / "old", p_one=COUNTS), ("one/a.csv", CSV), ("one/b.csv", CSV))
        found = person.reads("rehearse", "--code", str(code(tmp_path / "new", p_one=source, main=MAIN)), ends=1)
        assert found["refused"] == 1


class TestRequests:
    """F771: a rehearsal writes nothing to AWS."""

    @pytest.mark.failure_mode("F771")
    def test_it_reads_exact_versions_and_the_table_only(
        self, person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cases = [case for case in CASES if case.name in ("content", "gzip", "once", "writes", "chance")]
        folder = of_cases(tmp_path / "old", cases)
        upload(person, folder, *((f"{case.name}/a.csv", case.content) for case in cases))
        sent: list[tuple[str, Any]] = []
        call = vars(BaseClient)["_make_api_call"]

        def noted(caller: Any, operation: str, arguments: Any) -> Any:
            sent.append((operation, arguments))
            return call(caller, operation, arguments)

        monkeypatch.setattr(BaseClient, "_make_api_call", noted)
        person.types("rehearse", "--code", str(folder), "--old-code", str(folder))
        assert {operation for operation, _ in sent} == {"Scan", "HeadObject", "GetObject"}
        assert all("VersionId" in given for operation, given in sent if operation != "Scan")
        sent.clear()
        person.types("rehearse", "--code", str(folder), ends=3)
        exact = {person.site.deployed.bucket: True, OUTPUTS: False}
        assert {operation for operation, _ in sent} == {"Scan", "HeadObject", "GetObject"}
        assert all("VersionId" in given or not exact[given["Bucket"]] for name, given in sent if name != "Scan")

    def test_the_content_streams(self, person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Code that reads the first bytes reads no more from S3 than the buffer of its stream."""
        read: list[int] = []
        source = "\ndef process(change):\n    with change.open() as file:\n        return str(len(file.read(4)))\n"
        upload(person, code(tmp_path / "old", p_one=source, main=MAIN), ("one/a.bin", bytes(8 * 1024 * 1024)))
        whole = StreamingBody.read

        def noted(body: StreamingBody, amt: int | None = None) -> bytes:
            content = whole(body, amt)
            read.append(len(content))
            return content

        monkeypatch.setattr(StreamingBody, "read", noted)
        person.types("rehearse", "--code", str(tmp_path / "old"))
        assert 0 < sum(read) <= 128 * 1024


class TestVersions:
    """F772: a rehearsal takes exactly the version that was committed."""

    @pytest.mark.failure_mode("F772")
    def test_a_newer_version_does_not_count(self, person: Person, tmp_path: Path) -> None:
        folder = code(tmp_path / "old", p_one=COUNTS, main=MAIN)
        upload(person, folder, ("one/a.csv", CSV))
        client("s3").put_object(Bucket=person.site.deployed.bucket, Key="one/a.csv", Body=CSV + CSV)
        assert person.reads("rehearse", "--code", str(folder))["same"] == 1

    @pytest.mark.failure_mode("F772")
    def test_a_later_claim_hides_no_commit(self, person: Person, tmp_path: Path) -> None:
        """The row describes another attempt then. What it does not keep is not compared."""
        source = "\ndef process(change):\n    return f'{change.attempt} {change.size} {change.idempotency_key}'\n"
        folder = code(tmp_path / "old", p_one=source, main=MAIN)
        upload(person, folder, ("one/a.csv", CSV))
        [entry] = read_rows(client("dynamodb"), person.site.deployed, "one/a.csv")
        later = replace(entry.row, status=Status.FAILED, version_id="v9", fence=entry.row.fence + 5, attempts=7, size=1)
        person.site.row("one/a.csv", later)
        assert person.reads("rehearse", "--code", str(folder))["same"] == 1
        second = f"2 {(entry.row.commit_id or '')[2:]}"
        person.site.row("one/a.csv", replace(entry.row, attempts=2, commit_id=second))
        assert person.reads("rehearse", "--code", str(folder))["same"] == 1
        person.site.row("one/a.csv", replace(later, commit_id=second))
        [(kind, why)] = whys(person.reads("rehearse", "--code", str(folder), ends=3)).values()
        assert kind == "undecided"
        assert why.startswith(f"result: {second} -> 1 {len(CSV)} ")

    @pytest.mark.failure_mode("F772", "F788")
    @pytest.mark.parametrize(
        ("known", "changes"), [(False, {}), (True, {"status": Status.FAILED, "fence": START + 9**9})]
    )
    def test_a_copy_in_place_was_not_processed(
        self, person: Person, sit: Callable[..., Person], tmp_path: Path, *, known: bool, changes: dict[str, Any]
    ) -> None:
        """It has the result of an earlier version. After a later claim, `same_content` alone tells of it."""
        folder = code(tmp_path / "old", p_one=COUNTS, p_two=COUNTS, main=MAIN)
        upload(person, folder, ("one/a.csv", CSV), ("two/a.csv", CSV))
        [entry] = read_rows(client("dynamodb"), person.site.deployed, "one/a.csv")
        fields = changes or {"reason": "same content as version 1", "reason_code": "same_content"}
        person.site.row("one/a.csv", replace(entry.row, commit_id="of version 1", **fields))
        if known:
            settings = variables(person.site) | {"INTAKE_SAME_CONTENT": "[86400, null]"}
            person = sit(person.site, consumer=settings)
        assert person.reads("rehearse", "--code", str(folder))["same"] == 1

    @pytest.mark.failure_mode("F772")
    @pytest.mark.parametrize("everything", [True, False])
    def test_a_version_that_is_gone_is_named(self, person: Person, tmp_path: Path, *, everything: bool) -> None:
        folder = code(tmp_path / "old", p_one=COUNTS, p_two=COUNTS, main=MAIN)
        upload(person, folder, ("one/a.csv", CSV), *([] if everything else [("two/a.csv", CSV)]))
        [entry] = read_rows(client("dynamodb"), person.site.deployed, "one/a.csv")
        place = {"Bucket": person.site.deployed.bucket, "Key": "one/a.csv", "VersionId": entry.row.version_id}
        client("s3").delete_object(**place)
        found = person.reads("rehearse", "--code", str(folder), ends=1 if everything else 0)
        assert whys(found) == {"one": ("gone", "S3 no longer has the version")}
        assert found["same"] == (0 if everything else 1)
        assert ("no file was rehearsed: S3 no longer has the version" in person.complaint) is everything

    def test_a_version_that_cannot_be_read_is_named(
        self, person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = code(tmp_path / "old", p_one=COUNTS, p_two=COUNTS, main=MAIN)
        upload(person, folder, ("one/a.csv", CSV), ("two/a.csv", CSV))
        call = vars(BaseClient)["_make_api_call"]
        refusals = {"one/a.csv": (403, "InvalidObjectState")}

        def refused(caller: Any, operation: str, arguments: Any) -> Any:
            if operation == "GetObject" and (told := refusals.get(arguments["Key"])):
                raise s3_error(operation, *told)
            return call(caller, operation, arguments)

        monkeypatch.setattr(BaseClient, "_make_api_call", refused)
        assert whys(person.reads("rehearse", "--code", str(folder))) == {"one": ("gone", "the version is archived")}
        refusals["two/a.csv"] = (403, "AccessDenied")
        person.types("rehearse", "--code", str(folder), ends=1)
        assert "GetObject" in person.complaint

    def test_removals_are_rehearsed_without_a_read(self, sit: Callable[..., Person], tmp_path: Path) -> None:
        site = make_site(deletes=True)
        person = sit(site, consumer=variables(site))
        marker = Row(Status.PROCESSED, 7, version_id="m1", kind=StateKind.MARKER, committed_state="v#m1")
        site.row("one/a.csv", replace(marker, committed_fence=7, commit_id="removed", updated_at=START))
        source = "\ndef process(change):\n    return change.kind\n"
        assert person.reads("rehearse", "--code", str(code(tmp_path, p_one=source, main=MAIN)))["same"] == 1

    def test_the_newest_commits_are_taken(self, person: Person, tmp_path: Path) -> None:
        folder = code(tmp_path / "old", **dict.fromkeys(("p_one", "p_two", "p_three"), COUNTS), main=MAIN)
        upload(person, folder, *((f"{name}/a.csv", CSV) for name in ("one", "two", "three")))
        changed = code(
            tmp_path / "new", **dict.fromkeys(("p_one", "p_two", "p_three"), "\nprocess = None\n"), main=MAIN
        )
        found = person.reads("rehearse", "--code", str(changed), "--last", "2", ends=3)
        assert sorted(whys(found)) == ["three", "two"]
        found = person.reads("rehearse", "--code", str(changed), "--prefix", "o", ends=3)
        assert sorted(whys(found)) == ["one"]
        person.types("rehearse", "--code", str(changed), "--prefix", "x", ends=1)
        assert "has no commit with the prefix 'x'" in person.complaint


class TestEnds:
    """Ends of a process: each is a difference, and the next file gets a new process."""

    @pytest.mark.parametrize(
        ("statement", "shown"),
        [
            ("os._exit(7)", "committed -> dies with exit code 7"),
            ("raise SystemExit(2)", "committed -> fails with SystemExit: 2"),
            ("time.sleep(90)", "committed -> still runs after 1 s with Overrun"),
        ],
    )
    def test_an_end_is_a_difference(self, person: Person, tmp_path: Path, statement: str, shown: str) -> None:
        person.functions.environments["consumer"]["INTAKE_PROCESSING_TIMEOUT_SECONDS"] = "1"
        found = rehearsed(person, tmp_path, f"\nimport time\n\n\ndef process(change):\n    {statement}\n")
        assert whys(found) == {"one": ("differs", shown)}

    @pytest.mark.parametrize(
        ("source", "shown"),
        [
            ("\nimport no_such_module\n", "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"),
            ("\nimport os\nos._exit(3)\n", "cannot be imported: exit code 3"),
            ("\nx = 1\n", "was not found: main has no function 'process'"),
        ],
    )
    def test_code_that_cannot_be_imported_is_named(
        self, person: Person, tmp_path: Path, source: str, shown: str
    ) -> None:
        upload(person, code(tmp_path / "old", p_one=COUNTS), ("one/a.csv", CSV))
        person.types("rehearse", "--code", str(code(tmp_path / "new", main=source)), ends=1)
        assert shown in person.complaint
        assert str(tmp_path / "new") in person.complaint

    def test_the_entrypoint_is_that_of_the_new_code(self, person: Person, tmp_path: Path) -> None:
        old = code(tmp_path / "old", p_one=COUNTS, main=MAIN)
        upload(person, old, ("one/a.csv", CSV))
        new = code(tmp_path / "new", rows="\ndef count(change):\n    return '4'\n")
        options = ("rehearse", "--code", str(new), "--entrypoint", "rows:count", "--old-code", str(old))
        assert whys(person.reads(*options, ends=3)) == {"one": ("differs", "result: 3 -> 4")}
        assert "differs" in person.types(*options, ends=3)


class TestOutputs:
    """Without the old code, outputs are compared with those in S3."""

    WRITES = """
def process(change):
    change.output(os.environ["OUTPUTS"], change.key).put(b"%d x" % change.fence)
"""

    @pytest.mark.parametrize(
        ("change", "kind", "shown"),
        [
            ("nothing", "same", ""),
            ("overwritten", "undecided", "a later attempt has written it"),
            ("older", "differs", "the committed code has not written it"),
            ("another", "differs", "the committed code has not written it"),
            ("deleted", "undecided", "S3 has none"),
        ],
    )
    def test_an_output_counts_if_the_commit_has_written_it(
        self, person: Person, tmp_path: Path, change: str, kind: str, shown: str
    ) -> None:
        folder = code(tmp_path / "old", p_one=self.WRITES, main=MAIN)
        upload(person, folder, ("one/a.csv", CSV))
        place = {"Bucket": OUTPUTS, "Key": "one/a.csv"}
        told = client("s3").get_object(**place)
        fence, metadata = int(told["Metadata"]["intake-fence"].partition(".")[0]), told["Metadata"]
        marks = {
            "overwritten": metadata | {"intake-fence": f"{fence + 1}.1"},
            "older": metadata | {"intake-fence": f"{fence - 1}.1"},
            "another": metadata | {"intake-source": "0" * 32},
        }
        if change == "deleted":
            client("s3").delete_object(**place)
        elif change in marks:
            client("s3").put_object(**place, Body=told["Body"].read(), Metadata=marks[change])
        found = person.reads("rehearse", "--code", str(folder), ends=0 if kind == "same" else 3)
        assert found[kind] == 1
        assert all(shown in one["why"] for one in found["files"])


class TestKinds:
    """F773: a kind whose work cannot be rehearsed is refused, with the reason."""

    @pytest.mark.failure_mode("F773")
    def test_a_kind_that_nothing_can_repeat_is_refused(self, sit: Callable[..., Person], tmp_path: Path) -> None:
        for site in (make_message_site(), make_set_site()):
            person = sit(site, audit=False)
            person.types("rehearse", "--code", str(tmp_path), ends=2)
            assert "`rehearse` is not for" in person.complaint

    @pytest.mark.failure_mode("F773")
    def test_a_processor_in_another_function_is_refused(self, person: Person, tmp_path: Path) -> None:
        person.types("rehearse", "--code", str(tmp_path / "none"), ends=2)
        assert person.complaint.startswith(f"intake-ledger: {tmp_path / 'none'} is not a folder: ")
        person.functions.environments["consumer"]["INTAKE_PROCESSOR_FUNCTION"] = "arn:aws:lambda:::function:other"
        person.types("rehearse", "--code", str(tmp_path), ends=2)
        assert "whose processor is the function arn:aws:lambda:::function:other" in person.complaint

    @pytest.mark.failure_mode("F770")
    def test_a_machine_without_walls_is_refused(
        self, person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "platform", "darwin")
        person.types("rehearse", "--code", str(tmp_path), ends=2)
        assert person.complaint.startswith("intake-ledger: rehearse cannot run here: it needs Linux")
        assert walls.NO_KERNEL_FILTER in person.complaint
