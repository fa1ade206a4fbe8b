"""A processor that overruns is interrupted, and nothing else ever is."""

import signal
import threading
import time
from collections.abc import Iterator

import pytest

from intake_ledger.deadlines import Overrun, deadline


@pytest.fixture(autouse=True)
def _nothing_is_left_armed() -> Iterator[None]:
    """Every test leaves timer and handler as it found them."""
    before = signal.getsignal(signal.SIGALRM)
    yield
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before


def busy(seconds: float) -> None:
    """Run for so long, interruptibly."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def test_an_overrun_is_interrupted() -> None:
    """Well before the block would have ended by itself."""
    started = time.monotonic()
    with pytest.raises(Overrun), deadline(0.05):
        busy(5)
    assert time.monotonic() - started < 2


def test_a_call_that_waits_is_interrupted() -> None:
    """As a request to a downstream does."""
    with pytest.raises(Overrun), deadline(0.05):
        threading.Event().wait(5)


def test_code_that_catches_every_exception_does_not_swallow_it() -> None:
    """An Exception would be eaten by botocore's retries: the call went on, and no error was seen."""
    swallowed = []

    def stubborn() -> None:
        for _ in range(3):
            try:
                busy(1)
            except Exception as error:  # noqa: BLE001 - what is being tested
                swallowed.append(error)

    with pytest.raises(Overrun), deadline(0.05):
        stubborn()
    assert swallowed == []
    assert not issubclass(Overrun, Exception)


def test_it_is_disarmed_when_the_block_returns() -> None:
    """What comes after it has all the time in the world."""
    with deadline(0.05):
        pass
    busy(0.1)


def test_it_is_disarmed_when_the_block_raises() -> None:
    """The failure has to be written into the ledger."""
    with pytest.raises(ValueError, match="no"), deadline(0.05):
        raise ValueError("no")
    busy(0.1)


def test_a_signal_that_was_under_way_does_not_hit_what_comes_after() -> None:
    """The handler raises only while the block runs, even if somebody still holds it."""
    with deadline(5):
        handler = signal.getsignal(signal.SIGALRM)
        assert callable(handler)
    handler(signal.SIGALRM, None)


def test_the_next_block_has_its_whole_time() -> None:
    """One timer, set anew: the second message of a batch does not inherit the first one's."""
    with deadline(0.05):
        pass
    with deadline(5):
        busy(0.1)
    with pytest.raises(Overrun), deadline(0.05):
        busy(5)


def test_outside_the_main_thread_the_block_runs_without_a_timer() -> None:
    """Signals reach the main thread only; lease and fence remain the protection."""
    ran = []

    def work() -> None:
        with deadline(0.01):
            busy(0.05)
            ran.append(signal.getitimer(signal.ITIMER_REAL))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert ran == [(0.0, 0.0)]
