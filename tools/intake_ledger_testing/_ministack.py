"""MiniStack with each log line of an invocation in its log.

MiniStack takes the lines of a worker while they follow each other within milliseconds. On a busy machine, the other
lines wait for the worker's next invocation, and are lost if there is none. A worker writes its lines before its answer.
So all of them are in the pipe when the answer is there, and this module takes them from it.

MiniStack writes nothing when a function cannot start. Here the log and the metric `Errors` have the lines and the
numbers of Lambda: of code that cannot be loaded, of a start that takes too long, of an exception, and of a death.
FilterLogEvents finds terms and one field of JSON lines.

MiniStack refuses alarms on metric math. Here such an alarm exists and never goes off, so that its stack deploys.

`_ministack_durable` corrects durable functions, and `_ministack_tables` DynamoDB tables.

Run it as ``python -P _ministack.py``.
"""

from __future__ import annotations

import json
import os
import re
import select
import sys
from fnmatch import fnmatchcase
from http import HTTPStatus
from threading import Lock
from typing import TYPE_CHECKING, Any

from ministack.app import main  # type: ignore[import-untyped]
from ministack.core.lambda_runtime import ProvidedWorker, Worker  # type: ignore[import-untyped]

from intake_ledger_testing import _ministack_durable, _ministack_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_BYTES = 65_536
_CHOOSING = Lock()
START = """
import os, re, sys, threading, time, traceback
_ms_began = time.monotonic()

def _ms_line(text):
    print(text.replace("\\n", "\\0"), file=sys.stderr, flush=True)

def _ms_report(phase, status):
    duration = (time.monotonic() - _ms_began) * 1000
    _ms_line(f"INIT_REPORT Init Duration: {duration:.2f} ms\\tPhase: {phase}\\tStatus: {status}")

def _ms_error(kind, text, trace):
    _ms_line("\\n".join([f"[ERROR] {kind}: {text}", "Traceback (most recent call last):", *trace]))
    return kind

def _ms_exception(error):
    trace = "".join(traceback.format_tb(error.__traceback__)[1:])
    trace = re.sub("(?m)^ +", lambda indent: "\\xa0" * len(indent[0]), trace)
    return _ms_error(type(error).__name__, error, trace.splitlines())

def _ms_cannot_start(error, module):
    if isinstance(error, ImportError):
        kind = _ms_error("Runtime.ImportModuleError", f"Unable to import module '{module}': {error}", [])
    elif isinstance(error, SyntaxError):
        place = f'\\xa0\\xa0File "{error.filename}" Line {error.lineno}'
        kind = _ms_error("Runtime.UserCodeSyntaxError", f"Syntax error in module '{module}': {error}", [place])
    elif isinstance(error, AttributeError) and error.obj is sys.modules.get(module):
        kind = _ms_error("Runtime.HandlerNotFound", f"Handler '{error.name}' missing on module '{module}'", [])
    else:
        kind = _ms_exception(error)
    _ms_report("invoke", f"error\\tError Type: {kind}")

def _ms_limit(answer):
    limit = float(os.environ["_LAMBDA_TIMEOUT"])

    def end():
        _ms_line("INIT_REPORT Init Duration: 10000.00 ms\\tPhase: init\\tStatus: timeout")
        _ms_report("invoke", "timeout")
        _ms_line(f"Task timed out after {limit:.2f} seconds")
        answer.write('{"status": "error", "error": "the start has timed out"}\\n')
        answer.flush()
        os._exit(1)

    timer = threading.Timer(max(10, limit), end)
    timer.daemon = True
    timer.start()
    return timer
"""
"""Lines of Lambda, for MiniStack's Python worker. A zero stands for the end of a line inside of an event.

The texts of errors are those of `awslambdaric`, Lambda's client for Python. Lambda ends a start after 10 seconds, and
starts again within the invocation, with the function's timeout. Here the start just goes on.
"""
REPLACED = {
    "def run():": START + "\ndef run():",
    "    try:\n        mod = importlib.import_module(module_name)": (
        "    limit = _ms_limit(_real_stdout)\n    try:\n        mod = importlib.import_module(module_name)"
    ),
    '        _real_stdout.write(json.dumps({"status": "ready"': (
        '        limit.cancel()\n        _real_stdout.write(json.dumps({"status": "ready"'
    ),
    '"error": str(e)}) + ': '"error": str(_ms_cannot_start(e, module_name) or e)}) + ',
    '"trace": traceback.format_exc()': '"trace": _ms_exception(e) and ""',
}
"""Parts of MiniStack's Python worker, and what stands there instead."""
_TERM = re.compile(r'([?-]?)(?:"((?:[^"\\]|\\.)*)"|(\S+))')
_FIELD = re.compile(r'\{ *\$\.(\w+) *= *"((?:[^"\\]|\\.)*)" *\}')


class Lines:
    """The log lines of a worker's process: a pipe, and the queue from which MiniStack takes them."""

    def __init__(self, stream: Any, queue: Any) -> None:
        self.stream = stream
        self._queue = queue
        self._turn = Lock()
        self._rest = b""
        self._open = True

    def follow(self) -> None:
        """Put lines into the queue until the process ends, since a full pipe would stop it."""
        while self._open:
            self._has_written(None)
            self.take_written()

    def take_written(self) -> None:
        """Put all lines into the queue that have been written so far."""
        with self._turn:
            while self._open and self._has_written(0):
                read = os.read(self.stream.fileno(), _BYTES)
                self._open = bool(read)
                *lines, self._rest = (self._rest + read).split(b"\n")
                if not read and self._rest:
                    lines.append(self._rest)
                for line in lines:
                    self._queue.put(line.decode(errors="replace"))

    def _has_written(self, milliseconds: int | None) -> bool:
        """Wait until the process has written or ended. `select` takes no descriptor above 1,023, and `poll` does."""
        try:
            waiting = select.poll()
            waiting.register(self.stream, select.POLLIN)
            return bool(waiting.poll(milliseconds))
        except ValueError:  # MiniStack has closed the pipe
            self._open = False
            return False


# ruff: noqa: SLF001 - MiniStack's own names
def _lines(worker: Any) -> Lines | None:
    with _CHOOSING:
        process = worker._proc
        if process is not None and (worker.lines is None or worker.lines.stream is not process.stderr):
            worker.lines = Lines(process.stderr, worker._stderr_queue)
        lines: Lines | None = worker.lines
        return lines


def follow(worker: Any) -> None:
    """Do the work of the worker's thread for log lines."""
    if lines := _lines(worker):
        lines.follow()


def drain(worker: Any, **_: float) -> str:
    """Return the lines that the worker has written since the last call."""
    if lines := _lines(worker):
        lines.take_written()
    found: list[str] = []
    while not worker._stderr_queue.empty():
        found.append(worker._stderr_queue.get_nowait())
    return "\n".join(found)


def keep_lines() -> None:
    """Let MiniStack's workers of Python and Node.js lose no line."""
    for name in ("_drain_stderr", "_drain_stderr_bounded"):
        setattr(ProvidedWorker, name, getattr(Worker, name))  # it has a pipe of its own
        setattr(Worker, name, drain)
    Worker.lines = None
    Worker._read_stderr = follow


def compile_filter(pattern: str) -> Callable[[str], bool]:
    """Return the test of a filter pattern: of terms, or of one field with a text. Other patterns match all lines."""
    pattern = pattern.strip()
    if field := _FIELD.fullmatch(pattern):
        name, text = field[1], _plain(field[2]).replace("[", "[[]")
        return lambda line: _has_text(line, name, text)
    if not pattern or pattern.startswith("{"):
        return lambda _: True
    terms = [(sign, _plain(quoted) or word) for sign, quoted, word in _TERM.findall(pattern)]
    wanted, any_of, unwanted = ([term for sign, term in terms if sign == kind] for kind in ("", "?", "-"))

    def matches(line: str) -> bool:
        found = all(term in line for term in wanted) if wanted or not any_of else any(term in line for term in any_of)
        return found and not any(term in line for term in unwanted)

    return matches


def _has_text(line: str, name: str, text: str) -> bool:
    try:
        return fnmatchcase(str(json.loads(line)[name]), text)
    except (ValueError, LookupError, TypeError):
        return False


def _plain(quoted: str) -> str:
    return re.sub(r"\\(.)", r"\1", quoted)


def tell_invocation(invoke: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Return MiniStack's method of a worker, with the lines of a process that did not start or that ended."""

    def told(worker: Any, event: Any, request_id: str, **context: Any) -> dict[str, Any]:
        try:
            result = invoke(worker, event, request_id, **context)
        except RuntimeError as error:  # it did not start
            log = drain(worker)
            process, worker._proc = worker._proc, None
            if process is not None:
                process.kill()
                process.wait()
            if "INIT_REPORT" not in log:
                log += (
                    "\nINIT_REPORT Init Duration: 0.00 ms\tPhase: invoke\tStatus: error\tError Type: Runtime.ExitError"
                )
            return {"status": "error", "error": str(error), "trace": "", "log": log}
        if result.get("error") == "Worker process died":
            result["trace"] = (
                f"RequestId: {request_id} Error: Runtime exited with error: exit status 1\0Runtime.ExitError"
            )
        return result

    return told


def tell_failures() -> None:
    """Let the log and the metrics of a function tell why an invocation failed."""
    from ministack.core import lambda_runtime  # type: ignore[import-untyped]  # noqa: PLC0415
    from ministack.services import cloudwatch, cloudwatch_logs, lambda_svc  # type: ignore[import-untyped]  # noqa: PLC0415

    for before, after in REPLACED.items():
        lambda_runtime._PYTHON_WORKER_SCRIPT = lambda_runtime._PYTHON_WORKER_SCRIPT.replace(before, after)
    Worker.invoke = tell_invocation(Worker.invoke)
    append, logs, metrics = (
        cloudwatch_logs._append_log_events,
        lambda_svc._emit_lambda_logs,
        lambda_svc._emit_lambda_metrics,
    )

    def append_events(stream: Any, events: list[dict[str, Any]]) -> None:
        append(stream, [one | {"message": one["message"].replace("\0", "\n")} for one in events])

    def count_error(func: dict[str, Any], request_id: str, log: str, error: bool, *rest: Any, **options: Any) -> None:
        if error:
            name = func.get("config", func).get("FunctionName", "")
            cloudwatch.record_metric("AWS/Lambda", "Errors", 1, "Count", {"FunctionName": name})
        logs(func, request_id, log, error, *rest, **options)

    def count_others(name: str, duration_ms: float, error: bool, throttle: bool) -> None:  # noqa: ARG001
        metrics(name, duration_ms=duration_ms, error=False, throttle=throttle)

    cloudwatch_logs._append_log_events = append_events
    cloudwatch_logs._compile_filter_pattern = compile_filter
    lambda_svc._emit_lambda_logs, lambda_svc._emit_lambda_metrics = count_error, count_others


def plain_alarm(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return an alarm without metric math. No function writes its metric."""
    if not properties.get("Metrics"):
        return dict(properties)
    metric = {"MetricName": "NoMetricMath", "Namespace": "LocalAws", "Statistic": "Sum", "Period": 3600}
    return {name: value for name, value in properties.items() if name != "Metrics"} | metric


def put_composite(name: str, properties: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """Create or replace a composite alarm with this name. Return its name and attributes, as CloudFormation does."""
    from ministack.services import cloudwatch  # noqa: PLC0415

    ask_cloudwatch("_put_composite_alarm", {**properties, "AlarmName": name})
    return name, {"Arn": cloudwatch._composite_alarms[name]["AlarmArn"]}


def ask_cloudwatch(operation: str, request: dict[str, Any]) -> None:
    """Send a request to MiniStack's CloudWatch. Raise a ValueError with the text of a refusal."""
    from ministack.services import cloudwatch  # noqa: PLC0415

    status, _, body = getattr(cloudwatch, operation)({}, request, False, True)
    if status != HTTPStatus.OK:
        raise ValueError(body.decode() if isinstance(body, bytes) else str(body))


def take_alarms() -> None:
    """Let CloudFormation create, update and delete alarms on metric math, and composite alarms."""
    from ministack.services.cloudformation import provisioners  # type: ignore[import-untyped]  # noqa: PLC0415

    record = provisioners._cw_metric_alarm_record
    provisioners._cw_metric_alarm_record = lambda name, properties: record(name, plain_alarm(properties))
    provisioners._RESOURCE_HANDLERS["AWS::CloudWatch::CompositeAlarm"] = {
        "create": lambda logical_id, properties, stack: put_composite(f"{stack}-{logical_id}", properties),
        "update": lambda name, _, properties, __: put_composite(name, properties),
        "delete": lambda name, _: ask_cloudwatch("_delete_alarms", {"AlarmNames": [name]}),
    }


if __name__ == "__main__":
    take_alarms()
    _ministack_durable.correct()
    _ministack_tables.correct()
    if sys.platform != "win32":  # there is no `poll`
        keep_lines()
        tell_failures()
    main()
