"""A person asks to process a file again."""

from tests.ordinary.conftest import MARCH, Billing


def test_a_request_runs_once_with_a_new_idempotency_key(billing: Billing) -> None:
    """Proof 7. The message of the request comes twice. The event of the upload, sent again, is still a duplicate."""
    billing.pipeline.put("march.csv", MARCH)
    billing.pipeline.run()
    billing.pipeline.reprocess("march.csv")
    billing.pipeline.duplicate()
    billing.pipeline.run()
    first, second = billing.processed
    assert second.version_id == first.version_id
    assert second.idempotency_key != first.idempotency_key
    assert second.fence > first.fence
    assert billing.cents("march.csv") == 1000
