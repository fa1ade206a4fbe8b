"""A worker dies or overruns. Its lease ends, and another one takes the file over."""

import pytest

from cdk_intake_ledger.testing import Fault
from tests.ordinary.conftest import MARCH, Billing


@pytest.mark.parametrize("fault", [Fault.TIMED_OUT, Fault.KILLED_BEFORE_EFFECT, Fault.KILLED_AFTER_EFFECT])
def test_the_file_is_processed_after_the_fault_and_counts_once(billing: Billing, fault: Fault) -> None:
    """Proof 4."""
    billing.pipeline.put("march.csv", MARCH)
    billing.pipeline.next(fault)
    billing.pipeline.run()
    assert billing.cents("march.csv") == 1000
    assert billing.status("march.csv") == "PROCESSED"
    assert len(billing.pipeline.transacted) == 1
    assert not billing.pipeline.dead_letters
