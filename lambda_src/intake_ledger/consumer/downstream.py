"""The circuit breaker of this execution environment, and the successes that all environments share in the ledger."""

from contextlib import suppress
from dataclasses import dataclass, field

from intake_ledger.consumer.circuit_breaker import CircuitBreaker
from intake_ledger.consumer.services import Services
from intake_ledger.events.parser import Message
from intake_ledger.ledger.dynamodb_table import AWS_ERRORS
from intake_ledger.protocol.reasons import Reason

_ASKED_MS = 60_000


@dataclass(slots=True, eq=False)
class Downstream:
    """Asks the circuit breaker before an attempt, and tells it how the attempt ended."""

    services: Services
    breaker: CircuitBreaker
    _asked_at: int = field(default=0, init=False)
    """The last request of a person to try again now."""
    _read_asked_at: int = field(default=0, init=False)
    """When it was read."""
    _recorded_at: int = field(default=0, init=False)
    """The next probe that the ledger's table shows. 0: it shows no open breaker of this environment."""

    def wait_ms(self, key: str, *, first: bool) -> int:
        """Milliseconds for which an attempt at the key has to wait; 0: it may start. `first`: it was never tried."""
        now = self.services.clock()
        if self.breaker.take_read_turn(now):
            with suppress(*AWS_ERRORS):  # it is only a hint
                at, asked_at = self.services.ledger.last_success()
                heard = at is not None and self.breaker.heard(at, now)
                if heard or (asked_at is not None and self.breaker.asked(asked_at)):
                    self.services.telemetry.downstream_back()
                    self._record_closed(now)
        wait_ms = self.breaker.wait_ms(key, self.services.clock(), first=first)
        if wait_ms:
            self.services.telemetry.held_back()
        return wait_ms

    def is_asked(self, message: Message) -> bool:
        """True if a person has asked to try again now since this copy began to wait. Reads it once in a minute."""
        now = self.services.clock()
        if now - self._read_asked_at >= _ASKED_MS:
            self._read_asked_at = now
            with suppress(*AWS_ERRORS):  # the copy comes again within 15 minutes
                self._asked_at = self.services.ledger.last_success()[1] or 0
        return self._asked_at >= (message.queued_at or now)

    def ended(self, key: str, healthy: bool | None, reason: Reason | None, now: int) -> None:
        """An attempt at the key has ended, at this time in epoch milliseconds. `healthy` is as in `Outcome`."""
        if healthy:
            if self.breaker.succeeded(key, now):
                self.services.telemetry.downstream_back()
                self._record_closed(now)
            if self.breaker.take_share_turn(now):
                with suppress(*AWS_ERRORS):
                    self.services.ledger.tell_success(now)
        elif healthy is False:
            if self.breaker.failed(key, now):
                self.services.telemetry.downstream_out(reason, pause_ms=self.breaker.pause_ms)
            self._record_open(reason)

    def _record_open(self, reason: Reason | None) -> None:
        """Show the open breaker in the ledger's table. A pause that has not changed costs no request."""
        probe_at = self.breaker.next_probe_at
        if not self.breaker.is_open or probe_at == self._recorded_at:
            return
        self._recorded_at = probe_at
        content: dict[str, int | str] = {"opened_at": self.breaker.opened_at, "next_probe_at": probe_at}
        if reason is not None:
            content |= {"reason": reason.text, "reason_code": reason.code.value}
        with suppress(*AWS_ERRORS):  # it is only shown
            self.services.ledger.tell_breaker(content)

    def _record_closed(self, now: int) -> None:
        self._recorded_at = 0
        with suppress(*AWS_ERRORS):
            self.services.ledger.tell_breaker({"closed_at": now})
