"""What no recording has: MiniStack behind the corrections, for listings, batches and messages in flight."""

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from cdk_intake_ledger.testing import LocalAws
from tests.local.faults.proxy import Proxy
from tests.truth.servers import Server, with_table

KEYS = ["a b+%.txt", "ä<&>", "plain/x"]


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with LocalAws(start_timeout=240) as aws:
        yield Proxy(lambda: aws.endpoint_url)


@pytest.fixture(scope="module")
def server(proxy: Proxy) -> Iterator[Server]:
    with proxy.server() as served:
        yield with_table(Server(served.url))


def test_a_listing_is_encoded(server: Server) -> None:
    """botocore asks for it and decodes it. A client that does not ask gets the keys as they are."""
    server.s3.create_bucket(Bucket="listed")
    for key in KEYS:
        server.s3.put_object(Bucket="listed", Key=key)
    pages: list[bytes] = []
    server.s3.meta.events.register("before-parse.s3.*", lambda response_dict, **_: pages.append(response_dict["body"]))
    answer = server.s3.list_object_versions(Bucket="listed", Prefix="ä<", EncodingType="url")
    assert [one["Key"] for one in answer["Versions"]] == ["%C3%A4%3C%26%3E"]
    assert [one["Key"] for one in server.s3.list_object_versions(Bucket="listed")["Versions"]] == sorted(KEYS)
    assert all(b"<EncodingType>url</EncodingType>" in page for page in pages)


def test_a_batch_leaves_a_key_for_later(server: Server, proxy: Proxy) -> None:
    """Both kinds of batches. All is read and written after the repetition."""
    table = server.client("dynamodb")
    items = [{"pk": {"S": f"many#{number}"}, "sk": {"S": "x"}} for number in range(3)]
    proxy.corrections.unread_every = 1
    written = table.batch_write_item(RequestItems={"ledger": [{"PutRequest": {"Item": item}} for item in items]})
    left = written["UnprocessedItems"]
    assert [one["PutRequest"]["Item"] for one in left["ledger"]] == items[2:]
    assert not table.batch_write_item(RequestItems=left)["UnprocessedItems"]
    read = table.batch_get_item(RequestItems={"ledger": {"Keys": items}})
    assert (len(read["Responses"]["ledger"]), read["UnprocessedKeys"]["ledger"]["Keys"]) == (2, items[2:])
    proxy.corrections.unread_every = 0
    assert not table.batch_get_item(RequestItems={"ledger": {"Keys": items}})["UnprocessedKeys"]


def test_messages_in_flight_have_a_limit(server: Server, proxy: Proxy) -> None:
    """A short poll is refused, a long one gets nothing."""
    queue = {"QueueUrl": server.queue(VisibilityTimeout="600")}
    for number in range(5):
        server.sqs.send_message(**queue, MessageBody=str(number))
    proxy.corrections.in_flight_limit = 3
    try:
        received: list[Any] = server.sqs.receive_message(**queue, MaxNumberOfMessages=10)["Messages"]
        assert len(received) == 3
        with pytest.raises(ClientError, match="OverLimit"):
            server.sqs.receive_message(**queue)
        assert "Messages" not in server.sqs.receive_message(**queue, WaitTimeSeconds=1)
        server.sqs.delete_message(**queue, ReceiptHandle=received[0]["ReceiptHandle"])
        assert len(server.sqs.receive_message(**queue, MaxNumberOfMessages=10)["Messages"]) == 1
    finally:
        proxy.corrections.in_flight_limit = None
