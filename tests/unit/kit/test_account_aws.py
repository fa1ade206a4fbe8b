"""The decisions of `AccountAws`: names of stacks, endpoints, parts of a template, and the estimate of the cost."""

import sys
from pathlib import Path
from typing import Any

import pytest

from cdk_intake_ledger.testing import AccountAws, AccountAwsError
from intake_ledger_testing.account_cost import NEW_KEY_REQUESTS, NEW_KEY_UNITS, estimate

COST = Path(__file__).parents[3] / "docs" / "cost.md"
APP = """
import json, os, pathlib, sys
folder = pathlib.Path(os.environ["CDK_OUTDIR"])
folder.mkdir()
name = sys.argv[1]
(folder / "a.json").write_text(json.dumps({
    "Parameters": {"BootstrapVersion": {}},
    "Rules": {"CheckBootstrapVersion": {}, "Mine": {}},
    "Resources": {"A": {"Type": "AWS::SQS::Queue"}},
}))
properties = {"templateFile": "a.json", "stackName": name}
artifacts = {"A": {"type": "aws:cloudformation:stack", "properties": properties}, "Tree": {"type": "cdk:tree"}}
(folder / "manifest.json").write_text(json.dumps({"artifacts": artifacts}))
print(os.environ["CDK_CONTEXT_JSON"], file=sys.stderr)
"""


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AccountAws:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a")
    (tmp_path / "app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    return AccountAws("111122223333")


@pytest.mark.failure_mode("F753")
def test_a_stack_of_another_name_is_refused(aws: AccountAws) -> None:
    """It may be in use."""
    with pytest.raises(AccountAwsError, match=f"the name of the stack Intake does not begin with {aws.prefix}"):
        aws.deploy(f"{sys.executable} app.py Intake")


def test_a_template_needs_no_bootstrap(aws: AccountAws) -> None:
    [template] = aws.templates(f"{sys.executable} app.py {aws.prefix}A")
    assert template == {"Rules": {"Mine": {}}, "Resources": {"A": {"Type": "AWS::SQS::Queue"}}}


def test_an_app_that_fails_is_told_with_its_output(aws: AccountAws) -> None:
    with pytest.raises(AccountAwsError, match=r"(?s)missing.py.* failed with exit code 2:.*No such file"):
        aws.templates(f"{sys.executable} missing.py")


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
def test_an_endpoint_that_is_not_aws_is_local(
    aws: AccountAws, monkeypatch: pytest.MonkeyPatch, endpoint: str, local: bool
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", endpoint)
    assert aws.is_local is local


def test_the_estimate_follows_from_the_templates_and_the_changes() -> None:
    def template(**number: int) -> dict[str, Any]:
        return {"Resources": {f"{name}{n}": {"Type": name} for name, most in number.items() for n in range(most)}}

    none = estimate([], 0)
    few = estimate([template(**{"AWS::KMS::Key": 1, "AWS::Lambda::EventSourceMapping": 2})], 10)
    more = estimate([template(**{"AWS::KMS::Key": 2, "AWS::Lambda::EventSourceMapping": 2})], 20)
    assert none == pytest.approx(0.01, abs=0.01)  # logs, and queries of Athena
    assert none < few < more < 1


def test_a_new_key_costs_what_the_page_of_costs_has_counted() -> None:
    row = next(line for line in COST.read_text().splitlines() if line.startswith("| new key |"))
    requests, units = (float(cell) for cell in row.strip("|").split("|")[1:3])
    assert (requests, units) == (NEW_KEY_REQUESTS, NEW_KEY_UNITS)
