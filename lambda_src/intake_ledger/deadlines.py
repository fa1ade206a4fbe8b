"""A processor that overruns is interrupted before Lambda kills the whole function."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Overrun(BaseException):
    """The time is up. Not an Exception: botocore's retries would swallow that and go on."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise `Overrun` inside the block after this many seconds.

    By a timer signal, which only the main thread can take; elsewhere the block runs without one. A single call into C
    is not interrupted until it returns: the lease and the fence remain the protection.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    armed = True

    def expire(_signal: int, _frame: FrameType | None) -> None:
        # A signal that was under way when the block ended must not hit what comes after it.
        if armed:
            raise Overrun

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
