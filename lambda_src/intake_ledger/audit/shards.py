"""Divides a bucket into shards of about the same size by a few samples of its keys. Pure functions.

Keys may have any names. A sample is one page of keys from some place on, and shows their density. `cut` divides the
heaviest shard in the middle of the keys behind its sample, until there are enough. The shards always cover every
possible key exactly once. The samples decide only how even they are.
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
"""Possible next characters of unknown keys: ASCII, and one character in each block of Unicode."""
MOST_KEYS = 10**12
"""Limit of an estimate. A sample of keys that are close together says little about keys that are far away."""
_WORTH_A_LEAP = 4
"""A common beginning that is this much longer is skipped at once, instead of letter by letter."""


@dataclass(frozen=True, slots=True)
class Shard:
    """The keys with this prefix from `after` (exclusive) to `until` (inclusive). None is the prefix's end."""

    prefix: str
    after: str = ""
    until: str | None = None
    weight: int = field(default=0, compare=False)
    """Estimated number of keys."""

    def holds(self, key: str) -> bool:
        # The order of code points is the order of UTF-8, which is S3's.
        return key.startswith(self.prefix) and self.after < key and (self.until is None or key <= self.until)


@dataclass(frozen=True, slots=True)
class Sample:
    """A page of keys in S3's order. `more` is true if other keys follow."""

    keys: Sequence[str]
    more: bool


TakeSample = Callable[[str, str], Sample]
"""Takes a prefix and a key, and returns the page of keys after that key."""


def cut(prefixes: Sequence[str], look: TakeSample, *, shards: int, looks: int) -> list[Shard]:
    """About `shards` shards in the order of their keys, fewer if there are few keys.

    Takes at most `looks` samples, or one for each prefix.
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
        for half in part.cut(middle, look(part.shard.prefix, middle)):
            heapq.heappush(heap, (-half.weight(), next(ids), half))
    done += (part for _, _, part in heap)
    weighed = (replace(part.shard, weight=min(part.weight(), MOST_KEYS)) for part in done)
    return sorted(weighed, key=lambda shard: (shard.prefix, shard.after))


class _Part:
    """A shard with its sample. There are no keys from `reach` to the shard's end. None if that is unknown."""

    def __init__(self, shard: Shard, reach: str | None, sample: Sample, beyond: str | None = None) -> None:
        self.shard = shard
        self._keys = [key for key in sample.keys if reach is None or key <= reach]
        self._whole = len(self._keys) < len(sample.keys) or not sample.more
        self._leap = _past(self._keys)
        self._beyond = beyond
        """The first key that does not begin like the sample. None if unknown."""
        if beyond is not None and reach is not None and reach < beyond:
            reach = min(reach, self._leap)
        self._end = shard.prefix + _TOP if reach is None else reach

    def weight(self) -> int:
        """The estimated number of keys, if the rest is as dense as the sample."""
        if self._whole:
            return len(self._keys)
        scale = _Scale([*self._keys, self._end])
        first, last, end = (scale.place(key) for key in (self._keys[0], self._keys[-1], self._end))
        return len(self._keys) * (end - first) // max(last - first, 1)

    def middle(self) -> str | None:
        """A place between the sample and the end, or None if there is no such place."""
        if self._whole:
            return None
        gain = len(self._leap) - len(_common([self._leap, self._end]))
        if self._beyond is None and self._leap < self._end and gain > _WORTH_A_LEAP:
            return self._leap
        return _Scale([*self._keys, self._end]).between(self._keys[-1], self._end)

    def cut(self, middle: str, sample: Sample) -> Iterator["_Part"]:
        """Two parts. If no key is behind the middle, this part again with a shorter reach."""
        prefix, own = self.shard.prefix, Sample(self._keys, more=True)
        right = _Part(Shard(prefix, middle, self.shard.until), self._end, sample)
        if not right._keys:
            # The shard keeps its end, for keys that are uploaded there later.
            yield _Part(self.shard, middle, own, self._beyond)
        elif middle == self._leap:
            yield _Part(self.shard, self._end, own, right._keys[0])
        else:
            yield _Part(Shard(prefix, self.shard.after, middle), middle, own, self._beyond)
            yield right


def _common(keys: Sequence[str]) -> str:
    return commonprefix(keys)  # noqa: RUF071 - keys are not paths


def _past(keys: Sequence[str]) -> str:
    """A place after all keys that begin like these."""
    common = _common(keys)
    while len((common + _TOP).encode()) > MAX_KEY_BYTES:
        common = common[:-1]
    return common + _TOP


class _Scale:
    """Converts keys to numbers, to measure distances.

    The digits are the characters of the given keys. The first digit, where the keys differ, may also be any character
    between theirs.
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
            # 0 is the end of the key, which comes before all longer keys.
            digit = bisect_left(alphabet, rest[n]) + 1 if n < len(rest) else 0
            number = number * (len(alphabet) + 1) + digit
        return number

    def between(self, low: str, high: str) -> str | None:
        """The shortest text about half-way between `low` and `high`. None if there is no text between."""
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
