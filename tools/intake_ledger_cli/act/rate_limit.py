"""Limits the number of messages that a command sends in a second."""

from collections.abc import Callable

MAX_BATCH_SIZE = 10  # SQS's limit of a batch


class RateLimit:
    """A rate limit. `clock` returns monotonic seconds. Without `per_second` there is no limit."""

    def __init__(self, per_second: float | None, *, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._per_second = per_second
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()

    @property
    def batch_size(self) -> int:
        """The number of messages to send together. Low rates send small batches, so that they do not come in bursts."""
        return MAX_BATCH_SIZE if self._per_second is None else max(1, min(MAX_BATCH_SIZE, int(self._per_second)))

    def wait_for(self, messages: int) -> None:
        """Wait until this number of messages may be sent."""
        if self._per_second is None:
            return
        if (early := self._free_at - self._clock()) > 0:
            self._sleep(early)
        self._free_at = max(self._free_at, self._clock()) + messages / self._per_second
