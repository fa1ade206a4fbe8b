"""The gate between the functions and S3. It keeps chosen writes in the network until the end, and kills chosen workers.

The functions get its address from `AWS_ENDPOINT_URL_S3`, which every SDK supports. It forwards everything unchanged.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections import Counter
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, NamedTuple, Self
from urllib.parse import unquote, urlsplit

from examples.pictures.stack import PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from examples.pictures.columns import Column

_NOT_FORWARDED = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "expect"})
_NOT_ANSWERED = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"})


class Place(NamedTuple):
    """The output of a picture in one column."""

    column: Column
    key: str


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: dict[str, str]
    content: bytes


@dataclass
class Gate:
    """Runs inside a `with` block. `columns` tells the columns by the names of their output buckets."""

    target: str
    """The address of the local AWS."""
    columns: Mapping[str, Column] = field(default_factory=dict)
    written: Counter[Place] = field(default_factory=Counter)
    """The number of successful writes and removals of each output."""
    held: Counter[Place] = field(default_factory=Counter)
    """The number of requests that were kept."""
    killed: Counter[Place] = field(default_factory=Counter)
    """The number of workers that were killed."""
    late: list[tuple[Place, int]] = field(default_factory=list)
    """The status that S3 gave to each request that was kept, when it arrived."""
    _hold: Counter[Place] = field(default_factory=Counter)
    _kill: dict[tuple[Place, str], int] = field(default_factory=dict)
    _kept: list[tuple[Place, _Request]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._server = _Server(("127.0.0.1", 0), type("GateHandler", (_Handler,), {"gate": self}))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    # -- the script --------------------------------------------------------------------------------------------------

    def hold_next(self, place: Place) -> None:
        """Keep the next write or removal of this output."""
        with self._lock:
            self._hold[place] += 1

    def kill_next(self, place: Place, moment: str) -> None:
        """Kill the next worker that reports this moment: `before` or `after` its write."""
        with self._lock:
            self._kill[place, moment] = 1

    def release(self) -> None:
        """Let all kept requests arrive, in the order in which they were sent."""
        with self._lock:
            kept, self._kept = self._kept, []
        for place, request in kept:
            self.late.append((place, self._forward(request).status))
        self._over.set()

    # -- the functions -----------------------------------------------------------------------------------------------

    def attempt(self, report: dict[str, str | int]) -> bool:
        """Return false if the worker was killed."""
        [place] = [Place(column, str(report["key"])) for column in self.columns.values() if column == report["column"]]
        with self._lock:
            chosen = self._kill.pop((place, str(report["moment"])), 0)
        if chosen:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(report["pid"]), signal.SIGKILL)
            self.killed[place] += 1
        return not chosen

    def pass_on(self, request: _Request) -> _Answer | None:
        """Forward a request. None if it is kept: its worker gets no answer."""
        place = self._place(request)
        if place is not None:
            with self._lock:
                if self._hold[place]:
                    self._hold[place] -= 1
                    self.held[place] += 1
                    self._kept.append((place, request))
                    return None
        answer = self._forward(request)
        if place is not None and answer.status < 300:
            with self._lock:
                self.written[place] += 1
        return answer

    def wait_for_end(self) -> None:
        """Wait as long as kept requests are in the network."""
        self._over.wait()

    def _place(self, request: _Request) -> Place | None:
        if request.method not in ("PUT", "DELETE"):
            return None
        bucket, _, key = unquote(urlsplit(request.path).path).lstrip("/").partition("/")
        column = self.columns.get(bucket)
        return Place(column, key.removeprefix(PREFIX)) if column else None

    def _forward(self, request: _Request) -> _Answer:
        target = urlsplit(self.target)
        connection = HTTPConnection(str(target.hostname), target.port, timeout=60)
        try:
            length = {"Content-Length": str(len(request.body))}
            connection.request(request.method, request.path, request.body or None, request.headers | length)
            response = connection.getresponse()
            content = response.read()
            headers = {name: value for name, value in response.getheaders() if name.lower() not in _NOT_ANSWERED}
            size = response.getheader("Content-Length") if request.method == "HEAD" else None
            return _Answer(response.status, headers | {"Content-Length": size or str(len(content))}, content)
        finally:
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    gate: Gate

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == "/-/attempt":
            answer = _Answer(200, {"Content-Length": "0"}, b"") if self.gate.attempt(json.loads(body)) else None
        else:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _NOT_FORWARDED}
            answer = self.gate.pass_on(_Request(self.command, self.path, headers, body))
            if answer is None:
                self.gate.wait_for_end()
        if answer is None:
            self.close_connection = True
            return
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.content)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - http.server's names

    def log_message(self, format: str, *args: object) -> None:
        """Write no log."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore connections that end early: workers die and time out here."""
