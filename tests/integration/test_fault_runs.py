"""Test the parts of the fault runs: the judge of losses, and the proxy with the faults."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from http.server import BaseHTTPRequestHandler
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, EndpointConnectionError, ResponseStreamingError

from tests.local.faults.downstream import Delivery, Downstream, Reaction
from tests.local.faults.judge import Expected, Facts, Letter, Row, Version, judge
from tests.local.faults.proxy import Fault, Proxy, Trouble
from tests.local.faults.servers import Server

OLD = Version("a", "v1", "old bytes", current=False)
NEW = Version("a", "v2", "new bytes", current=True)
BAD = Version("bad", "v3", "bytes", current=True)


def effect(version: Version, fence: int, name: str = "") -> Delivery:
    return Delivery(
        key=version.key,
        version=version.version,
        content=version.etag,
        attempt=1,
        fence=fence,
        idempotency_key=name or version.version,
        pid=1,
    )


GOOD_ROW, BAD_ROW = Row("PROCESSED", "v2"), Row("REJECTED", "", "no invoice in it")
LETTER = Letter("bad", "no invoice in it")
RIGHT = Facts(
    versions=[OLD, NEW, BAD],
    rows={"a": GOOD_ROW, "bad": BAD_ROW},
    letters=[LETTER],
    effects=[effect(OLD, 1), effect(NEW, 2)],
)
EXPECTED = Expected(poison={"bad": "no invoice"})


def test_a_run_in_which_all_is_right() -> None:
    """Each number is counted from the facts."""
    report = judge(RIGHT, EXPECTED)

    assert report.right, report.problems
    assert (report.sent, report.processed, report.repeated, report.rejected) == (3, 2, 0, 1)
    assert (report.lost, report.innocents) == (0, 0)


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        (replace(RIGHT, rows={"bad": BAD_ROW}), "no row"),
        (replace(RIGHT, rows={"a": Row("PROCESSED", "v1"), "bad": BAD_ROW}), "S3 shows 'v2'"),
        (replace(RIGHT, rows={"a": Row("FAILED", "v2"), "bad": BAD_ROW}), "FAILED"),
        (replace(RIGHT, effects=[]), "no effect"),
        (replace(RIGHT, effects=[effect(OLD, 1)]), "the last effect was 'v1'"),
        (replace(RIGHT, effects=[effect(NEW, 1), effect(OLD, 2), effect(NEW, 3)]), "after the newer"),
        (replace(RIGHT, effects=[effect(OLD, 2), effect(NEW, 2)]), "the fence went from 2 to 2"),
        (replace(RIGHT, effects=[effect(NEW, 1), effect(NEW, 2)]), "1 effects were repeated"),
        (replace(RIGHT, effects=[effect(NEW, 1), effect(NEW, 2, "another")]), "2 idempotency keys"),
        (replace(RIGHT, effects=[effect(replace(NEW, etag="old bytes"), 1)]), "other bytes"),
        (replace(RIGHT, letters=[LETTER, Letter("a", "HTTP Error")]), "a: a dead letter"),
        (replace(RIGHT, letters=[LETTER, Letter("", "")]), "a dead letter"),
        (replace(RIGHT, letters=[]), "its dead letters are []"),
        (replace(RIGHT, letters=[Letter("bad", "")]), "its dead letters are ['']"),
        (replace(RIGHT, letters=[LETTER, LETTER]), "its dead letters are"),
        (replace(RIGHT, rows={"a": GOOD_ROW}), "the ledger says nothing"),
        (replace(RIGHT, rows={"a": GOOD_ROW, "bad": replace(BAD_ROW, reason="")}), "in round 0 for ''"),
        (replace(RIGHT, rows={"a": GOOD_ROW, "bad": replace(BAD_ROW, redrive_count=1)}), "in round 1"),
        (replace(RIGHT, effects=[*RIGHT.effects, effect(BAD, 1)]), "yet it had an effect"),
    ],
)
def test_whatever_is_wrong_is_found(facts: Facts, problem: str) -> None:
    """One thing at a time is altered in facts that were right."""
    assert any(problem in found for found in judge(facts, EXPECTED).problems)


def test_what_must_be_lost_and_who_was_innocent_is_counted() -> None:
    """A key is lost if its current version has no effect. A dead-letter message must be of a poison key."""
    facts = replace(RIGHT, effects=[effect(OLD, 1)], letters=[LETTER, Letter("a", "")])

    report = judge(facts, EXPECTED)

    assert (report.lost, report.innocents) == (1, 1)


class _Target(BaseHTTPRequestHandler):
    """Stands for the local AWS; `reached` are the requests that came through."""

    reached: list[str]

    def _serve(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.reached.append(self.command)
        content = b"{}" if self.command == "POST" else b"all of it"
        self.send_response_only(200)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("x-amz-version-id", "v1")
        self.end_headers()
        self.wfile.write(content if self.command != "HEAD" else b"")

    do_GET = do_HEAD = do_POST = _serve  # noqa: N815 - http.server's names


@pytest.fixture
def reached() -> list[str]:
    return []


@pytest.fixture
def proxy(reached: list[str]) -> Iterator[Proxy]:
    with Server(type("Target", (_Target,), {"reached": reached})) as target:
        yield Proxy(lambda: target.url)


@cache
def _session() -> Any:
    return boto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1")


@pytest.fixture
def client(proxy: Proxy) -> Iterator[Callable[[str], Any]]:
    with proxy.server() as server:

        def through_the_proxy(service: str) -> Any:
            config = Config(retries={"total_max_attempts": 1}, proxies={}, read_timeout=5)
            return _session().client(service, endpoint_url=server.url, config=config)

        yield through_the_proxy


WRITE: dict[str, Any] = {"TableName": "t", "Item": {"pk": {"S": "bucket/table/1"}}}


@pytest.mark.parametrize(
    ("trouble", "code", "status"),
    [
        (Trouble.THROTTLED, "ProvisionedThroughputExceededException", 400),
        (Trouble.INTERNAL_ERROR, "InternalServerError", 500),
    ],
)
def test_dynamodb_refuses_as_it_does_on_aws(
    proxy: Proxy, client: Callable[[str], Any], reached: list[str], trouble: Trouble, code: str, status: int
) -> None:
    """The SDK reads DynamoDB's code and status. The refused request does not arrive, the others do."""
    dynamodb, outbreak = client("dynamodb"), proxy.break_out("/table/", Fault(trouble, 1, ("PutItem",)))
    dynamodb.get_item(TableName="t", Key=WRITE["Item"])
    dynamodb.put_item(TableName="t", Item={"pk": {"S": "another"}})

    with pytest.raises(ClientError) as refused:
        dynamodb.put_item(**WRITE)

    assert refused.value.response["Error"]["Code"] == code
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    assert (len(reached), outbreak.over) == (2, True)
    dynamodb.put_item(**WRITE)
    assert (len(reached), proxy.requests("/table/")) == (3, {"PutItem": 2, "GetItem": 1})


def test_each_statement_of_a_group_may_be_throttled(proxy: Proxy, client: Callable[[str], Any]) -> None:
    """The request itself succeeds, with an error for each statement."""
    proxy.break_out("/table/", Fault(Trouble.EACH_THROTTLED, 1))
    statement = {"Statement": "INSERT INTO t VALUE {'pk': ?}", "Parameters": [{"S": "bucket/table/1"}]}

    answer = client("dynamodb").batch_execute_statement(Statements=[statement] * 2)

    assert [one["Error"]["Code"] for one in answer["Responses"]] == ["ThrottlingError"] * 2


@pytest.mark.parametrize(("trouble", "arrives"), [(Trouble.CUT, 0), (Trouble.ANSWER_LOST, 1)])
def test_a_connection_ends_before_or_after_the_request_is_carried_out(
    proxy: Proxy, client: Callable[[str], Any], reached: list[str], trouble: Trouble, arrives: int
) -> None:
    """The caller cannot tell one from the other, and that is the point."""
    proxy.break_out("/table/", Fault(trouble, 1))

    with pytest.raises((ConnectionClosedError, EndpointConnectionError)):
        client("dynamodb").put_item(**WRITE)

    assert len(reached) == arrives


def test_s3_refuses_as_it_does_on_aws(proxy: Proxy, client: Callable[[str], Any]) -> None:
    """503 SlowDown and 500 InternalError, of a HEAD by status alone; a body may end in the middle."""
    s3, where = client("s3"), {"Bucket": "bucket", "Key": "table/ä 1"}
    proxy.break_out(
        "bucket/table/ä 1",
        Fault(Trouble.THROTTLED, 1, ("GET",)),
        Fault(Trouble.INTERNAL_ERROR, 1, ("GET",)),
        Fault(Trouble.THROTTLED, 1, ("HEAD",)),
        Fault(Trouble.NONE, 1, ("HEAD",)),
        Fault(Trouble.HALF_AN_ANSWER, 1, ("GET",)),
        Fault(Trouble.SLOW, 1, ("GET",), seconds=0.01),
    )

    for code in ("SlowDown", "InternalError"):
        with pytest.raises(ClientError, match=code):
            s3.get_object(**where)
    with pytest.raises(ClientError, match="503"):
        s3.head_object(**where)
    assert s3.head_object(**where)["VersionId"] == "v1"
    with pytest.raises(ResponseStreamingError):
        s3.get_object(**where)["Body"].read()
    assert s3.get_object(**where)["Body"].read() == b"all of it"
    assert s3.head_object(**where)["ContentLength"] == len(b"all of it")


def test_the_downstream_keeps_what_it_has_taken() -> None:
    """A refused delivery was tried and has no effect. The first part of the key chooses the `mood`."""
    downstream = Downstream(moods={"a": lambda _: Reaction(503, taken=False)})

    assert downstream.deliver(effect(NEW, 1)).status == 503
    assert downstream.deliver(effect(BAD, 1)).status == 200

    assert [one.key for one in downstream.effects_of("")] == ["bad"]
    assert [one.key for one in downstream.tried_of("a")] == ["a"]
