"""The hot path's requests are, byte for byte, what botocore's own serialiser makes of the same parameters."""

from typing import Any

import botocore.session
import pytest
from botocore.config import Config

from intake_ledger import clients
from intake_ledger.bodies import OPERATIONS
from intake_ledger.rows import Retention, Row, RowKey, Status, committed
from intake_ledger.table import LedgerTable, lease_owned
from tests.unit.test_clients import answered, region

__all__ = ["region"]

KEY = RowKey('invoices/a "ü" 😀\n\u2028.csv', "Invoices@latest")
CLAIMED = Row(Status.PROCESSING, 1_763_000_000_000, "v\\1", "e1", 7, sequencer="AA", lease_owner="0f", lease_until=9)
COMMITTED = committed(CLAIMED, "book/1", now=1_763_000_000_500, retention=Retention(86_400))
PLAIN = Config(parameter_validation=False)


def requests(client: Any) -> dict[str, Any]:
    """What the ledger sends, by operation, through this client."""
    sent = answered(client)
    table = LedgerTable(client, "ledger")
    table.insert(KEY, CLAIMED)
    table.update(KEY, CLAIMED, COMMITTED, lease_owned(CLAIMED))
    # The answer, which is empty, names no statement.
    with pytest.raises(KeyError, match="Responses"):
        table.insert_many({KEY: CLAIMED})
    with pytest.raises(KeyError, match="Responses"):
        table.commit_many({KEY: (CLAIMED, COMMITTED)})
    names = ("PutItem", "UpdateItem", "BatchExecuteStatement", "BatchExecuteStatement of commits")
    return dict(zip(names, sent, strict=True))


def test_every_lean_request_is_botocores_own() -> None:
    """Address, body and what says which operation it is."""
    lean = requests(clients.ledger_client())
    session: Any = botocore.session.get_session()
    plain = requests(session.create_client("dynamodb", config=PLAIN))
    assert set(OPERATIONS) < set(lean)
    for name, request in lean.items():
        own = plain[name]
        assert request.body == own.body, name
        assert (request.method, request.url) == (own.method, own.url)
        for header in ("X-Amz-Target", "Content-Type", "Content-Length"):
            assert request.headers[header] == own.headers[header]


def test_a_value_that_json_does_not_know_is_not_sent() -> None:
    client: Any = clients.ledger_client()
    sent = answered(client)
    with pytest.raises(TypeError, match="bytes"):
        client.put_item(TableName="ledger", Item={"pk": {"B": b"1"}})
    assert sent == []


def test_a_tables_arn_still_finds_its_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore reads the account from it, where endpoints belong to accounts."""
    monkeypatch.setenv("AWS_ACCOUNT_ID", "111122223333")
    client: Any = clients.ledger_client()
    sent = answered(client)
    client.put_item(TableName="arn:aws:dynamodb:eu-central-1:444455556666:table/ledger", Item={})
    assert "444455556666.ddb." in sent[0].url
