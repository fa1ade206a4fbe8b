"""Tells a downstream that is out from bad files, and holds messages back while it is out.

The difference shows in keys that were never tried: beside bad files they succeed, in an outage they fail. So a first
attempt is never held back for long, and one success ends every suspicion.
"""

from collections.abc import Callable
from threading import Lock

THRESHOLD = 5
"""Different keys that fail without a success in between open the breaker."""
MAX_PAUSE_MS = 60_000
"""The longest pause. After an outage each held message is delivered again within one and a half pauses."""
RECENT_MS = 10_000
"""A downstream that did something so short a time ago is not out."""
NEWS_MS = 5_000
"""How often an environment asks for the others' last success, or tells its own."""
CLOSE_MS = 60_000
"""What failed between two successes that are no further apart did not fail because of an outage."""
MAX_BAD_KEYS = 10_000
"""So many bad keys are remembered; one more, and all are forgotten."""
_JITTER_SHARE = 0.5
"""Of the pause: messages that were given back together must not return together."""
_MIN_FIRST_PAUSE_MS = 100
_FREE_SHARE, _GROWING_SHARE = 0.4, 0.5
"""Of the receives that the queue allows: those that wait for the pause alone, and those whose waits grow then."""


def least_wait_ms(receives: int, *, max_receives: int, max_hold_ms: int) -> int:
    """The shortest wait of a message that was received so often.

    The waits grow so that a message reaches `max_hold_ms` before the queue's own limit, `max_receives`. That limit
    would dead-letter it without a reason.
    """
    growing = max(receives - int(max_receives * _FREE_SHARE), 0)
    # The sum of 1, 2, 3, ... n is about n * n / 2.
    step_ms = 2 * max_hold_ms / (max_receives * _GROWING_SHARE) ** 2
    return round(growing * step_ms)


class CircuitBreaker:
    """Opens when several different keys fail in a row, and closes at the first success.

    A key that failed between two successes which were close to each other is bad: the downstream was there. From then
    on it opens nothing, until it succeeds. While it is open, messages are given back untried, except:

    - A key that was never tried passes. Its failure costs no attempt, and it is the best probe: after all bad files
      were tried once, every such key is a good one. When a failure takes long, the next first attempt waits for as
      long as that took, so that a downstream that hangs takes at most half of the worker's time.
    - One other key is let through for each pause. A key that has failed since the breaker opened is not let through
      again before the others. The pause doubles with each failure, up to a minute.

    Each execution environment has a breaker. In trouble, and only then, they share one fact: when any of them last had
    a success (`wants_news`, `heard`, `owes_news`). Times are in milliseconds, `jitter` gives a number from 0 to 1.
    """

    def __init__(self, min_pause_ms: int, max_pause_ms: int, jitter: Callable[[], float]) -> None:
        self._min_pause_ms = min(min_pause_ms, MAX_PAUSE_MS)
        self._max_pause_ms = min(max_pause_ms, MAX_PAUSE_MS)
        self._jitter = jitter
        self._lock = Lock()
        self._failed: set[str] = set()
        """Since the last success."""
        self._bad: set[str] = set()
        """Keys that failed although the downstream was there."""
        self._succeeded_at: int | None = None
        """Here, or in another environment."""
        self._failing: set[str] = set()
        """Since a success was last told; bad keys too."""
        self._asked_at = self._told_at = 0
        self._owes_news = False
        self._pause_ms: int | None = None
        """None: closed."""
        self._until = 0
        """When the next key may be let through that is not a first attempt."""
        self._first_until = 0
        """When the next first attempt may begin."""
        self._passed: dict[str, int] = {}
        """Keys that were let through and have not ended yet, with the time at which they were."""
        self._probe: str | None = None
        """The one among them that is not a first attempt."""

    @property
    def is_open(self) -> bool:
        """Whether the downstream is taken to be out."""
        return self._pause_ms is not None

    @property
    def pause_ms(self) -> int:
        """The current pause; 0 when it is closed."""
        return self._pause_ms or 0

    def wait_ms(self, key: str, now: int, *, first: bool) -> int:
        """0: the key may be claimed. Otherwise the time after which its message should be delivered again.

        `first`: the message was never received before, so that the key was never tried.
        """
        with self._lock:
            if self._pause_ms is None or key in self._passed:
                return 0
            if first:
                if now >= self._first_until:
                    self._passed[key] = now
                    return 0
                return self._first_until - now + round(self._pause_ms * self._jitter())
            # A key that failed has to wait for a second pause, so that the others come first.
            due = self._until + (self._pause_ms if key in self._failed or key in self._bad else 0)
            if self._probe is None and now >= due:
                self._probe = key
                self._passed[key] = now
                return 0
            return self._held_ms()

    def held_ms(self) -> int:
        """The wait of a message whose attempt has failed while the breaker is open."""
        with self._lock:
            return self._held_ms()

    def failed(self, key: str, now: int) -> bool:
        """An attempt at the key has failed; True when that opens the breaker."""
        with self._lock:
            if key not in self._bad:
                self._failed.add(key)
            self._failing.add(key)
            if self._pause_ms is None:
                if len(self._failed) < THRESHOLD or self._is_recent(self._succeeded_at, now):
                    return False
                self._pause_ms = self._min_pause_ms
                self._until = now + self._pause_ms
                return True
            begun = self._passed.pop(key, None)
            if begun is not None:
                self._first_until = now + max(now - begun, _MIN_FIRST_PAUSE_MS)
            if self._probe == key:
                self._probe = None
            # Any failure shows that it is still out. Keys that were begun before it opened show nothing new.
            if begun is not None and now >= self._until:
                self._pause_ms = min(self._pause_ms * 2, self._max_pause_ms)
                self._until = now + self._pause_ms
            return False

    def succeeded(self, key: str, now: int) -> bool:
        """An attempt at the key has succeeded; True when that closes the breaker."""
        with self._lock:
            was_open = self._close(now)
            self._bad.discard(key)
            self._owes_news = self._owes_news or was_open or len(self._failing) >= THRESHOLD
            return was_open

    def wants_news(self, now: int) -> bool:
        """Whether the others' last success should be looked up; at most once in five seconds, and only while open."""
        with self._lock:
            wants = self._pause_ms is not None and now - self._asked_at >= NEWS_MS
            if wants:
                self._asked_at = now
            return wants

    def heard(self, at: int, now: int) -> bool:
        """Another environment had a success at this time; True when that closes the breaker."""
        with self._lock:
            return self._is_recent(at, now) and self._close(at)

    def owes_news(self, now: int) -> bool:
        """Whether the success that was just had should be told to the others; at most once in five seconds."""
        with self._lock:
            owes = self._owes_news and now - self._told_at >= NEWS_MS
            if owes:
                self._told_at, self._owes_news = now, False
                self._failing.clear()
            return owes

    def undecided(self, key: str) -> None:
        """A key that was let through has shown nothing: a duplicate, a busy key, S3's trouble. The next takes its
        place.
        """
        with self._lock:
            self._passed.pop(key, None)
            if self._probe == key:
                self._probe = None

    def _close(self, succeeded_at: int) -> bool:
        was_open, self._pause_ms, self._probe = self._pause_ms is not None, None, None
        if self._succeeded_at is not None and succeeded_at - self._succeeded_at <= CLOSE_MS:
            self._bad |= self._failed
            if len(self._bad) > MAX_BAD_KEYS:
                self._bad.clear()
        self._succeeded_at = succeeded_at
        self._failed.clear()
        self._passed.clear()
        self._first_until = 0
        return was_open

    @staticmethod
    def _is_recent(at: int | None, now: int) -> bool:
        return at is not None and now - at < RECENT_MS

    def _held_ms(self) -> int:
        pause_ms = self._pause_ms or 0
        return pause_ms + round(pause_ms * _JITTER_SHARE * self._jitter())
