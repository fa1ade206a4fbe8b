"""The local AWS has each log line of an invocation when the invocation has ended."""

import fcntl
import os
import resource
import subprocess
import sys
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest
from ministack.core import lambda_runtime  # type: ignore[import-untyped]

from intake_ledger_testing import _ministack

WORKER = """
import sys, time
for asked in sys.stdin:
    for number in range(int(asked)):
        print(f"line {number} ü", file=sys.stderr, flush=True)
        time.sleep(0.02)  # longer than MiniStack waits for another line
    print("answered", flush=True)
"""


class Asked:
    """A worker of MiniStack, whose thread for log lines has had no time yet."""

    lines = None

    def __init__(self) -> None:
        self._stderr_queue: Queue[str] = Queue()
        pipe = subprocess.PIPE
        self._proc = subprocess.Popen([sys.executable, "-c", WORKER], stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def answers(self, lines: int) -> str:
        assert self._proc.stdin
        assert self._proc.stdout
        self._proc.stdin.write(f"{lines}\n")
        self._proc.stdin.flush()
        assert self._proc.stdout.readline() == "answered\n"
        return _ministack.drain(self)


def test_lines_are_complete_at_the_answer() -> None:
    """However slowly they came, and none of them comes with the next invocation."""
    worker = Asked()
    with worker._proc:
        for lines in (3, 0, 40, 1):
            assert worker.answers(lines).splitlines() == [f"line {number} ü" for number in range(lines)]
        assert worker._proc.stdin
        worker._proc.stdin.close()
        assert worker._proc.wait() == 0
        assert _ministack.drain(worker) == ""
        _ministack.follow(worker)


def test_a_line_without_an_end_is_kept_when_its_process_dies() -> None:
    process: Any = subprocess.Popen(
        [sys.executable, "-c", "import sys; print('a', file=sys.stderr); sys.stderr.write('b')"], stderr=subprocess.PIPE
    )
    with process:
        process.wait()
        assert _ministack.drain(SimpleNamespace(_proc=process, _stderr_queue=Queue(), lines=None)) == "a\nb"


def test_ministack_has_the_names_that_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new release may have others. Then lines could be lost again."""
    worker, provided = lambda_runtime.Worker, lambda_runtime.ProvidedWorker
    assert [part for part in _ministack.REPLACED if lambda_runtime._PYTHON_WORKER_SCRIPT.count(part) != 1] == []
    for name in ("_read_stderr", "_drain_stderr", "_drain_stderr_bounded"):
        monkeypatch.setattr(worker, name, getattr(worker, name))
        monkeypatch.setattr(provided, name, getattr(worker, name), raising=False)
    monkeypatch.setattr(worker, "lines", None, raising=False)
    bounded = worker._drain_stderr_bounded
    _ministack.keep_lines()
    assert (worker._drain_stderr_bounded, worker._read_stderr) == (_ministack.drain, _ministack.follow)
    assert provided._drain_stderr_bounded is bounded


@pytest.mark.parametrize(
    ("pattern", "line", "matches"),
    [
        ("", "a", True),
        ('?"Task timed out" ?OutOfMemory', "a Task timed out after 3 s", True),
        ('?"Task timed out" ?OutOfMemory', "a task timed out", False),
        ('"[ERROR]" KeyError', "[ERROR] KeyError: 'a'", True),
        ('"[ERROR]" KeyError', "[ERROR] ValueError", False),
        ("ERROR -Throttled", "ERROR Throttled", False),
        ('"say \\"a\\""', 'they say "a"', True),
        ('{ $.message = "late write" }', '{"message": "late write"}', True),
        ('{ $.message = "late write" }', '{"message": "late"}', False),
        ('{ $.message = "late write" }', "late write", False),
        ('{ $.key = "in/[1]*" }', '{"key": "in/[1].csv"}', True),
        ('{ $.reason_code = "*" }', '{"message": "late"}', False),
        ("{ $.attempt > 1 }", '{"attempt": 1}', True),
    ],
)
def test_filter_patterns_are_those_of_cloudwatch(pattern: str, line: str, *, matches: bool) -> None:
    """A pattern of a form that is not known finds each line."""
    assert _ministack.compile_filter(pattern)(line) is matches


@pytest.mark.parametrize("closed", [False, True])
def test_a_process_with_many_open_files_loses_no_line(*, closed: bool) -> None:
    """`select` takes no descriptor above 1,023. A pipe that was closed meanwhile is no error either."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2_048)), hard))
    read, write = os.pipe()
    high = fcntl.fcntl(read, fcntl.F_DUPFD, 1_100)
    os.write(write, b"a line\n")
    os.close(read)
    os.close(write)
    found: Queue[str] = Queue()
    with os.fdopen(high, "rb", buffering=0) as stream:
        lines = _ministack.Lines(stream, found)
        if closed:
            stream.close()
        lines.follow()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert list(found.queue) == ([] if closed else ["a line"])


def test_a_composite_alarm_can_be_deployed() -> None:
    """MiniStack's CloudFormation has none. Its CloudWatch does, and refuses one without its children."""
    name, attributes = _ministack.put_composite("Stack-Calls", {"AlarmRule": "TRUE", "AlarmDescription": "why"})
    assert attributes["Arn"].endswith(f":alarm:{name}")
    _ministack.put_composite(name, {"AlarmRule": "FALSE"})
    with pytest.raises(ValueError, match="in the alarm rule do not exist"):
        _ministack.put_composite("Other", {"AlarmRule": 'ALARM("nothing")'})
    _ministack.ask_cloudwatch("_delete_alarms", {"AlarmNames": [name]})


def test_an_alarm_on_metric_math_can_be_deployed() -> None:
    """MiniStack refuses it. It keeps its condition, and a metric that nothing writes."""
    alarm = {"Metrics": [{"Id": "value"}], "Threshold": 0, "ComparisonOperator": "GreaterThanThreshold"}
    plain = _ministack.plain_alarm(alarm)
    assert "Metrics" not in plain
    assert (plain["Threshold"], plain["MetricName"]) == (0, "NoMetricMath")
    assert _ministack.plain_alarm({"MetricName": "Failed"}) == {"MetricName": "Failed"}
