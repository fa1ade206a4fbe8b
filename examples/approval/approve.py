"""Answer a request as the person: `python -m examples.approval.approve INVOICE --version ID`.

Without `--version` it lists the open requests of the invoice.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

import boto3
from boto3.dynamodb.conditions import Key


def main() -> int:
    """Answer one request, or list all of an invoice."""
    parser = argparse.ArgumentParser(prog="examples.approval.approve", description=__doc__)
    parser.add_argument("invoice", help="the key of the invoice, such as in/4711.txt")
    parser.add_argument("--version", help="the version of the invoice that is meant")
    parser.add_argument("--refuse", metavar="WHY", help="refuse it with this reason; it is approved when omitted")
    parser.add_argument("--table", default=os.environ.get("REQUESTS_TABLE"), help="default: $REQUESTS_TABLE")
    given = parser.parse_args()
    if not given.table:
        parser.error("which table has the requests? Pass --table, the stack's output OutRequests")
    table = boto3.resource("dynamodb").Table(given.table)
    if given.version is None:
        for request in requests(table, given.invoice):
            print(f"{request['version']}: {request['text']}")
        return 0
    try:
        answer(table, boto3.client("lambda"), given.invoice, given.version, refuse=given.refuse)
    except LookupError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def requests(table: Any, invoice: str) -> list[dict[str, Any]]:
    """The open requests about an invoice, oldest first."""
    found = table.query(KeyConditionExpression=Key("invoice").eq(invoice), ConsistentRead=True)["Items"]
    return list(found)


def answer(table: Any, lambda_client: Any, invoice: str, version: str, *, refuse: str | None = None) -> None:
    """Answer the newest request about a version, and close it.

    Args:
        table: boto3's table of requests.
        lambda_client: boto3's client.
        invoice: its key.
        version: the version of the object.
        refuse: the reason of a refusal. The invoice is approved when omitted.

    Raises:
        LookupError: No request about this version is open.

    """
    about = [one for one in requests(table, invoice) if one["version"] == version]
    if not about:
        raise LookupError(f"no request about version {version} of {invoice} is open")
    result = {"approved": refuse is None, "why": refuse}
    lambda_client.send_durable_execution_callback_success(
        CallbackId=about[-1]["callback"], Result=json.dumps(result).encode()
    )
    table.delete_item(Key={name: about[-1][name] for name in ("invoice", "fence")})


if __name__ == "__main__":
    sys.exit(main())
