"""Parse the events of Step Functions that report the end of an execution.

An event only wakes the consumer, and EventBridge may lose it. The input of the execution names the object.
"""

import json
import re
from typing import Any

from intake_ledger.events.parser import (
    Field,
    Ignored,
    MalformedError,
    bucket_name,
    object_key,
    own_message,
    read_fields,
)
from intake_ledger.protocol.change import Change, EndedExecution, Origin, requested_state

_DETAIL = (
    Field("detail.name"),
    Field("detail.status"),
    Field("detail.redriveCount", int, required=False),
)
_INPUT = (
    Field("bucket", convert=bucket_name),
    Field("key", convert=object_key),
    Field("kind"),
    Field("versionId", required=False),
    Field("etag", required=False),
    Field("size", int, required=False),
    Field("fence", int),
)
_NAME = re.compile(r"[0-9a-f]{40}-[1-9]\d*")


def parse_execution_event(event: dict[str, Any]) -> Change | Ignored:
    """Parse an event of Step Functions.

    The body of the change is a message of the object. The event only wakes and is acknowledged at once, so its copy in
    the dead-letter queue could not carry a retry.

    Raises:
        MalformedError: It has not the form of such an event.

    """
    if event.get("detail-type") != "Step Functions Execution Status Change":
        return Ignored("an event of Step Functions that reports no execution")
    name, status, redrives = read_fields(event, _DETAIL)
    # Longer than the texts of S3.
    text = event["detail"].get("input")
    if status in ("RUNNING", "PENDING_REDRIVE"):
        return Ignored("an execution that has not ended")
    if not isinstance(text, str):
        # EventBridge leaves out a long input. The message that started the execution asks for its end.
        return Ignored("the end of an execution without its input")
    try:
        bucket, key, kind, version_id, etag, size, fence = read_fields(json.loads(text), _INPUT)
        state = requested_state(kind, version_id, etag, size)
    except (MalformedError, ValueError, RecursionError):
        return Ignored("the end of an execution that no pipeline has started")
    if state is None or not _NAME.fullmatch(name) or not name.endswith(f"-{fence}"):
        return Ignored("the end of an execution that no pipeline has started")
    return Change(
        bucket,
        key,
        Origin.EXECUTION,
        event_name=f"IntakeLedger:Execution:{status}",
        body=own_message(Origin.EXECUTION, bucket, key, state),
        state=state,
        execution=EndedExecution(name, fence, redriven=redrives != 0),
    )
