"""A file is overwritten while its processor works. The newest state wins, whoever ends last."""

from cdk_intake_ledger.testing import Fault
from tests.ordinary.conftest import APRIL, MARCH, Billing


def test_the_newest_state_wins_although_its_event_comes_first(billing: Billing) -> None:
    """Proof 3. Both events are in the queue, the newer one at its head."""
    billing.pipeline.put("march.csv", MARCH)
    billing.pipeline.put("march.csv", APRIL)
    billing.pipeline.reverse()
    billing.pipeline.run()
    assert billing.cents("march.csv") == 1250
    assert billing.status("march.csv") == "PROCESSED"


def test_a_worker_that_wakes_up_late_changes_nothing(billing: Billing) -> None:
    """It read the first version and paused. Its successor committed the second one. The transaction of the late worker
    is refused as a whole, since its fence is lower.
    """
    billing.pipeline.put("march.csv", MARCH)
    billing.pipeline.put("march.csv", APRIL)
    billing.pipeline.next(Fault.OVERTAKEN)
    billing.pipeline.run()
    assert billing.cents("march.csv") == 1250
    assert [write["Put"]["Item"]["cents"] for write in billing.pipeline.transacted] == [{"N": "1250"}]
