"""Counts the consumers' requests for one key that is overwritten often during its processing.

    python -m benchmarks.hotkey

The real consumer runs in virtual time (`tests.protocol.simulation`). There are eight workers, a processor that takes
half a minute, and a number of overwrites of one key during the first attempt. The count ends when no messages are left.
The seed is fixed, so that each run gives the same figures.
"""

from typing import Any, override

from benchmarks.measure import table
from tests.protocol.simulation import START, Measured, Misfortune, Simulation

KEY = "in/hot"
TAKES_MS = 30_000
OVERWRITES = (10, 100, 1_000)
_NO_MISFORTUNE = Misfortune(overwritten=0, removed=0, lost=0, deaths=0, cut=0, outage_hours=0)


class HotKey(Simulation):
    """A simulation with one key and without an audit, which would find nothing."""

    def __init__(self, overwrites: int) -> None:
        super().__init__(Measured(keys=1, twice=0, thrice=0, hours=1), _NO_MISFORTUNE)
        self.takes_ms = TAKES_MS, TAKES_MS
        self._overwrites = overwrites

    @override
    def _plan(self) -> None:
        for number in range(1 + self._overwrites):
            self.schedule(START + number * TAKES_MS // (self._overwrites + 1), self._upload(KEY, 0, []))

    @override
    def _audit(self) -> None: ...


def count(overwrites: int) -> dict[str, Any]:
    """Return requests by operation, in total and per overwrite."""
    tally = HotKey(overwrites).run()
    assert tally.wrong == [], tally.wrong
    asked = tally.requests
    dynamodb = sum(number for name, number in asked.items() if name.endswith(("Item", "Statement")))
    return {
        "processed": tally.outcomes["Committed"],
        "verdicts": ", ".join(f"{number} {name}" for name, number in sorted(tally.verdicts.items())),
        "deliveries": tally.notifications + tally.redelivered,
        "dynamodb requests": dynamodb,
        "HEAD": asked["HeadObject"],
        "ChangeMessageVisibilityBatch": asked["ChangeMessageVisibilityBatch"],
        "all requests per overwrite": (asked.total() - asked["GetObject"]) / overwrites,
    }


def measure() -> dict[str, Any]:
    return {f"{overwrites:,} overwrites": count(overwrites) for overwrites in OVERWRITES}


def main() -> None:
    print(table("A hot key, counted", measure()))


if __name__ == "__main__":
    main()
