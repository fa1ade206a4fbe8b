"""Test the parts of the fault runs: the judge of losses, and the proxy with the faults."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from http.server import BaseHTTPRequestHandler
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ResponseStreamingError

from tests.local.faults.downstream import Delivery
from tests.local.faults.judge import Expected, Facts, Letter, Row, Version, judge, wrong_rejects
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
    assert judge(RIGHT, EXPECTED).right
    assert any(problem in found for found in judge(facts, EXPECTED).problems)


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        ({}, "no rejected rows"),
        ({"a": [{"version_id": "v1"}]}, "S3 shows 'v2'"),
        ({"a": [{"version_id": "v2"}], "bad": [{"version_id": "v3"}]}, "bad: it has no bad row"),
    ],
)
def test_wrong_rejected_rows_are_found(found: dict[str, list[dict[str, str]]], problem: str) -> None:
    assert wrong_rejects(RIGHT.versions, {"a": [{"version_id": "v2"}]}, ["a"]) == []
    assert any(problem in one for one in wrong_rejects(RIGHT.versions, found, ["a"]))


def test_a_second_equal_dead_letter_is_right_where_two_may_see_one_end() -> None:
    two = replace(EXPECTED, letters=2)
    assert judge(replace(RIGHT, letters=[LETTER, LETTER]), two).right
    assert not judge(replace(RIGHT, letters=[LETTER] * 3), two).right
    assert not judge(replace(RIGHT, letters=[LETTER, replace(LETTER, reason="no invoice: another")]), two).right


def test_invocations_of_one_attempt_have_one_fence() -> None:
    resumed = replace(EXPECTED, resumed=True, repeats=1)
    assert judge(replace(RIGHT, effects=[effect(NEW, 2), effect(NEW, 2)]), resumed).right
    assert not judge(replace(RIGHT, effects=[effect(NEW, 2), effect(NEW, 1)]), resumed).right
    assert not judge(replace(RIGHT, effects=[effect(OLD, 2), effect(NEW, 2)]), resumed).right


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
