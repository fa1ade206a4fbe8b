# ruff: noqa: INP001 - it is an asset
"""The durable function of the stack of checks: it works for a pipeline, and follows orders of the checks."""

import os
import time
from typing import Any

from aws_durable_execution_sdk_python import durable_execution  # Lambda's runtime has it
from checked import count  # type: ignore[import-not-found] # in the same asset

from intake_ledger import ObjectChange


@durable_execution
def handler(event: dict[str, Any], context: Any) -> dict[str, str]:
    """Count the effect of a version, or each invocation for an order.

    Orders: `kill` ends the first process. `fail` raises an error. `seconds` is the time of a step.
    """
    if "order" not in event:
        change = ObjectChange.of_execution(event)
        count(f"{change.bucket}/{change.key}", change.version_id or "-")
        return {"commit": change.idempotency_key}
    invocations = count("durable", event["order"])
    if event.get("kill") and invocations == 1:
        os._exit(1)
    if event.get("fail"):
        raise ValueError("the order is to fail")
    if event.get("seconds"):
        context.step(lambda _: time.sleep(event["seconds"]))
        count("durable", f"{event['order']}#after")
    return {"commit": event["order"]}
