"""A durable function that hands each object on to a system of the team's, by HTTP, and writes a fenced output.

It is what `@durable_execution` of the SDK makes of a handler: an answer with a status, also for an exception. PENDING
means that the execution waits, and that Lambda invokes the function again.
"""

import hashlib
import json
import os
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import boto3

from intake_ledger import ObjectChange

direct = build_opener(ProxyHandler({}))
s3 = boto3.client("s3")


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    """Answer as the SDK does. An exception ends the execution, and a process that dies does not."""
    try:
        result = deliver(ObjectChange.of_execution(event, make_client=lambda: s3))
    except Exception as error:  # noqa: BLE001 - as the SDK does
        return {"Status": "FAILED", "Error": {"ErrorType": type(error).__name__, "ErrorMessage": str(error)}}
    return {"Status": "SUCCEEDED", "Result": json.dumps(result)} if result else {"Status": "PENDING"}


def deliver(change: ObjectChange) -> dict[str, str] | None:
    """Delivered means answered with 200. 202 means not yet, and 422 is a refusal for good."""
    with change.open() as stream:
        content = hashlib.md5(stream.read(), usedforsecurity=False).hexdigest()
    delivery = {
        "key": change.key,
        "version": change.version_id,
        "content": content,
        "attempt": change.attempt,
        "fence": change.fence,
        "idempotency_key": change.idempotency_key,
        "pid": os.getpid(),
    }
    try:
        with direct.open(Request(os.environ["DOWNSTREAM_URL"], data=json.dumps(delivery).encode())) as answer:
            if answer.status == 202:
                return None
    except HTTPError as refused:
        if refused.code == 422:
            return {"unprocessable": refused.read().decode()}
        raise
    change.output(os.environ["OUTPUTS"], change.key).put(f"{change.fence} {change.version_id}".encode())
    # No other execution returns the same.
    return {"commit": f"{change.version_id} by {change.fence}"}
