"""The time until the message of a dead worker is delivered again."""

import pytest

from cdk_intake_ledger.testing import Fault, LocalPipeline
from intake_ledger import ObjectChange

CLOCK_SKEW, MINUTE = 120, 60


@pytest.mark.failure_mode("F126")
@pytest.mark.parametrize(
    ("processing_timeout", "function_timeout"), [(60, 130), (300, 610), (890, 900)], ids=["60", "300", "890"]
)
@pytest.mark.parametrize("fault", [Fault.KILLED_BEFORE_EFFECT, Fault.KILLED_AFTER_EFFECT])
def test_a_dead_workers_message_is_handled_again_within_a_minute_of_its_lease(
    processing_timeout: int, function_timeout: int, fault: Fault
) -> None:
    """Before, six function timeouts hid it: 13, 61 and 90 minutes."""
    times: list[int] = []

    def process(change: ObjectChange) -> None:
        times.append(pipeline.now)

    pipeline = LocalPipeline(process, processing_timeout=processing_timeout)
    pipeline.next(fault)
    pipeline.put("a", "1")
    uploaded = pipeline.now
    pipeline.run()

    assert pipeline.outcomes["Committed"] == 1
    assert (times[-1] - uploaded) / 1000 <= function_timeout + CLOCK_SKEW + MINUTE
    assert pipeline.verdicts["BUSY"] == 0, "the lease is over by then: F12"
