"""A proxy between the deployed functions and the local AWS. It answers chosen requests with errors of AWS.

It corrects the answers that differ from those of AWS.

The functions get its address from `AWS_ENDPOINT_URL_DYNAMODB`, `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL_SFN` and
`AWS_ENDPOINT_URL_LAMBDA`, which every SDK supports.
"""

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from threading import Lock
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from tests.local.corrections import Answer, Corrections, Request, s3_error
from tests.local.faults.clients import kill, process_of
from tests.local.faults.durable_api import DurableApi, service_error
from tests.local.faults.servers import Server, cut

_HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"})
_JSON = "application/x-amz-json-1.0"


class Trouble(StrEnum):
    """Faults of a request."""

    THROTTLED = "throttled"
    """The whole request is throttled."""
    EACH_THROTTLED = "each throttled"
    """A group of statements gets an answer in which every statement is throttled."""
    INTERNAL_ERROR = "internal error"
    CUT = "cut off"
    """The connection ends before AWS runs the request."""
    ANSWER_LOST = "answer lost"
    """AWS runs the request, and the connection ends before the answer."""
    HALF_AN_ANSWER = "half an answer"
    """AWS runs the request, and the connection ends in the middle of the answer's body."""
    KILLED = "worker killed before the request"
    """The process that sent the request gets SIGKILL, and AWS never runs the request."""
    KILLED_AFTER = "worker killed after the request"
    """AWS runs the request, and the process that sent it gets SIGKILL before the answer."""
    SLOW = "slow"
    NONE = "let through"
    """No fault, so that other requests get the next fault."""


@dataclass
class Fault:
    """A fault for the next `times` requests of these operations."""

    trouble: Trouble
    times: int
    operations: tuple[str, ...] = ()
    """Operations, or S3's methods. Empty for all."""
    seconds: float = 0
    """Duration of a SLOW request."""
    says: str = ""
    """Only requests with this text."""
    struck: int = 0


@dataclass
class Outbreak:
    """Faults, one after another, for requests that have `word` in them."""

    word: str
    faults: tuple[Fault, ...]

    @property
    def over(self) -> bool:
        """Return whether each fault has happened `times` times."""
        return all(fault.struck == fault.times for fault in self.faults)


class Asked(NamedTuple):
    """A request: the operation and the body, or S3's method and the path."""

    operation: str
    text: str


@dataclass
class Proxy:
    """Forward requests to `target`, the address of the local AWS once it runs, and record them."""

    target: Callable[[], str]
    durable: DurableApi | None = None
    """Answers Lambda's requests about durable executions."""
    asked: list[Asked] = field(default_factory=list)
    corrections: Corrections = field(init=False)
    _outbreaks: list[Outbreak] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.corrections = Corrections(self._send)

    def server(self) -> Server:
        """Return the server as a context manager."""
        return Server(type("ProxyHandler", (_Handler,), {"proxy": self}))

    def break_out(self, word: str, *faults: Fault) -> Outbreak:
        """Apply the faults, in this order, to the next requests that contain `word`."""
        outbreak = Outbreak(word, faults)
        with self._lock:
            self._outbreaks.append(outbreak)
        return outbreak

    def requests(self, word: str) -> Counter[str]:
        """Count the requests that contain `word`, by operation."""
        return Counter(one.operation for one in tuple(self.asked) if word in one.text)

    def take(self, asked: Asked) -> Fault | None:
        """Record the request and return its fault."""
        with self._lock:
            self.asked.append(asked)
            for outbreak in self._outbreaks:
                if outbreak.word not in asked.text:
                    continue
                for fault in outbreak.faults:
                    if fault.struck < fault.times:
                        if asked.operation in (fault.operations or (asked.operation,)) and fault.says in asked.text:
                            fault.struck += 1
                            return fault
                        break  # this one's turn, and it is about others
        return None

    def _send(self, request: Request) -> Answer:
        target = urlsplit(self.target())
        connection = HTTPConnection(str(target.hostname), target.port, timeout=60)
        try:
            headers = {**request.headers, "Content-Length": str(len(request.body))}
            connection.request(request.method, request.path, request.body or None, headers)
            response = connection.getresponse()
            content = response.read()
            kept = {name: value for name, value in response.getheaders() if name.lower() not in _HOP_BY_HOP}
            if request.method == "HEAD":
                kept["Content-Length"] = response.getheader("Content-Length") or "0"
            return Answer(response.status, kept, content)
        finally:
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proxy: Proxy

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        target = self.headers.get("X-Amz-Target")
        sent = {name.lower(): value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        request = Request(self.command, self.path, sent, body)
        durable = self.proxy.durable
        of_lambda = durable.operation(request) if durable else None
        if of_lambda:
            asked = Asked(*of_lambda)
        elif target:
            asked = Asked(target.rpartition(".")[2], body.decode())
        else:
            asked = Asked(self.command, unquote(self.path))
        fault = self.proxy.take(asked)
        match fault and fault.trouble:
            case Trouble.CUT:
                cut(self)
                return
            case Trouble.KILLED:
                self._kill()
                return
            case Trouble.THROTTLED | Trouble.EACH_THROTTLED | Trouble.INTERNAL_ERROR as trouble:
                self._answer(*(_lambda_error(trouble) if of_lambda else _error(trouble, target, body)))
                return
            case Trouble.SLOW:
                assert fault is not None
                time.sleep(fault.seconds)
        source = durable if durable and of_lambda else self.proxy.corrections
        status, headers, content = source.answer(request)
        if fault and fault.trouble is Trouble.ANSWER_LOST:
            cut(self)
            return
        if fault and fault.trouble is Trouble.KILLED_AFTER:
            self._kill()
            return
        half = fault is not None and fault.trouble is Trouble.HALF_AN_ANSWER
        self._answer(status, headers, content, shown=len(content) // 2 if half else None)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - http.server's names

    def _kill(self) -> None:
        worker = process_of(self.client_address[1], self.connection.getsockname()[1])
        assert worker is not None, "the worker has ended"
        kill(worker)
        cut(self)

    def _answer(self, status: int, headers: dict[str, str], content: bytes, *, shown: int | None = None) -> None:
        self.send_response_only(status)
        for name, value in ({"Content-Length": str(len(content))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[:shown])
        if shown is not None:
            cut(self)


def _error(trouble: Trouble, target: str | None, body: bytes) -> Answer:
    if target is None:
        return _s3_error(trouble)
    return _states_error(trouble) if target.startswith("AWSStepFunctions.") else _dynamodb_error(trouble, body)


def _states_error(trouble: Trouble) -> Answer:
    """Return Step Functions' answer, with the common error types of its API reference."""
    if trouble is Trouble.INTERNAL_ERROR:
        return _as_json(500, {"__type": "InternalFailure", "message": "An unknown error has occurred."})
    return _as_json(400, {"__type": "ThrottlingException", "message": "Rate exceeded"})


def _lambda_error(trouble: Trouble) -> Answer:
    """Return Lambda's answer, with the errors of GetDurableExecution in its API reference."""
    if trouble is Trouble.INTERNAL_ERROR:
        return service_error(500, "ServiceException")
    return service_error(429, "TooManyRequestsException")


def _dynamodb_error(trouble: Trouble, body: bytes) -> Answer:
    """Return DynamoDB's answer, with the error types of its API reference for an on-demand table."""
    status, answer = 400, {
        "__type": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",
        "message": "The level of configured provisioned throughput for the table was exceeded. Consider increasing "
        "your provisioning level with the UpdateTable API.",
    }  # fmt: skip
    if trouble is Trouble.INTERNAL_ERROR:
        status, answer = 500, {
            "__type": "com.amazonaws.dynamodb.v20120810#InternalServerError",
            "message": "The request processing has failed because of an unknown error, exception or failure.",
        }  # fmt: skip
    statements = json.loads(body).get("Statements") if trouble is Trouble.EACH_THROTTLED else None
    if statements is not None:
        refused = {"Code": "ThrottlingError", "Message": "Throughput exceeds the current capacity of your table"}
        return _as_json(200, {"Responses": [{"Error": refused} for _ in statements]})
    return _as_json(status, answer)


def _as_json(status: int, answer: object) -> Answer:
    return Answer(status, {"Content-Type": _JSON}, json.dumps(answer).encode())


def _s3_error(trouble: Trouble) -> Answer:
    if trouble is Trouble.INTERNAL_ERROR:
        return s3_error(500, "InternalError", "We encountered an internal error. Please try again.")
    return s3_error(503, "SlowDown", "Please reduce your request rate.")
