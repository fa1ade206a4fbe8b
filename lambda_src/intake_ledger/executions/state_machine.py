"""The requests to Step Functions. Only StartExecution, DescribeExecution and, if wanted, StopExecution are sent."""

from collections.abc import Callable
from typing import Any, Protocol

from botocore.exceptions import ClientError

from intake_ledger.executions.decide import OVERTAKEN, Execution, epoch_ms
from intake_ledger.protocol.settings_executions import ExecutionSettings


class StepFunctions(Protocol):
    """The methods of boto3's Step Functions client that this module calls."""

    def start_execution(self, *, stateMachineArn: str, name: str, input: str) -> Any: ...  # noqa: N803 - boto3's

    def describe_execution(self, *, executionArn: str) -> Any: ...  # noqa: N803 - boto3's

    def stop_execution(self, *, executionArn: str, error: str) -> Any: ...  # noqa: N803 - boto3's


_THROTTLED = frozenset(
    {"ExecutionLimitExceeded", "RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequestsException"}
)


def is_throttled(error: Exception) -> bool:
    """True if Step Functions had no capacity for the request."""
    return isinstance(error, ClientError) and error.response["Error"]["Code"] in _THROTTLED


def is_refused(error: Exception) -> bool:
    """True if Step Functions has refused the request: it was not carried out. Other errors leave that open."""
    if not isinstance(error, ClientError):
        return False
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
    return 400 <= status < 500


class StateMachine:
    """Starts executions of one state machine, and asks how they stand. The client is made at the first request."""

    service = "Step Functions"
    most_bytes = 256 * 1024
    """The longest input that Step Functions takes."""

    def __init__(self, make_client: Callable[[], StepFunctions], settings: ExecutionSettings) -> None:
        self._make_client = make_client
        self._made: StepFunctions | None = None
        self.settings = settings
        self.limit_ms = settings.execution_seconds * 1000
        self.longest_task_ms = settings.longest_task_seconds * 1000
        self.stops_overtaken = settings.stop_overtaken

    def start(self, name: str, given: str) -> None:
        """Start an execution. An execution with this name that runs or has ended is a success.

        Raises:
            ClientError: Step Functions refused the request, or the SDK repeated it without success. The execution may
                run nevertheless. Also BotoCoreError.

        """
        try:
            self._client.start_execution(stateMachineArn=self.settings.machine, name=name, input=given)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ExecutionAlreadyExists":
                raise

    def describe(self, name: str, kept: str | None = None) -> Execution | None:  # noqa: ARG002 - the name is enough
        """The execution with this name. None: it does not exist.

        Raises:
            ClientError: Step Functions refused the request. Also BotoCoreError.

        """
        try:
            answer = self._client.describe_execution(executionArn=self.settings.executions + name)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ExecutionDoesNotExist":
                raise
            return None
        return Execution(
            name,
            answer["status"],
            epoch_ms(answer.get("stopDate")),
            answer.get("output"),
            answer.get("error"),
            answer.get("cause"),
        )

    def stop(self, name: str, kept: str | None = None) -> None:  # noqa: ARG002 - the name is enough
        """Stop the execution with this name. One that has ended stays as it is.

        Raises:
            ClientError: Step Functions refused the request. Also BotoCoreError.

        """
        self._client.stop_execution(executionArn=self.settings.executions + name, error=OVERTAKEN)

    @property
    def _client(self) -> StepFunctions:
        if self._made is None:
            self._made = self._make_client()
        return self._made
