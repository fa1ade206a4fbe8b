"""Log lines are Powertools' own, to the letter, whoever writes them."""

import io
import json
import logging
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from aws_lambda_powertools import Logger
from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter

from intake_ledger.loglines import FrequentLine, LogLines
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


def test_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same second and of others, wherever the clock is."""
    moments = (0.0, 0.999, 59.0, 59.001, 59.998, 60.0, 86_399.5, 59.25)
    for zone in ("UTC", "Asia/Kathmandu", "America/St_Johns"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        ours, theirs = LogLines(), LambdaPowertoolsFormatter()
        for moment in moments:
            one = record(**EXTRA)
            one.created, one.msecs = 1_763_000_000 + moment, moment * 1000 % 1000 // 1 + 0.0
            assert ours.format(one) == theirs.format(one)
    monkeypatch.undo()
    time.tzset()


class TestFrequentLine:
    @pytest.fixture
    def lines(self) -> Iterator[io.StringIO]:
        """What a service's logger writes, and its level and handlers."""
        written = io.StringIO()
        Logger(service="frequent", stream=written, logger_formatter=LogLines(), level="INFO")
        yield written
        del logging.Logger.manager.loggerDict["frequent"]

    def test_it_is_what_the_logger_would_write(self, lines: io.StringIO) -> None:
        """Where and when it was written aside."""
        logger = Logger(service="frequent")

        def decided() -> None:
            logger.info("verdict", extra=EXTRA)

        decided()
        FrequentLine("frequent", decided.__code__).write("verdict", EXTRA)
        theirs, ours = (json.loads(line) for line in lines.getvalue().splitlines())
        moments = [datetime.strptime(line.pop("timestamp"), "%Y-%m-%d %H:%M:%S,%f%z") for line in (theirs, ours)]
        assert timedelta() <= moments[1] - moments[0] < timedelta(minutes=1)
        assert [line.pop("location").partition(":")[0] for line in (theirs, ours)] == ["decided", "decided"]
        assert ours == theirs
        assert list(ours) == list(theirs)

    def test_the_level_decides(self, lines: io.StringIO) -> None:
        line = FrequentLine("frequent", self.test_the_level_decides.__code__)
        logging.getLogger("frequent").setLevel("WARNING")
        line.write("verdict", EXTRA)
        assert lines.getvalue() == ""

    def test_filters_are_asked(self, lines: io.StringIO) -> None:
        """A team's own, on the service's logger."""
        logger, unwanted = logging.getLogger("frequent"), lambda one: one.key != EXTRA["key"]
        logger.addFilter(unwanted)
        FrequentLine("frequent", self.test_filters_are_asked.__code__).write("verdict", EXTRA)
        logger.removeFilter(unwanted)
        assert lines.getvalue() == ""

    def test_lines_have_nothing_of_each_other(self, lines: io.StringIO) -> None:
        line = FrequentLine("frequent", self.test_filters_are_asked.__code__)
        line.write("verdict", {"key": "a", "why": "new"})
        line.write("verdict", {"key": "b"})
        first, second = (json.loads(one) for one in lines.getvalue().splitlines())
        assert (first["key"], first["why"], second["key"], "why" in second) == ("a", "new", "b", False)


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
    assert (ours["message"], ours["reason"], ours["service"]) == (
        "ignored",
        "S3's test event",
        "a-service-of-this-test",
    )
    assert theirs["message"] == {"order": 7}
