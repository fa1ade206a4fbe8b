"""An in-memory durable function: the methods of boto3's Lambda client that the runtime calls, and ends of executions.

It has AWS's rules of names, payloads, retention and ARNs.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from intake_ledger_testing.memory_step_functions import (
    MemoryExecution,
    MemoryExecutions,
    date_of,
    fail_next,
    refusal_of,
)

FUNCTION = "arn:aws:lambda:eu-central-1:111122223333:function:Work:12"
EVENT_AGE_SECONDS = 3600
RETENTION_SECONDS = 14 * 86_400
ENDED = frozenset({"SUCCEEDED", "FAILED", "STOPPED", "TIMED_OUT"})
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MAX_BYTES = 256 * 1024
_ARN = re.compile(
    r"arn:[a-zA-Z0-9-]+:lambda:[a-zA-Z0-9-]+:\d{12}:function:[a-zA-Z0-9_-]+:(\$LATEST(?:\.PUBLISHED)?|[0-9]+)"
    r"/durable-execution/([a-zA-Z0-9_-]+)/[a-zA-Z0-9_-]+"
)


@dataclass(slots=True)
class MemoryDurableExecution(MemoryExecution):
    """An execution. Its start waits in Lambda's queue until `starts_at`, in epoch milliseconds."""

    arn: str = ""
    accepted_at: int = 0
    starts_at: int = 0


class MemoryDurableFunctions(MemoryExecutions):
    """One version of a durable function. `clock` returns epoch milliseconds."""

    _ends = ENDED

    def __init__(self, *, clock: Callable[[], int], function: str = FUNCTION) -> None:
        super().__init__(clock)
        self._started = 0
        self.function = function
        """The ARN of the version that is invoked. After a deploy it is another one."""
        self.event_age_seconds = EVENT_AGE_SECONDS
        self.lists_versions = True
        """A list has the executions of one version, as AWS's API reference says. Otherwise those of all versions, and a
        name with a qualifier is refused."""
        self.queue_seconds = 0.0
        """The time of the next starts in Lambda's queue. Longer ones than the event age are dropped at that age."""
        self.all: dict[str, MemoryDurableExecution] = {}
        """All executions by name, in the order of their starts, also queued ones."""
        self.forgotten: list[MemoryDurableExecution] = []
        """Executions whose retention has ended, and those that were deleted or whose start was dropped."""

    @property
    def executions(self) -> dict[str, MemoryDurableExecution]:
        """The executions that Lambda knows, by name."""
        self._pass_time()
        return {name: one for name, one in self.all.items() if one.starts_at <= self._clock()}

    def invoke(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client.

        A start with the name and the payload of an execution that is known is a success, also after its end. With
        another payload, it is refused.
        """
        self._request("Invoke", starts=True)
        self._pass_time()
        name, payload = request["DurableExecutionName"], request["Payload"].decode()
        assert request["InvocationType"] == "Event", "a synchronous start ends after 15 minutes"
        if request["FunctionName"] != self.function:
            raise refusal_of("Invoke", "ResourceNotFoundException", 404)
        if not _NAME.fullmatch(name):
            raise refusal_of("Invoke", "ValidationException")
        if len(payload.encode()) > _MAX_BYTES:
            raise refusal_of("Invoke", "RequestTooLargeException", 413)
        json.loads(payload)
        present = self.all.get(name)
        if present is not None and present.input != payload:
            raise refusal_of("Invoke", "DurableExecutionAlreadyStartedException", 409)
        if present is None:
            self._started += 1
            arn = f"{self.function}/durable-execution/{name}/id-{self._started}"
            queued = round(self.queue_seconds * 1000)
            now = self._clock()
            present = MemoryDurableExecution(name, payload, arn=arn, accepted_at=now, starts_at=now + queued)
            self.all[name] = present
        fail_next(self.after)
        return {"StatusCode": 202, "DurableExecutionArn": present.arn}

    def get_durable_execution(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client."""
        self._request("GetDurableExecution")
        arn = request["DurableExecutionArn"]
        if not (form := _ARN.fullmatch(arn)):
            raise refusal_of("GetDurableExecution", "InvalidParameterValueException")
        execution = self.executions.get(form[2])
        if execution is None or execution.arn != arn:
            raise refusal_of("GetDurableExecution", "ResourceNotFoundException", 404)
        answer = self._shown(execution) | {"Version": form[1], "InputPayload": execution.input}
        if execution.output is not None:
            answer["Result"] = execution.output
        if execution.error or execution.cause:
            answer["Error"] = {"ErrorType": execution.error, "ErrorMessage": execution.cause}
        fail_next(self.after)
        return answer

    def list_durable_executions_by_function(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client: the executions whose names contain the text."""
        self._request("ListDurableExecutionsByFunction")
        function = request["FunctionName"]
        qualified = function == self.function
        if qualified and not self.lists_versions:
            raise refusal_of("ListDurableExecutionsByFunction", "InvalidParameterValueException")
        start = f"{function}/" if qualified else f"{function}:$LATEST/" if self.lists_versions else f"{function}:"
        found = [
            self._shown(one)
            for name, one in self.executions.items()
            if one.arn.startswith(start) and request["DurableExecutionName"] in name
        ]
        fail_next(self.after)
        return {"DurableExecutions": found}

    def stop_durable_execution(self, **request: Any) -> dict[str, Any]:
        """Answer as boto3's client. An execution that has ended stays as it is."""
        self._request("StopDurableExecution")
        form = _ARN.fullmatch(request["DurableExecutionArn"])
        execution = self.executions.get(form[2]) if form else None
        if execution is None or execution.arn != request["DurableExecutionArn"]:
            raise refusal_of("StopDurableExecution", "ResourceNotFoundException", 404)
        error = request.get("Error", {})
        stopped_at = self._stop(execution, "STOPPED", error.get("ErrorType", ""), error.get("ErrorMessage", ""))
        return {"StopTimestamp": stopped_at}

    def end(
        self, name: str, status: str = "SUCCEEDED", *, output: object = None, error: str = "", cause: str = ""
    ) -> None:
        """End a running execution. `output` is sent as JSON. The event of EventBridge names no row."""
        self._end(self.executions[name], status, output, error, cause)

    def delete(self, name: str) -> None:
        """Delete an execution that has ended, as a person may. Its name is free then."""
        assert self.all[name].status in ENDED, f"{name} is {self.all[name].status}"
        self.forgotten.append(self.all.pop(name))

    def delete_start(self, name: str) -> None:
        """Lose an accepted start before it begins, as the queue does after its longest time."""
        self.forgotten.append(self.all.pop(name))

    def _pass_time(self) -> None:
        """Drop starts that were queued for too long, and forget executions after their retention."""
        now, age, retention = self._clock(), self.event_age_seconds * 1000, RETENTION_SECONDS * 1000
        for name, one in [*self.all.items()]:
            dropped = one.starts_at > one.accepted_at + age <= now
            over = one.stopped_at is not None and one.stopped_at + retention <= now
            if dropped or over:
                self.forgotten.append(self.all.pop(name))

    def _shown(self, execution: MemoryDurableExecution) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "DurableExecutionArn": execution.arn,
            "DurableExecutionName": execution.name,
            "FunctionArn": execution.arn.partition("/")[0],
            "StartTimestamp": date_of(execution.starts_at),
            "Status": execution.status,
        }
        if execution.stopped_at is not None:
            shown["EndTimestamp"] = date_of(execution.stopped_at)
        return shown
