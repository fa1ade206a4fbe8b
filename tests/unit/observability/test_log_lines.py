"""The lines of ordinary changes have the text that Powertools' own formatter gives them."""

import asyncio
import io
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from aws_lambda_powertools import Logger
from aws_lambda_powertools.logging.buffer import LoggerBufferConfig
from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter

from intake_ledger.ledger.ledger import Claim
from intake_ledger.observability.log_lines import ChangeFormatter
from intake_ledger.observability.powertools import PowertoolsTelemetry
from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.reasons import OutcomeKind
from intake_ledger.protocol.row import Row, RowKey, Status
from intake_ledger.protocol.verdict import Ruling, Verdict
from tests.unit.support import created, make_reason

STATE = State(StateKind.OBJECT, "v1", "é", 3)
CHANGE = replace(created(STATE), event_time=1_000)
ROW = Row(Status.PROCESSING, 5, lease_until=9, updated_at=7)
CLAIM = Claim(RowKey("uploads/a", "p@latest"), CHANGE, STATE, ROW, None, "a new key")


@pytest.fixture(autouse=True)
def _in_lambda(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "IntakeLedger")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", request.node.name)  # Powertools keeps the logger of a service
    monkeypatch.setenv("_X_AMZN_TRACE_ID", "Root=1-abc;Parent=x;Sampled=1")
    monkeypatch.setattr(logging.time, "time_ns", lambda: 1_700_000_000_042_000_000)  # type: ignore[attr-defined]


def written(telemetry: PowertoolsTelemetry) -> list[str]:
    """A line of each kind: an ordinary change, a duplicate, a takeover, and a failure."""
    stream = io.StringIO()
    [handler] = [one for one in logging.getLogger(Logger().name).handlers if isinstance(one, logging.StreamHandler)]
    handler.setStream(stream)
    for claim in (CLAIM, replace(CLAIM, seen=ROW)):
        telemetry.decided(CHANGE, claim, now=1_500)
        telemetry.ended(claim, OutcomeKind.COMMITTED, duration_ms=3)
    telemetry.decided(CHANGE, Ruling(Verdict.DUPLICATE, "why", replace(ROW, status=Status.PROCESSED)), now=1_500)
    telemetry.ended(CLAIM, OutcomeKind.FAILED, make_reason("no"), duration_ms=3)
    return stream.getvalue().splitlines()


@contextmanager
def long_way(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Powertools' own formatter. The list gets the messages that reach it otherwise."""
    taken: list[str] = []
    own = LambdaPowertoolsFormatter.format

    def counted(self: LambdaPowertoolsFormatter, record: logging.LogRecord) -> str:
        taken.append(record.msg)
        return own(self, record)

    with monkeypatch.context() as patch:
        patch.setattr(LambdaPowertoolsFormatter, "format", counted)
        yield taken


def powertools(monkeypatch: pytest.MonkeyPatch, telemetry: PowertoolsTelemetry) -> list[str]:
    with monkeypatch.context() as patch:
        patch.setattr(ChangeFormatter, "format", LambdaPowertoolsFormatter.format)
        return written(telemetry)


@pytest.mark.parametrize(
    ("change_keys", "short"),
    [
        (lambda _: None, True),
        (lambda logger: logger.append_keys(user="u", nothing=None), True),
        (lambda logger: logger.append_keys(thread="%(thread)d"), False),
        (lambda logger: logger.remove_keys(["location"]), False),
        (lambda logger: logger.append_keys(level="%(levelno)s"), False),
        (lambda logger: logger.append_keys(xray_trace_id=None), False),
        (lambda logger: logger.append_keys(message="%(message)s"), False),
    ],
    ids=["default", "a key", "an attribute", "without location", "another level", "no trace", "message"],
)
def test_the_lines_are_those_of_powertools(
    monkeypatch: pytest.MonkeyPatch, change_keys: Callable[[Logger], None], *, short: bool
) -> None:
    """Also when a processor has changed the keys of the logger meanwhile."""
    telemetry = PowertoolsTelemetry()
    assert written(telemetry) == powertools(monkeypatch, telemetry)
    change_keys(Logger())
    with long_way(monkeypatch) as taken:
        ours = written(telemetry)
    assert ours == powertools(monkeypatch, telemetry)
    assert taken == (["failed"] if short else ["committed", "verdict", "committed", "verdict", "failed"])


def test_the_lines_of_a_thread_with_keys_are_those_of_powertools(monkeypatch: pytest.MonkeyPatch) -> None:
    telemetry = PowertoolsTelemetry()
    Logger().thread_safe_append_keys(user="u")
    try:
        ours = written(telemetry)
        assert ours == powertools(monkeypatch, telemetry)
    finally:
        Logger().thread_safe_clear_keys()
    assert all(json.loads(line)["user"] == "u" for line in ours)


def test_the_lines_of_a_task_are_those_of_powertools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python adds the name of the task to the record."""
    telemetry = PowertoolsTelemetry()

    async def both() -> tuple[list[str], list[str]]:
        return written(telemetry), powertools(monkeypatch, telemetry)

    ours, its = asyncio.run(both())
    assert ours == its


def test_a_line_has_the_fields_of_its_change() -> None:
    committed, *_ = map(json.loads, written(PowertoolsTelemetry()))
    assert committed["location"].startswith("ended:")
    assert committed["xray_trace_id"] == "1-abc"
    assert (committed["level"], committed["message"], committed["key"]) == ("INFO", "committed", CHANGE.key)
    assert "lapsed" not in committed


def test_the_level_is_respected() -> None:
    telemetry = PowertoolsTelemetry()
    Logger().setLevel("WARNING")
    assert [json.loads(line)["message"] for line in written(telemetry)] == ["failed"]


def test_the_logger_of_a_processor_keeps_its_formatter() -> None:
    """A processor's module was imported first, and made the logger of the service."""

    class Own(LambdaPowertoolsFormatter):
        def format(self, record: logging.LogRecord) -> str:
            return f"own {record.msg} {record.funcName}"

    Logger(logger_formatter=Own())
    lines = written(PowertoolsTelemetry())
    assert lines[0] == "own committed ended"
    assert all(line.startswith("own ") for line in lines)


def test_the_logger_of_a_processor_keeps_its_buffer() -> None:
    """It writes the lines of an invocation only if the invocation fails."""
    Logger(buffer_config=LoggerBufferConfig(buffer_at_verbosity="INFO"))
    assert [json.loads(line)["message"] for line in written(PowertoolsTelemetry())] == ["failed"]


def test_a_second_consumer_of_the_process_writes_as_the_first_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Powertools keeps the formatter of the first. Its own methods are not called."""
    PowertoolsTelemetry()
    telemetry = PowertoolsTelemetry()
    monkeypatch.setattr(Logger, "info", None)
    with long_way(monkeypatch) as taken:
        assert len(written(telemetry)) == 5
    assert taken == ["failed"]
