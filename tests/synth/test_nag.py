"""Findings of cdk-nag in every row of the matrix."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack, Validations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from cdk_nag import AwsSolutionsChecks, ServerlessChecks

import cdk_intake_ledger
from cdk_intake_ledger import IntakePipeline
from cdk_intake_ledger.validation import nag_suppressions
from tests.synth import matrix as rows
from tests.synth.build import new_app, new_stack, processor
from tests.synth.conftest import Matrix
from tests.synth.message_stack import message_intakes

PACKS = (AwsSolutionsChecks, ServerlessChecks)
PAGE = Path(__file__).parents[2] / "docs" / "security.md"

THEIRS = {
    r"Delivery/.*": "CDK's own pipeline for apps of the CDK",
    r"StateMachine/Machine/.*": "the state machine that the team brings",
    r".*/Dead/Resource": "the dead-letter queue that the team brings",
    r"BucketWithNotifications/BucketNotificationsHandler.*": "the team itself has asked CDK for notifications there",
}
"""Paths in the matrix whose findings do not concern the library."""

Finding = tuple[str, str]
"""The name of the finding, and the path of the resource."""


def findings(app: App) -> Iterator[Finding]:
    """Findings of both packs in a synthesised app, without those in `THEIRS`."""
    for pack in PACKS:
        for violation in pack(app).validate_scope(app).violations:
            for resource in violation.violating_resources:
                path = str(resource.construct_path)
                if not any(re.fullmatch(theirs, path) for theirs in THEIRS):
                    yield violation.rule_name, path


def test_no_finding_of_ours_is_left(matrix: Matrix) -> None:
    """Each finding is fixed or acknowledged."""
    assert list(findings(matrix.app)) == []


def test_what_is_accepted_is_what_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """If cdk-nag cannot see the acknowledgements, it finds exactly the acknowledged findings."""
    monkeypatch.setattr(nag_suppressions, "ACKNOWLEDGED_RULES", "unseen")
    app = new_app(context=rows.CONTEXT)
    for row in (
        rows.default,
        rows.imported_bucket,
        rows.in_a_vpc,
        rows.everything,
        rows.outputs,
        rows.audit_by_inventory,
        rows.state_machine,
        rows.example,
        message_intakes,
    ):
        row(app)
    app.synth()
    found = set(findings(app))
    acknowledged = [
        (re.sub("^Annotation::", "", rule), (construct.node.default_child or construct).node.path, reason)
        for construct in app.node.find_all()
        for entry in construct.node.metadata
        if entry.type == "unseen"
        for rule, reason in dict(entry.data).items()
    ]
    assert {(rule, path) for rule, path, _ in acknowledged} == found
    assert len(acknowledged) == len(found), "an acknowledgement is said once"
    assert {reason for *_, reason in acknowledged} == {one.reason for one in nag_suppressions.SUPPRESSIONS}


def test_a_team_with_both_packs_can_synthesise() -> None:
    """With the packs as plugins, a finding ends the synthesis."""
    app = new_app()
    IntakePipeline(Stack(app, "Stack"), "Orders", processor=processor())
    Validations.of(app).add_plugins(*(pack(app) for pack in PACKS))
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


def test_the_page_shows_what_is_accepted() -> None:
    """Each row has the reason word for word."""
    documented = re.findall(
        r"^\| (`(?:AwsSolutions|Serverless)-.+?) \| (.+) \| (.+) \|$", PAGE.read_text(), re.MULTILINE
    )
    told = [
        (", ".join(f"`{rule}`" for rule in one.rules), one.where, one.reason) for one in nag_suppressions.SUPPRESSIONS
    ]
    assert documented == told


def test_cdk_nag_is_none_of_the_librarys_dependencies() -> None:
    """No module imports it."""
    for path in Path(cdk_intake_ledger.__file__).parent.rglob("*.py"):
        assert not re.search(r"^\s*(import|from) cdk_nag", path.read_text(), re.MULTILINE), path
