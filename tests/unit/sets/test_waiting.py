"""The age of the oldest waiting set: a metric of each look at a waiting set, and of the hourly audit."""

import json
from dataclasses import replace

import pytest

from intake_ledger.ledger.ledger import Claim
from intake_ledger.observability.audit_powertools import publish_ages, shortly_audited
from intake_ledger.protocol.change import State, StateKind
from intake_ledger.protocol.reasons import OutcomeKind
from intake_ledger.protocol.row import Row, RowKey, Status
from intake_ledger.set_members.forms import FormKind, FormSettings
from intake_ledger.sets.audit import SetFindings
from intake_ledger.sets.waiting import SetTelemetry
from tests.unit.observability.test_telemetry import values
from tests.unit.sets.bench import SetBench
from tests.unit.sets.stories import tell
from tests.unit.stories import stories
from tests.unit.support import DAY, HOUR, MINUTE, START, created, make_reason

MANIFEST = FormSettings(FormKind.MANIFEST, "**/manifest.json")
QUIET = FormSettings(FormKind.QUIET, "incoming/*/", quiet_seconds=600)
KEY, A = "exports/1/manifest.json", "exports/1/a.csv"


@pytest.fixture(autouse=True)
def _service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "IntakeLedger")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "loads")


@stories("""
    a set that waits no more has no age
        manifest: list a; run 1 h; put a; run; audit sees no wait
    a folder that still gets uploads does not wait for a part
        quiet: put a; run 3 min; waits; audit sees no wait
""")
def test_a_set_that_misses_nothing_has_no_age(story: str) -> None:
    tell(story)


class TestTheAudit:
    @pytest.mark.failure_mode("F170")
    def test_it_tells_the_age_of_the_set_that_waits_the_longest(self) -> None:
        bench = SetBench(MANIFEST)
        bench.put(KEY, '["a.csv"]')
        bench.run(3)
        bench.put("exports/2/manifest.json", '["b.csv"]')
        bench.run(2)
        since = bench.known(KEY).waiting_since
        assert since is not None
        assert bench.run_audit().oldest_waiting_ms == bench.now - since > 4 * HOUR

    @pytest.mark.failure_mode("F170")
    def test_it_needs_no_message_no_listing_and_no_date_of_the_manifest(self) -> None:
        """The queue was purged, the time is over, and the manifest is older than the look-back."""
        bench = SetBench(MANIFEST)
        bench.put(KEY, '["a.csv"]')
        bench.run(1)
        bench.lose_wakes()
        bench.now += 20 * DAY
        found = bench.run_audit(remaining_seconds=0)
        assert found.checked == 0
        assert found.oldest_waiting_ms is not None
        assert found.oldest_waiting_ms > 20 * DAY

    @pytest.mark.parametrize(("age", "written"), [(5 * HOUR, {"OldestWaitingSet": [5.0 * HOUR]}), (None, {})])
    def test_it_writes_the_age_if_there_is_one(
        self, capsys: pytest.CaptureFixture[str], age: int | None, written: dict[str, list[float]]
    ) -> None:
        """CloudWatch charges a custom metric for each hour that has a value."""
        found = SetFindings("01", oldest_waiting_ms=age)
        if age is not None:
            publish_ages({"OldestWaitingSet": age})
        assert values(capsys) == written
        shortly_audited(found.as_json(), found.counts(), {})
        assert values(capsys) == {"AuditRuns": [1.0], "AuditFindings": [0.0], "AuditResubmitted": [0.0]}
        assert json.loads(json.dumps(found.as_json()))["oldestWaitingMs"] == age


class TestTheLook:
    ROW = Row(Status.PROCESSING, 1, version_id="incomplete-0", waiting_since=START, updated_at=START + 2 * HOUR)

    @pytest.mark.failure_mode("F170")
    @pytest.mark.parametrize(
        ("row", "outcome", "age"),
        [
            (ROW, OutcomeKind.WAITING, [2.0 * HOUR + MINUTE]),
            (replace(ROW, version_id="complete-0"), OutcomeKind.WAITING, [2.0 * HOUR + MINUTE]),
            (replace(ROW, version_id="moving-0"), OutcomeKind.WAITING, None),
            (replace(ROW, waiting_since=None), OutcomeKind.WAITING, None),
            (ROW, OutcomeKind.REJECTED, None),
            # The clock of the worker before was ahead.
            (replace(ROW, updated_at=START - HOUR), OutcomeKind.WAITING, [0.0]),
        ],
        ids=["a part is missing", "the processor waits", "uploads", "its first look", "its deadline", "clocks differ"],
    )
    def test_an_attempt_of_a_waiting_set_writes_its_age(
        self, capsys: pytest.CaptureFixture[str], row: Row, outcome: OutcomeKind, age: list[float] | None
    ) -> None:
        """So an alarm needs no audit, and a deadline of minutes has an alarm too."""
        telemetry = SetTelemetry()
        state = State(StateKind.OBJECT, row.version_id)
        claim = Claim(RowKey("uploads/m", "sets@latest"), created(state), state, row, None, "why")
        telemetry.ended(claim, outcome, make_reason("1 of 2 parts are missing"), duration_ms=MINUTE)
        telemetry.flush()
        assert values(capsys).get("OldestWaitingSet") == age
