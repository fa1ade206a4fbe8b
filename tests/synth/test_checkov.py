"""checkov over the templates of the matrix's richest rows."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.synth.build import Json
from tests.synth.conftest import Matrix

ROOT = Path(__file__).parents[2]
CHECKOV = ROOT / "build" / "checkov" / "bin" / "checkov"
TEMPLATES = [
    "Default",
    "OwnKey",
    "InVpc",
    "ImportedBucket",
    "Everything",
    "Outputs",
    "AuditByInventory",
    "Catalogue",
    "Messages",
    "FileSets",
]

ACCEPTED = {
    "CKV_AWS_18": (
        "The account decides where access logs go. Use a bucket with access logs, or data events of CloudTrail."
    ),
    "CKV_AWS_21": "The bucket without versions has the files of the audit's runs: copies that expire after three days.",
    "CKV_AWS_27": (
        "Without `encryption_key`, SQS encrypts with its keys (`SqsManagedSseEnabled`), which checkov does not check."
    ),
    "CKV_AWS_111": "The network interface of a function in a VPC has no name before it exists.",
    "CKV_AWS_115": "`reserved_concurrency` of the options reserves it for the consumer. One audit runs at a time.",
    "CKV_AWS_116": (
        "A queue with a dead-letter queue invokes the consumer. The audit's next run finds the changes that one missed."
    ),
    "CKV_AWS_117": "The functions run in a VPC if you pass one. They send requests to AWS only.",
    "CKV_AWS_119": "DynamoDB encrypts every table, with `encryption_key` if you pass it.",
    "CKV_AWS_158": "CloudWatch encrypts every log. To use your key, pass a `log_group`.",
    "CKV_AWS_173": "Lambda encrypts variables with its key. They contain no secrets.",
}
"""Accepted findings with their reasons."""


@pytest.fixture(scope="module")
def report(matrix: Matrix, tmp_path_factory: pytest.TempPathFactory) -> Json:
    if not CHECKOV.exists():
        pytest.fail("checkov has an environment of its own: make build/checkov/.ready")
    folder = tmp_path_factory.mktemp("checkov")
    for name in TEMPLATES:
        shutil.copy(matrix.directory / f"{name}.template.json", folder)
    command = [str(CHECKOV), "--directory", str(folder), "--framework", "cloudformation", "--skip-download"]
    ended = subprocess.run([*command, "--output", "json"], capture_output=True, text=True, check=False)
    return dict(json.loads(ended.stdout))


@pytest.mark.thorough
def test_what_is_found_is_what_is_accepted(report: Json) -> None:
    """Each finding has a reason, and each reason has a finding."""
    failed = report["results"]["failed_checks"]
    findings = {finding["check_id"]: f"{finding['check_name']}: {finding['resource']}" for finding in failed}
    assert {check: finding for check, finding in findings.items() if check not in ACCEPTED} == {}
    assert set(findings) == set(ACCEPTED)


@pytest.mark.thorough
def test_every_template_was_read(report: Json, matrix: Matrix) -> None:
    """All resources of all templates, without an error."""
    templates = [json.loads((matrix.directory / f"{name}.template.json").read_text()) for name in TEMPLATES]
    assert report["summary"]["parsing_errors"] == 0
    files = {check["file_path"] for check in report["results"]["passed_checks"]}
    assert files == {f"/{name}.template.json" for name in TEMPLATES}
    assert report["summary"]["resource_count"] == sum(len(template["Resources"]) for template in templates)


def test_the_page_shows_what_is_accepted() -> None:
    """The page has each finding with its reason."""
    page = (ROOT / "docs" / "security.md").read_text()
    assert dict(re.findall(r"^\| `(CKV_AWS_\d+)` \| (.+) \|$", page, re.MULTILINE)) == ACCEPTED
