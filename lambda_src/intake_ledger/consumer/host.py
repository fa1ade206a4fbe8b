"""Where the consumer runs: in Lambda, or in a worker that lives for as long as it wants."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from intake_ledger.ledger.ledger import Guard
from intake_ledger.protocol.row import lease_length


class Host(Protocol):
    """Gives messages and holds leases. It never knows the kind of the work, or who does it."""

    @property
    def guards(self) -> Sequence[Guard]:
        """Hold the leases of claims for as long as the host works on them."""

    def lease_ms(self, time_left_ms: int, clock_skew_ms: int) -> int:
        """The length of a new lease."""

    def returning(self, receipts: Sequence[str]) -> AbstractContextManager[None]:
        """Messages are returned to the queue inside the block."""


class InLambda:
    """A claim lasts for the rest of the invocation."""

    guards: Sequence[Guard] = ()

    def lease_ms(self, time_left_ms: int, clock_skew_ms: int) -> int:
        """See `Host`. The difference that two clocks may have comes on top."""
        return lease_length(time_left_ms, clock_skew_ms)

    def returning(self, receipts: Sequence[str]) -> AbstractContextManager[None]:  # noqa: ARG002 - see `Host`
        """See `Host`."""
        return nullcontext()


IN_LAMBDA = InLambda()
