"""The ledger and the queue of a worker, which tell its heartbeat about claims and returned messages."""

from collections.abc import Callable, Sequence
from typing import override

from intake_ledger.aws import Queues
from intake_ledger.ledger import Claim, Ledger
from intake_ledger.protocol import Change, Ruling
from intake_ledger.worker.heartbeat import Heartbeat


class HeldLedger(Ledger):
    """A ledger with short leases that the heartbeat extends."""

    heartbeat: Heartbeat
    lease_ms: int
    """The length of a lease in milliseconds. It replaces the rest of an invocation."""

    @override
    def claim(self, change: Change, *, lease_ms: int) -> Claim | Ruling:
        answer = super().claim(change, lease_ms=self.lease_ms)
        self._hold(answer)
        return answer

    @override
    def claim_together(self, changes: Sequence[Change], *, lease_ms: int) -> list[Claim | Ruling | None]:
        answers = super().claim_together(changes, lease_ms=self.lease_ms)
        for answer in answers:
            self._hold(answer)
        return answers

    def extend_lease(self, claim: Claim) -> None:
        """Extend the lease of the claim by its whole length from now on.

        Raises:
            Fenced: The claim has ended, or another attempt has the row.

        """
        self.extend(claim, lease_ms=self.lease_ms)

    def _hold(self, answer: Claim | Ruling | None) -> None:
        if isinstance(answer, Claim):
            self.heartbeat.hold(answer)


class HeldQueues(Queues):
    """Queues that return messages without a heartbeat in between."""

    heartbeat: Heartbeat

    @override
    def deliver_later(self, delays: Sequence[tuple[str, float]], *, in_time: Callable[[], bool] = lambda: True) -> None:
        with self.heartbeat.returning([receipt for receipt, _ in delays]):
            super().deliver_later(delays, in_time=in_time)

    def hide(self, receipts: Sequence[str], seconds: float) -> None:
        """Hide messages that are in work for these seconds from now on.

        Raises:
            NotDone: Some requests failed. Their messages may be delivered to another worker.

        """
        super().deliver_later([(receipt, seconds) for receipt in receipts])
