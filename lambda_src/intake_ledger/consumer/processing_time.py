"""Measure the time of a record, to claim only as many records together as can be started in time."""

_WEIGHT = 0.2
"""The weight of the newest record in the moving average."""
_CAUTION = 2
"""A record may take this multiple of the average before another record's claim has to be released."""


class ProcessingTime:
    """A moving average of the processor's time in this execution environment, in milliseconds.

    Threads may share it. A record that the average loses between two threads does no harm. Without an average nothing
    is claimed ahead, because a claim that is released costs two writes.
    """

    def __init__(self, average_ms: float | None = None) -> None:
        self._average_ms = average_ms

    def add(self, milliseconds: float) -> None:
        """Add the time of one record."""
        if self._average_ms is None:
            self._average_ms = milliseconds
        else:
            self._average_ms += _WEIGHT * (milliseconds - self._average_ms)

    def fits(self, window_ms: float) -> int:
        """The number of records that can surely be started within this time."""
        if self._average_ms is None:
            return 0
        return max(int(window_ms / (_CAUTION * self._average_ms + 1)), 0)
