"""The commands with their arguments: output for people and for programs, and exit codes."""

import io
import json
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock
from urllib.parse import quote

import pytest
from botocore.client import BaseClient
from typer.main import get_command

from intake_ledger.audit.diff import Line
from intake_ledger.audit.publish import publish
from intake_ledger.audit.report import Report, Stopped
from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.row import Row, Status
from intake_ledger.protocol.settings import KeyFilter
from intake_ledger.protocol.settings_audit import Reports
from intake_ledger_cli import commands
from intake_ledger_cli.act import sender
from intake_ledger_cli.aws import drain, s3_listing
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.sending import send
from tests.cli_actions import NEEDED, action_of
from tests.unit.command.support import (
    ASKING,
    NAME,
    STACK,
    FakeCloudFormation,
    FakeLambda,
    FakeMachines,
    FakeSts,
    Site,
    client,
    denied,
    make_message_site,
    make_site,
    new_consumer_log,
)
from tests.unit.support import HOUR, START, notification, record

pytestmark = pytest.mark.usefixtures("dynamodb")
FUNCTION, ALARM, NESTED = "AWS::Lambda::Function", "AWS::CloudWatch::Alarm", "AWS::CloudFormation::Stack"
MACHINE = "AWS::StepFunctions::StateMachine"


class Person:
    """A person whose output is not a terminal: it has no colors and no line breaks."""

    def __init__(self, site: Site, functions: FakeLambda, capsys: pytest.CaptureFixture[str]) -> None:
        self.site = site
        self.functions = functions
        self._capsys = capsys
        self.complaint = ""

    def types(self, *arguments: str, ends: int = 0, yes: bool = True) -> str:
        """Run a command. Commands that ask get `--yes`, unless `yes` is False."""
        asks = arguments[0] in ASKING or arguments[:2] == ("operations", "stop")
        sure = ("--yes",) if yes and asks else ()
        assert commands.run([*arguments, *sure, "--stack", STACK]) == ends
        captured = self._capsys.readouterr()
        self.complaint = captured.err
        return captured.out

    def reads(self, *arguments: str, ends: int = 0) -> Any:
        return json.loads(self.types(*arguments, "--json", ends=ends))


@cache
def command_of_app() -> Any:
    """Return the command line, which Typer would build again for each call: a fifth of these tests' time."""
    return get_command(commands.app)


@pytest.fixture
def sit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Person]:
    """Create a person with a pipeline. The stack has a function that the person may not read."""

    def with_site(site: Site, *more: tuple[str, str], audit: bool = True, **environments: dict[str, str]) -> Person:
        known = {"consumer": site.environment(), "other": {}} | environments
        if audit:
            known["audit"] = site.audit_environment()
        resources = [(FUNCTION, name) for name in (*known, "secret")]
        functions = FakeLambda(known)
        stacks = {STACK: [("AWS::S3::Bucket", site.deployed.bucket), *more, (NESTED, "inner")], "inner": resources}
        monkeypatch.setattr(Aws, "cloudformation", FakeCloudFormation(stacks))
        monkeypatch.setattr(Aws, "functions", functions)
        for name in ("cloudwatch", "dynamodb", "logs", "s3", "sqs"):
            monkeypatch.setattr(Aws, name, client(name))
        monkeypatch.setattr(Aws, "sts", FakeSts())
        monkeypatch.setattr(drain, "WAIT_SECONDS", 0)
        monkeypatch.setattr(commands, "app", command_of_app())
        return Person(site, functions, capsys)

    return with_site


@pytest.fixture
def person(sit: Callable[..., Person]) -> Person:
    return sit(make_site(filters=(KeyFilter("in/"),)))


def leave_report(site: Site, **changed: Any) -> dict[str, Any]:
    """Write the record that a run of the audit leaves in the ledger's table."""
    report = Report(
        "1",
        START,
        listed=4,
        lines=Counter({Line.AGREES: 2, Line.SETTLING: 1, Line.RESUBMITTED: 1}),
        complete=True,
        counts=Counter(missing=1),
    )
    report.findings.append({"key": "in/lost", "why": "missing", "state": "v#1"})
    content = report.as_json(START) | changed
    item: Any = {
        "pk": {"S": site.deployed.bucket},
        "sk": {"S": f"{NAME}@audit"},
        "last_report": {"S": json.dumps(content)},
        "next_run_at": {"N": str(START)},
    }
    client("dynamodb").put_item(TableName=site.deployed.table, Item=item)
    return content


class TestFinding:
    def test_of_several_pipelines_one_has_to_be_named(self, sit: Callable[..., Person]) -> None:
        """The whole name and the construct's ID both select a pipeline."""
        site = make_site()
        other = site.environment() | {"INTAKE_PIPELINE_NAME": "Intake-Orders-99AA88BB"}
        person = sit(site, second=other)
        person.types("status", ends=1)
        assert (
            "several pipelines, name one with --pipeline: Intake-Invoices-0A1B2C3D, Intake-Orders" in person.complaint
        )
        for name in ("Orders", "Intake-Orders", "Intake-Orders-99AA88BB"):
            assert person.reads("status", "--pipeline", name)["pipeline"] == "Intake-Orders-99AA88BB"
        person.types("status", "--pipeline", "rders", ends=1)
        assert "has no pipeline 'rders', it has: " in person.complaint

    def test_a_name_that_fits_two_is_refused(self, sit: Callable[..., Person]) -> None:
        """The end of a path may not be unique."""
        site = make_site()
        twins = {name: site.environment() | {"INTAKE_PIPELINE_NAME": f"{name}-In-99AA88BB"} for name in ("A", "B")}
        person = sit(site, **twins)
        person.types("status", "--pipeline", "In", ends=1)
        assert "matches several pipelines, use a whole name: A-In-99AA88BB, B-In-99AA88BB" in person.complaint

    def test_a_stack_that_is_not_there(self, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Aws, "cloudformation", FakeCloudFormation({}))
        person.types("status", ends=1)
        assert person.complaint.startswith(f"intake-ledger: there is no stack {STACK} in eu-central-1")

    def test_a_stack_without_a_pipeline(self, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
        """The message differs if functions may not be read."""
        stack = [(FUNCTION, "other")]
        monkeypatch.setattr(Aws, "cloudformation", FakeCloudFormation({STACK: stack}))
        person.types("status", ends=1)
        assert "has no intake pipeline among its 1 functions" in person.complaint
        monkeypatch.setattr(Aws, "cloudformation", FakeCloudFormation({STACK: [*stack, (FUNCTION, "secret")]}))
        person.types("status", ends=1)
        assert "not allowed: lambda:GetFunctionConfiguration" in person.complaint

    def test_a_function_whose_variables_are_wrong(self, sit: Callable[..., Person]) -> None:
        """One line names the function, the variable and its value."""
        site = make_site()
        wrong = site.environment() | {"INTAKE_PIPELINE_NAME": "Intake-Wrong", "INTAKE_RETENTION_SECONDS": "35 days"}
        person = sit(site, second=wrong)
        person.types("status", "--pipeline", "Intake-Wrong", ends=1)
        [line] = person.complaint.splitlines()
        assert "the function second of the stack" in line
        assert "INTAKE_RETENTION_SECONDS is '35 days', expected a whole number" in line

    def test_a_profile_that_is_not_there(self, person: Person) -> None:
        person.types("status", "--profile", "nobody", ends=1)
        assert "use --profile with a profile of `aws configure list-profiles`" in person.complaint


class TestStatus:
    def test_everything_at_a_glance(self, sit: Callable[..., Person]) -> None:
        """Alarms of other pipelines in the stack do not count."""
        site = make_site()
        client("sqs").send_message(QueueUrl=site.deployed.queue_url, MessageBody="{}")
        site.dead_letter("x", reason="y")
        site.reject("in/a", "no invoice")
        site.row("in/b", Row(Status.FAILED, 1, updated_at=START))
        site.row("in/c", Row(Status.FAILED, 1, updated_at=START))
        leave_report(site)
        cloudwatch: Any = client("cloudwatch")
        for name, dimension in (("Mine", NAME), ("Theirs", "other"), ("Letters", site.deployed.dead_letter_url)):
            cloudwatch.put_metric_alarm(
                AlarmName=name, AlarmDescription=f"{NAME}: it burns", Namespace="n", MetricName="m", Statistic="Sum",
                Period=60, EvaluationPeriods=1, Threshold=1, ComparisonOperator="GreaterThanThreshold",
                Dimensions=[{"Name": "service", "Value": dimension.rsplit("/", 1)[-1]}],
            )  # fmt: skip
        cloudwatch.set_alarm_state(AlarmName="Mine", StateValue="ALARM", StateReason="r")
        cloudwatch.set_alarm_state(AlarmName="Theirs", StateValue="ALARM", StateReason="r")
        # A data point of the current second may be after the end of the requested hour.
        earlier = datetime.now(UTC) - timedelta(minutes=5)
        dimensions = {service: [{"Name": "service", "Value": service}] for service in (NAME, "other")}
        cloudwatch.put_metric_data(
            Namespace="IntakeLedger",
            MetricData=[
                {"MetricName": name, "Value": 80, "Timestamp": earlier, "Dimensions": dimensions[service]}
                for name in ("Retries", "LapsedLeases")
                for service in (NAME, "other")
            ],
        )
        person = sit(site, (ALARM, "Mine"), (ALARM, "Theirs"), (ALARM, "Letters"))
        result = person.reads("status")
        assert result["queue"] == {"waiting": 1, "hidden": 0, "delayed": 0, "oldestSeconds": None}
        assert result["deadLetters"] == {"waiting": 1, "hidden": 0, "delayed": 0, "oldestSeconds": None}
        assert (result["failed"], result["rejected"], result["consumer"]) == (2, 1, "Enabled")
        assert result["audit"]["last"]["counts"]["missing"] == 1
        assert [(one["name"], one["state"]) for one in result["alarms"]] == [("Mine", "ALARM"), ("Letters", "OK")]
        shown = person.types("status")
        assert "1 of 2 in ALARM: it burns" in shown
        assert (result["lastHour"]["retries"], result["lastHour"]["lapsedLeases"]) == (80, 80)
        assert "attempts repeated: 80, 80 after a worker died" in shown
        assert "1 of 3 objects never reached the ledger" in shown
        assert "need a person, see: list --status REJECTED" in shown

    def test_what_may_not_be_seen_keeps_nothing_else_away(
        self, person: Person, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each line names the denied action."""

        def refuse(**_: Any) -> Any:
            raise denied("lambda:ListEventSourceMappings", "ListEventSourceMappings")

        monkeypatch.setattr(person.functions, "list_event_source_mappings", refuse, raising=False)
        result = person.reads("status")
        assert result["consumer"] == {"denied": "lambda:ListEventSourceMappings"}
        assert result["failed"] == 0
        assert "not allowed: lambda:ListEventSourceMappings" in person.types("status")

    def test_a_consumer_that_takes_nothing_is_told(self, person: Person) -> None:
        person.functions.source = "Disabled"
        assert "takes no messages: its event source mapping is Disabled  see: resume" in person.types("status")

    def test_watch_looks_again_and_again(self, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
        """Ctrl-C is not an error. For programs, each update is one line."""
        waits = iter([3.0, 3.0])

        def sleep(seconds: float) -> None:
            if next(waits, None) is None:
                raise KeyboardInterrupt
            assert seconds == 3

        monkeypatch.setattr(time, "sleep", sleep)
        lines = person.types("status", "--watch", "--json").splitlines()
        assert [json.loads(line)["pipeline"] for line in lines] == [NAME] * 3


class TestLooking:
    def test_a_list_is_paged_oldest_first(self, person: Person) -> None:
        """`--after` continues after the previous page, and the last page has no token."""
        for number in range(5):
            person.site.reject(f"in/{number}", f"reason {number}", at=START + number)
        first = person.reads("list", "--limit", "3")
        assert [row["key"] for row in first["rows"]] == ["in/0", "in/1", "in/2"]
        assert first["rows"][0]["reason"] == "reason 0"
        second = person.reads("list", "--limit", "3", "--after", first["after"])
        assert [row["key"] for row in second["rows"]] == ["in/3", "in/4"]
        assert second["after"] is None
        assert f"--after {first['after']}" in person.types("list", "--limit", "3")
        person.types("list", "--after", "nonsense", ends=2)
        assert "copy the token that `list` printed" in person.complaint

    def test_a_list_is_of_one_status_or_of_both(self, person: Person) -> None:
        person.site.reject("in/a", "x")
        person.site.row("in/b", Row(Status.FAILED, 1, updated_at=START + 1))
        for status, keys in (("failed", ["in/b"]), ("REJECTED", ["in/a"])):
            assert [row["key"] for row in person.reads("list", "--status", status)["rows"]] == keys
        assert len(person.reads("list")["rows"]) == 2
        person.types("list", "--status", "PROCESSED", ends=2)
        assert "--status PROCESSED cannot be listed: use one of failed, rejected, waiting" in person.complaint

    @pytest.mark.failure_mode("F102")
    def test_waiting_rows_have_a_list_of_their_own(self, person: Person) -> None:
        """Each row has its reason and the time for which it has waited."""
        person.site.row("in/failed", Row(Status.FAILED, 1, updated_at=START))
        waiting = Row(
            Status.FAILED, 1, attempts=0, reason="no customer file", waiting_since=START, updated_at=START + 9
        )
        person.site.row("in/waits", waiting)
        [row] = person.reads("list", "--status", "waiting")["rows"]
        assert (row["key"], row["reason"], row["waiting_since"]) == ("in/waits", "no customer file", START)
        assert [row["key"] for row in person.reads("list")["rows"]] == ["in/failed"]
        assert "WAITING" in person.types("list", "--status", "waiting")

    @pytest.mark.failure_mode("F170")
    def test_waiting_rows_and_the_status_tell_the_deadline(self, person: Person) -> None:
        since = int(time.time() * 1000) - 2 * HOUR
        waiting = Row(Status.FAILED, 1, reason="1 of 2 parts are missing", waiting_since=since)
        person.site.row("in/m", waiting)
        variables = person.functions.environments["consumer"]
        variables["INTAKE_MAX_WAIT_SECONDS"] = "21600"
        assert "rejected in 3 hours" in person.types("list", "--status", "waiting")
        assert "rejected after 6 hours" in person.types("status")
        assert person.reads("status")["maxWaitSeconds"] == 21_600
        variables["INTAKE_MAX_WAIT_SECONDS"] = "3600"
        assert "its deadline has passed" in person.types("list", "--status", "waiting")

    def test_nothing_to_list_is_said(self, person: Person) -> None:
        assert person.types("list").strip() == "none"

    def test_an_object_that_agrees_and_one_that_does_not(self, person: Person) -> None:
        """The output has the row, the state in S3, and the comparison."""
        old, new = person.site.put("in/a", "in/a")
        row = Row(Status.PROCESSED, 7, version_id=old, committed_state=f"v#{old}", commit_id="inv-7", updated_at=START)
        person.site.row("in/a", row)
        [result] = person.reads("inspect", "in/a")["states"]
        assert (result["agree"], result["s3"]["versionId"]) == (False, new)
        assert result["row"]["commit_id"] == "inv-7"
        shown = person.types("inspect", "in/a")
        assert "PROCESSED after 1 attempt" in shown
        assert "no: S3 shows another state than the ledger's last" in shown
        person.site.row("in/a", Row(Status.PROCESSED, 7, version_id=new, committed_state=f"v#{new}"))
        assert "yes: the ledger has committed the state that S3 shows" in person.types("inspect", "in/a")

    @pytest.mark.failure_mode("F279")
    def test_inspect_says_that_a_directory_marker_is_skipped_and_how_to_process_it(
        self, sit: Callable[..., Person]
    ) -> None:
        """It has no row, and none is missing."""
        site = make_site()
        site.deployed = replace(site.deployed, directory_markers=False)
        client("s3").put_object(Bucket=site.deployed.bucket, Key="in/", Body=b"")
        [result] = sit(site).reads("inspect", "in/")["states"]
        assert result["agree"] is True
        assert "skips it as a directory marker" in result["why"]

    def test_an_object_that_is_a_prefix_of_another_is_not_taken_for_it(self, person: Person) -> None:
        """S3 lists by prefix, so that the listing also has the longer key."""
        person.site.put("in/ab")
        assert person.reads("inspect", "in/a")["states"] == []
        shown = person.types("inspect", "in/a")
        assert "neither S3 nor the ledger has a version of this key: check it" in shown
        assert "Agree" not in shown, "most likely the key is mistyped"

    def test_no_line_of_a_pipe_ends_with_spaces(self, person: Person) -> None:
        """A table is as wide as its longest text, which may be a reason."""
        person.site.row("in/a", Row(Status.FAILED, 7, version_id="v1", reason="x" * 400, updated_at=START))
        for arguments in (("status",), ("list",), ("inspect", "in/a"), ("operations",)):
            shown = person.types(*arguments)
            assert shown.endswith("\n")
            assert [line for line in shown.split("\n") if line.endswith(" ")] == []

    def test_a_removed_object_is_shown_with_its_marker(self, person: Person) -> None:
        """The delete marker is shown, and not the version before it."""
        person.site.put("in/a")
        marker = client("s3").delete_object(Bucket=person.site.deployed.bucket, Key="in/a")["VersionId"]
        [result] = person.reads("inspect", "in/a")["states"]
        assert (result["s3"]["kind"], result["s3"]["versionId"]) == ("marker", marker)

    def test_a_key_beside_the_filters_is_told(self, person: Person) -> None:
        assert "matches none of the pipeline's filters" in person.types("inspect", "out/a")

    def test_without_access_to_s3_the_row_is_shown_all_the_same(
        self, person: Person, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        person.site.reject("in/a", "no invoice in it")

        def refuse(*_: Any) -> Any:
            raise denied("s3:ListBucketVersions", "ListObjectVersions")

        monkeypatch.setattr(s3_listing, "list_key_versions", refuse)
        result = person.reads("inspect", "in/a")
        assert (result["denied"], result["states"][0]["agree"]) == ("s3:ListBucketVersions", None)
        shown = person.types("inspect", "in/a")
        assert "no invoice in it" in shown
        assert "not allowed: s3:ListBucketVersions" in shown


class TestActing:
    def test_redrive_tells_what_it_moved(self, person: Person) -> None:
        person.site.dead_letter(notification(record("in/a", State(StateKind.OBJECT, "v1", "e"))), reason="no invoice")
        assert "in/a" in person.types("retry", "--prefix", "", "--dry-run")
        result = person.reads("retry", "--reason", "invoice")["redriven"]
        assert (result["moved"], result["reasons"]) == (1, {"no invoice": 1})
        assert len(person.site.messages()) == 1

    def test_redrive_shows_codes_in_a_dry_run(self, person: Person) -> None:
        person.site.dead_letter("x", reason="no invoice", reason_code="unprocessable")
        person.site.dead_letter("y")
        result = person.reads("retry", "--prefix", "", "--dry-run")["redriven"]["deadLetters"]
        assert [one["reasonCode"] for one in result] == ["unprocessable", "max_receives"]

    @pytest.mark.parametrize("command", [("retry",), ("retry", "--again")])
    @pytest.mark.parametrize("reason", ["processor_timout", "unprocesable", "no_such_code"])
    def test_a_misspelled_code_is_refused_with_the_list_of_codes(
        self, person: Person, command: tuple[str, ...], reason: str
    ) -> None:
        person.site.dead_letter("x", reason="no invoice", reason_code="unprocessable")
        person.types(*command, "--reason", reason, ends=2)
        assert f"--reason {reason} matches nothing and is not a reason code" in person.complaint
        assert "processor_error, processor_throttled, processor_timeout" in person.complaint

    @pytest.mark.parametrize("reason", ["processor_timeout", "KeyError", "no_invoice"])
    def test_a_code_or_a_text_that_matches_nothing_moves_nothing(self, person: Person, reason: str) -> None:
        """A text that looks like a code is refused only if no reason matches it."""
        person.site.dead_letter("x", reason="no_invoice")
        assert person.reads("retry", "--reason", reason)["redriven"]["moved"] == (reason == "no_invoice")

    def test_list_and_inspect_show_the_code(self, person: Person) -> None:
        row = Row(Status.REJECTED, START, version_id="v1", reason="no", reason_code="unprocessable", updated_at=START)
        person.site.row("in/a", row)
        assert [one["reason_code"] for one in person.reads("list")["rows"]] == ["unprocessable"]
        assert [one["row"]["reason_code"] for one in person.reads("inspect", "in/a")["states"]] == ["unprocessable"]
        assert "unprocessable" in person.types("inspect", "in/a")
        for reason, number in (("unprocessable", 1), ("processor_error", 0)):
            assert len(person.reads("retry", "--reason", reason, "--dry-run")["choices"]) == number

    def test_redrive_tells_what_it_left_to_another_pipeline(self, person: Person) -> None:
        """A person can see where the message is."""
        person.site.dead_letter("x", reason="y", pipeline="Other-Pipeline")
        assert "not moved, of another pipeline  1 Other-Pipeline" in person.types("retry", "--prefix", "")
        assert person.reads("retry", "--prefix", "")["redriven"]["ofOthers"] == {"Other-Pipeline": 1}

    def test_redrive_tells_how_to_take_what_was_set_aside_under_a_former_name(self, person: Person) -> None:
        """F97: a default name is the path of the construct, which may change while messages wait."""
        person.site.dead_letter("x", reason="y", pipeline="Old-Pipeline")
        assert "Old-Pipeline  if this is a former name, deploy the pipeline with it: name=" in person.types(
            "retry", "--prefix", ""
        )

    def test_redrive_ends_badly_when_a_message_stays(self, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
        """The exit code tells a script."""
        person.site.dead_letter("x", reason="y")
        monkeypatch.setattr(sender, "send", lambda *_: ["not today"])
        assert "not today" in person.types("retry", "--prefix", "", ends=1)

    def test_redrive_that_is_interrupted_tells_how_far_it_came(
        self, person: Person, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The output counts the messages that were moved before the interruption."""
        for number in range(11):
            person.site.dead_letter(f"{number}", reason="y")
        calls = iter(range(9))

        def interrupted(*arguments: Any) -> Any:
            if next(calls):
                raise KeyboardInterrupt
            return send(*arguments)

        monkeypatch.setattr(sender, "send", interrupted)
        result = person.reads("retry", "--prefix", "", ends=130)["redriven"]
        assert result["interrupted"]
        assert (result["matched"], result["moved"], result["unmoved"], result["failed"]) == (11, 10, 1, [])
        assert person.site.visible(person.site.deployed.dead_letter_url) == 1
        [operation] = person.reads("operations")["operations"]
        assert operation["result"] == "interrupted; 10 redriven, 1 left"

    @pytest.mark.failure_mode("F106")
    def test_a_request_has_an_id_and_takes_it_again(self, person: Person) -> None:
        """The same ID gives the same message. IDs that the consumer would refuse are refused, and nothing is
        sent.
        """
        person.site.put("in/a")
        result = person.reads("retry", "--again", "in/a", "in/a")
        assert result["again"]["sent"] == 1
        assert f"retry --again in/a --id {result['requestId']} by" in person.complaint
        [first] = person.site.messages()
        person.types("retry", "--again", "in/a", "--id", result["requestId"])
        assert person.site.messages() == [first]
        person.types("retry", "--again", "in/a", "--id", "yesterday", ends=1)
        assert "not a ULID" in person.complaint
        person.types("retry", "--again", "in/a", "--id", "6" + result["requestId"][1:], ends=1)
        assert "in the future" in person.complaint
        assert person.site.messages() == []

    def test_a_wrong_key_among_several_stops_all(self, person: Person) -> None:
        person.site.put("in/a")
        person.types("retry", "--again", "in/a", "in/b", ends=1)
        assert "S3 has no object in/b" in person.complaint
        assert person.site.messages() == []

    def test_a_prefix(self, person: Person) -> None:
        """A dry run counts, and sends nothing."""
        person.site.put("in/a", "in/b", "out/c")
        dry = person.reads("retry", "--again", "--prefix", "", "--dry-run")["again"]
        assert (dry["sent"], dry["skipped"], person.site.messages()) == (2, 1, [])
        assert "sent  2\n" in person.types("retry", "--again", "--prefix", "", "--dry-run")

    @pytest.mark.parametrize(
        "arguments",
        [(), ("in/a", "--prefix", "in/"), ("--prefix", "in/", "--waiting"), ("in/a", "in/b", "--version-id", "v")],
    )
    def test_a_request_that_means_nothing_is_refused(self, person: Person, arguments: tuple[str, ...]) -> None:
        person.types("retry", "--again", *arguments, ends=2)
        assert any(word in person.complaint for word in ("needs what to try", "omit", "needs exactly one key"))

    def test_wrong_usage_has_its_own_exit_code(self, person: Person) -> None:
        person.types("inspect", ends=2)


class TestAudit:
    @pytest.mark.parametrize(("flags", "sent"), [(("--resend",), {}), ((), {"dryRun": True})])
    def test_a_run_by_hand_shows_its_report(self, person: Person, flags: tuple[str, ...], sent: dict[str, Any]) -> None:
        report = leave_report(person.site)
        person.functions.answer = {"Payload": io.BytesIO(json.dumps(report).encode())}
        shown = person.types("audit", *flags, ends=0 if flags else 3)
        assert person.functions.invoked == [{"function": "audit", **sent}]
        assert "1 of 3 objects never reached the ledger" in shown
        assert "missing    in/lost" in shown
        # A look changes nothing, and ends with the command that sends.
        assert shown.endswith("intake-ledger audit --resend\n") is not bool(flags)
        recorded = [(one["what"], one["result"]) for one in person.reads("operations")["operations"]]
        assert recorded == ([] if not flags else [("audit", "1 finding, 0 delivery problems")])

    @pytest.mark.parametrize(
        ("answer", "payload", "result"),
        [
            (
                {},
                {"skipped": "another run is at work, or none is due yet"},
                "the audit did not start: another run is at work",
            ),
            ({"FunctionError": "Unhandled"}, {"errorMessage": "Task timed out"}, "the audit failed: Task timed out"),
        ],
    )
    def test_a_run_that_does_not_come_to_a_report(
        self, person: Person, answer: dict[str, Any], payload: dict[str, Any], result: str
    ) -> None:
        person.functions.answer = {**answer, "Payload": io.BytesIO(json.dumps(payload).encode())}
        person.types("audit", "--resend", ends=1)
        assert result in person.complaint

    def test_an_audit_in_parts_is_started_where_there_is_one(
        self, sit: Callable[..., Person], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The command starts the state machine that calls this pipeline's function, and waits for its end."""
        site, waits = make_site(), list[float]()
        called = '{"Resource": "arn:aws:lambda:eu-central-1:111122223333:function:%s"}'
        end = {"status": "SUCCEEDED", "output": json.dumps(leave_report(site))}
        machines = FakeMachines({"arn:other": called % "audit-of-another", "arn:own": called % "audit"}, end)
        monkeypatch.setattr(Aws, "machines", machines)
        monkeypatch.setattr(time, "sleep", waits.append)
        person = sit(site, *((MACHINE, arn) for arn in machines.definitions))
        assert person.reads("audit", ends=3)["counts"]["missing"] == 1
        assert machines.started == [{"machine": "arn:own", "dryRun": True}]
        assert (len(waits), person.functions.invoked) == (1, [])
        machines.end = {"status": "FAILED", "cause": "no inventory report"}
        person.types("audit", "--resend", ends=1)
        assert "the audit failed: no inventory report; see the execution arn:execution" in person.complaint

    def test_a_report_that_is_kept_in_s3_is_shown_where_it_is(self, sit: Callable[..., Person]) -> None:
        """The ledger's table has only some of the findings."""
        site = make_site()
        site.more_for_audit |= {"INTAKE_REPORT_BUCKET": "reports", "INTAKE_REPORT_PREFIX": "audit/"}
        person = sit(site)
        leave_report(site)
        told: Any = SimpleNamespace(pipeline=NAME, bucket="b", reports=Reports("reports", "audit/", None))
        key = publish(MagicMock(), told, Report("1", START), now=START)
        assert f"s3://reports/{key}" in person.types("audit", "--last").split()
        leave_report(site, stopped=Stopped.PARTS, unfinished=["shard 3"])
        assert "shard 3" in person.types("audit", "--last")

    def test_a_run_in_parts_tells_how_far_it_has_come(self, sit: Callable[..., Person]) -> None:
        """The output has messages, candidates and an estimate while the run is active."""
        site = make_site()
        now = time.time_ns() // 1_000_000
        held = {"lease_until": {"N": str(now + 600_000)}, "lease_owner": {"S": "run-7"}}
        count = {"sent": {"N": "250"}, "of": {"N": "1000"}, "begun_at": {"N": str(now - 600_000)}}
        for pk, content in ((site.deployed.bucket, held), (f"{site.deployed.bucket}#run-7", count)):
            item: Any = {"pk": {"S": pk}, "sk": {"S": f"{NAME}@audit"}} | content
            client("dynamodb").put_item(TableName=site.deployed.table, Item=item)
        person = sit(site)
        told = " ".join(person.types("status").split())
        assert "an audit is running, 250 sent, of at most 1,000 messages, about 30 minutes left" in told
        assert person.reads("status")["audit"]["sending"]["sent"] == 250

    def test_a_pipeline_without_an_audit(self, sit: Callable[..., Person]) -> None:
        person = sit(make_site(), audit=False)
        person.types("audit", "--resend", ends=1)
        assert "has no audit function" in person.complaint

    def test_the_last_report(self, person: Person) -> None:
        """Before the first report, the message says how to run an audit."""
        person.types("audit", "--last", ends=1)
        assert "run `intake-ledger audit --resend`" in person.complaint
        report = leave_report(
            person.site, delivery=["the key is Disabled: enable it"], stopped="out of time", complete=False
        )
        assert person.reads("audit", "--last") == {"formatVersion": 1, **report}
        shown = person.types("audit", "--last")
        assert "the key is Disabled: enable it" in shown
        assert "out of time" in shown


@pytest.mark.parametrize("command", list(NEEDED))
def test_each_command_needs_what_the_grants_give(
    person: Person, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    """Another test compares the same table with the template, so that the pipeline's grants allow each command."""
    used: set[str] = set()
    call = vars(BaseClient)["_make_api_call"]

    def noted(caller: Any, operation: str, arguments: Any) -> Any:
        used.add(action_of(caller.meta.service_model.service_name, operation))
        return call(caller, operation, arguments)

    [version] = person.site.put("in/a")
    committed = Row(Status.PROCESSED, 1, version_id=version, updated_at=START)
    person.site.row("in/a", replace(committed, committed_state=committed.identity))
    person.site.reject("in/x", "no invoice")
    person.site.dead_letter("x", reason="no invoice")
    person.site.dead_letter("x", reason="other")
    leave_report(person.site)
    for key in ("in/x", "in/y"):
        person.site.row(key, Row(Status.REJECTED, 7, version_id="v1", rejected_fence=7, updated_at=START))
        body = notification(record(key, State(StateKind.OBJECT, "v1", "e", 1), bucket=person.site.deployed.bucket))
        person.site.dead_letter(body, reason="no reason", key=quote(key), rejected_fence=7)
    new_consumer_log()
    person.types("dismiss", "in/y", "--because", "a test")
    if command == "operations stop":
        person.types("retry", "in/x")
    person.site.row("in/z", Row(Status.FAILED, 1, version_id="v1", attempts=1, updated_at=START, retry_at=START * 2))
    held = Row(Status.PROCESSING, 1, version_id="v1", lease_owner="w", lease_until=START * 2, updated_at=START)
    person.site.row("in/held", held)
    monkeypatch.setattr(BaseClient, "_make_api_call", noted)
    name, *options = command.split()
    for arguments in {
        "dismiss": (("in/x", "--because", "a test"),),
        "release": (("in/held", "--because", "a dead worker", "--yes"),),
        "export": ((str(tmp_path / "rows.csv"),),),
        "inspect": (("in/a",),),
        "list": ((),),
        "wait": (("--prefix", "in/a", "--expect", "1", "--until", "1m"),),
        "audit --last": ((),),
        "retry": (("in/x", "in/z"), ("--again", "--prefix", "in/"), ("--again", "in/a")),
        "operations stop": (("--because", "a test"),),
        "status": ((),),
    }[command]:
        person.types(name, *options, *arguments)
    # CloudWatch's actions have no resources, so that no grant of the pipeline can allow them. Attempts are optional.
    assert {one for one in used if not one.startswith("cloudwatch:")} - {"logs:FilterLogEvents"} == NEEDED[command]


class TestMessages:
    """An intake of messages, which has no bucket. Its function checks rows and the delivery."""

    @pytest.fixture
    def person(self, sit: Callable[..., Person]) -> Person:
        return sit(make_message_site(), audit=False)

    @pytest.mark.failure_mode("F672")
    def test_the_status_names_the_source_and_the_check_of_rows(self, person: Person) -> None:
        shown = person.types("status")
        assert "messages of sqs" in shown
        assert "none in the last hour" in next(line for line in shown.splitlines() if "Last tick" in line)
        stuck = [{"key": key, "why": "stuck"} for key in ("o-1", "o-1", "o-2")]
        leave_report(person.site, summary="3 of 9 unfinished messages were not continued for 6 hours", findings=stuck)
        # A report of messages is at the name of their source.
        shown = " ".join(person.types("status").split())
        assert "3 of 9 unfinished messages were not continued for 6 hours, send again the messages of o-1, o-2" in shown
        assert person.reads("status")["messageSource"] == "sqs"

    def test_two_mappings_of_a_stream_are_one_source(self, person: Person) -> None:
        """A stream's intake also takes redriven records from its queue."""
        mappings = {"EventSourceMappings": [{"State": "Enabled"}, {"State": "Enabled"}]}
        person.functions.list_event_source_mappings = lambda **_: mappings  # type: ignore[method-assign]
        assert person.reads("status")["consumer"] == "Enabled"
        mappings["EventSourceMappings"][1]["State"] = "Disabled"
        assert person.reads("status")["consumer"] == "Enabled, Disabled"

    def test_rejected_messages_are_listed_with_their_identities(self, person: Person) -> None:
        for identity in ("e1", "e2"):
            person.site.reject("o-7", "no amount", version=identity)
        assert [row["version_id"] for row in person.reads("list")["rows"]] == ["e1", "e2"]
        shown = person.types("list")
        assert "identity" in shown
        assert "e2" in shown

    def test_a_key_is_shown_with_all_its_messages_and_without_s3(self, person: Person) -> None:
        """The lock of the key is not listed."""
        site = person.site
        site.row("o-7", Row(Status.PROCESSED, START, version_id="e1", committed_state="v#e1", updated_at=START))
        site.reject("o-7", "no amount", version="e2")
        lock: Any = {"pk": {"S": f"{site.deployed.bucket}/o-7"}, "sk": {"S": f"{NAME}@lock"}, "fence": {"N": "7"}}
        client("dynamodb").put_item(TableName=site.deployed.table, Item=lock)
        found = person.reads("inspect", "o-7")
        assert [one["row"]["version_id"] for one in found["states"]] == ["e1", "e2"]
        shown = person.types("inspect", "o-7")
        assert "no amount" in shown
        assert "S3" not in shown
        assert "the ledger has no message of this key" in person.types("inspect", "o-8")

    def test_rejected_messages_are_redriven(self, person: Person) -> None:
        person.site.dead_letter('{"order_id": "o-7"}', pipeline=NAME, key="o-7", rejected_fence=7, reason="no amount")
        assert person.reads("retry", "o-7")["redriven"]["moved"] == 1
        [message] = person.site.messages()
        assert (message["body"], message["rejected_fence"]) == ('{"order_id": "o-7"}', "7")

    def test_a_redriven_message_of_a_fifo_queue_keeps_its_group(self, sit: Callable[..., Person]) -> None:
        """SQS would drop a body that it got in the last five minutes."""
        person, sqs = sit(make_message_site("fifo"), audit=False), client("sqs")
        deployed, body = person.site.deployed, '{"order_id": "o-7"}'
        for place, url in enumerate((deployed.queue_url, deployed.dead_letter_url)):
            sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="o-7", MessageDeduplicationId=str(place))
        assert person.reads("retry", "--prefix", "")["redriven"]["moved"] == 1
        found = sqs.receive_message(QueueUrl=deployed.queue_url, MaxNumberOfMessages=10, AttributeNames=["All"])
        assert [one["Attributes"]["MessageGroupId"] for one in found["Messages"]] == ["o-7", "o-7"]

    def test_commands_for_files_say_so(self, person: Person) -> None:
        person.types("retry", "--again", "--prefix", "", ends=2)
        assert f"is not for {NAME}, which is an intake of messages: " in person.complaint


def test_the_page_shows_commands_that_there_are() -> None:
    """Each command line of `docs/operating.md` parses with its options."""
    page = (Path(__file__).parents[3] / "docs" / "operating.md").read_text()
    lines = re.findall(r"^    (?:\$ )?intake-ledger (.*)", page, re.MULTILINE)
    assert len(lines) > 10
    group: Any = get_command(commands.app)
    for line in lines:
        name, *arguments = shlex.split(line)
        group.commands[name].make_context(name, arguments)
    commands_table, _, _ = page.partition("\n## ")
    rows = re.findall(r"^\| (`.*?) \|", commands_table, re.MULTILINE)
    assert {word for row in rows for word in re.findall("`([a-z-]+)", row)} == set(group.commands)


def test_it_needs_no_cdk_to_start() -> None:
    """The CDK takes seconds to load, and starts a Node.js process."""
    code = "import sys; from intake_ledger_cli import commands; print({'jsii', 'aws_cdk'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("missing", ["typer", "rich", "boto3"])
def test_without_its_extra_it_says_which_one_to_install(missing: str) -> None:
    """The error is one line without a traceback."""
    code = f"import sys; sys.modules['{missing}'] = None\nfrom intake_ledger_cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert missing in line
    assert line.endswith("pip install 'cdk-intake-ledger[cli]'")
