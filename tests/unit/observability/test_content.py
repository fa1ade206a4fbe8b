"""Keep an object's content out of rows, queues, logs and metrics, although exceptions quote it.

A card number is in the object and in the text of every exception. By default it must be in no output.
"""

import asyncio
import csv
import gzip
import io
import json
import sys
from collections.abc import Callable
from itertools import count
from typing import Any, cast

import pytest
from botocore.exceptions import ClientError, ParamValidationError

from intake_ledger import Commit, ObjectChange, Unprocessable
from intake_ledger.kinds.objects import request_of
from intake_ledger.ledger.dynamodb_table import LedgerTable
from intake_ledger.observability.powertools import PowertoolsTelemetry
from intake_ledger.processor.lambda_processor import remote_function
from intake_ledger.protocol.errors import ObjectGone
from intake_ledger.protocol.row import Status
from intake_ledger.protocol.settings import Reasons
from tests.unit.consumer.test_consumer import Bench, FakeTelemetry, message
from tests.unit.support import KEY, MAX_ATTEMPTS, PIPELINE, World, created, notification, record

pytestmark = pytest.mark.usefixtures("dynamodb")

CARD = "4111111111111111"
CONTENT = f'number,amount\n{CARD},"ten\n'
_NAMES = count(1)
Process = Callable[[ObjectChange], Any]


def _key_error(change: ObjectChange) -> None:
    rows: dict[str, str] = {}
    rows[change.open().read().decode()]


def _chained(change: ObjectChange) -> None:
    text = change.open().read().decode()
    try:
        json.loads(text)
    except ValueError as error:
        raise ValueError(f"not JSON: {text}") from error


def _in_context(change: ObjectChange) -> None:
    text = change.open().read().decode()
    try:
        int(text)
    except ValueError:
        raise LookupError(text)  # noqa: B904 - as a team may write it


def _group(change: ObjectChange) -> None:
    async def fail() -> None:
        raise ValueError(change.open().read())

    async def work() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())

    asyncio.run(work())


def _note(change: ObjectChange) -> None:
    error = ValueError("no")
    error.add_note(change.open().read().decode())
    raise error


def _exit(change: ObjectChange) -> None:
    sys.exit(change.open().read().decode())


def _gone(change: ObjectChange) -> None:
    raise ObjectGone(change.open().read().decode())


def _csv(change: ObjectChange) -> None:
    list(change.csv_rows())


def _own_csv(change: ObjectChange) -> None:
    list(csv.reader(io.TextIOWrapper(change.open(), newline=""), strict=True))


def _json_lines(change: ObjectChange) -> None:
    list(change.json_lines())


def _wrong_encoding(change: ObjectChange) -> None:
    list(change.lines(encoding="utf-16"))


def _wrong_answer(change: ObjectChange) -> dict[str, str]:
    return {change.open().read().decode(): "x"}


def _wrong_transaction(change: ObjectChange) -> Commit:
    return Commit("id", transact=[{"Put": {"TableName": "totals", "Item": {"card": change.open().read().decode()}}}])


def _unknown_element(change: ObjectChange) -> Commit:
    return Commit("id", transact=[{change.open().read().decode(): {}}])


def _aws(change: ObjectChange) -> None:
    text = change.open().read().decode()
    raise ClientError({"Error": {"Code": text, "Message": text}}, "PutItem")


def _parameters(change: ObjectChange) -> None:
    raise ParamValidationError(report=change.open().read().decode())


def _remote(payload: dict[str, Any], *, failed: bool) -> Process:
    class Client:
        def invoke(self, **_: Any) -> dict[str, Any]:
            return {"Payload": io.BytesIO(json.dumps(payload).encode())} | ({"FunctionError": "x"} if failed else {})

    call = remote_function(Client, "function")
    return lambda change: call(request_of(change))


QUOTING: dict[str, Process] = {
    "a KeyError": _key_error,
    "an error and its cause": _chained,
    "an error and its context": _in_context,
    "a group of a task group": _group,
    "a note": _note,
    "an exit": _exit,
    "ObjectGone": _gone,
    "csv_rows": _csv,
    "the team's csv": _own_csv,
    "json_lines": _json_lines,
    "an encoding": _wrong_encoding,
    "a wrong answer": _wrong_answer,
    "a transaction that is not typed": _wrong_transaction,
    "an element that is none": _unknown_element,
    "AWS's error": _aws,
    "boto's error": _parameters,
    "a function that failed": _remote(
        {"errorType": CARD, "errorMessage": CARD, "stackTrace": [CARD], "trace": [CARD]}, failed=True
    ),
    "a function that timed out": _remote({"errorMessage": f"{CARD} Task timed out after 3 s"}, failed=True),
    "a function's other answer": _remote({CARD: CARD}, failed=False),
}
"""Processors that raise exceptions which quote the object."""


@pytest.fixture
def bench(world: World, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The real consumer with its real telemetry."""
    # Powertools keeps one handler for each name, and with it the output of the test that came first.
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", f"{PIPELINE}-{next(_NAMES)}")
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "IntakeLedger")
    return Bench(world)


def kept(bench: Bench, process: Process, content: bytes, output: Callable[[], str]) -> str:
    """All that is left anywhere after every attempt at the object has failed."""
    bench.telemetry = cast("FakeTelemetry", PowertoolsTelemetry(bench.reasons))
    bench.acts = [process] * 2 * MAX_ATTEMPTS
    state = bench.world.s3.put(KEY, content)
    body = notification(record(KEY, state, at=bench.world.clock()))
    found = []
    for receives in range(1, MAX_ATTEMPTS + 1):
        bench.handle(message(body, receives=receives))
        found.append(json.dumps(bench.world.item(created(state))))
        bench.world.clock.advance(10**7)
    assert bench.row(state).status is Status.REJECTED
    assert bench.row(state).reason
    assert bench.queues.copies
    return "\n".join([*found, *(str(attributes) for _, attributes in bench.queues.copies), output()])


@pytest.mark.failure_mode("F114")
@pytest.mark.parametrize("name", QUOTING)
def test_content_stays_where_it_is(name: str, bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """No stored or logged text has the card number."""
    left = kept(bench, QUOTING[name], CONTENT.encode(), lambda: "".join(capsys.readouterr()))
    assert '"verdict":"ACCEPTED"' in left, "the logs are among it"
    assert CARD not in left


@pytest.mark.failure_mode("F114")
def test_a_damaged_archive_is_not_quoted(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """Python quotes the first bytes after a gzip member."""
    content = gzip.compress(b"1\n") + b"41 not a member"
    left = kept(bench, _csv, content, lambda: "".join(capsys.readouterr()))
    assert "b'41'" not in left
    assert "the gzip stream is damaged" in left


@pytest.mark.failure_mode("F114")
def test_messages_are_kept_where_the_team_wants_them(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """With `Reasons.FULL` the row, the dead-letter message and the log have them."""
    bench.reasons = Reasons.FULL
    left = kept(bench, _chained, CONTENT.encode(), lambda: "".join(capsys.readouterr()))
    assert left.count(CARD) >= 3


@pytest.mark.failure_mode("F114")
def test_the_teams_own_verdict_is_kept(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """`Unprocessable` is the reason that the team wrote. Its cause is not kept."""

    def process(change: ObjectChange) -> None:
        try:
            _chained(change)
        except ValueError as error:
            raise Unprocessable("no amount in row 1") from error

    left = kept(bench, process, CONTENT.encode(), lambda: "".join(capsys.readouterr()))
    assert "no amount in row 1" in left
    assert CARD not in left


@pytest.mark.failure_mode("F114")
def test_trouble_of_the_consumers_own_is_logged_by_position(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    """S3, SQS or DynamoDB may quote a value that they refuse."""
    refusal = ClientError({"Error": {"Code": "ValidationException", "Message": f"bad value {CARD}"}}, "PutItem")
    bench.telemetry = cast("FakeTelemetry", PowertoolsTelemetry())
    state = bench.world.s3.put(KEY, "1")
    bench.world.wire.down = refusal
    bench.handle(message(notification(record(KEY, state, at=bench.world.clock()))))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    [said] = [line for line in lines if line.get("level") == "ERROR"]
    assert said["reason"].startswith("ClientError ValidationException")
    assert f"{LedgerTable.__module__}:" in said["stack"][0]
    assert CARD not in json.dumps(lines)
