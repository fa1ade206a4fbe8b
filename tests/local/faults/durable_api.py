"""Lambda's API of durable executions, which the proxy serves.

The local AWS queues no start. The rules of names, payloads and ARNs are those of the test kit. Each execution runs the
deployed function on the local AWS, in one invocation or several.
"""

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from threading import BoundedSemaphore, RLock, Thread
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from botocore.exceptions import ClientError

from intake_ledger_testing.memory_durable_functions import MemoryDurableExecution, MemoryDurableFunctions
from tests.local.corrections import Answer, Request

INVOKE, GET, LIST, STOP = "Invoke", "GetDurableExecution", "ListDurableExecutionsByFunction", "StopDurableExecution"
AT_ONCE = 4
"""Invocations of a function at the same time. More would take the time of the consumers on this machine."""
_FUNCTION = re.compile(r"/2015-03-31/functions/(.+)/invocations")
_EXECUTIONS = re.compile(r"/2025-12-01/functions/(.+)/durable-executions")
_EXECUTION = re.compile(r"/2025-12-01/durable-executions/(.+?)(/stop)?")


class Invoked(NamedTuple):
    """The end of one invocation: the function's answer, or None if its process has ended before."""

    answer: dict[str, Any] | None


Invoke = Callable[[str, bytes], Invoked]
"""Invokes a version of a function synchronously, with this payload."""


@dataclass(slots=True)
class Past:
    """The invocations of one execution."""

    execution: MemoryDurableExecution
    ended: float = 0
    """Epoch seconds of the end of its last invocation. It may be later than the end of the execution."""
    invocations: int = 0
    thread: Thread | None = None
    """Runs until the execution has ended."""


@dataclass
class DurableApi:
    """Answers the requests, and runs the executions."""

    invoke: Invoke
    again_seconds: float = 0.5
    """The pause before Lambda invokes a function again whose execution waits, or whose process has ended."""
    queued: dict[str, float] = field(default_factory=dict)
    """Seconds for which Lambda queues the start of an execution whose input has this text."""
    redeployed: str = ""
    """A start whose input has this text was sent by earlier code: the same start has another payload later."""
    past: dict[str, Past] = field(default_factory=dict)
    """By name."""
    _functions: dict[str, MemoryDurableFunctions] = field(default_factory=dict)
    _lock: RLock = field(default_factory=RLock)
    _turns: BoundedSemaphore = field(default_factory=lambda: BoundedSemaphore(AT_ONCE))

    def operation(self, request: Request) -> tuple[str, str] | None:
        """Return the operation and the text of a request. None if it is not for this API."""
        url = urlsplit(request.path)
        place = unquote(url.path)
        if _FUNCTION.fullmatch(place):
            name = request.headers["x-amz-durable-execution-name"]
            return INVOKE, f"{place} {name} {request.body.decode()}"
        if _EXECUTIONS.fullmatch(place):
            return LIST, self._with_input(f"{place}?{url.query}", parse_qs(url.query)["DurableExecutionName"][0])
        if found := _EXECUTION.fullmatch(place):
            return STOP if found[2] else GET, self._with_input(place, found[1].split("/")[-2])
        return None

    def answer(self, request: Request) -> Answer:
        """Answer a request of this API."""
        url = urlsplit(request.path)
        place = unquote(url.path)
        try:
            with self._lock:
                if found := _FUNCTION.fullmatch(place):
                    return self._start(found[1], request)
                if found := _EXECUTIONS.fullmatch(place):
                    name = parse_qs(url.query)["DurableExecutionName"][0]
                    return self._list(found[1], name)
                found = _EXECUTION.fullmatch(place)
                assert found, place
                functions = self._functions[found[1].partition("/")[0]]
                if found[2]:
                    error = json.loads(request.body or b"{}")
                    functions.stop_durable_execution(DurableExecutionArn=found[1], Error=error)
                    return _json(200, {"StopTimestamp": _now() / 1000})
                return _json(200, functions.get_durable_execution(DurableExecutionArn=found[1]))
        except ClientError as error:
            code, status = error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
            return service_error(status, code)

    def stop(self, name: str) -> None:
        """Stop an execution, as a person does. Its present invocation runs on."""
        with self._lock:
            self._of(name).end(name, "STOPPED")

    def _of(self, name: str) -> MemoryDurableFunctions:
        return self._functions[self.past[name].execution.arn.partition("/")[0]]

    def _with_input(self, text: str, name: str) -> str:
        past = self.past.get(name)
        return f"{text} {past.execution.input}" if past else text

    def _start(self, function: str, request: Request) -> Answer:
        functions = self._functions.setdefault(function, MemoryDurableFunctions(clock=_now, function=function))
        name, given = request.headers["x-amz-durable-execution-name"], request.body
        answer = functions.invoke(
            FunctionName=function,
            InvocationType=request.headers["x-amz-invocation-type"],
            DurableExecutionName=name,
            Payload=given,
        )
        if name not in self.past:
            execution = functions.all[name]
            text = given.decode()
            execution.starts_at += round(sum(wait for word, wait in self.queued.items() if word in text) * 1000)
            if self.redeployed and self.redeployed in text:
                execution.input = json.dumps(json.loads(text))
            past = self.past[name] = Past(execution)
            past.thread = Thread(target=self._run, args=(functions, past, function), daemon=True)
            past.thread.start()
        headers = {"X-Amz-Durable-Execution-Arn": str(answer["DurableExecutionArn"])}
        return Answer(answer["StatusCode"], headers, b"")

    def _list(self, function: str, name: str) -> Answer:
        """List the executions with this name. `function` may be without a version."""
        of = next((one for version, one in self._functions.items() if version.startswith(function)), None)
        if of is None:
            return _json(200, {"DurableExecutions": []})
        return _json(200, of.list_durable_executions_by_function(FunctionName=function, DurableExecutionName=name))

    def _run(self, functions: MemoryDurableFunctions, past: Past, function: str) -> None:
        """Invoke the function until the execution has ended."""
        one = past.execution
        time.sleep(max(0.0, one.starts_at - _now()) / 1000)
        while one.status == "RUNNING":
            with self._turns:
                if one.status != "RUNNING":
                    break
                past.invocations += 1
                answer = self.invoke(function, one.input.encode()).answer
                past.ended = time.time()
            with self._lock:
                if one.status == "RUNNING" and answer is not None and answer["Status"] != "PENDING":
                    _end(partial(functions.end, one.name), answer)
            time.sleep(self.again_seconds)


def _end(end: Callable[..., None], answer: dict[str, Any]) -> None:
    if answer["Status"] == "SUCCEEDED":
        end("SUCCEEDED", output=json.loads(answer["Result"]))
    else:
        end("FAILED", error=answer["Error"]["ErrorType"], cause=answer["Error"]["ErrorMessage"])


def service_error(status: int, code: str) -> Answer:
    """Return an error of Lambda's API."""
    answer = _json(status, {"Type": "Service" if status >= 500 else "User", "message": code})
    return answer._replace(headers=answer.headers | {"x-amzn-ErrorType": code})


def _json(status: int, answer: object) -> Answer:
    return Answer(status, {"Content-Type": "application/json"}, json.dumps(answer, default=_seconds).encode())


def _seconds(moment: datetime) -> float:
    return moment.timestamp()


def _now() -> int:
    return int(time.time() * 1000)
