"""Take starts at a limited rate, from an item that all workers of a pipeline share.

    a start is free     move `starts_until`, on the condition that it is not too far in the future: one write
    none is free        move `places_until`: the message comes again then
    others wait         the same at once, when the worker has seen it before

    another setting     convert both times, once: a write that requires that they are unchanged

Both times only grow under one setting. A worker remembers them, and sends no request that DynamoDB would refuse. A
person may delete the item, because a clock was wrong: each answer replaces what was remembered, and times that no right
clock gives are asked for again.
A start is taken by the write. If its answer is lost, or its worker dies, the start is lost: the rate is only lower.
"""

from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

from botocore.exceptions import ClientError

from intake_ledger.ledger.conditions import Condition, ConditionFailed
from intake_ledger.ledger.dynamodb_table import LedgerTable, is_throttled
from intake_ledger.protocol.rate import LONGEST_LINE_SECONDS, Rate, StartTimes
from intake_ledger.protocol.row import rate_key

_TRIES = 4
"""A write is repeated if another worker has moved the time past the present one in between."""
_THROTTLED_MS = 2_000
"""The shortest wait if DynamoDB has no capacity for the item."""
_DOUBT_MS = 60_000
"""Times that are this far beyond those of the worker's own clock are asked for again, but not more often than this."""


class Starts:
    """Gives starts. One object is for an execution environment. Threads may share it."""

    def __init__(
        self, table: LedgerTable, pipeline: str, rate: Rate, *, clock: Callable[[], int], jitter: Callable[[], float]
    ) -> None:
        """Make it.

        Args:
            table: the ledger's table.
            pipeline: the name of the pipeline, whose workers share the rate.
            rate: the limit.
            clock: gives epoch milliseconds.
            jitter: gives a random number from 0 to 1.

        """
        self.rate = rate
        self._table = table
        self._key = rate_key(pipeline, rate.name)
        self._clock = clock
        self._jitter = jitter
        self._lock = Lock()
        self._seen = StartTimes()
        self._in_force = False
        """True if the item has shown times under the rate of this object. Others are then of a later setting."""
        self._doubted_at = 0

    def take(self, *, in_line: bool) -> int | None:
        """Take a start.

        Args:
            in_line: true if the message has waited for a place. Other messages do not overtake it.

        Returns:
            None: the start is taken, and the processor has to start now. Otherwise the time at which to ask again, in
            epoch milliseconds.

        Raises:
            ClientError: DynamoDB did not answer. Also BotoCoreError. A start may be lost.

        """
        try:
            self._doubt()
            if self._start(in_line=in_line):
                return None
            return self._place()
        except ClientError as error:
            if not is_throttled(error):
                raise
            return self._clock() + round(_THROTTLED_MS * (1 + 4 * self._jitter()))

    def _doubt(self) -> None:
        """Forget times that only a wrong clock gives. The item may have been deleted since."""
        now = self._clock()
        with self._lock:
            if abs(now - self._doubted_at) >= _DOUBT_MS and self.rate.is_ahead(self._seen, (now + _DOUBT_MS) * 1_000):
                self._seen, self._doubted_at = StartTimes(), now

    def _take_over(self) -> None:
        """Convert times that another rate has made, once. A worker of an earlier setting follows those of a later one.

        Two versions of the code, which run at the same time for a while, do not drop each other's places in turn.
        """
        seen = self._seen
        if seen.interval_us == self.rate.interval_us:
            self._in_force = True
        if self._in_force or not seen.interval_us:
            return
        after = self.rate.taken_over(seen, self._now_us())
        names = StartTimes._fields
        same = " AND ".join(f"#{name} = :seen_{name}" for name in names if getattr(seen, name))
        values = {f":seen_{name}": value for name, value in seen._asdict().items() if value}
        try:
            self._table.mark(self._key, after._asdict(), Condition(same, names, values))
        except ConditionFailed:
            after = _times(self._table.read(self._key))
        else:
            self._in_force = True
        with self._lock:
            self._seen = after

    def _start(self, *, in_line: bool) -> bool:
        for _ in range(_TRIES):
            self._take_over()
            now = self._now_us()
            if not self.rate.may_ask(self._seen, now, in_line=in_line):
                return False
            line = None if in_line else now
            interval, tolerance = self.rate.interval_of(self._seen), self.rate.tolerance_of(self._seen)
            moved, _ = self._move("starts_until", interval, now, now + tolerance, line=line)
            if moved:
                return True
        return False

    def _place(self) -> int:
        """Take a place in line. Returns its time in epoch milliseconds.

        The line begins when the next start is free. If it is as long as it may be, the message comes again before it is
        empty, so no start is lost.
        """
        for _ in range(_TRIES):
            self._take_over()
            interval, now = self.rate.interval_of(self._seen), self._now_us()
            longest = now + LONGEST_LINE_SECONDS * 1_000_000
            begin = max(now, self._seen.starts_until - self.rate.tolerance_of(self._seen) - interval)
            if max(begin, self._seen.places_until) > longest:
                break
            moved, found = self._move("places_until", interval, begin, longest)
            if moved:
                return -(-found.places_until // 1_000)
        return self._clock() + round(LONGEST_LINE_SECONDS * 1_000 * (1 + self._jitter()) / 2)

    def _move(self, name: str, by: int, begin: int, limit: int, *, line: int | None = None) -> tuple[bool, StartTimes]:
        """Move a time by an interval: from `begin`, or from its own value if that is later.

        Returns the item too. False: the time is beyond the limit, or was not on the expected side of `begin`. `_seen`
        shows which.
        """
        ahead = getattr(self._seen, name) >= begin
        if ahead:
            test, values = f"#{name} >= :begin AND #{name} <= :limit", {":begin": begin, ":limit": limit}
        else:
            test, values = f"(attribute_not_exists(#{name}) OR #{name} < :begin)", {":begin": begin}
        names: tuple[str, ...] = (name,)
        if line is not None:
            test += " AND (attribute_not_exists(#places_until) OR #places_until <= :line)"
            names, values[":line"] = (*names, "places_until"), line
        test += " AND (attribute_not_exists(#interval_us) OR #interval_us = :interval)"
        setting = self._seen.interval_us or self.rate.interval_us
        condition = Condition(test, (*names, "interval_us"), {**values, ":interval": setting})
        moved, item = self._table.move(
            self._key,
            name,
            by=by if ahead else None,
            to=begin + by,
            marks={"interval_us": setting},
            condition=condition,
        )
        found = _times(item)
        with self._lock:
            self._seen = found
        return moved, found

    def _now_us(self) -> int:
        return self._clock() * 1_000


def _times(item: Mapping[str, Any]) -> StartTimes:
    return StartTimes(*(int(item.get(name, 0)) for name in StartTimes._fields))
