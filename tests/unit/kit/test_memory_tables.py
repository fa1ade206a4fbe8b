"""Tables in memory carry out transactions as DynamoDB does."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from cdk_intake_ledger.testing import Fault, LocalPipeline, MemoryTables
from intake_ledger import Commit, ObjectChange
from intake_ledger.protocol.settings import Reasons

KEY = {"id": {"S": "1"}}
ITEM: dict[str, Any] = {
    **KEY,
    "n": {"N": "10"},
    "s": {"S": "text"},
    "tags": {"SS": ["a", "b"]},
    "numbers": {"NS": ["1", "2.50"]},
    "list": {"L": [{"S": "x"}, {"S": "y"}, {"S": "z"}]},
    "map": {"M": {"inner": {"N": "1"}, "list": {"L": [{"N": "5"}]}}},
    "binary": {"B": b"abc"},
    "flag": {"BOOL": True},
}
VALUES = {
    ":n": {"N": "10.0"},
    ":one": {"N": "1"},
    ":low": {"N": "9"},
    ":high": {"N": "1e1"},
    ":s": {"S": "te"},
    ":a": {"S": "a"},
    ":x": {"S": "x"},
    ":S": {"S": "S"},
    ":tags": {"SS": ["b", "a"]},
    ":b": {"B": b"a"},
    ":list": {"L": [{"S": "w"}]},
    ":true": {"BOOL": True},
    ":map": {"M": {"inner": {"N": "1.0"}}},
    ":more": {"SS": ["b", "c"]},
    ":2.5": {"NS": ["2.5"]},
    ":five": {"N": "5"},
}
CONDITIONS = [
    "n = :n",
    "n <> :n",
    "n < :one",
    "n > :one AND n <= :high",
    "n BETWEEN :low AND :high",
    "n IN (:one, :n)",
    "s = :n",
    "s <> :n",
    "absent <> :n",
    "absent = :n",
    "NOT absent = :n",
    "attribute_exists(map.inner)",
    "attribute_not_exists(map.#other)",
    "attribute_exists(#list[2]) AND attribute_not_exists(#list[3])",
    "attribute_type(s, :S)",
    "attribute_type(n, :S)",
    "begins_with(s, :s)",
    "begins_with(binary, :b)",
    "contains(s, :x)",
    "contains(tags, :a)",
    "contains(#list, :x)",
    "contains(tags, :x)",
    "size(s) > :one",
    "size(tags) = :one",
    "size(#list) > size(tags)",
    "tags = :tags",
    "flag = :true",
    "map.#list[0] = :five",
    "map = :map",
    "n = :one OR (n = :n AND NOT flag = :true)",
    "n = :one OR n = :n AND s = :s",
]
UPDATES = [
    "SET n = n + :one",
    "SET n = :one - n, s = :x",
    "SET fresh = if_not_exists(fresh, :n)",
    "SET s = if_not_exists(s, :x)",
    "SET #list = list_append(:list, #list)",
    "SET #list[1] = :x",
    "SET #list[9] = :x",
    "SET map.inner = map.inner + :one",
    "SET map.#other = :map",
    "SET absent.inner = :one",
    "SET #list[0].inner = :one",
    "SET a = absent",
    "SET a = s + :one",
    "REMOVE s, absent",
    "REMOVE #list[0], #list[2]",
    "REMOVE map.inner",
    "REMOVE absent.inner",
    "ADD n :one",
    "ADD fresh :one",
    "ADD tags :more",
    "ADD s :one",
    "ADD fresh :more",
    "DELETE tags :more",
    "DELETE tags :tags",
    "DELETE absent :tags",
    "SET a = n REMOVE n",
    "SET a = :one ADD n :one DELETE tags :more",
    "SET a = :n, a = :one",
    "SET map = :map, map.inner = :one",
    "SET numbers = :2.5",
]


def request(kind: str, expression: str) -> dict[str, Any]:
    """The request with the placeholders that the expression uses."""
    words = set(expression.replace("(", " ").replace(")", " ").replace(",", " ").replace("[", " ").split())
    names = {f"#{name}": name for name in ("list", "other") if f"#{name}" in expression}
    values = {":v" + name[1:].replace(".", "_"): value for name, value in VALUES.items() if name in words}
    for name in sorted(VALUES, key=len, reverse=True):
        if name in words:
            expression = expression.replace(name, ":v" + name[1:].replace(".", "_"))
    found: dict[str, Any] = {"TableName": "orders", "Key": KEY, f"{kind}Expression": expression}
    return (
        found
        | ({"ExpressionAttributeNames": names} if names else {})
        | ({"ExpressionAttributeValues": values} if values else {})
    )


def normal(value: Any) -> Any:
    """Sets in any order, and numbers in any notation."""
    if isinstance(value, list):
        return [normal(one) for one in value]
    if not isinstance(value, dict):
        return value
    forms: dict[str, Any] = {
        "SS": sorted,
        "NS": lambda numbers: sorted(map(float, numbers)),
        "N": lambda one: float(one) if isinstance(one, str) else normal(one),
    }
    return {name: forms.get(name, normal)(one) for name, one in value.items()}


def outcome(client: Any, transaction: list[dict[str, Any]]) -> Any:
    """The item after the transaction, or the codes of its refusal."""
    try:
        client.transact_write_items(TransactItems=transaction)
    except ClientError as error:
        answer: Any = error.response
        return [reason["Code"] for reason in answer.get("CancellationReasons", [])] or answer["Error"]["Code"]
    return normal(client.get_item(TableName="orders", Key=KEY, ConsistentRead=True).get("Item"))


def moto_table() -> Any:
    client = boto3.client("dynamodb", region_name="eu-central-1", aws_access_key_id="a", aws_secret_access_key="b")
    client.create_table(
        TableName="orders",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    client.put_item(TableName="orders", Item=ITEM)
    return client


def memory_table() -> MemoryTables:
    tables = MemoryTables({"orders": {"id": "S"}})
    tables.put_item(TableName="orders", Item=ITEM)
    return tables


@pytest.fixture(scope="module")
def moto() -> Iterator[Any]:
    with mock_aws():
        yield moto_table()


@pytest.mark.parametrize("expression", CONDITIONS)
def test_a_condition_holds_as_in_moto(moto: Any, expression: str) -> None:
    """Each comparison, function and connective. The expression refers to present and to absent attributes."""
    element = {"ConditionCheck": request("Condition", expression)}
    moto.put_item(TableName="orders", Item=ITEM)
    assert outcome(memory_table(), [element]) == outcome(moto, [element])


@pytest.mark.parametrize("expression", UPDATES)
def test_an_update_gives_the_item_of_moto(moto: Any, expression: str) -> None:
    """Each clause with each kind of operand, right and wrong."""
    element = {"Update": request("Update", expression)}
    moto.put_item(TableName="orders", Item=ITEM)
    there, here = outcome(moto, [element]), outcome(memory_table(), [element])
    assert here == there or (here == ["ValidationError"] and there == "ValidationException")


def test_values_of_different_types_are_not_compared() -> None:
    """moto raises a TypeError."""
    assert outcome(memory_table(), [{"ConditionCheck": request("Condition", "n < #list[0]")}]) == [
        "ConditionalCheckFailed"
    ]


def test_a_number_is_once_in_a_set() -> None:
    """moto compares the texts 2.5 and 2.50."""
    after = outcome(memory_table(), [{"Update": request("Update", "ADD numbers :2.5")}])
    assert after["numbers"] == {"NS": [1, 2.5]}


def test_all_elements_are_written_or_none() -> None:
    """One condition does not hold. The answer has the item that the request asks for."""
    tables = memory_table()
    put = {"Put": {"TableName": "orders", "Item": {"id": {"S": "2"}}}}
    check: Any = {"ConditionCheck": request("Condition", "attribute_not_exists(id)")}
    check["ConditionCheck"]["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
    with pytest.raises(ClientError) as refused:
        tables.transact_write_items(TransactItems=[put, check])
    answer: Any = refused.value.response
    assert [one["Code"] for one in answer["CancellationReasons"]] == ["None", "ConditionalCheckFailed"]
    assert answer["CancellationReasons"][1]["Item"] == ITEM
    assert tables.items("orders") == [ITEM]
    tables.transact_write_items(TransactItems=[put, {"Delete": {"TableName": "orders", "Key": KEY}}])
    assert tables.items("orders") == [{"id": {"S": "2"}}]


@pytest.mark.parametrize(
    ("elements", "why"),
    [
        ([{"Put": {"TableName": "totals", "Item": KEY}}], "no table totals. MemoryTables has: orders"),
        ([{"Put": {"TableName": "orders", "Item": {"id": {"N": "1"}}}}], "orders has id \\(S\\), and not"),
        ([{"Put": {"TableName": "orders", "Item": {"name": {"S": "1"}}}}], "orders has id \\(S\\), and not {}"),
        ([{"Delete": {"TableName": "orders", "Key": KEY | {"n": {"S": "1"}}}}], "does not match the schema"),
        (
            [{"Put": {"TableName": "orders", "Item": KEY}}, {"Delete": {"TableName": "table/orders", "Key": KEY}}],
            "element 2: Transaction request cannot include multiple operations on one item",
        ),
    ],
)
def test_requests_that_do_not_fit_the_tables_are_refused(elements: list[Any], why: str) -> None:
    """Unknown tables, wrong keys, and two writes of one item."""
    with pytest.raises(ClientError, match=why):
        memory_table().transact_write_items(TransactItems=elements)


def test_single_writes_are_those_of_boto3s_client() -> None:
    """Your own code can use the tables as its client."""
    tables = memory_table()
    with pytest.raises(ClientError, match="ConditionalCheckFailedException"):
        tables.delete_item(TableName="orders", Key=KEY, ConditionExpression="attribute_not_exists(id)")
    with pytest.raises(ClientError, match="ValidationException"):
        tables.update_item(**request("Update", "SET a = absent"))
    tables.update_item(**request("Update", "SET n = n + :one"))
    assert tables.get_item(TableName="orders", Key=KEY)["Item"]["n"] == {"N": "11"}
    tables.delete_item(TableName="orders", Key=KEY)
    assert tables.get_item(TableName="orders", Key=KEY) == {}


@pytest.mark.parametrize("key", [{}, {"id": "String"}, {"a": "S", "b": "S", "c": "S"}])
def test_a_key_schema_has_one_or_two_typed_attributes(key: Any) -> None:
    """The message has an example."""
    with pytest.raises(ValueError, match=r'the table orders has the key .* such as {"file": "S"}'):
        MemoryTables({"orders": key})


def booked(change: ObjectChange) -> Commit:
    """Count each key once."""
    update = {
        "TableName": "orders",
        "Key": {"id": {"S": change.key}},
        "UpdateExpression": "ADD n :one",
        "ConditionExpression": "attribute_not_exists(n)",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    }
    return Commit(transact=[{"Update": update}])


@pytest.mark.failure_mode("F210")
@pytest.mark.parametrize("own_client", [False, True], ids=["memory", "client"])
def test_the_conditions_of_a_processor_are_carried_out(moto: Any, own_client: bool) -> None:
    """The second version of the key does not satisfy the condition. Faults do not repeat the first one."""
    table: Any = moto if own_client else MemoryTables({"orders": {"id": "S"}})
    pipeline = LocalPipeline(booked, dynamodb=table, max_attempts=3, reasons=Reasons.FULL)
    pipeline.put("a", "1")
    pipeline.next(Fault.KILLED_AFTER_EFFECT, Fault.OVERTAKEN)
    pipeline.run()
    assert table.get_item(TableName="orders", Key={"id": {"S": "a"}})["Item"]["n"] == {"N": "1"}
    pipeline.put("a", "2")
    pipeline.run()
    [message] = pipeline.dead_letters
    assert "element 1 (Update): ConditionalCheckFailed" in message.reason
    assert len(pipeline.transacted) == 1


@pytest.mark.failure_mode("F210")
def test_a_condition_without_tables_is_refused() -> None:
    """The pipeline cannot know the answer, and says which option gives it."""
    pipeline = LocalPipeline(booked)
    pipeline.put("a", "1")
    with pytest.raises(ValueError, match=r'pass dynamodb=MemoryTables\({"orders": {"<key>": "S"}}\)'):
        pipeline.run()
