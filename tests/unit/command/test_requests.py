"""F159: the number of requests of `status` does not grow with the number of rows."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from botocore.client import BaseClient

from intake_ledger.audit.row_numbers import RowNumbers
from intake_ledger.protocol.row import breaker_key, to_dynamodb
from tests.unit.command.support import NAME, client, make_site
from tests.unit.command.test_commands import ALARM, Person, leave_report, sit  # noqa: F401 - a fixture
from tests.unit.support import HOUR, MINUTE, START

pytestmark = pytest.mark.usefixtures("dynamodb")
MOST = 20
ROWS = 1_000_000
PAGE = 2_000  # a page of 1 MB


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the requests. A scan or a query of the index has as many pages as a million rows take."""
    counted: Counter[str] = Counter()
    call = vars(BaseClient)["_make_api_call"]

    def noted(caller: Any, operation: str, arguments: Any) -> Any:
        counted[operation] += 1
        answer = call(caller, operation, arguments)
        if arguments.get("IndexName") and counted[operation] * PAGE < ROWS:
            answer |= {"LastEvaluatedKey": {"pk": {"S": f"b/{counted[operation]}"}, "sk": {"S": "x"}}}
            answer["ScannedCount"] = PAGE
        if operation == "DescribeTable":
            answer["Table"] |= {"ItemCount": ROWS}
        return answer

    monkeypatch.setattr(BaseClient, "_make_api_call", noted)
    return counted


@pytest.mark.failure_mode("F159")
def test_status_takes_at_most_twenty_requests_at_a_million_rows(
    sit: Callable[..., Person],  # noqa: F811
    requests: Counter[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The stack, its functions, queues, table, metrics and alarms are in this number."""
    person = sit(make_site(), *((ALARM, f"alarm{n}") for n in range(15)))
    leave_report(person.site)
    functions = person.functions
    for name in ("get_function_configuration", "list_event_source_mappings"):
        method = getattr(functions, name)

        def counted(method: Any = method, name: str = name, **request: Any) -> Any:
            requests[name] += 1
            return method(**request)

        monkeypatch.setattr(functions, name, counted, raising=False)
    requests.clear()
    result = person.reads("status")
    pages_of_the_stack = 1  # CloudFormation answers with up to 100 resources
    assert requests.total() + pages_of_the_stack <= MOST
    assert requests["get_function_configuration"] == 2, "functions of others are not asked for"
    assert requests["Scan"] <= 5
    assert result["table"]["approximateRows"] == ROWS
    assert "only the first" in result["rejected"]["unknown"]


@pytest.mark.failure_mode("F158")
def test_status_shows_the_breaker_with_its_next_probe(sit: Callable[..., Person]) -> None:  # noqa: F811
    """People see since when messages are held back, why, and when it is tried again."""
    person = sit(make_site())
    assert "Breaker  closed" in person.types("status", "--all")
    now = person.reads("status")["at"]
    key = breaker_key(NAME)
    opened = {"opened_at": now - 2 * MINUTE, "next_probe_at": now + 10 * MINUTE, "reason": "HTTPError at invoices:42"}
    item = to_dynamodb({"pk": key.pk, "sk": key.sk, **opened})
    client("dynamodb").put_item(TableName=person.site.deployed.table, Item=item)
    shown = person.types("status")
    assert "open, opened 2 minutes ago, next probe in 9 minutes, the last failure 2 minutes ago, HTTPError at" in shown
    assert "messages are held back" in shown
    assert "see: retry --waiting" in shown
    assert person.reads("status")["breaker"]["openedAt"] == now - 2 * MINUTE


def test_status_shows_rows_and_claims_as_the_last_audit_counted_them(sit: Callable[..., Person]) -> None:  # noqa: F811
    """No request of `status` could count a million rows by status."""
    person = sit(make_site())
    numbers = RowNumbers(Counter(PROCESSED=999_990))
    for number in range(10):
        ended = START if number < 2 else START + 13 * HOUR
        numbers.count("PROCESSING", claimed_at=START - number * HOUR, lease_until=ended, now=START + HOUR)
    rows = numbers.as_json()
    leave_report(person.site, rows=rows)
    shown = person.types("status", "--all")
    assert "999,990 PROCESSED, 10 PROCESSING at the last audit" in shown
    assert "2 lapsed claims, oldest claimed" in shown
    assert "2 claims of dead workers" in shown, "an old claim does not hide a later one"
    assert json.loads(json.dumps(person.reads("status")["audit"]["last"]["rows"])) == rows
