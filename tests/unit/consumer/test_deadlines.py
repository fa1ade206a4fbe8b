"""A processor that overruns is interrupted, and nothing else ever is."""

import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from intake_ledger import Unprocessable
from intake_ledger.consumer import deadline as deadline_module
from intake_ledger.consumer.deadline import Overrun, deadline


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


def test_a_waiting_call_is_interrupted() -> None:
    """A request to a downstream waits like this."""
    with pytest.raises(Overrun), deadline(0.05):
        threading.Event().wait(5)


def test_code_that_catches_every_exception_does_not_swallow_it() -> None:
    """An Exception would be eaten by botocore's retries: the call went on, and no error was seen."""
    swallowed = []

    def stubborn() -> None:
        for _ in range(3):
            try:
                busy(1)
            except Exception as error:  # noqa: BLE001 - the test needs it
                swallowed.append(error)

    with pytest.raises(Overrun), deadline(0.05):
        stubborn()
    assert swallowed == []
    assert not issubclass(Overrun, Exception)


def test_the_timer_stops_when_the_block_returns() -> None:
    """The code after the block has no limit."""
    with deadline(0.05):
        pass
    busy(0.1)


def test_the_timer_stops_when_the_block_raises() -> None:
    """The failure has to be written into the ledger."""
    with pytest.raises(ValueError, match="no"), deadline(0.05):
        raise ValueError("no")
    busy(0.1)


def test_a_late_signal_does_not_interrupt_the_code_after_the_block() -> None:
    """The handler raises only while the block runs, even if code still has a reference to it."""
    with deadline(5):
        handler = signal.getsignal(signal.SIGALRM)
        assert callable(handler)
    handler(signal.SIGALRM, None)


def test_the_next_block_has_its_whole_time() -> None:
    """The timer is set again. The second message of a batch does not get the rest of the first limit."""
    with deadline(0.05):
        pass
    with deadline(5):
        busy(0.1)
    with pytest.raises(Overrun), deadline(0.05):
        busy(5)


@pytest.mark.failure_mode("F110")
def test_a_processor_that_swallows_the_interruption_is_interrupted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """`except:` around each piece of work catches it once for each piece; the last one ends the loop."""
    monkeypatch.setattr(deadline_module, "REPEAT_SECONDS", 0.02)
    swallowed = []

    def stubborn() -> None:
        with deadline(0.02):
            for _ in range(10):
                try:
                    busy(0.3)
                except:  # noqa: E722 - the test needs it
                    swallowed.append(1)
                    if len(swallowed) == 4:
                        raise

    with pytest.raises(Overrun):
        stubborn()
    assert len(swallowed) == 4


@pytest.mark.failure_mode("F110")
@pytest.mark.parametrize(
    ("instead", "expected"),
    [
        (None, Overrun),
        (ValueError("no"), Overrun),
        (Unprocessable("no"), Overrun),
        (SystemExit(), Overrun),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
    ids=repr,
)
def test_a_block_that_swallowed_the_interruption_has_overrun(
    instead: BaseException | None, expected: type[BaseException]
) -> None:
    """The work may be half done, so it must not be committed or rejected. Only the end of the process passes."""

    def stubborn() -> None:
        with deadline(0.02):
            try:
                busy(5)
            except:  # noqa: E722 - the test needs it
                if instead is not None:
                    raise instead from None

    with pytest.raises(expected):
        stubborn()


def block(log: list[str], error: Exception | None) -> None:
    """A block with a deadline that does not come by itself, and code after it."""
    try:
        with deadline(1000):
            log.append("in the block")
            if error is not None:
                raise error
    except Overrun:
        log.append("interrupted")
    except ValueError:
        log.append("raised")
    log.append("after it")


@pytest.mark.failure_mode("F110")
@pytest.mark.parametrize("error", [None, ValueError("no")], ids=repr)
def test_a_signal_at_any_moment_interrupts_the_block_or_nothing(error: Exception | None) -> None:
    """At each bytecode instruction that enters or leaves the block, and at each line in it and around it.

    The line of `with` itself is left out: Python looks for signals when it calls and when it jumps, not there.
    """
    ours = {block.__code__, deadline.__init__.__code__, deadline.__enter__.__code__, deadline.__exit__.__code__}
    with_line = block.__code__.co_firstlineno + 3
    others: list[int] = []
    at = seen = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal seen
        if frame.f_code not in ours:
            return None
        inside = frame.f_code is block.__code__
        frame.f_trace_opcodes = not inside
        if event == "line" and frame.f_lineno != with_line if inside else event == "opcode":
            seen += 1
            if seen == at:
                signal.raise_signal(signal.SIGALRM)
        return trace

    before = signal.signal(signal.SIGALRM, lambda number, _: others.append(number))
    tracing = sys.gettrace()
    ends = set()
    try:
        while seen >= at:
            at, seen = at + 1, 0
            log: list[str] = []
            sys.settrace(trace)
            try:
                block(log, error)
            finally:
                sys.settrace(tracing)
            assert log[-1] == "after it", at
            assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0), at
            ends.add(log[-2])
    finally:
        sys.settrace(tracing)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert at > 40
    assert others
    assert ends == {"interrupted", "in the block" if error is None else "raised"}


@pytest.mark.failure_mode("F110")
# An alarm that another thread takes may come after the handler is given back. Python then writes "ignored due to race
# condition", and raises nothing.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("seed", range(3))
def test_interruptions_never_hit_the_code_after_the_block(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of blocks that end about when their time is up, with a signal five times in a millisecond."""
    monkeypatch.setattr(deadline_module, "REPEAT_SECONDS", 0.0002)
    chance = random.Random(seed)
    overran = 0
    for _ in range(1_000):
        steps = chance.choice((0, 10, 10_000))
        try:
            with deadline(chance.uniform(1e-6, 3e-4)):
                for _ in range(chance.randint(0, 3)):
                    try:
                        sum(range(steps))
                    except:  # noqa: E722 - the test needs it
                        continue
                int(chance.choice(("1", "1", "no")))
        except Overrun:
            overran += 1
        except ValueError:
            pass
        # An interruption here would end the test.
        sum(range(1_000))
    assert 0 < overran < 1_000


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
