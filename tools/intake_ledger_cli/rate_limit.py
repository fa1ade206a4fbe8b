"""So many messages a second, and no more."""

from collections.abc import Callable

MAX_BATCH_SIZE = 10  # SQS's limit of a batch


class RateLimit:
    """Waits as long as it takes. `clock` gives seconds that never go back; without `per_second` there is no limit."""

    def __init__(self, per_second: float | None, *, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._per_second = per_second
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()

    @property
    def batch_size(self) -> int:
        """How many to send at once, so that few a second do not come in bursts."""
        return MAX_BATCH_SIZE if self._per_second is None else max(1, min(MAX_BATCH_SIZE, int(self._per_second)))

    def wait_for(self, messages: int) -> None:
        """Return when so many messages may be sent."""
        if self._per_second is None:
            return
        if (early := self._free_at - self._clock()) > 0:
            self._sleep(early)
        self._free_at = max(self._free_at, self._clock()) + messages / self._per_second
