"""Extend the leases of claims and hide their messages for as long as the worker works on them.

Lambda ends a function at its timeout, so a lease in Lambda lasts for the whole invocation. A worker has no timeout. Its
leases are short and extended, so that another worker soon takes over the work of a worker that dies.
"""

import faulthandler
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Lock, Thread

from intake_ledger.consumer.deadline import STDERR
from intake_ledger.ledger.ledger import Claim
from intake_ledger.protocol.errors import Fenced
from intake_ledger.protocol.handover import Element

BEATS = 3
"""The number of heartbeats in the time for which a claim is held. Two of them may fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extensions:
    """The requests of a heartbeat, and its reports."""

    lease: Callable[[Claim], None]
    """Extends the lease of a claim. Raises `Fenced` if the claim has ended."""
    visibility: Callable[[Sequence[str]], None]
    """Hides the messages of these receipt handles from other workers."""
    report: Callable[[str, Exception], None]
    """Reports a request that failed."""
    end_process: Callable[[], None]
    """Ends the process at once."""


class Heartbeat:
    """The claims and messages of one worker, and a thread that extends them.

    It is a guard of the ledger, so that it knows each claim. It also ends the process if a processor runs longer than
    its limit and cannot be interrupted, as Lambda does. Otherwise such a processor would block its key for ever.

    No thread runs while a call into C holds the interpreter's lock. Such a call loses its leases, so that other workers
    take its work over. A timer without Python code ends the process then, as on Lambda Managed Instances. Otherwise one
    endless call would occupy a worker for each attempt.
    """

    just_in_time = False

    def __init__(
        self, extensions: Extensions | None, *, hold_seconds: float, limit_seconds: float, clock: Callable[[], float]
    ) -> None:
        """Make a heartbeat that is not started.

        Args:
            extensions: the requests. None: they are set before the heartbeat starts.
            hold_seconds: the time for which one heartbeat extends claims and messages.
            limit_seconds: the time after which a processor that still runs cannot be interrupted.
            clock: gives seconds that only grow.

        """
        self.extensions = extensions
        self._interval = hold_seconds / BEATS
        # The heartbeat before the call may have been as late as the call itself: the leases have lapsed by then.
        self._longest_call = hold_seconds + self._interval
        self._limit = limit_seconds
        self._clock = clock
        self._lock = Lock()
        self._claims: list[Claim] = []
        self._receipts: set[str] = set()
        self._running: dict[object, float] = {}
        self._started, self._stopped = False, Event()

    def start(self) -> None:
        """Start the threads. They end with the process, or after `stop`."""
        self._started = True
        for run in (self._run, self._watch):
            Thread(target=run, name="heartbeat", daemon=True).start()

    def stop(self) -> None:
        """End the threads."""
        self._stopped.set()

    @contextmanager
    def batch(self, receipts: Sequence[str]) -> Iterator[None]:
        """Hide these messages until the block ends, unless they are returned before."""
        with self._lock:
            self._receipts = set(receipts)
        try:
            yield
        finally:
            with self._lock:
                self._receipts.clear()
                self._claims.clear()

    @contextmanager
    def processor(self) -> Iterator[None]:
        """Watch the processor that runs inside the block."""
        run = object()
        self._running[run] = self._clock()
        self._set_timer()
        try:
            yield
        finally:
            del self._running[run]
            self._set_timer()

    def take(self, claim: Claim) -> Claim:
        """See `Guard`. Extend the lease of this claim until the attempt is over."""
        with self._lock:
            self._claims.append(claim)
        return claim

    def let_go(self, claim: Claim, *, ended: bool = True) -> None:  # noqa: ARG002 - see `Guard`
        """See `Guard`. Nothing is extended for work that goes on elsewhere: the next poll does that."""
        with self._lock:
            self._claims = [held for held in self._claims if held is not claim]

    def with_commit(self, claim: Claim) -> Sequence[Element]:  # noqa: ARG002 - see `Guard`
        """See `Guard`."""
        return ()

    def still_holds(self, claim: Claim) -> bool:  # noqa: ARG002 - see `Guard`
        """See `Guard`."""
        return True

    def extended(self, claim: Claim, *, until: int) -> bool:  # noqa: ARG002 - see `Guard`
        """See `Guard`."""
        return True

    @contextmanager
    def returning(self, receipts: Sequence[str]) -> Iterator[None]:
        """Return these messages to the queue inside the block.

        The block excludes a heartbeat. A heartbeat after it would hide the messages for longer than their delay.
        """
        with self._lock:
            self._receipts.difference_update(receipts)
            yield

    def beat(self) -> None:
        """Extend everything once."""
        now = self._clock()
        if any(now - since > self._limit for since in tuple(self._running.values())):
            self._requests.end_process()
        with self._lock:
            claims = tuple(self._claims)
            if self._receipts:
                try:
                    self._requests.visibility(sorted(self._receipts))
                except Exception as error:  # noqa: BLE001 - the next heartbeat tries again
                    self._requests.report("messages could not be hidden for longer", error)
        for claim in claims:
            self._extend(claim)

    def _extend(self, claim: Claim) -> None:
        try:
            self._requests.lease(claim)
        except Fenced:
            # Its attempt has ended, or another worker has the row.
            self.let_go(claim)
        except Exception as error:  # noqa: BLE001 - the thread has to live on
            self._requests.report(f"the lease of {claim.change.key} could not be extended", error)

    def _set_timer(self) -> None:
        """Begin the time after which the process ends. Without a processor, it has none."""
        if not self._started:
            return
        if self._running:
            faulthandler.dump_traceback_later(self._longest_call, exit=True, file=STDERR)
        else:
            faulthandler.cancel_dump_traceback_later()

    @property
    def _requests(self) -> Extensions:
        assert self.extensions is not None, "the heartbeat has no requests yet"
        return self.extensions

    def _run(self) -> None:
        while not self._stopped.wait(self._interval):
            self.beat()

    def _watch(self) -> None:
        """Set the timer again. No request delays this thread."""
        while not self._stopped.wait(self._interval):
            self._set_timer()
