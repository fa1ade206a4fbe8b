"""A file that cannot be processed is a dead letter with its reason, and has a way back."""

from tests.ordinary.conftest import MARCH, Billing


def test_a_malformed_file_is_a_dead_letter_with_its_reason(billing: Billing) -> None:
    billing.pipeline.put("march.csv", "number,cents\n4713,much\n")
    billing.pipeline.run()
    [message] = billing.pipeline.dead_letters
    assert (message.key, message.reason) == ("march.csv", "line 2, column 'cents': ValueError")
    assert billing.status("march.csv") == "REJECTED"


def test_the_way_back_repeats_no_effect(billing: Billing) -> None:
    """Proof 6. After a repair of the processor, the message goes back. SQS delivers it twice."""
    billing.broken.append("an unknown currency")
    billing.pipeline.put("march.csv", MARCH)
    billing.pipeline.run()
    assert [message.reason for message in billing.pipeline.dead_letters] == ["an unknown currency"]
    billing.broken.clear()
    billing.pipeline.redrive()
    billing.pipeline.duplicate()
    billing.pipeline.run()
    assert billing.cents("march.csv") == 1000
    assert len(billing.pipeline.transacted) == 1
    assert billing.status("march.csv") == "PROCESSED"
