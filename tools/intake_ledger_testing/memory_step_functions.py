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


class MemoryStepFunctions:
    """One STANDARD state machine. `clock` returns epoch milliseconds."""

    def __init__(self, *, clock: Callable[[], int], machine: str = MACHINE) -> None:
        self._clock = clock
        self.machine = machine
        self.executions: dict[str, MemoryExecution] = {}
        """All executions by name, in the order of their first start."""
        self.before: list[Exception | None] = []
        """Faults of the next requests, raised before the request has an effect. None: this request has no fault."""
        self.after: list[Exception | None] = []
        """Faults of the next requests, raised after their effect: the answer is lost."""
        self.refuse_starts: Callable[[], Exception | None] = lambda: None
        """Gives the error of each StartExecution, or None."""
        self.stopped: Callable[[MemoryExecution], object] = lambda _: None
        """Is told of an execution that StopExecution has ended."""
        self.requests: list[str] = []

    def start_execution(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client.

        While an execution runs, a start with the same name and input is a success. Each other start with a name that
        was used is refused.
        """
        self._request("StartExecution", self.before)
        if (refusal := self.refuse_starts()) is not None:
            raise refusal
        name, given = request["name"], request["input"]
        if request["stateMachineArn"] != self.machine:
            raise _error("StartExecution", "StateMachineDoesNotExist")
        if not 0 < len(name) <= MAX_NAME or _REFUSED & set(name) or not name.isprintable():
            raise _error("StartExecution", "InvalidName")
        if len(given.encode()) > MAX_BYTES or not isinstance(json.loads(given), dict):
            raise _error("StartExecution", "InvalidExecutionInput")
        present = self.executions.get(name)
        if present is not None and (present.status != "RUNNING" or present.input != given):
            raise _error("StartExecution", "ExecutionAlreadyExists")
        if present is None:
            self.executions[name] = MemoryExecution(name, given)
        fail_next(self.after)
        return {"executionArn": self._arn(name), "startDate": date_of(self._clock())}

    def describe_execution(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client."""
        self._request("DescribeExecution", self.before)
        prefix = self._arn("")
        execution = self.executions.get(request["executionArn"].removeprefix(prefix))
        if execution is None:
            raise _error("DescribeExecution", "ExecutionDoesNotExist")
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
        self._request("StopExecution", self.before)
        execution = self.executions.get(request["executionArn"].removeprefix(self._arn("")))
        if execution is None:
            raise _error("StopExecution", "ExecutionDoesNotExist")
        if execution.status == "RUNNING":
            self.end(execution.name, "ABORTED", error=request.get("error", ""), cause=request.get("cause", ""))
            self.stopped(execution)
        fail_next(self.after)
        return {"stopDate": date_of(execution.stopped_at or self._clock())}

    def end(
        self, name: str, status: str = "SUCCEEDED", *, output: object = None, error: str = "", cause: str = ""
    ) -> str:
        """End a running execution, and return the body of EventBridge's event. `output` is sent as JSON."""
        execution = self.executions[name]
        assert execution.status == "RUNNING", f"{name} is {execution.status}"
        assert status in ENDED, f"{status} is not an end"
        execution.status = status
        execution.stopped_at = self._clock()
        execution.output = json.dumps(output) if status == "SUCCEEDED" else None
        execution.error, execution.cause = error or None, cause or None
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

    def _request(self, operation: str, faults: list[Exception | None]) -> None:
        self.requests.append(operation)
        fail_next(faults)


def fail_next(faults: list[Exception | None]) -> None:
    """Raise the next fault, if there is one."""
    fault = faults.pop(0) if faults else None
    if fault is not None:
        raise fault


def date_of(at: int) -> datetime:
    """The time of epoch milliseconds, as boto3 gives it."""
    return datetime.fromtimestamp(at / 1000, UTC)


def _error(operation: str, code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": code}}, operation)
