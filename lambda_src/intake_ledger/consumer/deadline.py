"""Interrupt a processor that runs too long, before Lambda ends the whole function."""

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

STDERR = 2
"""The file descriptor of the log."""
REPEAT_SECONDS = 0.5
"""The time between two interruptions. A processor can close its files and connections in it, and several interruptions
come before the function's own timeout."""


class Overrun(BaseException):
    """The processor's time is over. This is no Exception, because botocore's retries would swallow one and go on."""


class deadline:  # noqa: N801 - read as a function: `with deadline(60):`
    """Raise `Overrun` inside the block after this many seconds, and again until the block ends.

    A processor that swallows the interruption (`except:`) is interrupted again. If it swallows the last one too, the
    block still raises `Overrun` at its end, because its work may be half done. After the block nothing is raised.

    A timer signal does it, which only the main thread can take. In other threads the block runs without one. A single
    call into C is not interrupted until it returns: lease and fence remain the protection.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._active = False
        self._expired = False
        self._before: Any = None
        self._block: FrameType | None = None

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._block = sys._getframe(1)  # noqa: SLF001 - the only way to know the caller's frame
            self._before = signal.signal(signal.SIGALRM, self._expire)
            self._active = True
            signal.setitimer(signal.ITIMER_REAL, self._seconds, REPEAT_SECONDS)

    def __exit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> None:
        if not self._active:
            return
        self._active, self._block = False, None
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)
        if self._expired and not isinstance(error, (Overrun, KeyboardInterrupt)):
            raise Overrun from error

    def _expire(self, _signal: int, frame: FrameType | None) -> None:
        # A signal can arrive while the block is being entered or left. An exception there would leave the timer
        # running, and the next signal would hit other code.
        if self._active and self._is_in_block(frame):
            self._expired = True
            raise Overrun

    def _is_in_block(self, frame: FrameType | None) -> bool:
        """True if the block or a function that it calls was interrupted, and not its entry or exit."""
        while frame is not None and frame is not self._block:
            if frame.f_code in _OWN_CODE:
                return False
            frame = frame.f_back
        return True


_OWN_CODE = (deadline.__enter__.__code__, deadline.__exit__.__code__)
