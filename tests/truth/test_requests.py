"""Check each recorded request of runtime and command with the models of botocore and the rules of DynamoDB."""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from botocore import xform_name
from botocore.exceptions import ParamValidationError
from botocore.model import ServiceModel
from botocore.validate import validate_parameters

from intake_ledger_testing.transaction_rules import check_transaction, expression_problems
from tests.truth.recording import Json, Request, requests
from tests.truth.reference import OLDEST, newest_model, oldest_model

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT / "lambda_src" / "intake_ledger", ROOT / "tools" / "intake_ledger_cli")
UNSENT = {
    "DeleteObject": "the tombstone of a forgotten output: tests/unit/command/test_forget.py",
    "DescribeContinuousBackups": "what remains of a forgotten key: tests/unit/command/test_forget.py",
    "DescribeLogGroups": "as above",
    "DescribeStateMachine": "an audit in parts that a person starts: tests/unit/command/test_commands.py",
    "GetDurableExecution": "an execution of a durable function: tests/examples/test_approval.py, which takes long",
    "GetDurableExecutionHistory": "as above: tests/unit/command/test_durable.py",
    "GetMetricStatistics": "the backlog of a stream: tests/unit/audit/test_backlog.py",
    "GetSession": "a function of ours has this name",
    "ListBackups": "what remains of a forgotten key: tests/unit/command/test_forget.py",
    "ListDurableExecutionsByFunction": "an answer to a start was lost: tests/unit/executions/test_durable.py",
    "ListExecutions": "executions that run while a person looks: tests/unit/command/test_executions.py",
    "ListKeys": "a function of ours has this name",
    "ListMessageMoveTasks": "the local AWS may not know it: tests/unit/command/test_stop.py",
    "ListObjects": "a function of ours has this name",
    "ListVersionsByFunction": "durable executions of former versions: tests/unit/command/test_durable.py",
    "PutEvents": "events of outcomes: tests/examples/test_events_out.py, which takes long",
    "StopDurableExecution": "a newer version stops an execution: tests/unit/executions/test_stop_overtaken.py",
    "StartQueryExecution": "the local AWS knows no tables of Athena: tests/integration/test_audit_athena.py",
}
"""Operations that the code names, and that no deployed test has to send, with the reasons. Some depend on the time."""
_PROCESSORS = "/runners/inline.py:"
"""The module that calls processors."""
_WRITES = {"PutItem": "Put", "UpdateItem": "Update", "DeleteItem": "Delete"}
_MAX_EXPRESSION_BYTES = 4096
_MAX_TOKEN = 36


@cache
def ours() -> list[Request]:
    """The requests of the runtime and the command. Those of the tests and of the processors are left out."""
    return [one for one in requests() if one.callers and _PROCESSORS not in one.callers[0]]


def invalid(sent: Iterable[Request], model: Callable[[str], ServiceModel]) -> Counter[str]:
    """Requests that a botocore with these models would not send."""
    found: Counter[str] = Counter()
    for request in sent:
        operation = model(request.service).operation_model(request.operation)
        try:
            if operation.input_shape is not None:
                validate_parameters(request.parameters, operation.input_shape)
        except ParamValidationError as error:
            found[f"{request.service}:{request.operation}: {error}"] += 1
    return found


def refused(request: Request) -> Iterator[str]:
    """The problems of a request that DynamoDB refuses for any content of the table. MiniStack accepts some."""
    parameters = request.parameters
    if request.operation == "TransactWriteItems":
        yield from _of_transaction(parameters)
    elif request.operation in _WRITES:
        yield from _of_element(_WRITES[request.operation], parameters)
    elif request.operation in ("Query", "Scan", "GetItem"):
        yield from expression_problems(parameters, {})
    yield from _of_sizes(parameters)


def _of_transaction(parameters: Json) -> Iterator[str]:
    elements = [(kind, one) for element in parameters["TransactItems"] for kind, one in element.items()]
    if len({_identity(one) for _, one in elements}) < len(elements):
        yield "an item twice"
    if len(elements) > 100:
        yield "more than 100 elements"
    if len(parameters.get("ClientRequestToken", "")) > _MAX_TOKEN:
        yield "the token is too long"
    for kind, one in elements:
        yield from _of_element(kind, one)
        yield from _of_sizes(one)


def _identity(element: Json) -> str:
    """The table and the key that an element writes. Of an item of a processor's table, all attributes."""
    item = element.get("Key") or element["Item"]
    return repr((element["TableName"], [item["pk"], item["sk"]] if "pk" in item else sorted(item.items())))


def _of_element(kind: str, parameters: Json) -> Iterator[str]:
    shape: Any = newest_model("dynamodb").shape_for(kind)
    allowed = shape.members
    try:
        check_transaction([{kind: {name: one for name, one in parameters.items() if name in allowed}}])
    except Exception as error:  # noqa: BLE001 - any refusal is a finding
        yield str(error)


def _of_sizes(parameters: Json) -> Iterator[str]:
    for name, text in parameters.items():
        if name.endswith("Expression") and len(text.encode()) > _MAX_EXPRESSION_BYTES:
            yield f"{name} has more than 4 KB"


def operations_in(source: str, names: dict[str, str]) -> Iterator[str]:
    """The operations of boto3 that a source calls, by name or as a paginator."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in names:
            yield names[node.attr]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get_paginator":
            yield from (names[one.value] for one in node.args if isinstance(one, ast.Constant) and one.value in names)


def test_each_request_is_valid_for_the_newest_botocore() -> None:
    assert len(ours()) > 2000
    assert not invalid(ours(), newest_model)


@pytest.mark.failure_mode("F411")
def test_each_request_is_valid_for_the_oldest_botocore() -> None:
    """The consumer does not validate its frequent requests, so an older botocore would drop a parameter."""
    assert not invalid(ours(), oldest_model)


def test_the_oldest_botocore_is_written_down() -> None:
    """The extras, the pins and the page name the same version."""
    assert f'"boto3>={OLDEST}"' in (ROOT / "pyproject.toml").read_text()
    assert f"botocore=={OLDEST} " in (ROOT / "scripts" / "reference-requirements.txt").read_text()
    assert f"boto3 {OLDEST} " in (ROOT / "docs" / "processor.md").read_text()


def test_each_operation_that_the_code_names_is_sent() -> None:
    """Otherwise the checks of this module would say nothing about it."""
    sent = {one.operation for one in ours()}
    services = {one.service for one in ours()}
    names = {xform_name(name): name for service in services for name in newest_model(service).operation_names}
    named = {
        operation
        for folder in SOURCES
        for path in folder.rglob("*.py")
        for operation in operations_in(path.read_text(), names)
    }
    assert named - sent <= set(UNSENT)
    assert set(UNSENT) <= named


@pytest.mark.failure_mode("F411")
def test_each_expression_obeys_the_rules_of_dynamodb() -> None:
    """Reserved words, placeholders, changes of a key, paths twice, sizes, elements and tokens."""
    found = Counter(problem for one in ours() if one.service == "dynamodb" for problem in refused(one))
    assert not found


def request(operation: str, service: str = "dynamodb", **parameters: Any) -> Request:
    return Request("function", "", [], service, operation, parameters, 200, "")


KEY = {"pk": {"S": "a"}, "sk": {"S": "b"}}


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (request("UpdateItem", TableName="t", Key=KEY, UpdateExpression="REMOVE status"), "reserved word status"),
        (request("UpdateItem", TableName="t", Key=KEY, UpdateExpression="REMOVE pk"), "a part of the key"),
        (request("UpdateItem", TableName="t", Key=KEY, UpdateExpression="SET a1 = b1 REMOVE a1"), "changes a1 twice"),
        (request("Scan", TableName="t", FilterExpression="#a = :b"), "#a is used and not defined"),
        (request("Scan", TableName="t", FilterExpression=" OR ".join(["a1 = b1"] * 500)), "more than 4 KB"),
        (
            request("PutItem", TableName="t", Item=KEY, ExpressionAttributeNames={"#a": "a"}),
            "#a is defined and not used",
        ),
        (
            request("TransactWriteItems", TransactItems=[{"Delete": {"TableName": "t", "Key": KEY}}] * 2),
            "an item twice",
        ),
        (request("TransactWriteItems", TransactItems=[], ClientRequestToken="x" * 37), "the token is too long"),
    ],
    ids=lambda one: re.sub(r"\W+", " ", one) if isinstance(one, str) else "",
)
@pytest.mark.failure_mode("F411")
def test_a_wrong_request_is_found(wrong: Request, problem: str) -> None:
    assert problem in "; ".join(refused(wrong))


def test_a_parameter_that_is_too_new_is_found() -> None:
    """The oldest models know no CRC64NVME, which came some days later."""
    newer = request("PutObject", "s3", Bucket="b", Key="k", ChecksumCRC64NVME="1")
    assert "ChecksumCRC64NVME" in "".join(invalid([newer], oldest_model))
    assert not invalid([request("PutObject", "s3", Bucket="b", Key="k", IfMatch="*")], oldest_model)
