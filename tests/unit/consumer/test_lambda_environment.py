"""Lambda's environment: frozen between invocations, a start of ten seconds, SIGTERM, and the limits of metrics in logs.

No emulator freezes a process. These tests let an hour pass for the consumer's clock, and close its connections.
"""

import json
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from intake_ledger.aws.clients import ledger_client, make_client
from intake_ledger.consumer import composition
from intake_ledger.consumer.circuit_breaker import THRESHOLD
from intake_ledger.consumer.deadline import Overrun
from intake_ledger.ledger.ledger import Claim
from intake_ledger.observability.powertools import PowertoolsTelemetry
from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.reasons import OutcomeKind
from intake_ledger.protocol.row import Row, RowKey, Status
from intake_ledger.protocol.verdict import Verdict
from intake_ledger_testing.consumers import object_consumer
from tests.unit.consumer.test_consumer import FULL_TIME, OUTAGE, Bench, Context, bench, message, put, raising
from tests.unit.support import HOUR, SECOND, created

__all__ = ["bench"]


@dataclass
class Frozen:
    """One environment, with the consumer that it keeps between its invocations."""

    bench: Bench
    consumer: Any = None

    def __post_init__(self) -> None:
        self.consumer = object_consumer(self.bench.services(), self.bench.process)

    def invoke(self, *messages: Any) -> list[str]:
        clock = self.bench.world.clock
        answer = self.consumer.handle({"Records": messages}, Context(clock, clock() + FULL_TIME))
        return [one["itemIdentifier"] for one in answer["batchItemFailures"]]


@pytest.mark.failure_mode("F414")
def test_an_open_breaker_asks_again_after_a_freeze(bench: Bench) -> None:
    """Its pauses have passed meanwhile. The first message is tried, and its success closes the breaker."""
    frozen = Frozen(bench)
    # An error of its own: a read that has raised an error has left its note on it.
    bench.acts = [raising(ClientError(OUTAGE.response, "PutItem"))] * THRESHOLD
    for number in range(THRESHOLD):
        assert frozen.invoke(message(put(bench, key=f"in/{number}")[1], f"m{number}")) == [f"m{number}"]
    assert bench.telemetry.said == ["out"]
    bench.world.clock.advance(HOUR)
    assert frozen.invoke(message(put(bench, key="in/later")[1])) == []
    assert bench.telemetry.said == ["out", "back"]


@pytest.mark.failure_mode("F414")
def test_a_claim_that_lapsed_during_a_freeze_is_taken_over(bench: Bench) -> None:
    """The environment failed a record, and was frozen. Another one had the next attempt."""
    frozen, state_and_body = Frozen(bench), put(bench)
    bench.acts = [raising(OUTAGE)]
    assert frozen.invoke(message(state_and_body[1])) == ["m1"]
    bench.world.clock.advance(HOUR)
    assert bench.handle(message(state_and_body[1])) == []
    assert frozen.invoke(message(state_and_body[1])) == []
    assert (len(bench.seen), bench.telemetry.verdicts[-1]) == (2, Verdict.DUPLICATE)


@pytest.mark.failure_mode("F414")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("end", [None, OUTAGE, Overrun()], ids=["success", "failure", "overrun"])
def test_nothing_runs_on_after_an_invocation(bench: Bench, end: BaseException | None, threads: int) -> None:
    """A timer that is set when the environment is frozen would interrupt the next invocation at its begin."""
    bench.threads = threads
    bench.acts = [] if end is None else [raising(end)] * 3
    before = set(threading.enumerate())
    Frozen(bench).invoke(*(message(put(bench, key=f"in/{number}")[1], f"m{number}") for number in range(3)))
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    idle = set(threading.enumerate()) - before
    assert all(thread.name.startswith("processor_") for thread in idle), "those of the pool wait for work"


@pytest.mark.failure_mode("F415")
def test_the_time_is_read_after_a_slow_start(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processor's import takes ten seconds of the first invocation. Its record would not have its whole time."""

    def slow() -> Any:
        bench.world.clock.advance(10 * SECOND)
        return object_consumer(bench.services(), bench.process)

    monkeypatch.setattr(composition, "make_consumer", slow)
    clock, (_, body) = bench.world.clock, put(bench)
    answer = composition.handler({"Records": [message(body)]}, Context(clock, clock() + FULL_TIME))
    assert answer == {"batchItemFailures": [{"itemIdentifier": "m1"}]}
    assert bench.seen == []
    assert bench.telemetry.verdicts == []
    assert Frozen(bench).invoke(message(body)) == []
    assert [change.attempt for change in bench.seen] == [1]


START = """
import os, signal, socket, sys, threading

def refuse(*_, **__):
    raise AssertionError("a request at the start")

socket.socket.connect = socket.socket.connect_ex = refuse
before = dict(os.environ)
from intake_ledger.consumer import handler
assert callable(handler)
assert dict(os.environ) == before
assert threading.active_count() == 1
assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "SIGTERM ends the process, as SIGKILL does"
"""


@pytest.mark.failure_mode("F415")
@pytest.mark.failure_mode("F416")
def test_a_start_has_no_effect() -> None:
    """Lambda repeats a start that takes longer than ten seconds. SIGTERM, which only extensions bring, ends a start."""
    done = subprocess.run([sys.executable, "-c", START], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@dataclass
class Closing:
    """A server that answers one request on its first connection, and then ends that connection."""

    reset: bool
    body: bytes
    answers: int = 0
    closed: threading.Event = field(default_factory=threading.Event)
    listener: socket.socket = field(default_factory=socket.socket)
    _is_first: bool = True

    def __post_init__(self) -> None:
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(8)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            first, self._is_first = self._is_first, False
            threading.Thread(target=self._serve, args=(connection, first), daemon=True).start()

    def _serve(self, connection: socket.socket, first: bool) -> None:
        with connection:
            while _request(connection):
                if first and self.reset and self.answers:
                    # The connection looked open. The peer knows nothing of it any more.
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                self.answers += 1
                head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(self.body)}\r\n\r\n"
                connection.sendall(head.encode() + self.body)
                if first and not self.reset:
                    break
        self.closed.set()


def _request(connection: socket.socket) -> bool:
    """Read a whole request. False: the client has closed the connection."""
    data = b""
    while True:
        head, _, rest = data.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
        if b"\r\n\r\n" in data and len(rest) >= int(length[1] if length else 0):
            return True
        more = connection.recv(65_536)
        if not more:
            return False
        data += more


@pytest.fixture
def closing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], Closing]]:
    made: list[Closing] = []

    def make(body: bytes) -> Closing:
        made.append(Closing(request.param, body))
        for name, value in (("URL", made[-1].url), ("REGION", "eu-west-1")):
            monkeypatch.setenv("AWS_ENDPOINT_URL" if name == "URL" else "AWS_DEFAULT_REGION", value)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        return made[-1]

    yield make
    for one in made:
        # A thread that waits in `accept` takes the connections of a later listener with the same file descriptor.
        with suppress(OSError):
            one.listener.shutdown(socket.SHUT_RDWR)
        one.listener.close()


@pytest.mark.failure_mode("F414")
@pytest.mark.parametrize("closing", [False, True], ids=["closed", "reset"], indirect=True)
def test_a_connection_that_was_closed_meanwhile_costs_nothing(closing: Callable[[bytes], Closing]) -> None:
    """An idle connection lives for less than an hour. The clients repeat the request on a new one."""
    server = closing(b'{"MD5OfMessageBody": "92eb5ffee6ae2fec3ad71c777531578f", "MessageId": "1"}')
    ledger, queue = ledger_client(), make_client("sqs")
    for _ in range(2):
        ledger.get_item(TableName="ledger", Key={"pk": {"S": "a"}, "sk": {"S": "b"}})
        assert server.reset or server.closed.wait(60)
    assert server.answers == 2
    queue.send_message(QueueUrl=f"{server.url}/1/queue", MessageBody="b")
    assert server.answers == 3


@pytest.mark.failure_mode("F414")
@pytest.mark.parametrize("closing", [True], ids=["reset"], indirect=True)
def test_a_call_that_meets_a_dead_connection_is_not_repeated(closing: Callable[[bytes], Closing]) -> None:
    """The function may have run, so the attempt counts. The next attempt has a new connection."""
    server = closing(b'{"commit": null}')
    client = make_client("lambda", retries={"total_max_attempts": 1})
    client.invoke(FunctionName="f", Payload=b"{}")["Payload"].read()
    with pytest.raises(BotoCoreError):
        client.invoke(FunctionName="f", Payload=b"{}")
    assert server.answers == 1
    client.invoke(FunctionName="f", Payload=b"{}")["Payload"].read()
    assert server.answers == 2


@pytest.mark.thorough
@pytest.mark.failure_mode("F417")
def test_the_largest_batch_writes_lines_that_cloudwatch_reads(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line has at most 1 MB, 100 metrics and 100 values of each. CloudWatch drops a longer one silently."""
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "IntakeLedger")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "a" * 250)
    telemetry = PowertoolsTelemetry()
    change = replace(created(State(StateKind.OBJECT, "v1")), event_time=1_000)
    row = Row(Status.PROCESSING, 1, attempts=1, updated_at=5_000)
    claim = Claim(RowKey("uploads/a", "p@latest"), change, State(StateKind.OBJECT, "v1"), row, None, "why")
    for _ in range(10_000):
        telemetry.ended(claim, OutcomeKind.COMMITTED, duration_ms=500)
    telemetry.flush()
    lines = [line for line in capsys.readouterr().out.splitlines() if '"_aws"' in line]
    assert sum(len(json.loads(line).get("CommitLag", [])) for line in lines) == 10_000
    assert max(len(line.encode()) for line in lines) < 1_000_000
    for line in lines:
        ((metrics,),) = [[one["Metrics"] for one in json.loads(line)["_aws"]["CloudWatchMetrics"]]]
        assert len(metrics) <= 100
        assert max(len(value) for value in json.loads(line).values() if isinstance(value, list)) <= 100
