"""The consumer's clients validate the team's data and leave out their own."""

from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import ParamValidationError

from intake_ledger.aws import clients


@pytest.fixture(autouse=True)
def region(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the machine's AWS settings."""
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
    """The error describes the processor's mistake, although other requests are not validated."""
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
    """boto3's validation would refuse a number where a text belongs."""
    client: Any = clients.ledger_client()
    sent = answered(client)
    client.get_item(TableName="ledger", Key={"pk": {"S": 1}})
    assert len(sent) == 1


def test_a_get_of_an_object_is_not_checked_again() -> None:
    """boto3's validation would refuse this version."""
    client: Any = clients.bucket_client()
    sent = answered(client)
    client.get_object(Bucket="uploads", Key="a", VersionId=1)
    assert len(sent) == 1


@pytest.mark.parametrize("operation", ["head_object", "put_object", "delete_object", "create_multipart_upload"])
def test_other_requests_to_s3_are_validated(operation: str) -> None:
    """Processors give parts of writes. An empty key of a HEAD would ask for the bucket."""
    client: Any = clients.bucket_client()
    sent = answered(client)
    with pytest.raises(ParamValidationError, match="Key"):
        getattr(client, operation)(Bucket="uploads", Key="")
    assert sent == []


@pytest.mark.parametrize("make", [clients.ledger_client, clients.bucket_client])
def test_the_user_agent_is_given(make: Any) -> None:
    """Or boto3 would put it together twice for each request."""
    client = make()
    assert client.meta.config.user_agent.startswith(clients.USER_AGENT)
    assert client.meta.config.retries == {"mode": "standard", "total_max_attempts": 4}
