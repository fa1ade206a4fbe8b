"""State machines and event patterns against LocalStack, whose grammars are not MiniStack's."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cdk_intake_ledger.testing import events
from tests.truth.policies import Json, Template
from tests.truth.servers import Server

NOTHING_BETWEEN = "LocalStack's asterisk stands for at least one character"
"""EventBridge's own matcher lets it stand for none: `hel*o` matches `helo` in github.com/aws/event-ruler, at commit
337e8d9 in ByteMachineTest.testWildcardSecondLastCharWildcardCharacter.
"""
ENDINGS = (".csv", ".CSV", "", "/", " b.csv", "ä.csv", "*.csv")


def definitions(templates: list[Template]) -> dict[str, str]:
    """The state machines, without repetitions. LocalStack wants a fraction where AWS takes a whole number."""
    found = {}
    for template in templates:
        for name, machine in template.of_type("AWS::StepFunctions::StateMachine"):
            text = str(template.resolve(machine["DefinitionString"])).replace("<", "").replace(">", "")
            found[text.replace('"ToleratedFailurePercentage":100', '"ToleratedFailurePercentage":100.0')] = name
    return {name: text for text, name in found.items()}


def patterns(templates: list[Template]) -> Iterator[Json]:
    """The event patterns of S3's events."""
    for template in templates:
        for _, rule in template.of_type("AWS::Events::Rule"):
            pattern = template.resolve(rule.get("EventPattern", {}))
            if pattern.get("source") == ["aws.s3"]:
                yield pattern


def expected(condition: Any, key: str) -> bool:
    """True if a key fits a condition of a pattern: a prefix, a suffix, or one asterisk between them."""
    if isinstance(condition, str):
        return key == condition
    ((kind, text),) = condition.items()
    if kind == "wildcard":
        before, _, after = text.replace("\\*", "\0").partition("*")
        before, after = before.replace("\0", "*"), after.replace("\0", "*")
        return len(key) >= len(before) + len(after) and key.startswith(before) and key.endswith(after)
    return key.startswith(text) if kind == "prefix" else key.endswith(text)


@pytest.mark.failure_mode("F412")
def test_each_state_machine_is_valid(templates: list[Template], localstack: Server) -> None:
    client = localstack.client("stepfunctions")
    found = definitions(templates)
    answers = {name: client.validate_state_machine_definition(definition=text) for name, text in found.items()}
    assert len(answers) >= 3
    assert {name: one["diagnostics"] for name, one in answers.items() if one["result"] != "OK"} == {}


@pytest.mark.failure_mode("F412")
def test_each_pattern_matches_the_keys_of_its_filter(templates: list[Template], localstack: Server) -> None:
    client = localstack.client("events")
    found = {json.dumps(pattern): pattern for pattern in patterns(templates)}
    assert len(found) >= 3
    wrong = []
    for text, pattern in found.items():
        conditions = pattern["detail"].get("object", {}).get("key", [{"prefix": ""}])
        begins = [
            str(next(iter(one.values()))).partition("*")[0] if isinstance(one, dict) else one for one in conditions
        ]
        for key in [f"{begin}{end}" for begin in (*begins, "other") for end in ENDINGS if f"{begin}{end}"]:
            event = json.loads(events.eventbridge_event(pattern["detail"]["bucket"]["name"][0], key, etag="e", size=1))
            given = client.test_event_pattern(EventPattern=text, Event=json.dumps(event))["Result"]
            if given is not any(expected(one, key) for one in conditions):
                is_known = {"wildcard": key.replace(".csv", "*.csv")} in conditions and not given
                wrong.append(NOTHING_BETWEEN if is_known else f"{conditions} {key} {given}")
    assert set(wrong) == {NOTHING_BETWEEN}


def test_a_definition_that_is_wrong_is_found(localstack: Server) -> None:
    wrong = json.dumps({"StartAt": "A", "States": {"A": {"Type": "Task", "Resource": 1, "Next": "B", "End": True}}})
    answer = localstack.client("stepfunctions").validate_state_machine_definition(definition=wrong)
    assert answer["result"] == "FAIL"
