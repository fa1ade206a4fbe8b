"""Each alarm names its runbook, and each command of a runbook exists with its options."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import botocore.session
import pytest
import typer
from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from botocore import xform_name

from cdk_intake_ledger import IntakePipeline, IntakeWorkers, OutcomeEvents
from intake_ledger_cli import commands
from tests.synth.build import new_stack, processor, resources, template_of
from tests.synth.test_alarms_of_all_kinds import stack_of_all_kinds

ROOT = Path(__file__).parents[2]
HEAD, *_PARTS = (ROOT / "docs" / "runbooks.md").read_text().split("\n## ")
RUNBOOKS = {part.split("\n", 1)[0]: part.split("\n", 1)[1] for part in _PARTS}
SECTIONS = ["Meaning", "Look", "Do", "Never do"]
_NAMED = re.compile(
    r"^[\w-]+: [^()]+ \(intake-ledger ([a-z]+[^;]* --stack \w+ --pipeline [\w-]+); "
    r"https://github\.com/cdk-intake-ledger/cdk-intake-ledger/blob/main/docs/runbooks\.md#([a-z]+)\)$"
)


def with_workers() -> Stack:
    """A pipeline with workers and events of its outcomes."""
    stack = new_stack("Files")
    pipeline = IntakePipeline(stack, "Orders", processor=processor())
    cluster = ecs.Cluster(stack, "Cluster", vpc=ec2.Vpc(stack, "Network", nat_gateways=1))
    image = ecs.ContainerImage.from_registry("example/orders")
    IntakeWorkers(stack, "Workers", intake=pipeline, cluster=cluster, image=image)
    OutcomeEvents(stack, "Outcomes", intakes=[pipeline])
    return stack


@pytest.fixture(scope="module")
def descriptions() -> dict[str, str]:
    """The description of each alarm of the synthesised templates, by logical ID."""
    found = {}
    for stack in (with_workers(), stack_of_all_kinds(default=False)):
        for name, alarm in resources(template_of(stack), "AWS::CloudWatch::Alarm").items():
            # These set the number of tasks, and call no person.
            if not re.search("^WorkersServiceTaskCountTarget|AuditBegan|Recovering", name):
                found[name] = alarm["Properties"]["AlarmDescription"]
    return found


def code(text: str) -> Iterator[str]:
    """The commands of a page: indented lines and code in a sentence."""
    for line in re.findall(r"^ {4,}(?:[A-Z]+=\$\()?((?:intake-ledger|aws) .+)$", text, re.MULTILINE):
        yield line.removesuffix(")")
    yield from re.findall(r"`((?:intake-ledger|aws) [^`]+)`", text)


def parse_own(words: list[str]) -> None:
    """Parse a command as the user's shell would. A missing command or option is an error."""
    commands.load()
    known = typer.main.get_group(commands.app).commands
    name, *rest = words
    assert name in known, f"no such command: {name}"
    known[name].make_context(name, rest)


def wrong_options(words: list[str]) -> list[str]:
    """Options of a command of the AWS CLI that its operation does not have."""
    service, operation, *options = words
    model = botocore.session.get_session().get_service_model(service)
    [found] = [model.operation_model(name) for name in model.operation_names if dashed(name) == operation]
    members = {dashed(name) for name in found.input_shape.members} if found.input_shape else set()
    members |= {"query", "output", "region", "profile"}
    return [one for one in options if one.startswith("--") and one.removeprefix("--") not in members]


def dashed(name: str) -> str:
    """The name of an operation or a parameter in the AWS CLI."""
    return xform_name(name, "-")


@pytest.mark.failure_mode("F181")
def test_each_alarm_names_a_runbook_that_exists(descriptions: dict[str, str]) -> None:
    """And each runbook belongs to an alarm: `OrdersMonitoringDeadLetters…` leads to `DeadLetters`."""
    named = {name: _NAMED.search(text) for name, text in descriptions.items()}
    assert [name for name, found in named.items() if not found] == []
    titles = {title.lower(): title for title in RUNBOOKS}
    assert {found[2] for found in named.values() if found} == set(titles)
    for name, found in named.items():
        assert found
        # `OutcomeEvents` has one alarm, and no construct for monitoring.
        parse_own(shlex.split(found[1]))
        title = titles[found[2]]
        expected = "OutcomesLate" if title == "OutcomeEventsLate" else f"Monitoring{title}"
        assert re.search(rf"{expected}[0-9A-F]{{8}}$", name), (name, title)


@pytest.mark.parametrize("title", RUNBOOKS)
def test_a_runbook_is_short_and_has_its_four_parts(title: str) -> None:
    parts = re.split(r"^\*\*([\w ]+)\.\*\*", RUNBOOKS[title], flags=re.MULTILINE)
    assert parts[1::2] == SECTIONS
    assert len(RUNBOOKS[title].splitlines()) <= 45
    assert [name for name, text in zip(parts[1::2], parts[2::2], strict=True) if not text.strip()] == []


@pytest.mark.failure_mode("F181")
@pytest.mark.parametrize("title", ["", *RUNBOOKS])
def test_each_command_of_a_runbook_exists(title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its options too. The top of the page sets the stack."""
    monkeypatch.setenv("INTAKE_LEDGER_STACK", "Intake")
    found = list(code(RUNBOOKS.get(title, HEAD)))
    assert found
    for line in found:
        program, *words = shlex.split(line)
        if program == "aws":
            assert wrong_options(words) == [], line
        else:
            parse_own(words)


@pytest.mark.parametrize("line", ["retry --reasons x", "retri", "list --status", "report --hours soon"])
def test_a_wrong_command_is_noticed(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTAKE_LEDGER_STACK", "Intake")
    with pytest.raises(Exception, match=r"(?i)no such|requires an argument|valid integer"):
        parse_own(line.split())


def test_a_wrong_option_of_aws_is_noticed() -> None:
    assert wrong_options(["sqs", "purge-queue", "--queue", "x"]) == ["--queue"]


def test_the_page_of_symptoms_names_runbooks() -> None:
    """Each under its own name."""
    page = (ROOT / "docs" / "symptoms.md").read_text()
    named = dict(re.findall(r"\[(\w+)\]\(runbooks\.md#([a-z]+)\)", page))
    assert len(named) > 15
    assert named == {name: name.lower() for name in named}
    assert set(named) <= set(RUNBOOKS)
