"""F93: S3 announces 200,000 bytes and the connection ends after 60,000: no way of reading sees an end of file.

Through a real HTTP server and botocore's own client, with the installed urllib3 and, by `test_old_urllib3.py`, with
1.26, which does not check the length. This module needs nothing but botocore.
"""

import csv
import gzip
import hashlib
import io
import socket
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from threading import Thread
from typing import Any

import botocore.session
import pytest
from botocore.config import Config

from intake_ledger.aws.bucket import Bucket
from intake_ledger.processor.object_stream import ObjectStream, download_to_file
from intake_ledger.processor.text import csv_rows, json_lines, lines
from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.errors import ObjectReadError

ANNOUNCED, SENT = 200_000, 60_000
ROW = b"1234567,abcdefghijklmnop\n"
CONTENT = (ROW * (ANNOUNCED // len(ROW) + 1))[:ANNOUNCED]
OLD = version("urllib3").startswith("1.")


def crc32(content: bytes) -> str:
    return b64encode(zlib.crc32(content).to_bytes(4, "big")).decode()


@dataclass
class Answer:
    """The server's answer."""

    content: bytes = CONTENT
    sent: int = ANNOUNCED
    checksum: str | None = None
    chunked: bool = False
    abrupt: bool = False
    """Reset the connection; close it in order otherwise."""
    asked: str | None = None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answer: Answer

    def do_GET(self) -> None:
        answer = self.answer
        answer.asked = self.headers.get("x-amz-checksum-mode")
        self.send_response_only(200)
        self.send_header("ETag", '"e"')
        if answer.checksum:
            self.send_header("x-amz-checksum-crc32", answer.checksum)
        piece = answer.content[: answer.sent]
        if answer.chunked:
            self.send_header("Transfer-Encoding", "chunked")
            piece = b"%x\r\n%s\r\n" % (len(piece), piece) + (b"0\r\n\r\n" if answer.sent == ANNOUNCED else b"")
        else:
            self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(piece)
        if answer.sent < len(answer.content):
            self.close_connection = True
            self.wfile.flush()
            if answer.abrupt:
                # Closing with a linger of zero resets the connection.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            else:
                self.connection.shutdown(socket.SHUT_WR)

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    session = botocore.session.get_session()
    session.set_credentials("test", "test")
    config = Config(retries={"total_max_attempts": 1}, proxies={}, read_timeout=5, s3={"addressing_style": "path"})
    url = f"http://127.0.0.1:{server.server_address[1]}"
    made: Any = session.create_client("s3", region_name="us-east-1", endpoint_url=url, config=config)
    yield made
    server.shutdown()
    server.server_close()
    thread.join()
    made.close()


@pytest.fixture
def answer() -> Answer:
    _Handler.answer = Answer()
    return _Handler.answer


@pytest.fixture
def bucket(answer: Answer, client: Any) -> Bucket:
    return Bucket(lambda: client, "bucket")


@pytest.fixture
def stream(bucket: Bucket) -> Iterator[ObjectStream]:
    with bucket.open("key", State(StateKind.OBJECT, "v1", "e", ANNOUNCED, 0)) as opened:
        yield opened


def in_chunks(stream: ObjectStream, size: int) -> list[bytes]:
    """The usual loop."""
    found = []
    while chunk := stream.read(size):
        found.append(chunk)
    return found


def into(stream: ObjectStream) -> list[bytes]:
    buffer, found = bytearray(10_000), []
    while count := stream.readinto(buffer):
        found.append(bytes(buffer[:count]))
    return found


def by_lines(stream: ObjectStream) -> list[bytes]:
    found = []
    while line := stream.readline():
        found.append(line)
    return found


def by_read1(stream: ObjectStream) -> list[bytes]:
    found = []
    while chunk := stream.read1():
        found.append(chunk)
    return found


def text(stream: ObjectStream) -> io.TextIOWrapper:
    return io.TextIOWrapper(stream, encoding="utf-8", newline="")


WAYS: dict[str, Callable[[ObjectStream], Any]] = {
    "read": lambda stream: stream.read(),
    "read(-1)": lambda stream: stream.read(-1),
    "read(size)": lambda stream: stream.read(ANNOUNCED),
    "chunks of 1,000": lambda stream: in_chunks(stream, 1_000),
    "chunks of 65,536": lambda stream: in_chunks(stream, 65_536),
    "chunks of 1 MiB": lambda stream: in_chunks(stream, 1024 * 1024),
    "readinto": into,
    "read1": by_read1,
    "readline": by_lines,
    "readlines": lambda stream: stream.readlines(),
    "iteration": list,
    "text": lambda stream: text(stream).read(),
    "text lines": lambda stream: list(text(stream)),
    "csv": lambda stream: list(csv.reader(text(stream))),
    "copy": lambda stream: download_to_file(stream).close(),
    "digest": lambda stream: hashlib.file_digest(stream, "sha256"),
    "lines": lambda stream: list(lines(stream)),
    "csv_rows": lambda stream: list(csv_rows(stream, fieldnames=("a", "b"))),
}


@pytest.mark.failure_mode("F93")
@pytest.mark.parametrize("abrupt", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("way", WAYS)
def test_a_cut_connection_is_no_end_of_file(answer: Answer, bucket: Bucket, way: str, abrupt: bool) -> None:
    """Each way of reading raises, and so does each later read."""
    answer.sent, answer.abrupt = SENT, abrupt
    with bucket.open("key", State(StateKind.OBJECT, "v1", "e", ANNOUNCED, 0)) as stream:
        with pytest.raises(ObjectReadError):
            WAYS[way](stream)
        assert stream.failure is not None
        assert not stream.complete
        # A TextIOWrapper closes the stream when it is deleted.
        for _ in range(0 if stream.closed else 2):
            with pytest.raises(ObjectReadError):
                stream.read()


@pytest.mark.parametrize("way", WAYS)
def test_what_came_whole_is_read_to_its_end(stream: ObjectStream, way: str) -> None:
    """The same ways, without a failure."""
    WAYS[way](stream)
    assert stream.failure is None


@pytest.mark.failure_mode("F93")
@pytest.mark.parametrize("abrupt", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("read", [lines, csv_rows, json_lines], ids=lambda read: read.__name__)
def test_half_a_gzip_is_no_damaged_gzip(answer: Answer, bucket: Bucket, read: Any, abrupt: bool) -> None:
    """The change is retried; a damaged gzip would be rejected."""
    # Stored without compression, so that it has the size that it needs.
    packed = gzip.compress(b'{"a": 1}\n' * 30_000, compresslevel=0)[:ANNOUNCED]
    answer.content, answer.sent, answer.abrupt = packed, SENT, abrupt
    with (
        bucket.open("key", State(StateKind.OBJECT, "v1", "e", ANNOUNCED, 0)) as stream,
        pytest.raises(ObjectReadError),
    ):
        list(read(stream))


@pytest.mark.failure_mode("F93")
@pytest.mark.parametrize("way", WAYS)
def test_altered_bytes_are_an_error(answer: Answer, bucket: Bucket, way: str) -> None:
    """The length is right and one bit is wrong: S3's checksum shows it before the last byte is returned."""
    answer.checksum = crc32(CONTENT)
    answer.content = CONTENT[:150_000] + bytes([CONTENT[150_000] ^ 1]) + CONTENT[150_001:]
    with bucket.open("key", State(StateKind.OBJECT, "v1", "e", ANNOUNCED, 0)) as stream:
        with pytest.raises(ObjectReadError, match=r"CRC32|FlexibleChecksumError"):
            WAYS[way](stream)
        assert stream.failure is not None


def test_s3_is_asked_for_its_checksum(answer: Answer, stream: ObjectStream) -> None:
    """Only some releases of botocore ask by themselves, and a setting can turn that off."""
    assert stream.read() == CONTENT
    assert (answer.asked, stream.complete) == ("ENABLED", True)


@pytest.mark.failure_mode("F93")
def test_a_length_that_s3_does_not_announce_cannot_be_checked(answer: Answer, bucket: Bucket) -> None:
    """S3 always announces it. An answer without a length, for example from a proxy, is refused."""
    answer.chunked = True
    with pytest.raises(ObjectReadError, match="no Content-Length"):
        bucket.open("key", State(StateKind.OBJECT, "v1", "e", ANNOUNCED, 0))


@pytest.mark.failure_mode("F93")
@pytest.mark.skipif(not OLD, reason="urllib3 2 checks the length by itself, unless botocore tells it not to")
def test_botocores_own_body_shows_a_clean_end(answer: Answer, bucket: Bucket) -> None:
    """The reason for all this. `with` returns urllib3's response, which ends as if the object were complete."""
    answer.sent = SENT
    with bucket._client.get_object(Bucket="bucket", Key="key")["Body"] as raw:
        assert b"".join(iter(lambda: raw.read(1_000), b"")) == CONTENT[:SENT]
