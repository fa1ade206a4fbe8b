"""S3 never sends the event of an upload. The audit compares bucket and ledger, and finds the file."""

from tests.ordinary.conftest import MARCH, Billing


def test_the_audit_finds_the_file_and_no_other(billing: Billing) -> None:
    billing.pipeline.put("march.csv", MARCH)
    billing.pipeline.run()
    billing.pipeline.put("lost.csv", MARCH)
    billing.pipeline.lose()
    billing.pipeline.clock.advance(2 * 3_600_000)
    assert billing.pipeline.run_audit() == ["lost.csv"]
    billing.pipeline.run()
    assert billing.cents("lost.csv") == 1000
    assert [change.key for change in billing.processed] == ["march.csv", "lost.csv"]
    assert billing.pipeline.run_audit() == []
