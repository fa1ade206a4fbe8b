"""A processor that is a Lambda function of its own, in any language: JSON in, JSON out.

The contract is in docs/processor-json.md. The function says how it ended by what it returns, never by the kind of error
that it throws: languages name errors differently, and Lambda reports all of them alike.
"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from botocore.exceptions import ClientError

from intake_ledger.errors import NotBegun, Unprocessable
from intake_ledger.processing import Commit, ObjectChange, Processor

if TYPE_CHECKING:
    from typing import BinaryIO

FORMAT = 1
"""Of what the function is given; it only changes when something is taken away."""
_ANSWERS = 'expected {"commit": "id or null"} or {"unprocessable": "why"}'


class Invokes(Protocol):
    """What is asked of boto3's Lambda client, which must not repeat a call by itself: that would run it twice."""

    def invoke(self, *, FunctionName: str, Payload: bytes) -> Any: ...  # noqa: N803 - boto3's names


class RemoteError(Exception):
    """The function failed, or answered what nobody agreed on; the change is tried again."""


def remote_processor(make_client: Callable[[], Invokes], function: str) -> Processor:
    """The processor that calls this function, once per attempt. The client is made at the first call."""
    clients: list[Invokes] = []

    def process(change: ObjectChange) -> Commit:
        if not clients:
            clients.append(make_client())
        try:
            answer = clients[0].invoke(FunctionName=function, Payload=json.dumps(told(change)).encode())
        except ClientError as error:
            if error.response["Error"]["Code"] != "TooManyRequestsException":
                raise
            raise NotBegun(f"Lambda throttles the function: {error}") from error
        content = cast("BinaryIO", answer["Payload"]).read()
        if "FunctionError" in answer:
            raise RemoteError(_failure(content))
        return _commit(content)

    return process


def told(change: ObjectChange) -> dict[str, Any]:
    """What the function is given."""
    return {
        "format": FORMAT,
        "bucket": change.bucket,
        "key": change.key,
        "kind": change.kind,
        "versionId": change.version_id,
        "etag": change.etag,
        "size": change.size,
        "eventName": change.event_name,
        "eventTime": change.event_time,
        "attempt": change.attempt,
        "fence": change.fence,
        "idempotencyKey": change.idempotency_key,
    }


def _commit(content: bytes) -> Commit:
    try:
        answer = json.loads(content)
    except ValueError:
        raise RemoteError(f"the function's answer is not JSON, {_ANSWERS}") from None
    match answer:
        case {"commit": str() | None as identity} if len(answer) == 1:
            return Commit(identity)
        case {"unprocessable": str() as why} if len(answer) == 1:
            raise Unprocessable(why)
    # What it says instead may be anything, and is no matter for a log.
    said = (
        f"an object with {', '.join(sorted(answer)) or 'nothing'}"
        if isinstance(answer, dict)
        else type(answer).__name__
    )
    raise RemoteError(f"the function answered {said}, {_ANSWERS}")


def _failure(content: bytes) -> str:
    """What Lambda says of a function that did not return."""
    try:
        said = json.loads(content)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        return "the function failed, and Lambda says no more"
    kind, message = said.get("errorType", "an error"), said.get("errorMessage", "")
    # On AWS the text has a time and a request id in front.
    if "Task timed out" in str(message):
        return f"the function ran into its own timeout: {message}"
    return f"the function failed: {kind}: {message}"
