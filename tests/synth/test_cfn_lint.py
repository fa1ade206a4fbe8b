"""cfn-lint over the templates of the matrix's richest rows, for two regions."""

import re
from pathlib import Path

import pytest
from cfnlint.api import ManualArgs, lint  # type: ignore[import-untyped]

from tests.synth.conftest import Matrix

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
REGIONS = ["us-east-1", "eu-central-1"]
TEMPLATES = ["Default", "OwnKey", "ImportedBucket", "Everything", "Catalogue", "Messages", "FileSets"]

ACCEPTED = {
    "W3005": "CDK names a role in `DependsOn`, so that CloudFormation waits for its policies too.",
}
"""Accepted findings with their reasons."""

NOT_OURS = ("Vpc",)
"""Beginnings of logical ids that are not ours: CDK's VPC names availability zones in a fixed environment."""


@pytest.mark.thorough
@pytest.mark.parametrize("name", TEMPLATES)
def test_no_error_and_no_warning(matrix: Matrix, name: str) -> None:
    """Findings without a reason are errors."""
    template = (matrix.directory / f"{name}.template.json").read_text()
    findings = lint(template, config=ManualArgs(regions=REGIONS))
    ours = [finding for finding in findings if not str(finding.path[1]).startswith(NOT_OURS)]
    assert [f"{finding.rule.id} {finding.message}" for finding in ours if finding.rule.id not in ACCEPTED] == []
    assert {finding.rule.id for finding in ours} == set(ACCEPTED), "what is not found any more needs no reason"


def test_an_error_is_found() -> None:
    """The linter reads its input."""
    wrong = '{"Resources": {"Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"Nonsense": true}}}}'
    assert [finding.rule.id for finding in lint(wrong, config=ManualArgs(regions=REGIONS))] == ["E3002"]


def test_the_page_shows_what_is_accepted() -> None:
    """The page has each finding with its reason."""
    assert dict(re.findall(r"^\| `([EW]\d{4})` \| (.+) \|$", PAGE.read_text(), re.MULTILINE)) == ACCEPTED
