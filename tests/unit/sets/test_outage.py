"""Signs of an outage of the downstream of sets, and of audits that do not run."""

import json
from typing import override

import pytest

from intake_ledger import FileSet
from intake_ledger.messages.row_check import RowFindings
from intake_ledger.set_members.forms import FormKind, FormSettings
from intake_ledger.sets.audit import SetFindings
from intake_ledger.sets.waiting import SetTelemetry
from intake_ledger_testing.local_worker import Killed
from tests.unit.sets.bench import SetBench

SETS = 20


class Bench(SetBench):
    """One execution environment that lives on, as on Lambda, with the telemetry of production."""

    @override
    def _make_telemetry(self) -> SetTelemetry:
        return SetTelemetry()


def out(files: FileSet) -> None:
    raise ConnectionError("the database is down")


def sums(text: str) -> dict[str, float]:
    """The sums of the metrics that a function has written."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        content = json.loads(line) if line.startswith('{"') else {}
        for metrics in content.get("_aws", {}).get("CloudWatchMetrics", ()):
            for metric in metrics["Metrics"]:
                name, value = metric["Name"], content[metric["Name"]]
                found[name] = found.get(name, 0) + (sum(value) if isinstance(value, list) else value)
    return found


@pytest.mark.failure_mode("F243")
def test_an_outage_of_the_downstream_of_sets_is_watched_within_hours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`DownstreamOut` counts `BreakerOpen` in two of four hours. The first watched metric came after 72 hours."""
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "IntakeLedger")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "sets")
    bench = Bench(FormSettings(FormKind.MANIFEST, "**/manifest.json"), process=out, warm=True)
    for number in range(SETS):
        bench.put(f"in/{number}/a.csv")
        bench.put(f"in/{number}/manifest.json", json.dumps(["a.csv"]))
    hours = []
    for _ in range(3):
        bench.run(hours=1)
        hours.append(sums(capsys.readouterr().out))
    assert sum(hour.get("BreakerOpen", 0) > 0 for hour in hours) >= 2
    assert not any(hour.get("Rejected") for hour in hours)


@pytest.mark.failure_mode("F244")
@pytest.mark.parametrize("found", [SetFindings("01"), RowFindings("01", 0)], ids=["sets", "messages"])
def test_each_run_of_an_audit_counts(found: SetFindings | RowFindings) -> None:
    """A run without a finding too."""
    counts = found.counts()
    assert (counts["AuditRuns"], counts["AuditFindings"]) == (1, 0)


def test_a_dry_run_counts_as_no_audit() -> None:
    """The schedule may have stopped."""
    assert SetFindings("01", dry_run=True).counts() == {}


@pytest.mark.failure_mode("F470")
def test_the_audit_tells_the_age_of_the_oldest_claim() -> None:
    """A worker died, and then the wake of its set was lost."""

    def die(files: FileSet) -> None:
        bench.lose_wakes()
        raise Killed

    bench = SetBench(FormSettings(FormKind.MANIFEST, "**/manifest.json"), process=die)
    bench.put("in/1/a.csv")
    bench.put("in/1/manifest.json", json.dumps(["a.csv"]))
    assert bench.run_audit(dry_run=True).oldest_claim_at is None
    bench.run(hours=1)
    claimed_at = bench.known("in/1/manifest.json").updated_at
    assert bench.run_audit(dry_run=True).oldest_claim_at == claimed_at
