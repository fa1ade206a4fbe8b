"""Files that are left out: variables of all functions, and what synthesis refuses."""

from typing import Any

import pytest
from aws_cdk import CfnParameter

from cdk_intake_ledger import FileSets, IntakePipeline, Ordering, SetForm
from tests.synth.build import new_stack, processor, refused, template_of, variables


@pytest.mark.failure_mode("F759", "F763")
def test_consumer_audit_and_sets_know_the_patterns() -> None:
    stack = new_stack()
    parts = IntakePipeline(stack, "Parts", processor=processor(), exclude=["_*", "_temporary/"])
    FileSets(stack, "Loads", pipeline=parts, form=SetForm.marker("loads/*/_SUCCESS"), processor=processor())
    IntakePipeline(stack, "Plain", processor=processor())
    template = template_of(stack)
    for path in ("PartsConsumer", "PartsAudit", "LoadsConsumer"):
        assert variables(template, path)["INTAKE_EXCLUDE"] == '["_*", "_temporary/"]'
    assert "INTAKE_EXCLUDE" not in variables(template, "PlainConsumer")


@pytest.mark.failure_mode("F764")
@pytest.mark.parametrize(
    ("options", "rule", "text"),
    [
        ({"exclude": ["a", "in/**/b"]}, "exclude-patterns", r"'in/\*\*/b': \*\* has no meaning"),
        ({"exclude": ["*"]}, "exclude-patterns", "use filters to choose keys"),
        ({"exclude": [str(number) for number in range(51)]}, "exclude-patterns", "51 patterns"),
        (
            {"exclude": ["_*"], "deletes": True, "ordering": Ordering.EVERY_VERSION},
            "exclude-removals-of-versions",
            "its removal would be lost",
        ),
    ],
)
def test_a_pattern_that_would_mean_nothing_or_lose_removals_is_refused(
    options: dict[str, Any], rule: str, text: str
) -> None:
    with refused(rule, text):
        IntakePipeline(new_stack(), "Orders", processor=processor(), **options)


@pytest.mark.failure_mode("F764")
def test_a_pattern_that_is_a_token_is_refused() -> None:
    stack = new_stack()
    pattern = CfnParameter(stack, "Pattern").value_as_string
    with refused("exclude-patterns", "not known at synthesis"):
        IntakePipeline(stack, "Orders", processor=processor(), exclude=[pattern])
