"""A processor that is a Lambda function of its own, in any language: JSON in, JSON out.

The contract is in docs/processor-json.md. The function says how it ended by what it returns, never by the kind of error
that it throws: languages name errors differently, and Lambda reports all of them alike.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from botocore.exceptions import ClientError

from intake_ledger.processor.object_change import Commit, ObjectChange, Processor
from intake_ledger.protocol import (
    MAX_RETRY_IN,
    NotBegun,
    NotYet,
    RemoteError,
    RemoteTimeoutError,
    Unprocessable,
    WrongReturnError,
)

if TYPE_CHECKING:
    from typing import BinaryIO

FORMAT = 1
"""Of what the function is given; it only changes when something is taken away."""
_NAME = re.compile(r"[A-Za-z_$](?:\d{0,2}[A-Za-z_$.:]){0,80}\d{0,2}")
"""The name of a type. A text with many digits in a row is none: it might be content."""
_FRAME = re.compile(
    r"""\s*File\ ".*?(?P<python>[\w-]+\.py)",\ line\ (?P<at>\d+)  # Python
    | \s*at\ .*?(?P<node>[\w-]+\.[cm]?[jt]s):(?P<line>\d+):\d+\)?$  # Node.js
    | [\w.$]+\((?P<java>\w+\.(?:java|kt)):(?P<number>\d+)\)$  # Java, Kotlin
    """,
    re.VERBOSE,
)
"""A line of a stack trace. What does not look like one may be a message."""
_ANSWERS = 'expected {"commit": "id or null"}, {"unprocessable": "why"} or {"notYet": "why", "retryInSeconds": 600}'


class Invokes(Protocol):
    """What is asked of boto3's Lambda client, which must not repeat a call by itself: that would run it twice."""

    def invoke(self, *, FunctionName: str, Payload: bytes) -> Any: ...  # noqa: N803 - boto3's names


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
            raise NotBegun("Lambda throttles the function", detail=str(error)) from error
        content = cast("BinaryIO", answer["Payload"]).read()
        if "FunctionError" in answer:
            raise _failure(content)
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
        raise WrongReturnError(f"the function's answer is not JSON, {_ANSWERS}") from None
    match answer:
        case {"commit": str() | None as identity} if len(answer) == 1:
            return Commit(identity)
        case {"unprocessable": str() as why} if len(answer) == 1:
            raise Unprocessable(why)
        case {"notYet": str() as why} if _is_wait(answer):
            seconds: float | None = answer.get("retryInSeconds")
            raise NotYet(why, retry_in=seconds)
    if isinstance(answer, dict):
        # The names in it may be content.
        raise WrongReturnError(f"the function answered another object, {_ANSWERS}", detail=", ".join(sorted(answer)))
    raise WrongReturnError(f"the function answered {type(answer).__name__}, {_ANSWERS}")


def _is_wait(answer: dict[str, Any]) -> bool:
    """Whether an answer has no more than `notYet` and a time that it may have."""
    seconds = answer.get("retryInSeconds", 1)
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return answer.keys() <= {"notYet", "retryInSeconds"} and is_number and 1 <= seconds <= MAX_RETRY_IN


def _failure(content: bytes) -> RemoteError:
    """What Lambda says of a function that did not return: its own words are kept with `Reasons.FULL` only."""
    try:
        said = json.loads(content)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        return RemoteError("the function failed, and Lambda says no more")
    kind, message = str(said.get("errorType", "")), str(said.get("errorMessage", ""))
    # On AWS the text has a time and a request id in front.
    if "Task timed out" in message:
        return RemoteTimeoutError("the function ran into its own timeout", detail=message)
    named = f" with {kind}" if _NAME.fullmatch(kind) else ""
    return RemoteError(f"the function failed{named}{_position(said)}", detail=message)


def _position(said: Mapping[str, Any]) -> str:
    """The line of the function's code that Lambda names; empty without one."""
    frames = said.get("stackTrace") or said.get("trace")
    found = [match for one in frames if (match := _FRAME.match(str(one)))] if isinstance(frames, list) else []
    if not found:
        return ""
    # Python names the innermost frame last, the others name it first.
    file, line = (text for text in found[-1 if found[-1]["python"] else 0].groups() if text is not None)
    return f" at {file}:{line}"
