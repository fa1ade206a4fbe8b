"""The audit counts the rows that it reads, so that `status` need not."""

import json

import pytest

from intake_ledger.audit.report import report_of
from intake_ledger.audit.row_numbers import RowNumbers, row_numbers, total
from intake_ledger.observability.audit_powertools import PowertoolsAuditTelemetry
from intake_ledger.protocol.row import Ordering, Row, Status, row_attributes, to_dynamodb
from tests.unit.audit.support import AuditWorld
from tests.unit.support import HOUR, START


@pytest.mark.parametrize("ordering", list(Ordering))
def test_a_run_counts_rows_by_status_and_claims(ordering: Ordering) -> None:
    """A claim with a living worker is no lapsed one."""
    world = AuditWorld(ordering)
    for name, status, until in (
        *(("done", Status.PROCESSED, None), ("bad", Status.REJECTED, None)),
        *(("dead", Status.PROCESSING, START - 1), ("alive", Status.PROCESSING, START + HOUR)),
    ):
        key = world.row_key(name, world.s3.put(name, version=f"v-{name}"))
        claimed_at = START - 2 * HOUR if name == "dead" else START
        row = Row(status, 1, version_id=f"v-{name}", lease_until=until, updated_at=claimed_at)
        item = to_dynamodb({"pk": key.pk, "sk": key.sk, **row_attributes(row)})
        world.store.items[key.pk, key.sk] = item
    report = world.run()
    assert report.rows.by_status == {"PROCESSED": 1, "REJECTED": 1, "PROCESSING": 2}
    assert (report.rows.lapsed, report.rows.oldest_claim_at) == (1, START - 2 * HOUR)
    assert report_of(json.loads(json.dumps(report.as_json(START)))).rows == report.rows


def test_the_numbers_of_parts_add_up() -> None:
    """They go through files as JSON."""
    parts = []
    for claimed_at in (30, 10, 20):
        part = RowNumbers()
        part.count("PROCESSING", claimed_at=claimed_at, lease_until=15, now=15)
        parts.append(row_numbers(json.loads(json.dumps(part.as_json()))))
    assert total([*parts, RowNumbers()]).as_json() == {
        "byStatus": {"PROCESSING": 3},
        "lapsed": 3,
        "removedUnprocessed": 0,
        "oldestClaimAt": 10,
    }


@pytest.mark.parametrize(("claimed_at", "age"), [(START - HOUR, [float(HOUR)]), (None, None)])
def test_the_age_of_the_oldest_claim_is_a_metric(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], claimed_at: int | None, age: list[float] | None
) -> None:
    """Without a claim there is no value."""
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "IntakeLedger")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "orders")
    report = {"startedAt": START, "findings": [], "rows": RowNumbers(oldest_claim_at=claimed_at).as_json()}
    PowertoolsAuditTelemetry().audited(report, {"AuditRuns": 1})
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert next(line for line in lines if "_aws" in line).get("OldestClaimAge") == age
