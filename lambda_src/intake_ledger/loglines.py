"""Powertools' log lines, put together in half the time: two of them for each change are a good part of its CPU."""

import json
import logging
import os
import time
from logging import LogRecord
from types import CodeType
from typing import Any

from intake_ledger.powertools import RESERVED_LOG_ATTRS, LambdaPowertoolsFormatter

_RESERVED = frozenset(RESERVED_LOG_ATTRS)
_JSON_BEGINS = frozenset('{["-0123456789tfnNI \t\r\n')
"""The first characters of what Powertools might decode, rather than quote: a message may be JSON itself."""
_ITS_OWN = frozenset({"stack_trace", "xray_trace_id"})
"""What Powertools puts into a line itself, and takes from nobody."""
_TRACE = "_X_AMZN_TRACE_ID"
_MS_BEGIN, _MS_END = len("2026-11-22 01:19:55,"), len("2026-11-22 01:19:55,035")


class LogLines(LambdaPowertoolsFormatter):
    """The lines of `LambdaPowertoolsFormatter`, to the letter. It leaves to that whatever has an exception, arguments,
    or a message that may be JSON: the processor's own lines come here too, where it logs by the same service's name.
    """

    def __init__(self) -> None:
        super().__init__()
        if self.json_indent is None:
            # `json.dumps` makes one of these for each line.
            encoder = json.JSONEncoder(default=self.json_default, separators=(",", ":"), ensure_ascii=False)
            self.json_serializer: Any = encoder.encode
        self._time = (-1, "")
        """The second of the last line, and how its time was written."""

    def formatTime(self, record: LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - logging's name
        """The time of a line; within a second only the milliseconds change."""
        second, (last, text) = int(record.created), self._time
        if second != last:
            text = super().formatTime(record, datefmt)
            self._time = (second, text)
        return f"{text[:_MS_BEGIN]}{int(record.msecs):03d}{text[_MS_END:]}"

    def format(self, record: LogRecord) -> str:
        """One line of JSON, without its end."""
        message = record.msg
        if record.exc_info or record.args or not isinstance(message, str) or message[:1] in _JSON_BEGINS:
            return super().format(record)
        if not _ITS_OWN.isdisjoint(record.__dict__):
            return super().format(record)
        attributes = record.__dict__ | {"asctime": self.formatTime(record)}
        line: dict[str, Any] = {}
        for name, value in (self.log_format | self.thread_safe_get_current_keys()).items():
            line[name] = value % attributes if value and name in _RESERVED else value
        line.update({name: value for name, value in attributes.items() if name not in _RESERVED})
        line["message"] = message
        if self.log_format.get("xray_trace_id", "") is not None and (trace := os.environ.get(_TRACE)):
            line["xray_trace_id"] = trace.partition(";")[0].removeprefix("Root=")
        return self.serialize({name: value for name, value in line.items() if value is not None})


class FrequentLine:
    """Messages of one place at level `INFO`, as `Logger.info` writes them, in half the time: the place, the thread, the
    process and the task are looked up for each line otherwise, and a line tells the place alone.
    """

    def __init__(self, logger: str, place: CodeType) -> None:
        """Make it for the logger of this name; `place` is the function that the line is told to come from."""
        self._logger = logging.getLogger(logger)
        nobody = dict.fromkeys(("thread", "threadName", "process", "processName", "taskName"))
        record = LogRecord(logger, logging.INFO, place.co_filename, place.co_firstlineno, "", (), None, place.co_name)
        self._same = vars(record) | nobody

    def write(self, message: str, extra: dict[str, Any]) -> None:
        """Write it, unless the level of the logger is higher."""
        if not self._logger.isEnabledFor(logging.INFO):
            return
        now = time.time_ns()
        record = LogRecord.__new__(LogRecord)
        of_now = {"created": now / 1e9, "msecs": now // 1_000_000 % 1000 + 0.0}
        record.__dict__ = self._same | of_now | {"msg": message} | extra
        self._logger.handle(record)
