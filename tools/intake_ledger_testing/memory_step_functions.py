"""An in-memory Step Functions: the methods of boto3's client that the runtime calls, and the ends of executions.

It behaves as AWS does. The local AWS differs: it takes any name, never times out, and refuses a repeated start.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

MACHINE = "arn:aws:states:eu-central-1:111122223333:stateMachine:Work"
MAX_NAME = 80
MAX_BYTES = 256 * 1024
_REFUSED = frozenset(' <>{}[]?*"#%\\^|~`$&,;:/')
ENDED = frozenset({"SUCCEEDED", "FAILED", "ABORTED", "TIMED_OUT"})


@dataclass(slots=True)
class MemoryExecution:
    """An execution and its history."""

    name: str
    input: str
    status: str = "RUNNING"
    stopped_at: int | None = None
    output: str | None = None
    error: str | None = None
    cause: str | None = None
    redrives: int = 0

    @property
    def given(self) -> dict[str, Any]:
        """The input, parsed."""
        given: dict[str, Any] = json.loads(self.input)
        return given


class MemoryExecutions:
    """The faults of requests, and the ends of executions. `clock` returns epoch milliseconds."""

    _ends: frozenset[str]

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.before: list[Exception | None] = []
        """Faults of the next requests, raised before the request has an effect. None: this request has no fault."""
        self.after: list[Exception | None] = []
        """Faults of the next requests, raised after their effect: the answer is lost."""
        self.refuse_starts: Callable[[], Exception | None] = lambda: None
        """Gives the error of each start, or None."""
        self.stopped: Callable[[MemoryExecution], object] = lambda _: None
        """Is told of an execution that a request has stopped."""
        self.requests: list[str] = []

    def _request(self, operation: str, *, starts: bool = False) -> None:
        self.requests.append(operation)
        fail_next(self.before)
        if starts and (refusal := self.refuse_starts()) is not None:
            raise refusal

    def _stop(self, execution: MemoryExecution, status: str, error: str, cause: str) -> datetime:
        """Stop an execution, and return the time of its end. One that has ended stays as it is."""
        if execution.status == "RUNNING":
            self._end(execution, status, None, error, cause)
            self.stopped(execution)
        fail_next(self.after)
        return date_of(execution.stopped_at or self._clock())

    def _end(self, execution: MemoryExecution, status: str, output: object, error: str, cause: str) -> None:
        assert execution.status == "RUNNING", f"{execution.name} is {execution.status}"
        assert status in self._ends, f"{status} is not an end"
        execution.status = status
        execution.stopped_at = self._clock()
        execution.output = json.dumps(output) if status == "SUCCEEDED" else None
        execution.error, execution.cause = error or None, cause or None


class MemoryStepFunctions(MemoryExecutions):
    """One STANDARD state machine. `clock` returns epoch milliseconds."""

    _ends = ENDED

    def __init__(self, *, clock: Callable[[], int], machine: str = MACHINE) -> None:
        super().__init__(clock)
        self.machine = machine
        self.executions: dict[str, MemoryExecution] = {}
        """All executions by name, in the order of their first start."""

    def start_execution(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client.

        While an execution runs, a start with the same name and input is a success. Each other start with a name that
        was used is refused.
        """
        self._request("StartExecution", starts=True)
        name, given = request["name"], request["input"]
        if request["stateMachineArn"] != self.machine:
            raise refusal_of("StartExecution", "StateMachineDoesNotExist")
        if not 0 < len(name) <= MAX_NAME or _REFUSED & set(name) or not name.isprintable():
            raise refusal_of("StartExecution", "InvalidName")
        if len(given.encode()) > MAX_BYTES or not isinstance(json.loads(given), dict):
            raise refusal_of("StartExecution", "InvalidExecutionInput")
        present = self.executions.get(name)
        if present is not None and (present.status != "RUNNING" or present.input != given):
            raise refusal_of("StartExecution", "ExecutionAlreadyExists")
        if present is None:
            self.executions[name] = MemoryExecution(name, given)
        fail_next(self.after)
        return {"executionArn": self._arn(name), "startDate": date_of(self._clock())}

    def describe_execution(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client."""
        self._request("DescribeExecution")
        prefix = self._arn("")
        execution = self.executions.get(request["executionArn"].removeprefix(prefix))
        if execution is None:
            raise refusal_of("DescribeExecution", "ExecutionDoesNotExist")
        answer: dict[str, Any] = {
            "executionArn": self._arn(execution.name),
            "stateMachineArn": self.machine,
            "name": execution.name,
            "status": execution.status,
            "input": execution.input,
        }
        for name in ("output", "error", "cause"):
            if (value := getattr(execution, name)) is not None:
                answer[name] = value
        if execution.stopped_at is not None:
            answer["stopDate"] = date_of(execution.stopped_at)
        fail_next(self.after)
        return answer

    def stop_execution(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client. An execution that has ended stays as it is. Its event is not sent."""
        self._request("StopExecution")
        execution = self.executions.get(request["executionArn"].removeprefix(self._arn("")))
        if execution is None:
            raise refusal_of("StopExecution", "ExecutionDoesNotExist")
        stopped_at = self._stop(execution, "ABORTED", request.get("error", ""), request.get("cause", ""))
        return {"stopDate": stopped_at}

    def end(
        self, name: str, status: str = "SUCCEEDED", *, output: object = None, error: str = "", cause: str = ""
    ) -> str:
        """End a running execution, and return the body of EventBridge's event. `output` is sent as JSON."""
        self._end(self.executions[name], status, output, error, cause)
        return self.event(name)

    def redrive(self, name: str) -> None:
        """Continue an execution that has not succeeded, as a person does in the console."""
        execution = self.executions[name]
        assert execution.status in ENDED - {"SUCCEEDED"}, f"{name} is {execution.status}"
        execution.status, execution.stopped_at = "RUNNING", None
        execution.error = execution.cause = None
        execution.redrives += 1

    def event(self, name: str) -> str:
        """The body of EventBridge's event about the present state of an execution."""
        execution = self.executions[name]
        return json.dumps(
            {
                "version": "0",
                "detail-type": "Step Functions Execution Status Change",
                "source": "aws.states",
                "time": date_of(self._clock()).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "detail": {
                    "executionArn": self._arn(name),
                    "stateMachineArn": self.machine,
                    "name": name,
                    "status": execution.status,
                    "stopDate": execution.stopped_at,
                    "input": execution.input,
                    "output": execution.output,
                    "redriveCount": execution.redrives,
                },
            }
        )

    def _arn(self, name: str) -> str:
        return f"{self.machine.replace(':stateMachine:', ':execution:')}:{name}"


def fail_next(faults: list[Exception | None]) -> None:
    """Raise the next fault, if there is one."""
    fault = faults.pop(0) if faults else None
    if fault is not None:
        raise fault


def date_of(at: int) -> datetime:
    """The time of epoch milliseconds, as boto3 gives it."""
    return datetime.fromtimestamp(at / 1000, UTC)


def refusal_of(operation: str, code: str, status: int = 400) -> ClientError:
    """The error of a request, as boto3 raises it."""
    answer: Any = {"Error": {"Code": code, "Message": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, operation)
