"""Six of the combinations of a pipeline with other resources. `make combinations` synthesises all of them."""

import json
from pathlib import Path

import pytest

from tests.synth.combinations.checks import problems
from tests.synth.combinations.combination import Combination
from tests.synth.combinations.rows import ALL, IN_MAKE_TEST
from tests.synth.combinations.synthesis import synthesise

OF_MAKE_TEST = [item for item in ALL if item.name in IN_MAKE_TEST]


@pytest.mark.failure_mode("F68")
@pytest.mark.parametrize("item", OF_MAKE_TEST, ids=lambda item: item.name)
def test_a_combination_is_right(item: Combination, tmp_path: Path) -> None:
    """Its templates have no cycle, and the consumer has its messages and permissions."""
    synthesise(item, tmp_path / "app")
    assert list(problems(item, tmp_path / "app")) == []


def test_there_are_more_than_sixty() -> None:
    """Each has its own name, and those of `make test` exist."""
    names = [item.name for item in ALL]
    assert len(set(names)) == len(names) > 60
    assert len(OF_MAKE_TEST) == len(IN_MAKE_TEST) == 6


def test_a_wrong_template_is_found(tmp_path: Path) -> None:
    """A cycle, a role without permissions, a missing delivery and a missing warning."""
    (item,) = (one for one in ALL if one.name == "imported-alias")
    variables = {"Variables": {"INTAKE_PIPELINE_NAME": "orders"}}
    template = {
        "Resources": {
            "Role": {"Type": "AWS::IAM::Role", "DependsOn": ["Function"]},
            "Function": {
                "Type": "AWS::Lambda::Function",
                "Properties": {"Role": {"Fn::GetAtt": ["Role", "Arn"]}, "Environment": variables},
            },
            "Source": {
                "Type": "AWS::Lambda::EventSourceMapping",
                "Properties": {
                    "FunctionName": {"Ref": "Function"},
                    "FunctionResponseTypes": ["ReportBatchItemFailures"],
                },
            },
        }
    }
    (tmp_path / "Stack.template.json").write_text(json.dumps(template))
    found = " ".join(problems(item, tmp_path))
    assert "has a cycle: " in found
    assert "the role Role lacks ['dynamodb:PutItem'" in found
    assert "delivers by []: expected ['S3']" in found
    assert "warns by []: expected ['key-policy-unknown']" in found
