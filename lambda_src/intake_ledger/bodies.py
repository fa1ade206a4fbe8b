"""The bodies of the hot path's requests, in place of botocore's general serialiser, which takes several times as long.

It walks through the parameters by the description of the service. DynamoDB's typed form is its JSON already where no
value is binary, and the ledger's are text and numbers. botocore asks before it serialises, and again before it makes a
request of what came out: the parameters are set aside in between. Where a release of it did not ask the second time,
the body would be empty and DynamoDB would refuse it: nothing wrong could be written.
"""

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

OPERATIONS = ("BatchExecuteStatement", "PutItem", "UpdateItem")
"""What is sent for every change. Transactions are not among them: the team's own values may be binary."""
_ASIDE = "intake_ledger_parameters"
_FOR_THE_ENDPOINT = "TableName"
"""The one parameter that botocore may find the endpoint by."""


def lean_bodies(client: "DynamoDBClient") -> None:
    """Make this client write the parameters of these operations as they are. A value that JSON does not know, such as
    bytes, raises a TypeError.
    """
    events: Any = client.meta.events  # its types know of no answers
    for operation in OPERATIONS:
        events.register(f"provide-client-params.dynamodb.{operation}", _set_aside)
        events.register(f"before-call.dynamodb.{operation}", _write)


def _set_aside(params: dict[str, Any], context: dict[str, Any], **_: Any) -> dict[str, Any]:
    context[_ASIDE] = params
    return {_FOR_THE_ENDPOINT: params[_FOR_THE_ENDPOINT]} if _FOR_THE_ENDPOINT in params else {}


def _write(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    """Into the request, which is signed and sent after this."""
    params["body"] = json.dumps(context[_ASIDE]).encode()
