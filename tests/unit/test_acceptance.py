"""The decisions of `intake-ledger acceptance`: results, interruptions, cost and report. tests/local runs it."""

import json
import re
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

from tests.inside.acceptance import (
    CHECKS,
    INTERRUPTED,
    NEW_KEY_REQUESTS,
    NEW_KEY_UNITS,
    AcceptanceReport,
    Check,
    CheckFailed,
    CostLine,
    NotHere,
    Outcome,
    Result,
    World,
    deployment,
    dollars,
    estimate,
    outcome_of,
    render,
    run_checks,
)
from tests.inside.command import commands, json_output

COST = Path(__file__).parents[2] / "docs" / "cost.md"


def world(*, local: bool = True) -> World:
    return World(aws=cast("Any", None), stack="stack", outputs={}, local=local)


def check(name: str = "one", **options: Any) -> Check:
    given: dict[str, Any] = {"name": name, "shows": "Something holds.", "run": lambda _: "it held"}
    return Check(**(given | options))


def raising(error: BaseException) -> Any:
    def run(_: World) -> str:
        raise error

    return run


def result(one: Check, *, local: bool = True) -> tuple[Result, str]:
    outcome = outcome_of(one, world(local=local), clock=count().__next__)
    return outcome.result, outcome.detail


class TestNothingPassesThatWasNotSeen:
    def test_a_check_that_held_has_passed(self) -> None:
        assert result(check()) == (Result.PASSED, "it held")

    @pytest.mark.failure_mode("F460")
    def test_a_local_aws_that_cannot_show_it_is_not_here_and_the_steps_ran(self) -> None:
        one = check(not_local="no policies")
        found, detail = result(one)
        assert (found, detail) == (Result.NOT_HERE, "no policies. Its steps ran: it held")
        assert result(one, local=False) == (Result.PASSED, "it held")

    def test_steps_that_fail_have_failed_there_too(self) -> None:
        one = check(not_local="no policies", run=raising(CheckFailed("it did not")))
        assert result(one) == (Result.FAILED, "it did not")

    @pytest.mark.failure_mode("F460")
    def test_steps_that_cannot_run_there_do_not(self) -> None:
        one = check(not_local="no such request", only_aws=True, run=raising(AssertionError("it ran")))
        assert result(one) == (Result.NOT_HERE, "no such request")
        assert result(one, local=False) == (Result.FAILED, "AssertionError: it ran")

    def test_an_error_is_a_failure_and_a_reason_is_none(self) -> None:
        assert result(check(run=raising(KeyError("x")))) == (Result.FAILED, "KeyError: 'x'")
        assert result(check(run=raising(NotHere("no key")))) == (Result.NOT_HERE, "no key")


@pytest.mark.failure_mode("F461")
def test_an_interruption_leaves_a_reason_for_each_check() -> None:
    """Those of the background end too, and no outcome is lost."""
    waited: list[bool] = []

    def waits(here: World) -> str:
        waited.append(here.stopping.wait(60))
        raise NotHere(INTERRUPTED)

    checks = [
        check("behind", run=waits, in_background=True),
        check("first"),
        check("second", run=raising(KeyboardInterrupt())),
        check("third"),
    ]
    found: list[Outcome] = []
    with pytest.raises(KeyboardInterrupt):
        run_checks(world(), checks, found.append)
    assert {one.name: one.result for one in found} == {
        "first": Result.PASSED,
        "behind": Result.NOT_HERE,
        "second": Result.NOT_HERE,
        "third": Result.NOT_HERE,
    }
    assert waited == [True]


def test_each_outcome_is_told_once_those_of_the_background_last() -> None:
    found: list[Outcome] = []
    run_checks(world(), [check("behind", in_background=True), check("first"), check("last")], found.append)
    assert [one.name for one in found] == ["first", "last", "behind"]


def test_checks_have_names_of_their_own_and_say_why_not() -> None:
    names = [one.name for one in CHECKS]
    assert len(names) == len(set(names))
    assert [one.name for one in CHECKS if one.only_aws and not one.not_local] == []
    assert [one.name for one in CHECKS if not re.fullmatch(r"[a-z0-9-]+", one.name)] == []


@pytest.mark.parametrize(
    ("endpoint", "local"),
    [
        ("https://sqs.eu-central-1.amazonaws.com", False),
        ("https://sqs.cn-north-1.amazonaws.com.cn", False),
        ("https://sqs.eu-central-1.api.aws", False),
        ("http://127.0.0.1:4566", True),
        ("https://amazonaws.com.example.org", True),
    ],
)
def test_an_endpoint_that_is_not_aws_is_local(endpoint: str, local: bool) -> None:
    class Client:
        class meta:  # noqa: N801 - as botocore
            endpoint_url = endpoint

    class Aws:
        sqs = Client

    assert deployment.is_local(cast("Any", Aws)) is local


def test_the_estimate_follows_from_the_template_and_the_checks() -> None:
    def template(**number: int) -> dict[str, Any]:
        return {"Resources": {f"{name}{n}": {"Type": name} for name, most in number.items() for n in range(most)}}

    none = estimate({"Resources": {}}, [])
    assert dollars(none) == pytest.approx(0.01, abs=0.01)  # logs, and queries of Athena
    few = estimate(template(**{"AWS::KMS::Key": 1, "AWS::Lambda::EventSourceMapping": 2}), [check(changes=10)])
    more = estimate(template(**{"AWS::KMS::Key": 2, "AWS::Lambda::EventSourceMapping": 2}), [check(changes=20)])
    by_name = Counter({one.what: one.count for one in more})
    assert by_name["KMS keys, for hours"] == 2
    assert by_name["write units of DynamoDB"] == 2 * next(one.count for one in few if "write units" in one.what)
    assert dollars(none) < dollars(few) < dollars(more)


def report(**options: Any) -> AcceptanceReport:
    outcome = outcome_of(check(assumptions=("S3-03",)), world(), clock=count().__next__)
    given: dict[str, Any] = {
        "run": "0a1b",
        "release": "0.1.0",
        "region": "eu-central-1",
        "local": False,
        "started_at": 0,
        "ended_at": 60_000,
        "estimate": (CostLine(what="keys", count=1, dollars=0.25),),
        "outcomes": (outcome,),
        "interrupted": False,
        "left": (),
    }
    return AcceptanceReport(**(given | options))


def test_both_forms_of_the_report_have_the_same_content() -> None:
    one = report()
    found = json.loads(json.dumps(json_output.document(one)))
    assert found["outcomes"][0] | {"seconds": 0} == {
        "name": "one",
        "shows": "Something holds.",
        "assumptions": ["S3-03"],
        "result": "passed",
        "detail": "it held",
        "seconds": 0,
    }
    page = render(one)
    for text in ("0a1b", "AWS in eu-central-1", "1 passed, 0 failed, 0 not here", "S3-03", "it held", "0.25 dollars"):
        assert text in page
    assert "It says nothing about AWS" in render(report(local=True))


def test_what_a_person_should_look_at_has_failed() -> None:
    assert not report().failed
    assert report(interrupted=True).failed
    assert report(left=("bucket x",)).failed
    failed = outcome_of(check(run=raising(CheckFailed("no"))), world(), clock=count().__next__)
    assert report(outcomes=(failed,)).failed
    assert "Not removed: bucket x" in render(report(left=("bucket x",)))


def test_an_unknown_check_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["acceptance", "--region", "eu-central-1", "--only", "marker"]
    assert commands.run(arguments) == 2
    assert "--only marker is no check: use one of " in capsys.readouterr().err


def test_a_new_key_costs_what_the_page_of_costs_has_counted() -> None:
    row = next(line for line in COST.read_text().splitlines() if line.startswith("| new key |"))
    requests, units = (float(cell) for cell in row.strip("|").split("|")[1:3])
    assert (requests, units) == (NEW_KEY_REQUESTS, NEW_KEY_UNITS)
