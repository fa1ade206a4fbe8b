"""Durable functions on MiniStack, by the rules of AWS.

MiniStack has the requests about durable executions. It starts none for a stack, since CloudFormation loses the
function's `DurableConfig`. Its asynchronous Invoke ignores the name of the execution, answers without an ARN, and never
ends one. Here:

- an asynchronous Invoke with a known name is the same execution, or is refused if its payload differs;
- the ARN has the name, and the execution keeps the code of its version;
- an invocation that crashes is repeated from the last checkpoint, and two invocations never overlap;
- a callback without a timeout waits until it is answered;
- ListDurableExecutionsByFunction takes a qualified ARN.
"""

# ruff: noqa: SLF001 - MiniStack's own names
import contextvars
import heapq
import json
import threading
import time
from collections.abc import Mapping
from itertools import count
from typing import Any

from ministack.core.responses import error_response_json, new_uuid  # type: ignore[import-untyped]
from ministack.services import lambda_durable, lambda_svc  # type: ignore[import-untyped]
from ministack.services.cloudformation import provisioners  # type: ignore[import-untyped]

Answer = tuple[int, dict[str, str], bytes]
_LOOK_AGAIN_SECONDS = 0.1
_LONGEST_BACKOFF_SECONDS = 60
_starting = threading.Lock()
_running: set[str] = set()
"""ARNs of the executions of which an invocation runs."""


def correct() -> None:
    """Put these functions in the place of MiniStack's."""
    create, invoke = provisioners._lambda_create, lambda_svc._invoke
    make_arn, apply = lambda_durable.build_durable_execution_arn, lambda_durable._apply_update
    resume, list_executions = lambda_durable._resume_execution, lambda_durable.handle_list_by_function

    def create_function(logical_id: str, properties: Mapping[str, Any], stack: str) -> Any:
        made = create(logical_id, properties, stack)
        if durable := properties.get("DurableConfig"):
            # "Enabled" is MiniStack's own.
            lambda_svc._functions[made[0]]["config"]["DurableConfig"] = {**durable, "Enabled": True}
        return made

    async def invoke_function(
        name: str, event: Any, headers: Mapping[str, str], qualifier: str | None = None, query: Any = None
    ) -> Answer:
        given = {key.lower(): value for key, value in headers.items()}
        function = lambda_svc._functions.get(name)
        version = _version(function, qualifier or lambda_svc._qp_first(query or {}, "Qualifier"))
        if version is None or given.get("x-amz-invocation-type") != "Event" or _limit(function) is None:
            answer: Answer = await invoke(name, event, headers, qualifier, query)
            return answer
        return start(name, version, json.dumps(event), given.get("x-amz-durable-execution-name"), _limit(function))

    def arn_of(function: str, version: str = "$LATEST", name: str | None = None) -> tuple[str, str, str]:
        arn, name, token = make_arn(function, version, name)
        return arn.replace(f"/{token}/", f"/{name}/"), name, token

    def apply_update(execution: dict[str, Any], update: dict[str, Any]) -> None:
        options = update.get("CallbackOptions") or {}
        # A zero means that there is no timeout (aws-durable-execution-sdk-python, `CallbackOptions`).
        apply(execution, update | {"CallbackOptions": {name: value for name, value in options.items() if value}})

    def resume_execution(arn: str, account: str, region: str | None = None) -> None:
        if arn not in _running:
            resume(arn, account, region)
            return
        with lambda_durable._resume_lock:
            heapq.heappush(lambda_durable._resume_queue, (time.time() + _LOOK_AGAIN_SECONDS, arn, account, region))

    def list_by_function(function: str, query: Mapping[str, Any], find: Any) -> Any:
        _, qualifier = lambda_svc._resolve_name_and_qualifier(function)
        return list_executions(function, {"Qualifier": [qualifier], **query} if qualifier else query, find)

    provisioners._lambda_create = create_function
    provisioners._RESOURCE_HANDLERS["AWS::Lambda::Function"]["create"] = create_function
    lambda_svc._invoke = invoke_function
    lambda_svc.invoke_durable_resume = lambda _name, arn, _event: _run(arn)
    lambda_durable.build_durable_execution_arn = arn_of
    lambda_durable._apply_update = apply_update
    lambda_durable._resume_execution = resume_execution
    lambda_durable.handle_list_by_function = list_by_function


def start(name: str, version: str, payload: str, execution: str | None, limit: int | None) -> Answer:
    """Answer an asynchronous Invoke of a durable function.

    Args:
        name: of the function.
        version: that is invoked.
        payload: as JSON.
        execution: the name of the execution. It gets a random one when None.
        limit: seconds for which it may run.

    """
    with _starting:
        all_executions = lambda_durable._executions.values()
        known = next((one for one in all_executions if execution and one["DurableExecutionName"] == execution), None)
        if known is not None and known["InputPayload"] != payload:
            refused: Answer = error_response_json(
                "DurableExecutionAlreadyStartedException", f"{execution} was started with another payload", 409
            )
            return refused
        found = known or lambda_durable.create_execution_for_invoke(
            lambda_svc._func_arn(name), version, payload, name=execution, execution_timeout=limit
        )
    arn = found["DurableExecutionArn"]
    if known is None:
        _run(arn)
    return 202, {"X-Amz-Executed-Version": version, "X-Amz-Durable-Execution-Arn": arn}, b""


def _version(function: dict[str, Any] | None, qualifier: str | None) -> str | None:
    """The version that a qualifier means. None if the function has neither this version nor this alias."""
    if function is None or not qualifier or qualifier == "$LATEST":
        return "$LATEST"
    alias = function.get("aliases", {}).get(qualifier)
    version = str(alias["FunctionVersion"] if alias else qualifier)
    return version if version in function["versions"] else None


def _limit(function: dict[str, Any] | None) -> int | None:
    """Seconds for which an execution of the function may run. None if it is not durable."""
    limit = ((function or {}).get("config", {}).get("DurableConfig") or {}).get("ExecutionTimeout")
    return None if limit is None else int(limit)


def _run(arn: str) -> None:
    """Invoke the function of an execution, in a thread with the account and the region of this one."""
    _running.add(arn)
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(_invoke_until_answered, arn), daemon=True).start()


def _invoke_until_answered(arn: str) -> None:
    execution = lambda_durable._executions[arn]
    try:
        answer = _answer(execution)
    finally:
        _running.discard(arn)
    match answer.get("Status"):
        case "PENDING":
            lambda_durable.schedule_resume(arn)
        case "SUCCEEDED":
            lambda_durable.mark_execution_completed(arn, result_payload=answer.get("Result"), error=None)
        case "FAILED":
            lambda_durable.mark_execution_completed(arn, result_payload=None, error=answer.get("Error"))


def _answer(execution: dict[str, Any]) -> dict[str, Any]:
    """Invoke the function until it answers. Lambda repeats invocations that crash until the execution's timeout."""
    arn, version = execution["DurableExecutionArn"], execution["Version"]
    function = lambda_svc._functions[lambda_svc._resolve_name(execution["FunctionArn"])]
    code = function["versions"].get(version, function)
    code = {**code, "config": {**code["config"], "FunctionArn": f"{execution['FunctionArn']}:{version}"}}
    for crashes in count():
        if execution["Status"] != "RUNNING":
            break
        token = execution["CheckpointToken"] = lambda_durable.new_checkpoint_token()
        lambda_svc._durable_ctx.set({"arn": arn, "token": token, "name": execution["DurableExecutionName"]})
        operations = lambda_durable._serialize_operations(execution["Operations"], for_event=True)
        event = {
            "DurableExecutionArn": arn,
            "CheckpointToken": token,
            "InitialExecutionState": {"Operations": operations, "NextMarker": ""},
        }
        began = time.time()
        result = lambda_svc._execute_function(code, event)
        body, crashed = result.get("body"), bool(result.get("error") or result.get("throttle"))
        lambda_durable.record_invocation_completed(arn, began, new_uuid(), error=body if crashed else None)
        if not crashed:
            answer = json.loads(body) if isinstance(body, str | bytes) else body
            return answer if isinstance(answer, dict) else {}
        time.sleep(min(2**crashes, _LONGEST_BACKOFF_SECONDS))
    return {}
