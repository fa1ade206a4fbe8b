"""Distinguish a downstream that is out from bad files, and hold messages back while it is out.

Keys that were never tried show the difference: among bad files they succeed, in an outage they fail. So a first attempt
is never held back for long, and one success closes the breaker.
"""

from collections.abc import Callable
from threading import Lock

THRESHOLD = 5
"""This number of different keys that fail without a success in between opens the breaker."""
MAX_PAUSE_MS = 60_000
"""The longest pause. After an outage each held message is delivered again within one and a half pauses."""
RECENT_MS = 10_000
"""A downstream is not out if it had a success within this time."""
SHARE_MS = 5_000
"""The shortest time between two reads of the last success of all environments, and between two writes of it."""
CLOSE_MS = 60_000
"""A failure between two successes within this time has another cause than an outage."""
MAX_BAD_KEYS = 10_000
"""The limit of remembered bad keys. All are forgotten when it is exceeded."""
_JITTER_SHARE = 0.5
"""The random share that is added to a pause. Messages that were returned together must not come back together."""
_MIN_FIRST_PAUSE_MS = 100
_FREE_SHARE, _GROWING_SHARE = 0.4, 0.5
"""Shares of the receives that the queue allows: the first ones wait for the pause only, the next ones wait longer."""


def least_wait_ms(receives: int, *, max_receives: int, max_hold_ms: int) -> int:
    """The shortest wait of a message after this number of receives, in milliseconds.

    The waits grow so that a message reaches `max_hold_ms` before the queue's own limit, `max_receives`. At that
    limit, SQS would dead-letter it without a reason.
    """
    growing = max(receives - int(max_receives * _FREE_SHARE), 0)
    # The sum of 1, 2, 3, ... n is about n * n / 2.
    step_ms = 2 * max_hold_ms / (max_receives * _GROWING_SHARE) ** 2
    return round(growing * step_ms)


class CircuitBreaker:
    """Opens when several different keys fail in a row, and closes at the first success.

    A key that failed between two successes within `CLOSE_MS` is bad, because the downstream worked. It does not count
    again until it succeeds. While the breaker is open, messages are returned without an attempt. There are two
    exceptions:

    - A key that was never tried passes. Its failure counts no attempt, and it is the best probe: after all bad files
      were tried once, every new key is a good one. After a slow failure, the next first attempt waits for the same
      time, so that a downstream that hangs takes at most half of the worker's time.
    - One other key passes for each pause. A key that has failed since the breaker opened passes again only after the
      others. The pause doubles with each failure, up to a minute.

    Each execution environment has a breaker. After failures they share the time at which any of them last had a success
    (`take_read_turn`, `heard`, `take_share_turn`). Times are in milliseconds, `jitter` gives a number from 0 to 1.
    """

    def __init__(self, min_pause_ms: int, max_pause_ms: int, jitter: Callable[[], float]) -> None:
        self._min_pause_ms = min(min_pause_ms, MAX_PAUSE_MS)
        self._max_pause_ms = min(max_pause_ms, MAX_PAUSE_MS)
        self._jitter = jitter
        self._lock = Lock()
        self._failed: set[str] = set()
        """Keys that failed since the last success, without bad ones."""
        self._bad: set[str] = set()
        """Keys that failed although the downstream worked."""
        self._succeeded_at: int | None = None
        """The time of the last success, in this environment or another one."""
        self._failing: set[str] = set()
        """Keys that failed since the last success that was shared, with bad ones."""
        self._read_at = self._shared_at = 0
        self._unshared = False
        self._pause_ms: int | None = None
        """The current pause. None: the breaker is closed."""
        self._opened_at = 0
        self._until = 0
        """The time from which the next key may pass that is not a first attempt."""
        self._first_until = 0
        """The time from which the next first attempt may pass."""
        self.passed: dict[str, int] = {}
        """Keys that passed and whose attempts have not ended, with the time at which they passed."""
        self._probe: str | None = None
        """The key among them that is not a first attempt."""

    @property
    def is_open(self) -> bool:
        """True while the downstream seems to be out."""
        return self._pause_ms is not None

    @property
    def pause_ms(self) -> int:
        """The current pause. 0: the breaker is closed."""
        return self._pause_ms or 0

    @property
    def opened_at(self) -> int:
        """The time at which the breaker last opened, in epoch milliseconds."""
        return self._opened_at

    @property
    def next_probe_at(self) -> int:
        """The time from which the next key may pass that was tried before, in epoch milliseconds."""
        return self._until

    def has_failed(self, key: str) -> bool:
        """True if the key failed since the last success, or is bad."""
        with self._lock:
            return key in self._failed or key in self._bad

    def wait_ms(self, key: str, now: int, *, first: bool) -> int:
        """The time after which the message of this key should be delivered again. 0: the key may be claimed now.

        `first`: the message was never received before, so that the key was never tried.
        """
        with self._lock:
            if self._pause_ms is None or key in self.passed:
                return 0
            if first:
                if now >= self._first_until:
                    self.passed[key] = now
                    return 0
                return self._first_until - now + round(self._pause_ms * self._jitter())
            # A key that failed has to wait for a second pause, so that the others come first.
            due = self._until + (self._pause_ms if key in self._failed or key in self._bad else 0)
            if self._probe is None and now >= due:
                self._probe = key
                self.passed[key] = now
                return 0
            return self._held_ms()

    def held_ms(self) -> int:
        """The wait of a message whose attempt has failed while the breaker is open."""
        with self._lock:
            return self._held_ms()

    def failed(self, key: str, now: int) -> bool:
        """Record that an attempt at the key has failed. True: that opens the breaker."""
        with self._lock:
            if key not in self._bad:
                self._failed.add(key)
            self._failing.add(key)
            if self._pause_ms is None:
                if len(self._failed) < THRESHOLD or self._is_recent(self._succeeded_at, now):
                    return False
                self._pause_ms, self._opened_at = self._min_pause_ms, now
                self._until = now + self._pause_ms
                return True
            begun = self.passed.pop(key, None)
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
        """Record that an attempt at the key has succeeded. True: that closes the breaker."""
        with self._lock:
            was_open = self._close(now)
            self._bad.discard(key)
            self._unshared = self._unshared or was_open or len(self._failing) >= THRESHOLD
            return was_open

    def take_read_turn(self, now: int) -> bool:
        """True if the last success of all environments should be read now: once in `SHARE_MS`, and only while open."""
        with self._lock:
            turn = self._pause_ms is not None and now - self._read_at >= SHARE_MS
            if turn:
                self._read_at = now
            return turn

    def heard(self, at: int, now: int) -> bool:
        """Record that another environment had a success at this time. True: that closes the breaker."""
        with self._lock:
            return self._is_recent(at, now) and self._close(at)

    def asked(self, at: int) -> bool:
        """Record that a person asked at this time to try again now. True: that closes the breaker."""
        with self._lock:
            if self._pause_ms is None or at < self._opened_at:
                return False
            self._pause_ms, self._probe, self._first_until = None, None, 0
            self._failed, self.passed = set(), {}
            return True

    def take_share_turn(self, now: int) -> bool:
        """True if this environment's success should be shared now with the others: at most once in `SHARE_MS`."""
        with self._lock:
            turn = self._unshared and now - self._shared_at >= SHARE_MS
            if turn:
                self._shared_at, self._unshared = now, False
                self._failing.clear()
            return turn

    def undecided(self, key: str) -> None:
        """Record that a key passed and no attempt followed: a duplicate, a busy key, an error of S3.

        Another key may pass then.
        """
        with self._lock:
            self.passed.pop(key, None)
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
        self.passed.clear()
        self._first_until = 0
        return was_open

    @staticmethod
    def _is_recent(at: int | None, now: int) -> bool:
        return at is not None and now - at < RECENT_MS

    def _held_ms(self) -> int:
        pause_ms = self._pause_ms or 0
        return pause_ms + round(pause_ms * _JITTER_SHARE * self._jitter())
