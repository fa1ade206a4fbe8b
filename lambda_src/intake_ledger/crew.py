"""Threads for the lanes of a batch, under the eyes of the main thread: only that one can take the timer's signal."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import Lock

from intake_ledger.ledger import Claim


class Crew:
    """As many threads as lanes may run at once, kept for the execution environment. `limit` is the processor's, in
    seconds: nobody can interrupt it in a thread, but one that overruns it is noticed.
    """

    def __init__(self, size: int, limit: float) -> None:
        self._limit = limit
        self._pool = ThreadPoolExecutor(size, thread_name_prefix="lane")
        self._lock = Lock()
        self._due: dict[int, tuple[float, Claim]] = {}
        """When each processor that runs now has to be done, by the clock that never goes back."""

    @contextmanager
    def guard(self, claim: Claim, limit: float) -> Iterator[None]:
        """The block is a processor's work on the claim: `run` sees to its limit, in seconds."""
        one = time.monotonic() + limit, claim
        with self._lock:
            self._due[id(one)] = one
        try:
            yield
        finally:
            with self._lock:
                del self._due[id(one)]

    def run(
        self,
        lanes: Sequence[Callable[[], None]],
        stop: Callable[[], None],
        each_second: Callable[[], None] = lambda: None,
    ) -> list[Claim]:
        """Run the lanes until all have come to an end but those whose processors overrun: their claims come back.

        `stop` is called when the first one does: then no other processor may begin, and those that have begun are
        awaited up to their own limits. Lanes that had not begun are left out. Raises what a lane raises.
        `each_second` is called about that often while lanes run, in the caller's thread.
        """
        # A queue, because `concurrent.futures.wait` looks at each lane again whenever one of them ends.
        finished: SimpleQueue[Future[None]] = SimpleQueue()
        running = {self._pool.submit(lane) for lane in lanes}
        for one in running:
            one.add_done_callback(finished.put)
        ended = []
        while True:
            with self._lock:
                due = list(self._due.values())
            now = time.monotonic()
            overrun = [claim for until, claim in due if until <= now]
            if overrun:
                stop()
                running -= {one for one in running if one.cancel()}
            # What does not run a processor now is between two calls to AWS, which have their own limits.
            if len(running) == len(overrun):
                break
            # A processor that begins meanwhile has the whole limit before it.
            next_due = min((until for until, _ in due if until > now), default=now + self._limit)
            try:
                one = finished.get(timeout=min(next_due - now, 1.0))
            except Empty:
                each_second()
                continue
            if one in running:
                running.remove(one)
                ended.append(one)
        for one in ended:
            one.result()
        return overrun
