"""The check of the rows of messages: it finds rows that no message continues."""

from typing import TYPE_CHECKING, Any

import pytest

from intake_ledger.messages.row_check import STUCK_MS, RowCheck
from intake_ledger.protocol.row import Row, Status
from tests.unit.command.support import NAME, Site, client, make_message_site
from tests.unit.support import HOUR, MINUTE, START

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

pytestmark = pytest.mark.usefixtures("dynamodb")


def check(site: Site, dynamodb: "DynamoDBClient | None" = None) -> RowCheck:
    deployed = site.deployed
    return RowCheck(
        dynamodb or client("dynamodb"),
        table=deployed.table,
        pipeline=NAME,
        bucket=deployed.bucket,
        clock=lambda: START,
    )


def plenty() -> float:
    return 60.0


CASES = [
    pytest.param(Row(Status.PROCESSING, 3, lease_until=START - STUCK_MS), True, id="the claim of a dead worker"),
    pytest.param(Row(Status.PROCESSING, 3, lease_until=START - HOUR), False, id="its message comes back"),
    pytest.param(Row(Status.PROCESSING, 3, lease_until=START + MINUTE), False, id="a live claim"),
    pytest.param(Row(Status.FAILED, 3, retry_at=START - STUCK_MS), True, id="failed, overdue"),
    pytest.param(Row(Status.FAILED, 3, retry_at=START + HOUR), False, id="failed, due later"),
    pytest.param(
        Row(Status.FAILED, 3, retry_at=START - STUCK_MS, waiting_since=START - 9 * HOUR), True, id="waiting, overdue"
    ),
    pytest.param(Row(Status.FAILED, 3, updated_at=START - MINUTE), False, id="failed a moment ago"),
    pytest.param(Row(Status.REJECTED, 3), False, id="rejected"),
    pytest.param(Row(Status.PROCESSED, 3, committed_state="v#e1"), False, id="committed"),
]


@pytest.mark.failure_mode("F166")
@pytest.mark.parametrize(("row", "stuck"), CASES)
def test_a_row_that_nothing_continues_is_found(row: Row, *, stuck: bool) -> None:
    site = make_message_site()
    site.row("o-7", row)
    report = check(site).run(plenty).as_json()
    assert report["counts"] == {"stuck": int(stuck)}
    assert report["findings"] == ([{"key": "o-7", "why": "stuck"}] if stuck else [])
    assert report["complete"]


@pytest.mark.failure_mode("F470")
def test_the_check_tells_the_age_of_the_oldest_claim() -> None:
    """The message of a claim may be lost. A row that failed has no claim."""
    site = make_message_site()
    for name, status, at in (("a", Status.PROCESSING, 30), ("b", Status.PROCESSING, 20), ("c", Status.FAILED, 10)):
        site.row(name, Row(status, 3, updated_at=at))
    assert check(site).run(plenty).oldest_claim_at == 20


def test_rows_of_others_of_the_table_do_not_count() -> None:
    """A lock, a record and a row of another intake."""
    site = make_message_site()
    old = {"lease_until": {"N": "1"}, "status": {"S": "PROCESSING"}}
    own = f"{site.deployed.bucket}/o-7"
    for pk, sk in ((own, "Other@v#1"), (f"other/{own}", f"{NAME}@v#1")):
        item: Any = {"pk": {"S": pk}, "sk": {"S": sk}, **old}
        client("dynamodb").put_item(TableName=site.deployed.table, Item=item)
    item = {"pk": {"S": own}, "sk": {"S": f"{NAME}@lock"}, "lease_until": {"N": "1"}}
    client("dynamodb").put_item(TableName=site.deployed.table, Item=item)
    assert check(site).run(plenty).unfinished == 0


def test_a_check_without_time_continues_where_it_ended() -> None:
    """Each row is found in one of the checks, and a dry run begins at the start and keeps no place."""
    site = make_message_site()
    for number in range(5):
        site.row(f"o-{number}", Row(Status.PROCESSING, 3, lease_until=1))

    class OnePerPage:
        """DynamoDB with pages of one row."""

        def scan(self, **request: Any) -> Any:
            return client("dynamodb").scan(**request, Limit=1)

        def __getattr__(self, name: str) -> Any:
            return getattr(client("dynamodb"), name)

    pages: Any = OnePerPage()
    found = []
    while True:
        report = check(site, pages).run(lambda: 0.0).as_json()
        found += [one["key"] for one in report["findings"]]
        if report["complete"]:
            break
        assert len(found) < 9
    assert sorted(found) == [f"o-{number}" for number in range(5)]
    check(site, pages).run(lambda: 0.0)
    before = client("dynamodb").scan(TableName=site.deployed.table)["Items"]
    assert check(site).run(plenty, dry_run=True).stuck == 5
    assert client("dynamodb").scan(TableName=site.deployed.table)["Items"] == before
