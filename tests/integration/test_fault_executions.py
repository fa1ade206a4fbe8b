"""Test the parts of the fault run of executions: the judge, the death of a client, and errors of Step Functions."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler

import pytest

from intake_ledger.executions.decide import execution_name
from intake_ledger.protocol.row import RowKey
from intake_ledger_testing import local_server
from tests.local.faults.durable_api import DurableApi, Invoked
from tests.local.faults.execution_judge import Execution, Image, Started, judge_executions
from tests.local.faults.proxy import Fault, Proxy, Trouble
from tests.local.faults.servers import Server


def execution(key: str, version: str, fence: int, **changes: object) -> Execution:
    """An execution that took a second and succeeded."""
    one = Execution(
        name=execution_name(RowKey(f"bucket/{key}", "p"), fence),
        key=key,
        version=version,
        attempt=1,
        fence=fence,
        status="SUCCEEDED",
        started=fence,
        stopped=fence + 1,
        commit=f"{version} by {fence}",
    )
    return replace(one, **changes)  # type: ignore[arg-type] # by name


def image(one: Execution, status: str, **changes: object) -> Image:
    """The row of its claim after a change."""
    row = Image(
        pk=f"bucket/{one.key}",
        sk="p",
        status=status,
        version=one.version,
        fence=one.fence,
        attempt=one.attempt,
        commit=one.commit if status == "PROCESSED" else "",
    )
    return replace(row, **changes)  # type: ignore[arg-type] # by name


OLD, NEW = execution("a", "v1", 1), execution("a", "v2", 3)
FAILED = execution("b", "v3", 1, status="FAILED", commit="")
AGAIN = execution("b", "v3", 5, attempt=2)
REFUSED = execution("c", "v4", 1, commit="")
IMAGES = (
    image(OLD, "PROCESSING"),
    image(FAILED, "PROCESSING"),
    image(FAILED, "FAILED"),
    image(OLD, "PROCESSED"),
    image(NEW, "PROCESSING"),
    image(NEW, "PROCESSED"),
    image(REFUSED, "REJECTED"),
    image(AGAIN, "PROCESSED"),
)
RIGHT = Started([OLD, NEW, FAILED, AGAIN, REFUSED], IMAGES, {"a": "v2", "b": "v3", "c": "v4"}, {"b": 2})


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        (replace(RIGHT, executions=RIGHT.executions[1:]), "a: the claim with the fence 1 has no execution"),
        (replace(RIGHT, executions=[*RIGHT.executions, execution("a", "v2", 9, attempt=2)]), "no claim has the fence"),
        (replace(RIGHT, executions=[replace(OLD, name="by-hand"), *RIGHT.executions[1:]]), "has the name 'by-hand'"),
        (replace(RIGHT, executions=[replace(OLD, version="v2"), *RIGHT.executions[1:]]), "got 'v2', attempt 1"),
        (replace(RIGHT, executions=[replace(OLD, attempt=2), *RIGHT.executions[1:]]), "got 'v1', attempt 2"),
        (replace(RIGHT, executions=[*RIGHT.executions[:-1], replace(REFUSED, status="RUNNING")]), "is RUNNING in the"),
        (replace(RIGHT, attempts={}), "'v3' had the attempts [1, 2], expected were [1]"),
        (replace(RIGHT, attempts={"b": 2, "c": 2}), "'v4' had the attempts [1], expected were [1, 2]"),
        (replace(RIGHT, current={**RIGHT.current, "d": "v5"}), "d: 'v5' had the attempts []"),
        (replace(RIGHT, executions=[replace(OLD, stopped=4), *RIGHT.executions[1:]]), "two executions at the same"),
        (replace(RIGHT, executions=[replace(OLD, stopped=0), *RIGHT.executions[1:]]), "two executions at the same"),
        (replace(RIGHT, executions=[replace(OLD, started=5, stopped=6), *RIGHT.executions[1:]]), "of 3 was followed"),
        (replace(RIGHT, images=[*IMAGES, image(NEW, "PROCESSED")]), "the execution of 3 has the commits ['v2 by 3', "),
        (replace(RIGHT, images=[*IMAGES[:-1], image(AGAIN, "PROCESSED", commit="v2 by 3")]), "its output is ['v3 by"),
        (replace(RIGHT, images=[*IMAGES[:-1], image(AGAIN, "FAILED")]), "the execution of 5 has the commits []"),
        (
            replace(RIGHT, images=[*IMAGES, image(FAILED, "PROCESSED", commit="x")]),
            "the commits ['x'], its output",
        ),
        (replace(RIGHT, images=[*IMAGES, image(REFUSED, "PROCESSED")]), "c: the execution of 1 has the commits ['']"),
    ],
)
def test_each_wrong_execution_is_found(facts: Started, problem: str) -> None:
    """One thing at a time is altered in facts that were right."""
    assert judge_executions(RIGHT) == []
    assert any(problem in found for found in judge_executions(facts)), judge_executions(facts)


class _Target(BaseHTTPRequestHandler):
    """Stands for the local AWS. `reached` are the requests that came through."""

    reached: list[str]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.reached.append(self.path)
        self.send_response_only(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")


@pytest.fixture
def reached() -> list[str]:
    return []


@pytest.fixture
def proxy(reached: list[str]) -> Iterator[Proxy]:
    with Server(type("Target", (_Target,), {"reached": reached})) as target:
        yield Proxy(lambda: target.url)


@pytest.mark.parametrize(("trouble", "arrives"), [(Trouble.KILLED, 0), (Trouble.KILLED_AFTER, 1)])
def test_the_sender_of_a_request_dies(proxy: Proxy, reached: list[str], trouble: Trouble, arrives: int) -> None:
    """Before or after AWS runs the request. Requests without the text pass."""
    code = (
        "import sys, urllib.request as u; call = u.build_opener(u.ProxyHandler({})).open\n"
        "for body in (b'another', b'PROCESSING', b'PROCESSED', b'never'):\n"
        "    call(u.Request(sys.argv[1], data=body, headers={'X-Amz-Target': 'DynamoDB.UpdateItem'}))"
    )
    outbreak = proxy.break_out("PROCESS", Fault(trouble, 1, ("UpdateItem",), says="ED"))

    with proxy.server() as server:
        process = subprocess.run([sys.executable, "-c", code, server.url], check=False)

    assert process.returncode == -signal.SIGKILL
    assert (outbreak.over, len(reached)) == (True, 2 + arrives)


@pytest.fixture
def api() -> DurableApi:
    """A function that waits in its first invocation, dies in the second, and then has ended."""
    ends = iter(({"Status": "PENDING"}, None, {"Status": "SUCCEEDED", "Result": '{"commit": "c"}'}))
    return DurableApi(lambda _function, _payload: Invoked(next(ends)), again_seconds=0)


def test_durable_executions_have_the_rules_of_lambda(api: DurableApi) -> None:
    """Over HTTP: the same start, another payload, a name in the queue, an end after three invocations, and a fault."""
    proxy = Proxy(lambda: "", durable=api)
    api.queued["queued"] = 3600
    with proxy.server() as server:
        client = local_server.create_client("lambda", server.url, "us-east-1")

        def start(name: str, payload: bytes) -> str:
            function = "arn:aws:lambda:us-east-1:000000000000:function:Work:7"
            answer = client.invoke(
                FunctionName=function, InvocationType="Event", DurableExecutionName=name, Payload=payload
            )
            return str(answer["DurableExecutionArn"])

        outbreak = proxy.break_out("one", Fault(Trouble.THROTTLED, 1, ("Invoke",)))
        arn = start("one", b"{}")
        queued = start("two", b'{"a": "queued"}')

        assert start("one", b"{}") == arn
        with pytest.raises(client.exceptions.DurableExecutionAlreadyStartedException):
            start("one", b'{"b": 1}')
        with pytest.raises(client.exceptions.ResourceNotFoundException):
            client.get_durable_execution(DurableExecutionArn=queued)
        thread = api.past["one"].thread
        assert thread is not None
        thread.join()
        assert client.get_durable_execution(DurableExecutionArn=arn)["Result"] == '{"commit": "c"}'
        [found] = client.list_durable_executions_by_function(
            FunctionName=arn.partition("/")[0], DurableExecutionName="one"
        )["DurableExecutions"]
    assert (found["DurableExecutionArn"], found["Status"], api.past["one"].invocations) == (arn, "SUCCEEDED", 3)
    assert outbreak.over
    assert proxy.requests("one")["Invoke"] == 4
