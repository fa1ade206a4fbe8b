"""Measures the consumer's CPU time for new changes whose object the processor reads, without HTTP.

    python -m benchmarks.read [--changes N] [--rounds N]

The requests are made, signed and parsed as in `benchmarks.cpu`, but no connection is used: they are answered in this
process. So a row has the CPU of boto3 and of the consumer only, and small savings are visible. The floor is two bare
writes and a GET of default boto3 clients per change.
"""

import argparse
import io
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, cast
from unittest import mock

import boto3
from benchmarks.cpu import Payloads, bare, consumer, cpu_ms, environment, handle, recorded, silence
from benchmarks.measure import side_by_side, table
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.httpsession import URLLib3Session

FLOOR = "two bare writes and a GET"
_ABOUT = {"Date": "Wed, 25 Nov 2026 10:00:00 GMT", "x-amz-request-id": "0123456789ABCDEF"}
_CONTENT = b"a few bytes"
_OF_OBJECTS = {
    **_ABOUT,
    "Accept-Ranges": "bytes",
    "Content-Length": str(len(_CONTENT)),
    "Content-Type": "binary/octet-stream",
    "ETag": '"0123456789abcdef0123456789abcdef"',
    "Last-Modified": "Wed, 25 Nov 2026 09:00:00 GMT",
    "Server": "AmazonS3",
    "x-amz-id-2": "0123456789abcdef" * 4,
    "x-amz-server-side-encryption": "AES256",
    "x-amz-version-id": "v",
}


class _Body(io.BytesIO):
    """The part of urllib3's response that botocore uses."""

    enforce_content_length = True

    def stream(self, *_: object, **__: object) -> Any:
        yield self.read()

    def release_conn(self) -> None: ...


def answer(_: URLLib3Session, request: AWSPreparedRequest) -> AWSResponse:
    """Answer as AWS does when an object exists and each write succeeds."""
    if request.method == "GET":
        return _response(request, _OF_OBJECTS, _CONTENT)
    target, body = request.headers["X-Amz-Target"], b"{}"
    if str(target).find("BatchExecuteStatement") >= 0:
        responses = b",".join([b"{}"] * cast("bytes", request.body).count(b'"Statement":'))
        body = b'{"Responses":[' + responses + b"]}"
    of_writes = {"Content-Length": str(len(body)), "Content-Type": "application/x-amz-json-1.0"}
    return _response(request, _ABOUT | of_writes | {"x-amz-crc32": str(zlib.crc32(body))}, body)


def _response(request: AWSPreparedRequest, headers: dict[str, str], body: bytes) -> AWSResponse:
    return AWSResponse(request.url, 200, HTTPHeaders.from_dict(headers), _Body(body))


def rows(payloads: Payloads) -> dict[str, Callable[[int], None]]:
    """Return the measured functions by name. Each takes the number of a piece."""
    calls, client, s3 = recorded(payloads), boto3.client("dynamodb"), boto3.client("s3")
    reading, together = consumer(groups=True, reads=True), consumer(groups=True, commits=True, reads=True)
    tens, hundreds = payloads.batches(10), payloads.batches(100)
    return {
        FLOOR: lambda piece: bare(client, calls[piece], get=s3.get_object),
        "read, batches of 10": lambda piece: handle(reading, tens[piece]),
        "read, batches of 100": lambda piece: handle(reading, hundreds[piece]),
        "read, grouped commits, batches of 10": lambda piece: handle(together, tens[piece]),
        "read, grouped commits, batches of 100": lambda piece: handle(together, hundreds[piece]),
    }


def measure(*, changes: int = 1_000, rounds: int = 15) -> dict[str, Any]:
    """Return CPU milliseconds per change, and ratios to the floor."""
    with (
        mock.patch.object(URLLib3Session, "send", answer),
        environment("http://nowhere.invalid"),
        silence(),
    ):
        payloads = Payloads(changes)
        runs = {name: partial(cpu_ms, run) for name, run in rows(payloads).items()}
        return cast("dict[str, Any]", side_by_side(runs, floor=FLOOR, rounds=rounds, pieces=len(payloads)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=1_000, help="a multiple of 100")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    print(table("CPU ms per change", measure(changes=arguments.changes, rounds=arguments.rounds)))


if __name__ == "__main__":
    main()
