"""Write the log lines of ordinary changes in half of Powertools' time, with the same text.

Powertools documents `LambdaPowertoolsFormatter` as a class to inherit from, and `Logger(logger_formatter=)`. Its base
writes all other lines: those of the processor, those with an exception, and those of a logger with other formats of
its keys.
"""

import json
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, override

from aws_lambda_powertools import Logger
from aws_lambda_powertools.logging.formatter import LambdaPowertoolsFormatter

_TRACE = "_X_AMZN_TRACE_ID"
_FORMATS = {
    "level": "%(levelname)s",
    "location": "%(funcName)s:%(lineno)d",
    "message": None,
    "timestamp": "%(asctime)s",
}
"""The first keys of a line, as Powertools has them by default."""
_RECORD = frozenset({*vars(logging.makeLogRecord({})), "asctime", *_FORMATS} - {"taskName"})
"""The attributes of a record that its line does not have as fields."""


class ChangeFormatter(LambdaPowertoolsFormatter):
    """Powertools' formatter, with a shorter way for lines with these messages, which must not be JSON."""

    def __init__(self, messages: frozenset[str]) -> None:
        super().__init__()
        self._messages = messages
        # Powertools' serializer makes an encoder for each line.
        self._encode = json.JSONEncoder(default=self.json_default, separators=(",", ":"), ensure_ascii=False).encode
        self._keys: dict[str, Any] = {}
        """The keys that the last line had."""
        self._constants: dict[str, Any] | None = None
        """Their values after the first keys. None: a line with these keys takes the long way."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        if record.msg not in self._messages or record.exc_info or self.thread_safe_get_current_keys():
            return super().format(record)
        keys = self.get_current_keys()
        if keys != self._keys:
            self._keys, self._constants = dict(keys), self._constants_of(keys)
        if self._constants is None:
            return super().format(record)
        line = {
            "level": record.levelname,
            "location": f"{record.funcName}:{record.lineno}",
            "message": record.msg,
            "timestamp": self.formatTime(record),
            **self._constants,
            **{name: value for name, value in vars(record).items() if value is not None and name not in _RECORD},
        }
        if trace := os.environ.get(_TRACE):
            line["xray_trace_id"] = trace.split(";")[0].replace("Root=", "")
        return self._encode(line)

    def _constants_of(self, keys: Mapping[str, Any]) -> dict[str, Any] | None:
        usual = self.json_indent is None and keys.items() >= _FORMATS.items() and "xray_trace_id" not in keys
        # Powertools formats the value of a key that has the name of an attribute.
        if not usual or keys.keys() & _RECORD != _FORMATS.keys():
            return None
        return {name: value for name, value in keys.items() if name not in _FORMATS and value is not None}


class ChangeLines:
    """Writes lines at `INFO` whose place in the code is a function, without a look at the stack."""

    def __init__(self, logger: Logger, function: Callable[..., object]) -> None:
        """Make the lines of this function.

        Args:
            logger: writes the lines itself if a processor has made it before, with another formatter or a buffer.
            function: the place of the lines.

        """
        self._logger = logger
        ours = isinstance(logger.registered_formatter, ChangeFormatter)
        self._direct = logging.getLogger(logger.name) if ours else None
        code = function.__code__
        place = logging.LogRecord(logger.name, logging.INFO, code.co_filename, code.co_firstlineno, "", (), None)
        names = ("name", "levelno", "levelname", "pathname", "filename", "module", "lineno")
        self._place = {name: getattr(place, name) for name in names} | {"funcName": code.co_name}

    def write(self, message: str, fields: Mapping[str, object]) -> None:
        """Write a line with these fields."""
        if self._direct is None:
            self._logger.info(message, extra=fields, stacklevel=3)
        elif self._direct.isEnabledFor(logging.INFO):
            self._direct.handle(logging.makeLogRecord({**self._place, "msg": message, **fields}))
