"""A processor in Node.js, invoked by the deployed consumer."""

import pytest

from cdk_intake_ledger.testing import LocalAws
from tests.local.conftest import Outputs
from tests.local.support import Catalogue


@pytest.fixture(scope="module")
def remote(aws: LocalAws, outputs: Outputs) -> Catalogue:
    return Catalogue.of(aws, outputs["Local"], "Remote")


def test_it_is_given_the_change_and_its_answer_is_committed(remote: Catalogue) -> None:
    """JSON in, JSON out; the object itself is not opened by the consumer."""
    version = remote.put("in/invoice 1.pdf", b"1")
    assert remote.settled("in/invoice 1.pdf", f"v#{version}")["commit_id"] == f"created {version} at attempt 1"


def test_it_rejects_by_what_it_returns(remote: Catalogue) -> None:
    """The reason is in the dead-letter queue and in the row."""
    remote.put("in/poison.pdf", b"1")
    letter = remote.rejected("in/poison.pdf")
    assert letter["MessageAttributes"]["reason"]["StringValue"] == "no invoice in it"
    row = remote.aws.wait_until(
        lambda: row if (row := remote.ledger_row("in/poison.pdf")).get("status") == "REJECTED" else {}, "the rejection"
    )
    assert row["reason"] == "no invoice in it"


@pytest.mark.parametrize(("name", "why"), [("thrown", "the function failed"), ("slow", "its own timeout")])
def test_an_error_and_a_timeout_are_tried_again(remote: Catalogue, name: str, why: str) -> None:
    """Each is a failure with its reason, and the second attempt succeeds."""
    key = f"in/{name}.pdf"
    version = remote.put(key, b"1")
    assert remote.settled(key, f"v#{version}")["commit_id"] == f"created {version} at attempt 2"

    remote.drained()
    [reason] = [str(record["reason"]) for record in remote.decisions(key) if record["message"] == "failed"]
    assert why in reason
