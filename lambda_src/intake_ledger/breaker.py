"""A downstream that is out is left alone: no attempts are spent on it, but one probe at a time."""

from collections.abc import Callable
from threading import Lock

THRESHOLD = 5
"""So many different keys fail without a success in between. With one poisoned key in a hundred that is one run in ten
thousand million, and costs `min_pause_ms`; a downstream that is out is noticed for five attempts."""
FREE_RECEIVES = 5
"""So often a message that is given back waits for the pause alone: most outages are short."""
RECEIVE_MS = 60_000
"""Then a minute at least for each further time that it was received, however short the pauses: 206 receives take
fourteen days, the longest that SQS keeps a message."""
_JITTER_SHARE = 0.25
"""Of the pause: what was given back together must not return together."""


def least_wait_ms(receives: int) -> int:
    """For how long a message that was received so often is given back at least, lest the queue's own limit ends it."""
    return max(receives - FREE_RECEIVES, 0) * RECEIVE_MS


class Breaker:
    """Failures in a row, over different keys, mean that the downstream is out and not that the objects are sick.

    Then it opens: nothing is claimed until the pause has elapsed. After that one claim is let through as a probe; a
    success closes the breaker, a failure doubles the pause.

    It lives in the execution environment, as `Pace` does, and knows nothing of the others'. That is enough: each learns
    for five attempts and goes on spending one for each pause, so an outage costs that times the number of environments,
    which `max_concurrency` bounds, however long the backlog is. A state that all share would cost a read for each batch
    and could itself be out. Times are in milliseconds, `jitter` gives a number from 0 to 1.
    """

    def __init__(self, min_pause_ms: int, max_pause_ms: int, jitter: Callable[[], float]) -> None:
        self._min_pause_ms = min_pause_ms
        self._max_pause_ms = max_pause_ms
        self._jitter = jitter
        self._lock = Lock()
        self._failed: set[str] = set()
        self._pause_ms: int | None = None
        """None: closed."""
        self._until = 0
        self._probe: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether the downstream is taken to be out."""
        return self._pause_ms is not None

    @property
    def pause_ms(self) -> int:
        """The pause that is on; 0 when it is closed."""
        return self._pause_ms or 0

    def wait_ms(self, key: str, now: int) -> int:
        """0: the key may be claimed. Otherwise for how long its message should be given back."""
        with self._lock:
            if self._pause_ms is None or self._probe == key:
                return 0
            if self._probe is None and now >= self._until:
                self._probe = key
                return 0
            # While a probe is on its way nobody knows yet: the next word comes after another pause at the latest.
            rest = max(self._until - now, 0) or self._pause_ms
            return rest + round(self._pause_ms * _JITTER_SHARE * self._jitter())

    def failed(self, key: str, now: int) -> bool:
        """An attempt at the key has failed; True when that opens the breaker."""
        with self._lock:
            if self._pause_ms is None:
                self._failed.add(key)
                if len(self._failed) < THRESHOLD:
                    return False
                self._pause(self._min_pause_ms, now)
                return True
            # Others were begun before it opened, and say nothing new.
            if self._probe == key:
                self._pause(min(self._pause_ms * 2, self._max_pause_ms), now)
            return False

    def succeeded(self) -> bool:
        """An attempt has succeeded; True when that closes the breaker."""
        with self._lock:
            was_open, self._pause_ms, self._probe = self._pause_ms is not None, None, None
            self._failed.clear()
            return was_open

    def undecided(self, key: str) -> None:
        """The claim that was let through has shown nothing: a duplicate, a busy key, trouble. The next is the probe."""
        with self._lock:
            if self._probe == key:
                self._probe = None

    def _pause(self, milliseconds: int, now: int) -> None:
        self._pause_ms, self._until, self._probe = milliseconds, now + milliseconds, None
