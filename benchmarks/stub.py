"""A stub of AWS in a separate process on the loopback interface. It answers immediately, as if each write succeeded.

It stores nothing, so that a benchmark measures only the client: serialization, signing, HTTP and parsing. TLS is not
included, so that each request costs slightly more on AWS.

`python -m benchmarks.stub` prints its port and ends with its standard input.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_JSON = b"application/x-amz-json-1.0"
_OBJECT = b"a few bytes"


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[:end]
            length = _header(head, b"content-length:")
            total = end + 4 + int(length or 0)
            if len(self._received) < total:
                return
            body, self._received = self._received[end + 4 : total], self._received[total:]
            self._transport.write(_answer(head, body))


def _header(head: bytes, name: bytes) -> bytes:
    for line in head.split(b"\r\n")[1:]:
        if line.lower().startswith(name):
            return line[len(name) :].strip()
    return b""


def _answer(head: bytes, body: bytes) -> bytes:
    if head.startswith(b"GET"):
        return _response(_OBJECT, b"binary/octet-stream", b'ETag: "e"\r\nx-amz-version-id: v\r\n')
    if _header(head, b"x-amz-target:").endswith(b".BatchExecuteStatement"):
        responses = b",".join([b"{}"] * body.count(b'"Statement":'))
        return _response(b'{"Responses":[' + responses + b"]}", _JSON)
    return _response(b"{}", _JSON)


def _response(body: bytes, kind: bytes, more: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n%s\r\n%s" % (kind, len(body), more, body)


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Connection, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.buffer.read)
    server.close()
    os._exit(0)  # do not wait for open connections


@contextmanager
def stub() -> Iterator[str]:
    """Start a stub and return its address."""
    command = [sys.executable, "-m", "benchmarks.stub"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()


if __name__ == "__main__":
    asyncio.run(_serve())
