"""The outcome of an execution that has ended: its commit, or the error that stands for its failure."""

import json
import re

from intake_ledger.executions.decide import OVERTAKEN, Execution
from intake_ledger.processor.lambda_processor import commit_from
from intake_ledger.processor.object_change import Commit
from intake_ledger.protocol.errors import (
    ExecutionStopped,
    RemoteError,
    RemoteTimeoutError,
    Unprocessable,
    WrongReturnError,
)

_ERROR = re.compile(r"[A-Za-z_$][\w$.:-]{0,80}")
"""The name of an error, such as `States.TaskFailed`. Any other text might be content."""
_TOO_LONG = "States.DataLimitExceeded"
"""The output of a step is longer than Step Functions takes. Its `Retry` and `Catch` do not handle this."""


def commit_of(execution: Execution) -> Commit:
    """The commit of an execution that succeeded.

    An output that is none of the answers of docs/processor.md commits, too, with the name of the execution: most
    state machines return the result of their last step.

    Raises:
        Unprocessable: The output has `unprocessable`, or the execution failed with this error.
        NotYet: The output has `notYet`.
        WrongReturnError: The output has one of these names in another form, or a step's output is too long.
        RemoteTimeoutError: The execution timed out.
        ExecutionStopped: The consumer has stopped it, since a newer state came.
        RemoteError: It failed or was aborted.

    """
    if execution.status == "SUCCEEDED":
        try:
            return commit_from(execution.output or "null")
        except WrongReturnError:
            if _names(execution.output) & {"unprocessable", "notYet"}:
                raise
            return Commit(execution.name)
    if execution.status == "TIMED_OUT":
        raise RemoteTimeoutError("the execution timed out", detail=execution.cause or "")
    if execution.status == "ABORTED" and execution.error == OVERTAKEN:
        raise ExecutionStopped("another state of its key is current, and the execution was stopped")
    if execution.status == "ABORTED":
        raise RemoteError("the execution was aborted", detail=execution.cause or "")
    if execution.error == "Unprocessable":
        raise Unprocessable(_message(execution.cause))
    if execution.error == _TOO_LONG:
        # Steps have had their effects. Another execution of the same input would repeat them, and end here.
        raise WrongReturnError(
            "the output of a step is longer than Step Functions takes: write it to S3, and pass its key on",
            detail=execution.cause or "",
        )
    named = f" with {execution.error}" if execution.error and _ERROR.fullmatch(execution.error) else ""
    raise RemoteError(f"the execution failed{named}", detail=execution.cause or "")


def _names(output: str | None) -> set[str]:
    try:
        content = json.loads(output or "null")
    except (ValueError, RecursionError):
        return set()
    return set(content) if isinstance(content, dict) else set()


def _message(cause: str | None) -> str:
    """The text of an `Unprocessable`. The cause of a Lambda task is JSON with the message of the exception."""
    try:
        content = json.loads(cause or "")
    except (ValueError, RecursionError):
        return cause or ""
    return str(content["errorMessage"]) if isinstance(content, dict) and "errorMessage" in content else cause or ""
