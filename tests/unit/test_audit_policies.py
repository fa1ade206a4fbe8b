"""F117: resource policies are evaluated with their conditions, and each form of Deny counts."""

import json
from typing import Any

import pytest

from tests.inside.audits import Caller, decide

QUEUE = "arn:aws:sqs:eu-central-1:111122223333:Messages"
BUCKET = "arn:aws:s3:::inbox"
S3 = Caller("s3.amazonaws.com", BUCKET, "111122223333")
TLS = {"Bool": {"aws:SecureTransport": "false"}}


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
        {"Principal": None, "NotPrincipal": {"AWS": "111122223333"}},
        {"Action": "SQS:Send*"},
        {"Action": "*"},
        {"Action": None, "NotAction": "sqs:ReceiveMessage"},
        {"Resource": "arn:aws:sqs:*:111122223333:Mess?ges"},
        {"Resource": None},
        {"Resource": None, "NotResource": f"{QUEUE}-2"},
    ],
)
def test_a_statement_applies(element: dict[str, Any]) -> None:
    """In every form, and the same form denies."""
    assert allowed(statement(**element)) is True
    assert allowed(statement(), statement("Deny", **element)) is False


@pytest.mark.failure_mode("F117")
@pytest.mark.parametrize(
    "element",
    [
        {"Principal": {"Service": "sns.amazonaws.com"}},
        {"Principal": {"AWS": "arn:aws:iam::111122223333:root"}},
        {"Principal": None, "NotPrincipal": {"Service": "s3.amazonaws.com"}},
        {"Action": ["sqs:ReceiveMessage", "sqs:Send?"]},
        {"Action": None, "NotAction": "sqs:*"},
        {"Resource": f"{QUEUE}-2"},
        {"Resource": QUEUE.lower()},
        {"Resource": None, "NotResource": "*"},
    ],
)
def test_a_statement_is_about_something_else(element: dict[str, Any]) -> None:
    """It neither allows nor denies."""
    assert allowed(statement(**element)) is False
    assert allowed(statement(), statement("Deny", **element)) is True


MET = [
    {"StringEquals": {"aws:SourceAccount": "111122223333"}},
    {"StringEquals": {"AWS:sourceaccount": ["1", "111122223333"]}},
    {"StringNotEquals": {"aws:SourceAccount": "444455556666"}},
    {"StringLike": {"aws:SourceArn": "arn:aws:s3:::in*"}},
    {"StringNotLike": {"aws:SourceArn": "arn:aws:s3:::out*"}},
    {"StringEqualsIgnoreCase": {"aws:PrincipalServiceName": "S3.amazonaws.com"}},
    {"ArnEquals": {"aws:SourceArn": BUCKET}},
    {"ArnLike": {"aws:SourceArn": "arn:aws:s3:*:*:inb?x"}},
    {"ArnNotLike": {"aws:SourceArn": "arn:aws:s3:::outbox"}},
    {"Bool": {"aws:SecureTransport": True}},
    {"Null": {"aws:PrincipalOrgID": "true"}},
    {"Null": {"aws:SourceArn": "false"}},
    {"StringEqualsIfExists": {"aws:PrincipalOrgID": "o-1"}},
    {"StringNotEquals": {"aws:PrincipalArn": "arn:aws:iam::111122223333:role/a"}},
    {"ForAllValues:StringEquals": {"aws:PrincipalOrgPaths": "o-1/"}},
    {"ForAnyValue:StringEquals": {"aws:SourceAccount": "111122223333"}},
    {"StringEquals": {"aws:SourceAccount": "111122223333"}, "ArnLike": {"aws:SourceArn": BUCKET}},
]
UNMET = [
    TLS,
    {"StringEquals": {"aws:SourceAccount": "444455556666"}},
    {"StringNotEquals": {"aws:SourceAccount": ["111122223333", "1"]}},
    {"ArnEquals": {"aws:SourceArn": "arn:aws:s3:::other"}},
    {"ArnLike": {"aws:SourceArn": "arn:aws:s*:inbox"}},
    {"StringEquals": {"aws:PrincipalOrgID": "o-1"}},
    {"ForAnyValue:StringNotEquals": {"aws:PrincipalOrgPaths": "o-1/"}},
    {"Null": {"aws:SourceArn": "true"}},
    {"BoolIfExists": {"aws:PrincipalIsAWSService": "false"}},
    # A condition that is not met decides.
    {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}, "Bool": {"aws:PrincipalIsAWSService": "false"}},
]
UNKNOWN = [
    {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}},
    {"StringEquals": {"aws:SourceOrgID": "o-1"}},
    {"DateLessThan": {"aws:CurrentTime": "2027-01-01T00:00:00Z"}},
    {"StringEquals": {"aws:SourceAccount": "${aws:PrincipalTag/account}"}},
    {"NumericEquals": {"aws:SourceAccount": "1"}},
]


@pytest.mark.failure_mode("F117")
@pytest.mark.parametrize(
    ("conditions", "met"),
    [*((one, True) for one in MET), *((one, False) for one in UNMET), *((one, None) for one in UNKNOWN)],
)
def test_a_condition_is_met_or_not_or_unknown(conditions: dict[str, Any], met: bool | None) -> None:
    """An Allow under an unknown condition is unknown, and so is a Deny."""
    assert allowed(statement(Condition=conditions)) is met
    denied = allowed(statement(), statement("Deny", Condition=conditions))
    assert denied is (None if met is None else not met)


@pytest.mark.failure_mode("F117")
def test_a_caller_of_whom_less_is_known() -> None:
    """Conditions on the source of an unknown bucket are unknown."""
    condition = {"StringEquals": {"aws:SourceAccount": "111122223333"}}
    assert allowed(statement(Condition=condition), caller=Caller("s3.amazonaws.com")) is None


@pytest.mark.failure_mode("F117")
def test_a_deny_wins_and_one_allow_is_enough() -> None:
    """A Deny that is unknown outweighs an Allow, and a certain Allow outweighs an unknown one."""
    unknown = statement(Condition=UNKNOWN[0])
    assert allowed(unknown, statement()) is True
    assert allowed(statement("Deny", Condition=UNKNOWN[0]), statement("Deny", Sid="no"), statement()) is False
    assert allowed() is False
    assert decide("", S3, "sqs:SendMessage", QUEUE).allowed is False


@pytest.mark.failure_mode("F117")
@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        ([statement("Deny", Sid="No")], "its statement 'No' denies it"),
        ([statement("Deny")], "a statement without a Sid denies it"),
        ([], "no statement allows it"),
        (
            [statement(Sid="If", Condition=UNKNOWN[1])],
            """its statement 'If' allows it under {"StringEquals": {"aws:SourceOrgID": "o-1"}}""",
        ),
        (
            [statement("Deny", Sid="If", Condition=UNKNOWN[1])],
            """its statement 'If' denies it under {"StringEquals": {"aws:SourceOrgID": "o-1"}}""",
        ),
    ],
)
def test_the_reason_names_the_statement(statements: list[dict[str, Any]], reason: str) -> None:
    """The problem names the statement."""
    assert decide(json.dumps({"Statement": statements}), S3, "sqs:SendMessage", QUEUE).reason == reason


def test_one_statement_may_stand_without_a_list() -> None:
    """IAM takes both."""
    assert decide(json.dumps({"Statement": statement()}), S3, "sqs:SendMessage", QUEUE).allowed is True
