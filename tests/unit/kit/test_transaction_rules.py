"""F125: what AWS would refuse of a transaction is refused by the local pipeline too."""

from typing import Any

import pytest
from botocore.exceptions import ClientError, ParamValidationError

from cdk_intake_ledger.testing import LocalPipeline
from intake_ledger import Commit, InvalidEffectError
from intake_ledger.protocol.settings import Reasons
from intake_ledger_testing.transaction_rules import check_transaction

KEY = {"id": {"S": "1"}}


def put(**item: Any) -> dict[str, Any]:
    return {"Put": {"TableName": "orders", "Item": KEY | item}}


def update(expression: str, key: Any = KEY, **more: Any) -> dict[str, Any]:
    return {"Update": {"TableName": "orders", "Key": key, "UpdateExpression": expression, **more}}


def values(**given: Any) -> dict[str, Any]:
    return {"ExpressionAttributeValues": {f":{name}": value for name, value in given.items()}}


RIGHT: list[dict[str, Any]] = [
    put(amount={"N": "-1.5e10"}, flags={"BOOL": True}, none={"NULL": True}, data={"B": b"\0"}, empty={"S": ""}),
    put(many={"L": [{"M": {"name": {"SS": ["a", "b"]}}}, {"NS": ["1", "2"]}, {"BS": [b"1"]}]}),
    put(large={"N": "1" + "0" * 100}, long={"S": "x" * 400_000}),
    {"Put": put()["Put"] | {"ConditionExpression": "attribute_exists(id) OR size(booked) < :n"} | values(n={"N": "1"})},
    update("ADD booked :amount", **values(amount={"N": "5"})),
    update(
        "SET #status = :new, entries = list_append(if_not_exists(entries, :none), :new), a.b[0] = :new REMOVE z, y",
        **values(new={"S": "x"}, none={"L": []}),
        ExpressionAttributeNames={"#status": "status"},
    ),
    update("set #set = :add", **values(add={"S": "x"}), ExpressionAttributeNames={"#set": "set"}),
    {"Delete": {"TableName": "orders", "Key": {"id": {"N": "1"}, "sort": {"B": b"1"}}}},
    {"ConditionCheck": {"TableName": "orders", "Key": KEY, "ConditionExpression": "attribute_exists(id)"}},
]  # fmt: skip
WRONG: list[tuple[dict[str, Any], str]] = [
    (put(amount={"N": "much"}), "amount is 'much', and not a number"),
    (put(amount={"N": "NaN"}), "and not a number"),
    (put(amount={"N": "1" * 39}), "more than 38 digits"),
    (put(amount={"N": "1e126"}), "too large or too small"),
    (put(amount={"N": "1", "S": "1"}), "amount has 2 types"),
    (put(amount={}), "amount has 0 types"),
    (put(names={"SS": []}), "names is an empty set"),
    (put(names={"SS": ["a", "a"]}), "twice in its set"),
    (put(names={"L": [{"M": {"a": {"N": "x"}}}]}), "names is 'x', and not a number"),
    (put(long={"S": "x" * 410_000}), "the item has about"),
    (update("ADD booked :amount"), ":amount is used and not defined"),
    (update("ADD booked :a", **values(a={"N": "1"}, b={"N": "1"})), ":b is defined and not used"),
    (update("SET status = :new", **values(new={"S": "x"})), "the reserved word status: write #status"),
    (update("SET id = :new", **values(new={"S": "x"})), "changes id, a part of the key"),
    (update("SET a = :new SET b = :new", **values(new={"S": "x"})), "has SET twice"),
    (update("a = :new", **values(new={"S": "x"})), "begins with none of SET"),
    (update(" "), "its UpdateExpression is empty"),
    (update("REMOVE a", key={}), "its Key has 0 attributes"),
    (update("REMOVE a", key={"id": {"S": ""}}), "the key id is empty"),
    (update("REMOVE a", key={"id": {"BOOL": True}}), "a key is a string, a number or binary"),
]


@pytest.mark.parametrize("element", RIGHT)
def test_what_dynamodb_takes(element: dict[str, Any]) -> None:
    """Each kind of value and of expression."""
    check_transaction([element])


@pytest.mark.failure_mode("F125")
@pytest.mark.parametrize(("element", "why"), WRONG, ids=[why for _, why in WRONG])
def test_what_dynamodb_refuses(element: dict[str, Any], why: str) -> None:
    """The error names the element and the problem."""
    with pytest.raises(ClientError, match="ValidationException") as refused:
        check_transaction([RIGHT[0], element])
    assert f"element 2 ({next(iter(element))}): " in str(refused.value)
    assert why in str(refused.value)


@pytest.mark.failure_mode("F125")
@pytest.mark.parametrize(
    "element",
    [
        {"Put": {"TableName": "orders", "Item": {"id": "1"}}},
        {"Put": {"TableName": "orders", "Item": {"id": {"N": 1}}}},
        {"Put": {"TableName": "orders", "Item": KEY, "UpdateExpression": "SET a = :a"}},
        {"ConditionCheck": {"TableName": "orders", "Key": KEY}},
    ],
)
def test_what_boto3_does_not_even_send(element: dict[str, Any]) -> None:
    """Values that are not typed, and parameters that there are not."""
    with pytest.raises(ParamValidationError):
        check_transaction([element])


@pytest.mark.failure_mode("F125")
@pytest.mark.parametrize(
    ("element", "why"),
    [
        ({"Put": {"TableName": "orders", "Item": {"id": "1"}}}, "not in DynamoDB's typed form"),
        (update("SET status = :new", **values(new={"S": "x"})), "ValidationException: element 1 (Update): its"),
    ],
)
def test_a_processor_learns_of_it_from_its_local_pipeline(element: dict[str, Any], why: str) -> None:
    """The change ends in the dead-letter queue, as it would on AWS; nothing is written, and `run` raises it."""
    pipeline = LocalPipeline(lambda _: Commit(transact=[element]), max_attempts=2, reasons=Reasons.FULL)
    pipeline.put("a", "1")
    with pytest.raises(InvalidEffectError):
        pipeline.run()
    assert pipeline.outcomes == {"Rejected": 1}
    assert why in pipeline.dead_letters[0].reason
    assert not pipeline.transacted
