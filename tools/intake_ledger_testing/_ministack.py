"""MiniStack with each log line of an invocation in its log.

MiniStack takes the lines of a worker while they follow each other within milliseconds. On a busy machine, the other
lines wait for the worker's next invocation, and are lost if there is none. A worker writes its lines before its answer.
So all of them are in the pipe when the answer is there, and this module takes them from it.

MiniStack refuses alarms on metric math. Here such an alarm exists and never goes off, so that its stack deploys.

Run it as ``python -P _ministack.py``.
"""

from __future__ import annotations

import os
import select
import sys
from threading import Lock
from typing import TYPE_CHECKING, Any

from ministack.app import main  # type: ignore[import-untyped]
from ministack.core.lambda_runtime import ProvidedWorker, Worker  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Mapping

_BYTES = 65_536
_CHOOSING = Lock()


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


def plain_alarm(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return an alarm without metric math. No function writes its metric."""
    if not properties.get("Metrics"):
        return dict(properties)
    metric = {"MetricName": "NoMetricMath", "Namespace": "LocalAws", "Statistic": "Sum", "Period": 3600}
    return {name: value for name, value in properties.items() if name != "Metrics"} | metric


def take_metric_math() -> None:
    """Let CloudFormation create and update alarms on metric math."""
    from ministack.services.cloudformation import provisioners  # type: ignore[import-untyped]  # noqa: PLC0415

    record = provisioners._cw_metric_alarm_record
    provisioners._cw_metric_alarm_record = lambda name, properties: record(name, plain_alarm(properties))


if __name__ == "__main__":
    take_metric_math()
    if sys.platform != "win32":  # there is no `poll`
        keep_lines()
    main()
