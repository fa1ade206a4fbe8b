"""The consumer's log group, where the attempts of objects and the operations of people are read side by side."""

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from intake_ledger_cli.aws.clients import Aws
from intake_ledger_cli.aws.deployed import DeployedPipeline
from intake_ledger_cli.errors import denied_action
from intake_ledger_cli.show.formatting import timestamp

if TYPE_CHECKING:
    from intake_ledger_cli.act.operations import Operation

OPERATIONS_STREAM = "operations"
"""The log stream of the operations of people. The name of a function's own stream begins with a date."""


def group_name(aws: Aws, deployed: DeployedPipeline, function: str = "") -> str:
    """Return the name of the log group of a function, or of the consumer."""
    function = function or deployed.consumer_function
    settings: Any = aws.functions.get_function_configuration(FunctionName=function)
    return settings.get("LoggingConfig", {}).get("LogGroup") or f"/aws/lambda/{function}"


def write_operation(
    aws: Aws, deployed: DeployedPipeline, operation: "Operation", *, at: int, forgotten_at: int = 0
) -> str:
    """Write one line about an operation, in the form of the consumer's lines.

    Args:
        aws: the clients.
        deployed: the pipeline.
        operation: the operation.
        at: epoch milliseconds.
        forgotten_at: the time in the marker of a forgotten key, in epoch milliseconds.

    Returns:
        Why the line was not written. Empty if it was.

    """
    line = {
        "level": "INFO",
        "message": "operation",
        "service": deployed.name,
        "timestamp": timestamp(at),
        "begun_at": timestamp(operation.at),
        "done_by": operation.by,
        "what": operation.what,
        "because": operation.because,
        "result": operation.result,
        "forgotten_at": forgotten_at,
    }
    events = [{"timestamp": at, "message": json.dumps({name: value for name, value in line.items() if value})}]
    group = ""
    try:
        group = group_name(aws, deployed)
        _put(aws.logs, group, events)
    except ClientError as error:
        return refusal(error, group)
    return ""


def refusal(error: ClientError, group: str) -> str:
    """Return why CloudWatch Logs refused a request about a group."""
    if (action := denied_action(error)) is not None:
        return f"not allowed: {action}"
    code = error.response["Error"].get("Code", "an error")
    if code == "ResourceNotFoundException":
        return f"there is no log group {group}"
    return f"CloudWatch Logs answered {code}"


def _put(client: Any, group: str, events: list[dict[str, Any]]) -> None:
    """Write lines. The first operation creates the stream."""
    place = {"logGroupName": group, "logStreamName": OPERATIONS_STREAM}
    try:
        client.put_log_events(**place, logEvents=events)
    except client.exceptions.ResourceNotFoundException:
        with suppress(client.exceptions.ResourceAlreadyExistsException):  # another person created it
            client.create_log_stream(**place)
        client.put_log_events(**place, logEvents=events)
