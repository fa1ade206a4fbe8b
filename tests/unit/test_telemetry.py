"""The consumer's voice: what is counted reaches Powertools once for each invocation."""

import json

import pytest

from intake_ledger.telemetry import Telemetry


def values(capsys: pytest.CaptureFixture[str]) -> dict[str, list[float]]:
    """The metrics that were written since the last look."""
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {name: value for line in lines if "_aws" in line for name, value in line.items() if isinstance(value, list)}


@pytest.fixture
def telemetry(monkeypatch: pytest.MonkeyPatch) -> Telemetry:
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "IntakeLedger")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "orders")
    return Telemetry()


def test_an_invocation_counts_in_one_value_each(telemetry: Telemetry, capsys: pytest.CaptureFixture[str]) -> None:
    """However many records a batch has; and nothing of it is counted again by the next invocation."""
    for _ in range(250):
        telemetry.held_back()
    telemetry.unparseable("not JSON", "m1")
    telemetry.flush()
    assert values(capsys) == {"BreakerOpen": [250.0], "Unparseable": [1.0]}
    telemetry.held_back()
    telemetry.flush()
    assert values(capsys) == {"BreakerOpen": [1.0]}


def test_an_invocation_that_counted_nothing_writes_nothing(
    telemetry: Telemetry, capsys: pytest.CaptureFixture[str]
) -> None:
    telemetry.flush()
    assert capsys.readouterr().out == ""
