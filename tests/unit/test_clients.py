"""The hot path's clients: leaner than boto3's own, and as strict where the team's data comes in."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.config import Config
from botocore.exceptions import ParamValidationError, UnknownServiceError

from intake_ledger import clients


@pytest.fixture(autouse=True)
def region(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the machine has set is left out of it."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")


def answered(client: Any) -> list[Any]:
    """The requests that the client sends from here on; each is answered with nothing at all."""
    sent: list[Any] = []

    def answer(request: Any, **_: Any) -> Any:
        sent.append(request)
        headers = HTTPHeaders.from_dict({"Content-Type": "application/x-amz-json-1.0"})
        response: Any = AWSResponse("https://nowhere", 200, headers, None)
        response._content = b"{}"
        return response

    client.meta.events.register("before-send", answer)
    return sent


def test_a_transaction_that_is_not_dynamodbs_typed_form_is_refused_before_it_is_sent() -> None:
    """The team's mistake gets a reason of its own, whatever is left out for speed."""
    client = clients.ledger_client()
    sent = answered(client)
    wrong: Any = [{"Put": {"TableName": "invoices", "Item": {"id": 7}}}]
    with pytest.raises(ParamValidationError, match="id"):
        client.transact_write_items(TransactItems=wrong)
    assert sent == []


def test_a_transaction_that_is_right_is_sent() -> None:
    client = clients.ledger_client()
    sent = answered(client)
    client.transact_write_items(TransactItems=[{"Put": {"TableName": "invoices", "Item": {"id": {"S": "7"}}}}])
    assert len(sent) == 1


def test_the_ledgers_own_requests_are_not_checked_again() -> None:
    """A text that is no text would be refused by boto3's check."""
    client: Any = clients.ledger_client()
    sent = answered(client)
    client.get_item(TableName="ledger", Key={"pk": {"S": 1}})
    assert len(sent) == 1


@pytest.fixture
def new_session() -> Iterator[None]:
    """As in a cold start."""
    clients._session.cache_clear()
    yield
    clients._session.cache_clear()


@pytest.mark.usefixtures("new_session")
def test_a_first_client_does_not_look_through_all_services(monkeypatch: pytest.MonkeyPatch) -> None:
    """Botocore lists the folder of each of them, twice, to see whether there is the one."""
    listed: list[Any] = []
    listdir = os.listdir

    def counted(path: Any = ".") -> list[str]:
        listed.append(path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", counted)
    clients.ledger_client()
    assert len(listed) < 10


@pytest.mark.usefixtures("new_session")
@pytest.mark.parametrize("service", clients.SERVICES)
def test_there_is_a_client_of_each_service(service: str) -> None:
    assert clients.make_client(service, Config()).meta.service_model.service_name == service


@pytest.mark.usefixtures("new_session")
def test_a_service_that_the_consumer_does_not_use_is_named() -> None:
    """And so is what to add it to, for whoever comes to use it."""
    with pytest.raises(UnknownServiceError, match=r"'sns'.*dynamodb, lambda, s3, sqs"):
        clients.make_client("sns", Config())


@pytest.mark.parametrize("make", [clients.ledger_client, clients.bucket_client])
def test_the_user_agent_is_given(make: Any) -> None:
    """Or boto3 would put it together twice for each request."""
    client = make()
    assert client.meta.config.user_agent.startswith(clients.USER_AGENT)
    assert client.meta.config.retries == {"mode": "standard", "total_max_attempts": 4}
