"""The time for which the ledger keeps a settled row."""

from dataclasses import dataclass

from intake_ledger.protocol.object_state import StateKind

_DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Retention:
    """The time for which a settled row stays."""

    seconds: int
    keeps_objects: bool = False
    """True if the row of an object stays as long as the object. Then only committed removals expire."""

    def expires_at(self, kind: StateKind, now: int) -> int | None:
        """The time at which the row of a committed state expires: a day after the retention.

        Args:
            kind: the kind of the committed state.
            now: epoch milliseconds.

        Returns:
            Epoch seconds, as DynamoDB's TTL needs them. None: the row does not expire.

        """
        if self.keeps_objects and kind is StateKind.OBJECT:
            return None
        return now // 1000 + self.seconds + _DAY_SECONDS
