"""Log lines are Powertools' own, to the letter, whoever writes them."""

import json
import logging
import sys
from decimal import Decimal
from typing import Any

import pytest
from aws_lambda_powertools import Logger
from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter

from intake_ledger.loglines import LogLines
from intake_ledger.telemetry import Telemetry

EXTRA = {
    "key": 'a "ü" 😀\n.csv',
    "version_id": None,
    "fence": 1_763_000_000_000,
    "amount": Decimal("1.5"),
    "exception": "x",
}


def record(message: Any = "verdict", *args: object, **more: Any) -> logging.LogRecord:
    exc_info = more.pop("exc_info", None)
    made = logging.getLogger("orders").makeRecord("orders", 20, "f.py", 3, message, args, exc_info, "decided", more)
    made.created, made.msecs = 1_763_000_000.042, 42.0
    return made


def both(of: logging.LogRecord, **keys: Any) -> tuple[str, str]:
    """Powertools' line and ours, where these keys are appended to every line."""
    lines = []
    for formatter in (LambdaPowertoolsFormatter(), LogLines()):
        formatter.append_keys(**{"service": "orders", "sampling_rate": None, **keys})
        lines.append(formatter.format(of))
    return lines[0], lines[1]


@pytest.mark.parametrize(
    "message",
    [
        "verdict",
        "",
        " x",
        "7",
        "-1",
        "true",
        "false",
        "null",
        "NaN",
        "Infinity",
        '{"a": 1}',
        "[1]",
        '"b"',
        "\ufeff1",
        7,
    ],
)
def test_any_message(message: object) -> None:
    """Powertools decodes a message that is JSON, so that what may be is left to it."""
    theirs, ours = both(record(message, **EXTRA))
    assert ours == theirs


def test_arguments_and_exceptions() -> None:
    try:
        int("not a number")
    except ValueError:
        failed = record("could not", exc_info=sys.exc_info())
    for one in (record("%s of %d", "one", 2), record({"a": 1}), failed):
        theirs, ours = both(one)
        assert ours == theirs


@pytest.mark.parametrize(
    "keys", [{"order": 7}, {"location": None}, {"level": "is %(levelname)s"}, {"xray_trace_id": None}]
)
@pytest.mark.parametrize("trace", [None, "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=5;Sampled=1", "1-2"])
def test_appended_keys_and_the_trace(monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any], trace: str | None) -> None:
    """The trace is Lambda's, of the invocation; it can be switched off by its key."""
    monkeypatch.delenv("_X_AMZN_TRACE_ID", raising=False)
    if trace:
        monkeypatch.setenv("_X_AMZN_TRACE_ID", trace)
    theirs, ours = both(record(**EXTRA), **keys)
    assert ours == theirs


@pytest.mark.parametrize("extra", [{"stack_trace": "mine"}, {"xray_trace_id": "mine"}])
def test_what_only_powertools_may_say(monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any]) -> None:
    """It leaves out what anybody else gives by these names."""
    monkeypatch.delenv("_X_AMZN_TRACE_ID", raising=False)
    theirs, ours = both(record(**EXTRA, **extra))
    assert ours == theirs
    assert "mine" not in ours


def test_keys_of_a_thread() -> None:
    formatters = [LambdaPowertoolsFormatter(), LogLines()]
    formatters[0].thread_safe_append_keys(request="r1")
    try:
        theirs, ours = (formatter.format(record(**EXTRA)) for formatter in formatters)
    finally:
        formatters[0].thread_safe_clear_keys()
    assert json.loads(ours)["request"] == "r1"
    assert ours == theirs


def test_a_developers_lines_are_indented(monkeypatch: pytest.MonkeyPatch) -> None:
    """As POWERTOOLS_DEV asks for, with a warning."""
    monkeypatch.setenv("POWERTOOLS_DEV", "true")
    with pytest.warns(UserWarning, match="POWERTOOLS_DEV"):
        theirs, ours = both(record(**EXTRA))
    assert "\n" in ours
    assert ours == theirs


def test_the_consumers_lines_are_made_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """And those of a processor that logs by the same service's name come out as ever."""
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "a-service-of-this-test")
    Telemetry().ignored("S3's test event")
    processors = Logger()
    assert isinstance(processors.registered_formatter, LogLines)
    processors.info('{"order": 7}')
    ours, theirs = map(json.loads, capsys.readouterr().out.splitlines())
    assert (ours["message"], ours["why"], ours["service"]) == ("ignored", "S3's test event", "a-service-of-this-test")
    assert theirs["message"] == {"order": 7}
