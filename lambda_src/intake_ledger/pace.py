"""How long a record takes here, so that no more are claimed together than will be started in time."""

_WEIGHT = 0.2
"""Of the newest record in the moving average."""
_CAUTION = 2
"""A record may take so many times the average before a neighbour's claim has to be given back."""


class Pace:
    """A moving average of the processor's time in this execution environment, in milliseconds.

    Threads may share it: a record that is lost to the average between two of them does no harm.
    Before anything was seen, nothing is claimed in advance: a claim that has to be given back costs two writes.
    """

    def __init__(self, average_ms: float | None = None) -> None:
        self._average_ms = average_ms

    def took(self, milliseconds: float) -> None:
        """A record has come to its end."""
        if self._average_ms is None:
            self._average_ms = milliseconds
        else:
            self._average_ms += _WEIGHT * (milliseconds - self._average_ms)

    def fits(self, window_ms: float) -> int:
        """How many records can surely be started within this time."""
        if self._average_ms is None:
            return 0
        return max(int(window_ms / (_CAUTION * self._average_ms + 1)), 0)
