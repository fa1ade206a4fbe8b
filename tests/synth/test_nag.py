"""Findings of cdk-nag in every row of the matrix, and their acknowledgements."""

import csv
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aws_cdk import App, Stack, Validations
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from cdk_nag import (
    AwsSolutionsChecks,
    HIPAASecurityChecks,
    NagPack,
    NIST80053R5Checks,
    PCIDSS321Checks,
    ServerlessChecks,
)
from constructs import IConstruct

import cdk_intake_ledger
from cdk_intake_ledger import IntakePipeline, IntakeWorkers, OutcomeEvents
from cdk_intake_ledger.checks import nag_suppressions
from tests.synth import matrix as rows
from tests.synth.build import new_app, new_stack, processor
from tests.synth.conftest import Matrix
from tests.synth.message_stack import message_intakes

PACKS: tuple[Callable[[App], NagPack], ...] = (AwsSolutionsChecks, ServerlessChecks)
REGULATED: dict[str, Callable[[App], NagPack]] = {
    "HIPAA": HIPAASecurityChecks,
    "NIST": NIST80053R5Checks,
    "PCI": PCIDSS321Checks,
}
"""The packs for regulated data, by the names of the page."""
ALL = (*PACKS, *REGULATED.values())
PAGE = Path(__file__).parents[2] / "docs" / "security.md"
SUPPRESSIONS = nag_suppressions.SUPPRESSIONS
INLINE_RULES = nag_suppressions.INLINE_POLICIES.rules

THEIRS = {
    r"Delivery/.*": "CDK's own pipeline for apps of the CDK",
    r"StateMachine/Machine/.*": "the state machine that the team brings",
    r"DurableFunction/Approve/.*": "the durable function that the team brings",
    r".*/Dead/Resource": "the dead-letter queue that the team brings",
    r"BucketWithNotifications/BucketNotificationsHandler.*": "the team itself has asked CDK for notifications there",
}
"""Paths in the matrix whose findings do not concern the library."""

OURS = re.compile(
    "(.*/)?(Orders|Returns|Models|Loads|Exports|Drops|Sqs|Fifo|Kinesis|DynamoDb|EventBridge|Workers|Outcomes)/.+"
    "|[^/]+/Inbox/Notifications/.+"
)
"""Paths of the library's resources in the matrix, without the name of the stack. The packs for regulated data find much
in other resources.
"""

Finding = tuple[str, str]
"""The name of the finding, and the path of the resource."""


def findings(app: App, packs: Iterable[Callable[[App], NagPack]] = PACKS) -> Iterator[Finding]:
    """Findings of some packs in a synthesised app, without those in `THEIRS`."""
    for pack in packs:
        for violation in pack(app).validate_scope(app).violations:
            for resource in violation.violating_resources:
                path = str(resource.construct_path)
                if not any(re.fullmatch(theirs, path) for theirs in THEIRS):
                    yield violation.rule_name, path


def test_no_finding_of_ours_is_left(matrix: Matrix) -> None:
    """Each finding is fixed or acknowledged."""
    assert list(findings(matrix.app)) == []


@pytest.mark.thorough
def test_what_is_accepted_is_what_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """If cdk-nag cannot see the acknowledgements, it finds exactly the acknowledged findings."""
    monkeypatch.setattr(nag_suppressions, "ACKNOWLEDGED_RULES", "unseen")
    app = new_app(context=rows.CONTEXT)
    for row in (
        rows.default,
        rows.imported_bucket,
        rows.existing_delivery,
        rows.in_a_vpc,
        rows.everything,
        rows.outputs,
        rows.audit_by_inventory,
        rows.state_machine,
        rows.durable_function,
        rows.example,
        message_intakes,
    ):
        row(app)
    with_workers(app)
    with_an_alias(app)
    with_a_reader(app)
    app.synth()
    found = {(rule, path) for rule, path in findings(app, ALL) if not regulated(rule) or OURS.fullmatch(path)}
    # The CDK's process is asked for a path once, and not for each finding: that took three minutes.
    acknowledged = [
        (re.sub("^Annotation::", "", rule), Where.of(construct), reason)
        for construct in app.node.find_all()
        for entry in construct.node.metadata
        if entry.type == "unseen"
        for rule, reason in dict(entry.data).items()
    ]
    covered = [[one for one in found if covers(rule, where, one)] for rule, where, _ in acknowledged]
    assert [one for one, findings_of_it in zip(acknowledged, covered, strict=True) if not findings_of_it] == []
    every = [one for findings_of_it in covered for one in findings_of_it]
    assert len(every) == len(set(every)), "an acknowledgement is said once"
    assert {rule.rpartition("-")[2] for rule, _ in found - set(every)} == set(options())
    assert {reason for *_, reason in acknowledged} == {one.reason for one in SUPPRESSIONS}


def regulated(rule: str) -> bool:
    return rule.startswith(("HIPAA", "NIST", "PCI"))


def options() -> dict[str, set[str]]:
    """The page's findings that an option satisfies, each with its packs."""
    rows = re.findall(r"^\| `(\w+)` \| ([A-Z, ]+) \|", PAGE.read_text(), re.MULTILINE)
    return {rule: set(packs.split(", ")) for rule, packs in rows}


class Where(NamedTuple):
    """The paths of a construct and of its resource."""

    construct: str
    resource: str

    @classmethod
    def of(cls, construct: IConstruct) -> "Where":
        return cls(construct.node.path, (construct.node.default_child or construct).node.path)


def covers(rule: str, where: Where, finding: Finding) -> bool:
    """True if an acknowledgement of a rule at a construct is for a finding, also in the policies of a role."""
    name, path = finding
    if rule != name:
        return False
    return path.startswith(f"{where.construct}/") if rule in INLINE_RULES else path == where.resource


def with_workers(app: App) -> None:
    """A pipeline whose queue has workers outside of Lambda, and whose outcomes are events."""
    stack = Stack(app, "WithWorkers")
    pipeline = rows.orders(stack)
    cluster = ecs.Cluster(
        stack, "Cluster", container_insights_v2=ecs.ContainerInsights.ENABLED, vpc=rows.network(stack).vpc
    )
    image = ecs.ContainerImage.from_registry("example/orders")
    IntakeWorkers(stack, "Workers", intake=pipeline, cluster=cluster, image=image)
    OutcomeEvents(stack, "Outcomes", intakes=[pipeline])


def with_an_alias(app: App) -> None:
    """A pipeline whose key was imported by the name of its alias."""
    stack = Stack(app, "WithAnAlias")
    rows.orders(stack, encryption_key=kms.Alias.from_alias_name(stack, "Shared", "alias/shared"))


def with_a_reader(app: App) -> None:
    """A pipeline whose objects a role of another stack may read."""
    role = iam.Role(Stack(app, "OfAReader"), "Reader", assumed_by=iam.AccountRootPrincipal())
    rows.orders(Stack(app, "WithAReader")).grant_read(role)


def test_a_team_with_both_packs_can_synthesise() -> None:
    """With the packs as plugins, a finding ends the synthesis."""
    app = new_app()
    IntakePipeline(Stack(app, "Stack"), "Orders", processor=processor())
    Validations.of(app).add_plugins(*(pack(app) for pack in PACKS))
    assert [stack.stack_name for stack in app.synth().stacks] == ["Stack"]


def test_a_statement_of_the_teams_may_name_what_it_is_not_about() -> None:
    """NotResource is common in a Deny, and such a statement has no Resource."""
    app = new_app()
    pipeline = rows.orders(Stack(app, "Stack"))
    assert pipeline.function.role is not None
    denied = iam.PolicyStatement(
        effect=iam.Effect.DENY, actions=["s3:DeleteObject"], not_resources=["arn:aws:s3:::scratch/*"]
    )
    pipeline.function.role.add_to_principal_policy(denied)
    assert [stack.stack_name for stack in app.synth().stacks] == ["Stack"]


def test_a_wildcard_of_the_teams_is_still_found() -> None:
    """Also in a VPC, where a wildcard of the library is accepted."""
    app = new_app()
    stack = Stack(app, "Stack")
    pipeline = rows.orders(stack, network=rows.network(stack))
    everything = iam.PolicyStatement(actions=["ssm:GetParameter"], resources=["*"])
    pipeline.grant_principal.add_to_principal_policy(everything)
    app.synth()
    expected = ("AwsSolutions-IAM5[Resource::*]", "Stack/Orders/Consumer/Role/DefaultPolicy/Resource")
    assert list(findings(app)) == [expected]


def test_a_runtime_of_the_teams_is_still_found() -> None:
    """The library has no reason for a runtime that the processor sets."""
    stack = new_stack()
    old = processor(runtime=lambda_.Runtime.PYTHON_3_12)
    IntakePipeline(stack, "Orders", processor=old)
    app: Any = stack.node.root
    app.synth()
    assert {path for _, path in findings(app)} == {"Stack/Orders/Consumer/Function/Resource"}


def test_the_table_shows_what_is_accepted() -> None:
    """Each row has the reason word for word."""
    with PAGE.with_name("acknowledged-findings.csv").open(newline="", encoding="utf-8") as table:
        _, *documented = csv.reader(table)
    told = [[", ".join(one.rules), one.where.replace("`", ""), one.reason.replace("`", "")] for one in SUPPRESSIONS]
    assert documented == told


def test_cdk_nag_is_none_of_the_librarys_dependencies() -> None:
    """No module imports it."""
    for path in Path(cdk_intake_ledger.__file__).parent.rglob("*.py"):
        assert not re.search(r"^\s*(import|from) cdk_nag", path.read_text(), re.MULTILINE), path
