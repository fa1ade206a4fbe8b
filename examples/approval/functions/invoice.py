"""The durable function: it asks a person about an invoice, waits for the answer, and pays the invoice.

Lambda calls `handler` again after the answer. Finished steps are not repeated.
"""

import json
import os
from functools import partial
from typing import Any

import boto3
from aws_durable_execution_sdk_python import DurableContext, durable_execution
from aws_durable_execution_sdk_python.config import Duration, WaitForCallbackConfig
from botocore.exceptions import ClientError

from intake_ledger import ObjectChange

WAIT = WaitForCallbackConfig(timeout=Duration.from_days(10))
"""Without an answer, the execution fails then. The pipeline starts the next attempt, which asks again."""


@durable_execution
def handler(event: dict[str, Any], context: DurableContext) -> dict[str, Any]:
    """Handle one version of an invoice."""
    change = ObjectChange.of_execution(event)
    if change.kind != "created":
        return {"commit": f"nothing left of {change.key}"}
    ask_person = partial(ask, change)
    answer = json.loads(context.wait_for_callback(lambda callback, _: ask_person(callback), "approval", WAIT))
    if not answer["approved"]:
        # The pipeline rejects the invoice with this reason, and does not try it again.
        return {"unprocessable": f"refused: {answer['why']}"}
    paid = context.step(lambda _: pay(change), "pay")
    # Not a commit: if the newer version is deleted, this one is current again, and has to be paid.
    return {"commit": paid} if paid else {"notYet": "a newer version has replaced it", "retryInSeconds": 1}


def ask(change: ObjectChange, callback: str) -> None:
    """Put the request where a person finds it. A repeated step has the same callback."""
    boto3.resource("dynamodb").Table(os.environ["REQUESTS_TABLE"]).put_item(
        Item={
            "invoice": change.key,
            "fence": change.fence,
            "version": change.version_id,
            "text": change.open().read().decode(),
            "callback": callback,
        }
    )


def pay(change: ObjectChange) -> str | None:
    """Write the payment of this version. None: the person has approved it after a newer version had come."""
    if newest_version(change) != change.version_id:
        return None
    return write_payment(change)


def write_payment(change: ObjectChange) -> str:
    """Write the payment, with the fence of the execution in it.

    Raises:
        Overtaken: a later execution has written it.

    """
    payment = {"invoice": change.open().read().decode(), "version": change.version_id, "fence": change.fence}
    change.output(os.environ["PAYMENTS_BUCKET"], f"{change.key}.json").put(json.dumps(payment).encode())
    return f"payment of version {change.version_id}"


def newest_version(change: ObjectChange) -> str | None:
    """The newest version of the object. None if it was deleted."""
    try:
        return str(boto3.client("s3").head_object(Bucket=change.bucket, Key=change.key)["VersionId"])
    except ClientError as error:
        if error.response["Error"]["Code"] != "404":
            raise
        return None
