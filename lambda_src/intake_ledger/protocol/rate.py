"""The rate at which processors may start: the numbers of a generic cell rate algorithm (GCRA).

One item for each pipeline has two times in epoch microseconds. Both only grow under one setting:

- `starts_until` (the theoretical arrival time of the algorithm): each start moves it by `interval_us`. A start is
  free while it is at most `tolerance_us` in the future.
- `places_until`: the end of the line. A message that finds no free start moves it by `interval_us`, and asks again at
  that time. A place is not a start, so a message that does not come again wastes none.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from intake_ledger.protocol.errors import SettingsError

MAX_RATE = 400
"""Starts per second. A partition of DynamoDB has 1,000 write units a second (developer guide, "Designing partition keys
to distribute your workload"), and an item is in one partition. A start whose message waited takes a little more than
two writes: its place, itself, and a look that came too early. The rest is for workers that ask at the same time."""
MIN_RATE = 1 / 3_600
"""A start per hour."""
MAX_BURST_SECONDS = 3_600
"""The longest time for which unused starts are saved."""
BURST_SECONDS = 5
"""SQS hides messages for whole seconds, and a message may wait for others of its batch. If it comes within this time
after its place, no start is lost."""
LONGEST_LINE_SECONDS = 11 * 3_600
"""The line is not longer than a message can be hidden. Behind its end, messages come again before the line is empty."""
MAX_NAME_BYTES = 256
"""The longest name of a rate."""
_SECOND = 1_000_000


class StartTimes(NamedTuple):
    """The item. 0: it was never written."""

    starts_until: int = 0
    places_until: int = 0
    interval_us: int = 0
    """The interval of the setting under which they were written."""
    generation: int = 0
    """Grows with each setting that takes the times over."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A limit of starts per second, with a burst."""

    per_second: float
    """Starts per second, from one an hour (1/3600) to 400."""
    burst: int | None = None
    """Starts that may come at once after a time without any. When omitted, the starts of five seconds, and at least 2.
    With fewer, starts are lost while messages come too late, so fewer of them happen than the rate allows."""
    name: str = ""
    """For `once`: the starts of each name are counted apart. A ledger with two rates needs a name for each."""

    def __post_init__(self) -> None:
        """Refuse a rate that cannot be kept.

        Raises:
            ValueError: The text has the value and the allowed values.

        """
        if problem := rate_problem(self.per_second, self.burst):
            raise ValueError(problem)
        if len(self.name.encode()) > MAX_NAME_BYTES:
            raise ValueError(
                f"the name of the rate is {self.name!r}: it must be a text of at most {MAX_NAME_BYTES} bytes"
            )

    @property
    def interval_us(self) -> int:
        """Microseconds between two starts. Rounded up, so the rate is never higher than asked for."""
        return math.ceil(_SECOND / self.per_second)

    @property
    def most_at_once(self) -> int:
        """The burst."""
        return max(2, math.ceil(BURST_SECONDS * self.per_second)) if self.burst is None else self.burst

    @property
    def tolerance_us(self) -> int:
        """The largest lead of `starts_until` at which a start is free."""
        return (self.most_at_once - 1) * self.interval_us

    def interval_of(self, seen: StartTimes) -> int:
        """The interval of a start. While the times are of a later setting, the longer one of both keeps both limits."""
        return max(self.interval_us, seen.interval_us)

    def tolerance_of(self, seen: StartTimes) -> int:
        """`tolerance_us`. While the times are of a later setting, that of the shorter interval."""
        return (self.most_at_once - 1) * min(self.interval_us, seen.interval_us or self.interval_us)

    def may_ask(self, seen: StartTimes, now_us: int, *, in_line: bool) -> bool:
        """True if a start may be free, by an item that was read before. Both times only grow since then.

        `in_line`: the message has waited for its place. Another one does not overtake those in line.
        """
        return seen.starts_until <= now_us + self.tolerance_of(seen) and (in_line or seen.places_until <= now_us)

    def taken_over(self, seen: StartTimes, now_us: int) -> StartTimes:
        """The times under this rate, if another one has made them.

        The lead of `starts_until` stays the same number of starts, at most the burst. The line is new: those in the old
        one keep their times.
        """
        lead = min(-(-max(seen.starts_until - now_us, 0) // seen.interval_us), self.most_at_once)
        return StartTimes(now_us + lead * self.interval_us, now_us, self.interval_us, seen.generation + 1)

    def is_ahead(self, seen: StartTimes, now_us: int) -> bool:
        """True if no worker whose clock shows this time or an earlier one has written the item."""
        starts, places = self.tolerance_us, LONGEST_LINE_SECONDS * _SECOND
        return seen.starts_until > now_us + starts + self.interval_us or (
            seen.places_until > now_us + places + self.interval_us
        )

    def waiting(self, seen: StartTimes, now_us: int) -> int:
        """About how many messages stand in line."""
        return max(seen.places_until - now_us, 0) // (seen.interval_us or self.interval_us)


def rate_problem(per_second: object, burst: object = None) -> str | None:
    """Why there can be no such rate. None: there can."""
    number = isinstance(per_second, int | float) and not isinstance(per_second, bool)
    if not number or not MIN_RATE <= float(str(per_second)) <= MAX_RATE:
        return f"the rate is {per_second!r}: it must be a number of starts per second, from 1/3600 to {MAX_RATE}"
    if burst is None:
        return None
    most = max(2, math.floor(float(str(per_second)) * MAX_BURST_SECONDS))
    if not isinstance(burst, int) or isinstance(burst, bool) or not 1 <= burst <= most:
        return f"the burst is {burst!r}: it must be a whole number from 1 to {most}, the starts of an hour"
    return None


def read_rate(name: str, text: str) -> float:
    """Read the setting `max_rate`. Raises SettingsError."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if problem := rate_problem(number):
        raise SettingsError(f"{name} is {text!r}: {problem}")
    return number


def read_burst(name: str, text: str) -> int:
    """Read the setting `max_burst`. Raises SettingsError."""
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise SettingsError(f"{name} is {text!r}, expected a whole number of at least 1")
    return int(text)
