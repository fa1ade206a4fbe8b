"""How a bucket's keys are cut into shards of about one size, from few looks at the bucket itself. Pure.

Nothing is assumed about the names of keys. A look lists one page from some place on: it tells whether anything is
there, and how densely. The heaviest shard is cut in the middle of what lies beyond its page, until there are enough.
Shards always cover every possible key exactly once; what the looks decide is only how even they are.
"""

import heapq
import string
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from os.path import commonprefix

MAX_KEY_BYTES = 1_024  # S3's limit
_TOP = "\U0010ffff"
_BLOCKS = (*range(0x80, 0x3000, 0x80), *range(0x3000, 0xD800, 0x400), *range(0xE000, 0x110000, 0x2000))
_ANY = {*string.printable, *map(chr, _BLOCKS), _TOP}
"""What keys may go on with where nothing was seen yet: ASCII, and a place in each block of Unicode."""
MOST_KEYS = 10**12
"""A look at keys that lie close together says little of those that are far away: no bucket has more."""
_WORTH_A_LEAP = 4
"""A folder whose name is longer by so many letters is passed at once, and not searched letter by letter."""


@dataclass(frozen=True, slots=True)
class Shard:
    """The keys with this prefix that come after `after`, up to `until` and with it; None is the prefix's end."""

    prefix: str
    after: str = ""
    until: str | None = None
    weight: int = field(default=0, compare=False)
    """About how many keys it holds."""

    def holds(self, key: str) -> bool:
        # Code points have the order of their UTF-8, which is S3's order.
        return key.startswith(self.prefix) and self.after < key and (self.until is None or key <= self.until)


@dataclass(frozen=True, slots=True)
class Sample:
    """A page of keys in S3's order, and whether others follow."""

    keys: Sequence[str]
    more: bool


Look = Callable[[str, str], Sample]
"""The page of keys with a prefix that comes after a place."""


def cut(prefixes: Sequence[str], look: Look, *, shards: int, looks: int) -> list[Shard]:
    """About `shards` shards, in the order of their keys, found with at most `looks` looks, or one for each prefix. They
    are fewer where there are few keys.
    """
    left = looks - len(prefixes)
    ids = count()
    parts = [_Part(Shard(prefix), None, look(prefix, "")) for prefix in prefixes]
    heap = [(-part.weight(), next(ids), part) for part in parts]
    heapq.heapify(heap)
    done: list[_Part] = []
    while heap and left > 0 and len(heap) + len(done) < shards:
        _, _, part = heapq.heappop(heap)
        middle = part.middle()
        if middle is None:
            done.append(part)
            continue
        left -= 1
        for one in part.cut(middle, look(part.shard.prefix, middle)):
            heapq.heappush(heap, (-one.weight(), next(ids), one))
    found = [*done, *(part for _, _, part in heap)]
    weighed = (replace(part.shard, weight=min(part.weight(), MOST_KEYS)) for part in found)
    return sorted(weighed, key=lambda shard: (shard.prefix, shard.after))


class _Part:
    """A shard with its first page. Nothing was there after `reach`, which is what is weighed; None is the end."""

    def __init__(self, shard: Shard, reach: str | None, sample: Sample, beyond: str | None = None) -> None:
        self.shard = shard
        self._keys = [key for key in sample.keys if reach is None or key <= reach]
        self._whole = len(self._keys) < len(sample.keys) or not sample.more
        self._leap = _past(self._keys)
        self._beyond = beyond
        """The first key after all that begin like the first page; None is not known."""
        if beyond is not None and reach is not None and reach < beyond:
            reach = min(reach, self._leap)
        self._end = shard.prefix + _TOP if reach is None else reach

    def weight(self) -> int:
        """About how many keys there are, if the rest is as dense as the first page."""
        if self._whole:
            return len(self._keys)
        scale = _Scale([*self._keys, self._end])
        first, last, end = (scale.place(key) for key in (self._keys[0], self._keys[-1], self._end))
        return len(self._keys) * (end - first) // max(last - first, 1)

    def middle(self) -> str | None:
        """A place between the first page and the reach, or None where there is none."""
        if self._whole:
            return None
        gain = len(self._leap) - len(_common([self._leap, self._end]))
        if self._beyond is None and self._leap < self._end and gain > _WORTH_A_LEAP:
            return self._leap
        return _Scale([*self._keys, self._end]).between(self._keys[-1], self._end)

    def cut(self, middle: str, sample: Sample) -> Iterator["_Part"]:
        """Two parts; or this one again, with a shorter reach, where nothing lies behind the middle."""
        prefix, own = self.shard.prefix, Sample(self._keys, more=True)
        right = _Part(Shard(prefix, middle, self.shard.until), self._end, sample)
        if not right._keys:
            # What is uploaded there later belongs to the shard nevertheless.
            yield _Part(self.shard, middle, own, self._beyond)
        elif middle == self._leap:
            yield _Part(self.shard, self._end, own, right._keys[0])
        else:
            yield _Part(Shard(prefix, self.shard.after, middle), middle, own, self._beyond)
            yield right


def _common(keys: Sequence[str]) -> str:
    return commonprefix(keys)  # noqa: RUF071 - of keys, which are no paths


def _past(keys: Sequence[str]) -> str:
    """A place after everything that begins like all of these."""
    common = _common(keys)
    while len((common + _TOP).encode()) > MAX_KEY_BYTES:
        common = common[:-1]
    return common + _TOP


class _Scale:
    """Keys as numbers. Digits are the characters that were seen here, so that their density says something; the first
    one is where the keys part, and may be anything in between.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._common = _common(keys)
        rests = [key[len(self._common) :] for key in keys]
        seen = set().union(*rests)
        ends = {rest[:1] for rest in rests}
        between = {character for character in _ANY if min(ends) < character < max(ends)}
        self._alphabets = [sorted(seen | between), *[sorted(seen)] * max(map(len, rests))]

    def place(self, key: str) -> int:
        number = 0
        rest = key[len(self._common) :]
        for n, alphabet in enumerate(self._alphabets):
            # 0 is the end of the key, before whatever it may go on with.
            digit = bisect_left(alphabet, rest[n]) + 1 if n < len(rest) else 0
            number = number * (len(alphabet) + 1) + digit
        return number

    def between(self, low: str, high: str) -> str | None:
        """The shortest text about half-way, greater than `low` and less than `high`."""
        number = (self.place(low) + self.place(high)) // 2
        digits = []
        for alphabet in reversed(self._alphabets):
            number, digit = divmod(number, len(alphabet) + 1)
            digits.append(digit)
        text = self._common
        for alphabet, digit in zip(self._alphabets, reversed(digits), strict=True):
            if digit == 0:
                break
            text += alphabet[digit - 1]
            if low < text < high and len(text.encode()) <= MAX_KEY_BYTES:
                return text
        return None
