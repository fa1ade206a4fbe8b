"""F117: resource policies are compared with the statement of the template, and each Deny of the action counts."""

import json
from typing import Any

import pytest

from intake_ledger.delivery_check.policies import Caller, decide

QUEUE = "arn:aws:sqs:eu-central-1:111122223333:Messages"
BUCKET = "arn:aws:s3:::inbox"
S3 = Caller("s3.amazonaws.com", BUCKET, "111122223333")
OWN = {"StringEquals": {"aws:SourceAccount": "111122223333"}, "ArnLike": {"aws:SourceArn": BUCKET}}
OF_ORGANISATION = {"StringEquals": {"aws:SourceOrgID": "o-1"}}


def statement(effect: str = "Allow", **more: Any) -> dict[str, Any]:
    """A statement about S3 and the queue. An element that is None is left out."""
    plain = {"Principal": {"Service": "s3.amazonaws.com"}, "Action": "sqs:SendMessage", "Resource": QUEUE}
    return {name: value for name, value in ({"Effect": effect} | plain | more).items() if value is not None}


def allowed(*statements: dict[str, Any], caller: Caller = S3) -> bool | None:
    return decide(json.dumps({"Statement": statements}), caller, "sqs:SendMessage", QUEUE).allowed


@pytest.mark.failure_mode("F117")
@pytest.mark.parametrize(
    "element",
    [
        {},
        {"Principal": "*"},
        {"Principal": {"AWS": ["111122223333", "*"]}},
        {"Principal": {"Service": ["sns.amazonaws.com", "s3.amazonaws.com"]}},
        {"Action": "SQS:Send*"},
        {"Action": "*"},
        {"Resource": "arn:aws:sqs:*:111122223333:Mess?ges"},
        {"Resource": None},
    ],
)
def test_a_statement_is_about_the_sender(element: dict[str, Any]) -> None:
    """The same form denies."""
    assert allowed(statement(**element)) is True
    assert allowed(statement(), statement("Deny", **element)) is False


@pytest.mark.failure_mode("F117")
@pytest.mark.parametrize(
    "element",
    [
        {"Principal": {"Service": "sns.amazonaws.com"}},
        {"Principal": {"AWS": "arn:aws:iam::111122223333:root"}},
        {"Action": ["sqs:ReceiveMessage", "sqs:Send?"]},
    ],
)
def test_a_statement_is_about_something_else(element: dict[str, Any]) -> None:
    """It neither allows nor denies."""
    assert allowed(statement(**element)) is False
    assert allowed(statement(), statement("Deny", **element)) is True


@pytest.mark.failure_mode("F117")
@pytest.mark.parametrize(
    "element",
    [
        {"Principal": None, "NotPrincipal": {"AWS": "111122223333"}},
        {"Action": None, "NotAction": "sqs:ReceiveMessage"},
        {"Resource": None, "NotResource": f"{QUEUE}-2"},
        {"Condition": OWN},
        {"Condition": OF_ORGANISATION},
        {"Condition": {"BoolIfExists": {"aws:PrincipalIsAWSService": "false"}}},
        {"Condition": {"Bool": {"aws:SecureTransport": "true"}}},
    ],
)
def test_any_other_deny_is_a_problem(element: dict[str, Any]) -> None:
    """Its conditions are not evaluated. An Allow in such a form is not the template's."""
    assert allowed(statement(), statement("Deny", **element)) is False
    if element.get("Condition") != OWN and "NotResource" not in element:
        assert not allowed(statement(**element))


@pytest.mark.failure_mode("F117")
@pytest.mark.parametrize("value", [False, "false"])
def test_the_deny_of_requests_without_tls_is_the_templates(value: Any) -> None:
    deny = statement("Deny", Principal="*", Action="sqs:*", Condition={"Bool": {"aws:SecureTransport": value}})
    assert allowed(statement(), deny) is True


@pytest.mark.failure_mode("F117")
@pytest.mark.parametrize(
    ("conditions", "met"),
    [
        (OWN, True),
        ({"StringEquals": {"AWS:sourceaccount": ["1", "111122223333"]}}, True),
        ({"StringLike": {"aws:SourceArn": "arn:aws:s3:::in*"}}, True),
        ({"ArnEquals": {"aws:SourceArn": BUCKET}}, True),
        ({"StringEquals": {"aws:SourceAccount": "444455556666"}}, False),
        ({"ArnEquals": {"aws:SourceArn": "arn:aws:s3:::other"}}, False),
        (OWN | {"ArnLike": {"aws:SourceArn": "arn:aws:s3:::other"}}, False),
        (OF_ORGANISATION, None),
        ({"StringNotEquals": {"aws:SourceAccount": "444455556666"}}, None),
        (OWN | {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}, None),
    ],
)
def test_a_condition_is_the_templates_or_another_or_unknown(conditions: dict[str, Any], met: bool | None) -> None:
    assert allowed(statement(Condition=conditions)) is met


@pytest.mark.failure_mode("F117")
def test_a_caller_of_whom_less_is_known() -> None:
    """Conditions on the source of an unknown bucket are unknown."""
    assert allowed(statement(Condition=OWN), caller=Caller("s3.amazonaws.com")) is None


@pytest.mark.failure_mode("F117")
def test_one_allow_is_enough() -> None:
    """A certain Allow outweighs an unknown one."""
    assert allowed(statement(Condition=OF_ORGANISATION), statement()) is True
    assert allowed() is False
    assert decide("", S3, "sqs:SendMessage", QUEUE).allowed is False
    assert decide(json.dumps({"Statement": statement()}), S3, "sqs:SendMessage", QUEUE).allowed is True


@pytest.mark.failure_mode("F117")
@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        ([statement("Deny", Sid="No")], "its statement 'No' denies it"),
        ([statement("Deny")], "a statement without a Sid denies it"),
        ([], "no statement allows it"),
        (
            [statement(Sid="If", Condition=OF_ORGANISATION)],
            """its statement 'If' allows it under {"StringEquals": {"aws:SourceOrgID": "o-1"}}""",
        ),
    ],
)
def test_the_reason_names_the_statement(statements: list[dict[str, Any]], reason: str) -> None:
    assert decide(json.dumps({"Statement": statements}), S3, "sqs:SendMessage", QUEUE).reason == reason
