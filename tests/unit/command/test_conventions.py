"""The conventions of the command line: exit codes, errors in one line, versions, and output for programs."""

import csv
import errno
import io
import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Any

import boto3
import pytest

from intake_ledger.protocol.row import Row, Status
from intake_ledger.protocol.settings import PIPELINE_TAG, KeyFilter
from intake_ledger_cli import commands
from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.metrics import Tick, last_tick, read_metrics
from intake_ledger_cli.errors import UsageError
from intake_ledger_cli.read import pipelines
from intake_ledger_cli.show import formatting
from tests.unit.command.support import NAME, STACK, client, make_site
from tests.unit.command.test_commands import Person, leave_report, sit  # noqa: F401 - a fixture
from tests.unit.support import HOUR, MINUTE, START

pytestmark = pytest.mark.usefixtures("dynamodb")


@pytest.fixture
def person(sit: Callable[..., Person]) -> Person:  # noqa: F811
    return sit(make_site(filters=(KeyFilter("in/", ".csv"), KeyFilter("late/"))))


class TestExitCodes:
    def test_findings_are_an_exit_code_of_their_own(self, person: Person) -> None:
        """Only with the option, so that scripts of today do not change."""
        for command in (("status",), ("list",), ("list", "--csv"), ("list", "--by-reason"), ("inspect", "in/a.csv")):
            person.types(*command, "--exit-code")
        person.site.reject("in/a.csv", "no invoice")
        person.site.put("in/lost.csv")
        leave_report(person.site)
        for command in (
            *(("status",), ("list",), ("list", "--csv"), ("list", "--by-reason")),
            *(("inspect", "in/lost.csv"), ("audit", "--last")),
        ):
            person.types(*command, "--exit-code", ends=3)
            person.types(*command)

    @pytest.mark.parametrize(
        "arguments",
        [
            ("list", "--status", "running", "--csv"),
            ("list", "--csv", "--json"),
            ("list", "--status", "stuck", "--after", "x"),
            ("list", "--older-than", "tomorrow"),
            ("inspect", "s3://another-bucket/in/a.csv"),
            ("no-such-command",),
            ("list", "--no-such-option"),
        ],
    )
    def test_wrong_usage_ends_with_2(self, person: Person, arguments: tuple[str, ...]) -> None:
        assert person.types(*arguments, ends=2) == ""
        assert person.complaint

    @pytest.mark.parametrize(
        ("old", "new"),
        [("ls", "status"), ("dismiss --undo", "retry KEY"), ("watch", "status --watch")],
    )
    def test_an_old_command_names_the_new_one(self, person: Person, old: str, new: str) -> None:
        person.types(*old.split(), ends=2, yes=False)
        assert person.complaint == f"intake-ledger: `{old}` is now `intake-ledger {new}`\n"

    def test_the_version_needs_no_stack(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert commands.run(["--version"]) == 0
        assert capsys.readouterr().out == f"intake-ledger {version('cdk-intake-ledger')}\n"

    def test_shells_can_complete_commands(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert commands.run(["--help"]) == 0
        assert "--install-completion" in capsys.readouterr().out


class TestErrors:
    def test_a_bad_endpoint_is_one_line(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:4566")
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
        assert commands.run(["status", "--stack", STACK]) == 1
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith("intake-ledger: ")
        assert "check AWS_ENDPOINT_URL" in line

    @pytest.mark.parametrize(("number", "said"), [(errno.ENOSPC, "No space left on device"), (errno.EPIPE, "")])
    def test_a_full_disk_and_a_closed_pipe_have_no_traceback(
        self,
        person: Person,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        number: int,
        said: str,
    ) -> None:
        """`head` closes the pipe, which needs no message."""

        class Full(io.StringIO):
            def write(self, _: str) -> int:
                raise OSError(number, said or "Broken pipe")

        monkeypatch.setattr(sys, "stdout", Full())
        assert commands.run(["list", "--csv", "--stack", STACK]) == 1
        error = capsys.readouterr().err
        assert "Traceback" not in error
        assert (said in error) if said else not error

    def test_options_come_from_the_environment(self, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("INTAKE_LEDGER_STACK", STACK)
        monkeypatch.setenv("INTAKE_LEDGER_PIPELINE", NAME)
        assert commands.run(["list"]) == 0
        monkeypatch.setenv("INTAKE_LEDGER_PIPELINE", "Nobody")
        assert commands.run(["list"]) == 1


class TestOutput:
    def test_each_document_has_the_version_of_its_form(self, person: Person) -> None:
        leave_report(person.site)
        for command in (("status",), ("list",), ("list", "--by-reason"), ("inspect", "in/a.csv"), ("audit", "--last")):
            assert person.reads(*command)["formatVersion"] == 1

    def test_watch_in_a_pipe_is_one_line_for_each_look(self, person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
        person.site.reject("in/a.csv", "no invoice")
        waits = iter([None])

        def sleep(_: float) -> None:
            if next(waits, 0) == 0:
                raise KeyboardInterrupt

        monkeypatch.setattr(time, "sleep", sleep)
        first, second = person.types("status", "--watch").splitlines()
        for line in (first, second):
            at, *parts = line.split()
            assert time.strptime(at, "%Y-%m-%dT%H:%M:%SZ")
            assert dict(part.split("=") for part in parts) == {
                "consumer": "Enabled",
                "breaker": "closed",
                "queue": "0+0",
                "dead_letters": "0+0",
                "failed": "0",
                "rejected": "1",
                "waiting": "0",
                "alarms": "0",
            }


class TestInspect:
    def test_a_uri_is_a_key_of_this_bucket(self, person: Person) -> None:
        """A URI of another bucket is refused with both names."""
        person.site.put("in/a.csv")
        assert person.reads("inspect", f"s3://{person.site.deployed.bucket}/in/a.csv")["key"] == "in/a.csv"
        person.types("inspect", "s3://elsewhere/in/a.csv", ends=2)
        assert f"is in the bucket elsewhere, and {NAME} processes {person.site.deployed.bucket}" in person.complaint
        person.types("inspect", f"s3://{person.site.deployed.bucket}", ends=2)

    def test_a_key_outside_the_filters_is_explained(self, person: Person) -> None:
        shown = person.types("inspect", "out/a.csv")
        assert "keys must begin with 'in/' and end with '.csv' or begin with 'late/'" in shown


class TestList:
    def _fill(self, person: Person) -> None:
        site = person.site
        now = time.time_ns() // 1_000_000
        site.reject("in/old.csv", "no invoice", at=now - 3 * HOUR)
        site.row("in/new.csv", Row(Status.FAILED, 1, reason="=1+1", reason_code="processor_error", updated_at=now))
        site.row("late/a", Row(Status.FAILED, 1, reason_code="processor_error", updated_at=now - MINUTE))
        for key, until in (("in/dead.csv", now - MINUTE), ("in/alive.csv", now + HOUR)):
            site.row(key, Row(Status.PROCESSING, 1, attempts=1, lease_until=until, updated_at=now - HOUR))
        claim = Row(Status.PROCESSING, 1, attempts=3, lease_until=now + HOUR, updated_at=now)
        site.row("in/loop.csv", claim)
        site.row("in/retry.csv", replace(claim, reason="KeyError", reason_code="processor_error"))

    @pytest.mark.parametrize(
        ("options", "keys"),
        [
            ((), ["in/old.csv", "late/a", "in/new.csv"]),
            (("--prefix", "in/"), ["in/old.csv", "in/new.csv"]),
            (("--older-than", "2h"), ["in/old.csv"]),
            (("--status", "stuck"), ["in/dead.csv", "in/loop.csv"]),
            (("--status", "stuck", "--older-than", "2h"), []),
        ],
    )
    def test_rows_are_selected(self, person: Person, options: tuple[str, ...], keys: list[str]) -> None:
        self._fill(person)
        assert [row["key"] for row in person.reads("list", *options)["rows"]] == keys

    @pytest.mark.failure_mode("F394")
    def test_reasons_are_counted(self, person: Person) -> None:
        """Two bugs of one code are two lines: a redrive by code would take both, although one is fixed."""
        self._fill(person)
        bug = Row(Status.FAILED, 1, reason="KeyError at invoices:42", reason_code="processor_error", updated_at=START)
        for key in ("in/b1", "in/b2"):
            person.site.row(key, bug)
        assert person.reads("list", "--by-reason")["reasons"] == [
            {"status": "FAILED", "reasonCode": "processor_error", "reason": "KeyError at invoices:42", "rows": 2},
            {"status": "FAILED", "reasonCode": "processor_error", "reason": "", "rows": 1},
            {"status": "FAILED", "reasonCode": "processor_error", "reason": "=1+1", "rows": 1},
            {"status": "REJECTED", "reasonCode": "no reason", "reason": "no invoice", "rows": 1},
        ]
        shown = person.types("list", "--by-reason")
        assert re.search(r"2  FAILED +processor_error +KeyError at invoices:42", shown)
        assert re.search(r"1  FAILED +processor_error +=1\+1", shown)

    def test_csv_has_all_of_a_row_with_times_of_rfc_3339(self, person: Person) -> None:
        self._fill(person)
        rows = list(csv.DictReader(io.StringIO(person.types("list", "--csv"))))
        assert [row["key"] for row in rows] == ["in/old.csv", "late/a", "in/new.csv"]
        assert rows[0]["reason"] == "no invoice"
        assert time.strptime(rows[0]["since"], "%Y-%m-%dT%H:%M:%SZ")

    @pytest.mark.parametrize(("text", "milliseconds"), [("90s", 90_000), ("2h", 2 * HOUR), ("3d", 72 * HOUR)])
    def test_an_age_is_a_number_and_a_unit(self, text: str, milliseconds: int) -> None:
        assert formatting.parse_age("--older-than", text) == milliseconds

    @pytest.mark.parametrize("text", ["", "2", "h", "-1h", "2 h"])
    def test_another_text_is_no_age(self, text: str) -> None:
        with pytest.raises(UsageError, match="use a number and s, m, h or d"):
            formatting.parse_age("--older-than", text)

    @pytest.mark.failure_mode("F159")
    def test_a_list_reads_each_partition_no_further_than_its_limit(
        self, person: Person, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """So a list of fifty takes twenty requests at a million rows."""
        for number in range(200):
            person.site.reject(f"in/{number}.csv", "no invoice", at=START + number)
        seen: list[int] = []
        dynamodb: Any = client("dynamodb")

        class Noted:
            def __getattr__(self, name: str) -> Any:
                return getattr(dynamodb, name)

            def get_paginator(self, operation: str) -> Any:
                return Pages(dynamodb.get_paginator(operation))

        class Pages:
            def __init__(self, paginator: Any) -> None:
                self._paginator = paginator

            def paginate(self, **request: Any) -> Any:
                assert request["PaginationConfig"] == {"PageSize": 6}
                for page in self._paginator.paginate(**request):
                    seen.append(page["Count"])
                    yield page

        monkeypatch.setattr(Aws, "dynamodb", Noted())
        result = person.reads("list", "--limit", "5")
        assert [row["key"] for row in result["rows"]] == [f"in/{number}.csv" for number in range(5)]
        assert len(seen) == 20
        assert sum(seen) <= 120


def test_status_without_a_stack_lists_the_pipelines_of_a_region(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipeline whose stack was deleted still has its table and queues."""

    class Tagging:
        def get_paginator(self, operation: str) -> "Tagging":
            assert operation == "get_resources"
            return self

        def paginate(self, **request: Any) -> Any:
            assert request["TagFilters"] == [{"Key": PIPELINE_TAG}]
            for service, name, stack in (
                *(("lambda", "Invoices", "Intake"), ("sqs", "Invoices", "Intake")),
                ("dynamodb", "Orders", "Old"),
            ):
                tags = [
                    {"Key": PIPELINE_TAG, "Value": name},
                    {"Key": "aws:cloudformation:stack-name", "Value": stack},
                ]
                arn = f"arn:aws:{service}:eu-central-1:111122223333:x"
                yield {"ResourceTagMappingList": [{"ResourceARN": arn, "Tags": tags}]}

    monkeypatch.setattr(Aws, "tagging", Tagging())
    assert commands.run(["status"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in shown[1:]] == [["Invoices", "Intake", "deployed"], ["Orders", "Old", "only"]]
    assert commands.run(["status", "--watch"]) == commands.run(["list"]) == 2
    assert "name the stack: --stack" in capsys.readouterr().err
    assert commands.run(["status", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["deployed"]) for one in document["pipelines"]] == [("Invoices", True), ("Orders", False)]
    monkeypatch.setattr(pipelines, "list_pipelines", lambda aws: pipelines.FoundPipelines(aws.region, []))
    assert commands.run(["status"]) == 0
    assert PIPELINE_TAG in capsys.readouterr().out


def test_the_latest_values_are_shown_in_each_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """CloudWatch sorts the values as the request says, and the local AWS does not."""
    deployed, now = make_site().deployed, datetime.now(UTC)
    times = [now - timedelta(minutes=n) for n in (30, 10, 20)]
    labels = {"queue": [900.0, 60.0, 300.0], "AuditDeliveryProblems": [0.0, 2.0, 1.0]}

    class Metrics:
        def get_metric_data(self, **_: Any) -> Any:
            return {
                "MetricDataResults": [
                    {"Label": label, "Timestamps": times, "Values": values} for label, values in labels.items()
                ]
            }

    monkeypatch.setattr(Aws, "cloudwatch", Metrics())
    found = read_metrics(Aws(), deployed)
    assert (found["queue"].last, found["dead_letters"].last) == (60, None)
    assert last_tick(found) == Tick(int(times[1].timestamp() * 1000), 2)
