"""A processor that is another Lambda function, in any language. Request and answer are JSON.

The contract is in docs/processor.md. The function's answer says how the attempt ended. The type of an error does
not, because languages name errors differently and Lambda reports all of them in the same way.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

from botocore.exceptions import ClientError

from intake_ledger.processor.object_change import Commit
from intake_ledger.protocol.errors import (
    MAX_RETRY_IN,
    NotBegun,
    NotYet,
    RemoteError,
    RemoteTimeoutError,
    Unprocessable,
    WrongReturnError,
)
from intake_ledger.protocol.utf8_json import json_text

if TYPE_CHECKING:
    from typing import BinaryIO

_NAME = re.compile(r"[A-Za-z_$](?:\d{0,2}[A-Za-z_$.:]){0,80}\d{0,2}")
"""The name of a type. Names with many digits in a row are left out, because they might be content."""
_FRAME = re.compile(
    r"""\s*File\ ".*?(?P<python>[\w-]+\.py)",\ line\ (?P<at>\d+)  # Python
    | \s*at\ .*?(?P<node>[\w-]+\.[cm]?[jt]s):(?P<line>\d+):\d+\)?$  # Node.js
    | [\w.$]+\((?P<java>\w+\.(?:java|kt)):(?P<number>\d+)\)$  # Java, Kotlin
    """,
    re.VERBOSE,
)
"""A line of a stack trace. Any other line may be a message, which may quote content."""
_UNWRITTEN = frozenset({"Runtime.MarshalError", "Function.ResponseSizeTooLarge"})
"""Lambda's error types for a function that has returned an answer which is no JSON, or is longer than 6 MB."""
_UNWRITTEN_IN_NODE = "Unable to stringify response body"
_ANSWERS = 'expected {"commit": "id or null"}, {"unprocessable": "why"} or {"notYet": "why", "retryInSeconds": 600}'


class Invokes(Protocol):
    """The method of boto3's Lambda client that this module calls. The client must not retry a call by itself."""

    def invoke(self, *, FunctionName: str, Payload: bytes) -> Any: ...  # noqa: N803 - boto3's names


def remote_function(make_client: Callable[[], Invokes], function: str) -> Callable[[Mapping[str, Any]], Commit]:
    """Make the call of this function, once per attempt. The client is made at the first call."""
    clients: list[Invokes] = []

    def call(request: Mapping[str, Any]) -> Commit:
        if not clients:
            clients.append(make_client())
        try:
            answer = clients[0].invoke(FunctionName=function, Payload=json_text(request).encode())
        except ClientError as error:
            if error.response["Error"]["Code"] != "TooManyRequestsException":
                raise
            raise NotBegun("Lambda throttles the function", detail=str(error)) from error
        content = cast("BinaryIO", answer["Payload"]).read()
        if "FunctionError" in answer:
            raise _failure(content)
        return commit_from(content)

    return call


def commit_from(content: bytes | str) -> Commit:
    """Read the answer of a processor.

    Raises:
        Unprocessable: The answer has `unprocessable`.
        NotYet: The answer has `notYet`.
        WrongReturnError: It is none of the answers of docs/processor.md.

    """
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
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
        # The names in the object may be content.
        raise WrongReturnError(f"the function answered another object, {_ANSWERS}", detail=", ".join(sorted(answer)))
    raise WrongReturnError(f"the function answered {type(answer).__name__}, {_ANSWERS}")


def _is_wait(answer: dict[str, Any]) -> bool:
    """True if an answer has `notYet` and optionally a valid `retryInSeconds`, and nothing else."""
    seconds = answer.get("retryInSeconds", 1)
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return answer.keys() <= {"notYet", "retryInSeconds"} and is_number and 1 <= seconds <= MAX_RETRY_IN


def _failure(content: bytes) -> RemoteError | WrongReturnError:
    """Make an error from Lambda's report about a function that failed. Its message is kept with `Reasons.FULL` only.

    A function whose answer cannot be written has done its work. Another attempt would repeat it.
    """
    try:
        failure = json.loads(content)
    except (ValueError, RecursionError):
        failure = None
    if not isinstance(failure, dict):
        return RemoteError("the function failed, and Lambda says no more")
    kind, message = str(failure.get("errorType", "")), str(failure.get("errorMessage", ""))
    if kind in _UNWRITTEN or message == _UNWRITTEN_IN_NODE:
        return WrongReturnError(f"the function's answer is not JSON, or is too long, {_ANSWERS}", detail=message)
    # AWS writes a time and a request ID before this text.
    if "Task timed out" in message:
        return RemoteTimeoutError("the function ran into its own timeout", detail=message)
    named = f" with {kind}" if _NAME.fullmatch(kind) else ""
    return RemoteError(f"the function failed{named}{_position(failure)}", detail=message)


def _position(failure: Mapping[str, Any]) -> str:
    """The line of the function's code in Lambda's report. Empty if the report has none."""
    frames = failure.get("stackTrace") or failure.get("trace")
    matches = [match for frame in frames if (match := _FRAME.match(str(frame)))] if isinstance(frames, list) else []
    if not matches:
        return ""
    # Python lists the innermost frame last, the other languages list it first.
    file, line = (text for text in matches[-1 if matches[-1]["python"] else 0].groups() if text is not None)
    return f" at {file}:{line}"
