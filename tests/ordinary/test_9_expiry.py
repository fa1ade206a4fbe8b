"""Rows of the ledger have a time to live. An event that comes after it does no harm."""

from datetime import UTC, datetime

from cdk_intake_ledger.testing import events
from tests.ordinary.conftest import MARCH, Billing

DAY = 86_400_000


def test_a_committed_row_expires_after_the_retention_in_seconds(billing: Billing) -> None:
    """DynamoDB's time to live is a number of seconds since 1970."""
    billing.pipeline.put("march.csv", MARCH)
    billing.pipeline.run()
    row = billing.pipeline.row("march.csv")
    assert row is not None
    assert row.expires_at is not None
    days = (row.expires_at * 1000 - billing.pipeline.now) / DAY
    assert 35 - 1 < days < 35 + 1


def test_an_event_that_is_older_than_the_retention_has_no_effect(billing: Billing) -> None:
    """The row has gone, so nothing else would tell it from a new event."""
    version = billing.pipeline.put("march.csv", MARCH)
    billing.pipeline.lose()
    late = events.s3_notification("local-bucket", "march.csv", version_id=version, etag="e", time=_now(billing))
    billing.pipeline.clock.advance(60 * DAY)
    billing.pipeline.send(late)
    billing.pipeline.run()
    assert billing.cents("march.csv") is None
    assert billing.processed == []


def _now(billing: Billing) -> datetime:
    return datetime.fromtimestamp(billing.pipeline.now / 1000, UTC)
