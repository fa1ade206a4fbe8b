"""A pool of threads for processors. The main thread watches their limits."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import Lock

from intake_ledger.ledger import Claim


class ProcessorThreads:
    """A thread pool, kept for the execution environment.

    `limit` is the processor's, in seconds. Only the main thread can take the signal that interrupts a processor. In
    these threads a processor that overruns its limit is noticed, and not interrupted.
    """

    def __init__(self, size: int, limit: float) -> None:
        self._limit = limit
        self._pool = ThreadPoolExecutor(size, thread_name_prefix="processor")
        self._lock = Lock()
        self._due: dict[int, tuple[float, Claim]] = {}
        """When each running processor reaches its limit, by the monotonic clock."""

    @contextmanager
    def limit(self, claim: Claim, limit: float) -> Iterator[None]:
        """Mark the block as a processor's work on the claim. `run` watches its limit, in seconds."""
        entry = time.monotonic() + limit, claim
        with self._lock:
            self._due[id(entry)] = entry
        try:
            yield
        finally:
            with self._lock:
                del self._due[id(entry)]

    def run(
        self,
        groups: Sequence[Callable[[], None]],
        stop: Callable[[], None],
        each_second: Callable[[], None] = lambda: None,
    ) -> list[Claim]:
        """Run the groups until all have ended, except those whose processors overrun their limit.

        After the first overrun, groups that have not started are left out. Processors that run then are awaited up to
        their own limits. An error of a group is raised.

        Args:
            groups: the work of each thread.
            stop: called at an overrun. No other processor may start from then on.
            each_second: called about that often in the caller's thread.

        Returns:
            The claims of the processors that still run after their limit.

        """
        # `concurrent.futures.wait` would look at every group whenever one of them ends.
        finished: SimpleQueue[Future[None]] = SimpleQueue()
        running = {self._pool.submit(group) for group in groups}
        for future in running:
            future.add_done_callback(finished.put)
        ended = []
        while True:
            with self._lock:
                due = list(self._due.values())
            now = time.monotonic()
            overrun = [claim for until, claim in due if until <= now]
            if overrun:
                stop()
                running -= {future for future in running if future.cancel()}
            # The other threads are between requests to AWS, which have their own limits.
            if len(running) == len(overrun):
                break
            # A processor that starts meanwhile has its whole limit.
            next_due = min((until for until, _ in due if until > now), default=now + self._limit)
            try:
                future = finished.get(timeout=min(next_due - now, 1.0))
            except Empty:
                each_second()
                continue
            if future in running:
                running.remove(future)
                ended.append(future)
        for future in ended:
            future.result()
        return overrun
