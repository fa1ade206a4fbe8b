"""Process several messages of a batch at the same time, and end the process if a processor overruns its limit."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock

from intake_ledger.consumer.attempt import Attempts, Failures
from intake_ledger.consumer.batch import NOT_AHEAD, Batch
from intake_ledger.consumer.group_by_key import group_by_key
from intake_ledger.consumer.returns import ids_of
from intake_ledger.consumer.services import Services
from intake_ledger.events.parser import Message
from intake_ledger.ledger.ledger import Claim, FencingGuard


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


@dataclass(slots=True, eq=False)
class ParallelGroups:
    """Handles messages of different keys at the same time, and messages of one key or group in turn."""

    services: Services
    threads: ProcessorThreads
    attempts: Attempts
    failures: Failures
    in_turn: Callable[[Batch, Sequence[Message]], None]
    end_process: Callable[[], None]

    def run(self, batch: Batch) -> None:
        """Handle the batch. Ends the process if a processor still runs after its limit."""
        groups = group_by_key([_keys(message, self.attempts.kind.guards) for message in batch.messages])
        work = [partial(self.in_turn, batch, [batch.messages[place] for place in group]) for group in groups]
        overrun = self.threads.run(work, batch.stopping.set, batch.returns.flush)
        self._finish_rest(overrun, batch)
        if overrun:
            self._leave(overrun, batch)

    def _finish_rest(self, overrun: Sequence[Claim], batch: Batch) -> None:
        """Fail claims whose processor overran its limit. Return messages that no thread has started.

        Such messages may exist even if every processor that overran has ended meanwhile.
        """
        keys = {claim.change.key: claim for claim in overrun}
        for message in batch.messages:
            if message in batch.retry_after:
                continue
            # The processor ran for the first message of the group that is not finished.
            claim = next((keys.pop(key) for key in message.keys & keys.keys()), None)
            retry_after: float | None
            try:
                if claim is None:
                    retry_after = self.attempts.release(batch.ahead.get(message, NOT_AHEAD).answer, 0)
                else:
                    retry_after = self.attempts.overran(claim, message).retry_after
            except Exception as error:  # noqa: BLE001 - its lease runs out, and the message comes again
                self.services.telemetry.log_error("a message could not be failed or returned", message.id, error)
                retry_after = self.failures.backoff(message.receives)
            if retry_after is None and not message.only_change:
                # Other changes of the message were not handled.
                retry_after = 0
            batch.finish(message, retry_after)

    def _leave(self, overrun: Sequence[Claim], batch: Batch) -> None:
        """End the process, because nothing else ends a thread. Every message was finished or returned before.

        Lambda takes the invocation for failed then and deletes nothing, so finished messages are deleted here.
        """
        batch.returns.flush()
        if batch.returns.copies:
            batch.wait_in_copies()
        done = [message.receipt for message in batch.messages if batch.retry_after[message] is None]
        try:
            self.services.queues.delete(done, in_time=batch.returns.take_request)
        except Exception as error:  # noqa: BLE001 - they come again, as duplicates
            self.services.telemetry.log_error("messages could not be deleted", ids_of(batch.messages), error)
        self.services.telemetry.process_ends([claim.change.key for claim in overrun])
        self.services.telemetry.flush()
        self.end_process()


def _keys(message: Message, guards: Sequence[FencingGuard]) -> frozenset[str]:
    """Keys of a message, and what their guards hold: threads that shared it would only wait for each other."""
    names = {guard.in_turn(key) for guard in guards for key in message.keys}
    return message.keys | {name for name in names if name is not None}


def exit_now() -> None:
    """End the process without waiting for threads. Log lines are written before."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)
