"""S3 sends an event again, late, or in another order. Each state of a file takes effect once."""

from cdk_intake_ledger.testing import events
from tests.ordinary.conftest import APRIL, MARCH, Billing


def test_a_duplicate_has_no_second_effect(billing: Billing) -> None:
    """Proof 1. The second copy of the message gets a verdict, and the processor is not called."""
    billing.pipeline.put("march.csv", MARCH)
    billing.pipeline.duplicate()
    billing.pipeline.run()
    assert billing.cents("march.csv") == 1000
    assert len(billing.processed) == 1
    assert billing.pipeline.verdicts == {"ACCEPTED": 1, "DUPLICATE": 1}


def test_a_delayed_event_brings_back_no_older_state(billing: Billing) -> None:
    """Proof 2. The event of the first version comes hours after the commit of the second one."""
    version = billing.pipeline.put("march.csv", MARCH)
    billing.pipeline.lose()
    billing.pipeline.put("march.csv", APRIL)
    billing.pipeline.run()
    billing.pipeline.clock.advance(6 * 3_600_000)
    billing.pipeline.send(events.s3_notification("local-bucket", "march.csv", version_id=version, etag="of march"))
    billing.pipeline.run()
    assert billing.cents("march.csv") == 1250
    assert [change.version_id == version for change in billing.processed] == [False]
    assert billing.pipeline.waiting == 0
