"""The circuit breaker of this execution environment, and the successes that all environments share in the ledger."""

from contextlib import suppress

from intake_ledger.consumer.circuit_breaker import CircuitBreaker
from intake_ledger.consumer.services import Services
from intake_ledger.ledger import AWS_ERRORS
from intake_ledger.protocol import Reason


class Downstream:
    """Asks the circuit breaker before an attempt, and tells it how the attempt ended."""

    def __init__(self, services: Services, breaker: CircuitBreaker) -> None:
        self._ledger = services.ledger
        self._telemetry = services.telemetry
        self._clock = services.clock
        self.breaker = breaker

    def wait_ms(self, key: str, *, first: bool) -> int:
        """Milliseconds for which an attempt at the key has to wait; 0: it may start. `first`: it was never tried."""
        now = self._clock()
        if self.breaker.take_read_turn(now):
            with suppress(*AWS_ERRORS):  # it is only a hint
                at = self._ledger.last_success()
                if at is not None and self.breaker.heard(at, now):
                    self._telemetry.downstream_back()
        wait_ms = self.breaker.wait_ms(key, self._clock(), first=first)
        if wait_ms:
            self._telemetry.held_back()
        return wait_ms

    def ended(self, key: str, healthy: bool | None, reason: Reason | None, now: int) -> None:
        """An attempt at the key has ended, at this time in epoch milliseconds. `healthy` is as in `Outcome`."""
        if healthy:
            if self.breaker.succeeded(key, now):
                self._telemetry.downstream_back()
            if self.breaker.take_share_turn(now):
                with suppress(*AWS_ERRORS):
                    self._ledger.tell_success(now)
        elif healthy is False and self.breaker.failed(key, now):
            self._telemetry.downstream_out(reason, pause_ms=self.breaker.pause_ms)
