"""A bucket is divided into shards of about the same size, with each key in exactly one."""

import random
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intake_ledger.audit.listing import KEYS_OF_A_SAMPLE
from intake_ledger.audit.shards import MAX_KEY_BYTES, MOST_KEYS, Sample, Shard, cut

PAGE = KEYS_OF_A_SAMPLE
KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


class Bucket:
    """Keys in S3's order, which is that of their UTF-8, in pages."""

    def __init__(self, keys: Sequence[str], page: int = PAGE) -> None:
        self.keys = sorted(set(keys), key=str.encode)
        self.page = page
        self.looks = 0

    def look(self, prefix: str, after: str) -> Sample:
        self.looks += 1
        start = self._place(after) if after else bisect_left(self.keys, prefix.encode(), key=str.encode)
        rest = [key for key in self.keys[start : start + self.page + 1] if key.startswith(prefix)]
        return Sample(rest[: self.page], len(rest) > self.page)

    def size(self, shard: Shard) -> int:
        end = len(self.keys) if shard.until is None else self._place(shard.until)
        return end - self._place(shard.after)

    def _place(self, key: str) -> int:
        return bisect_right(self.keys, key.encode(), key=str.encode)


@given(
    keys=st.lists(KEYS, max_size=200),
    stranger=KEYS,
    shards=st.integers(1, 40),
    looks=st.integers(1, 60),
    page=st.integers(1, 9),
)
def test_every_key_that_there_may_ever_be_is_in_exactly_one_shard(
    keys: list[str], stranger: str, shards: int, looks: int, page: int
) -> None:
    """No gap and no overlap at any edge, for keys of any characters, those included that are uploaded later."""
    bucket = Bucket(keys, page)
    divided = cut([""], bucket.look, shards=shards, looks=looks)
    for key in [*keys, stranger, *(shard.until for shard in divided if shard.until)]:
        assert [shard.holds(key) for shard in divided].count(True) == 1, key
    assert sum(bucket.size(shard) for shard in divided) == len(bucket.keys)
    assert len(divided) <= shards
    assert bucket.looks <= looks


@given(keys=st.lists(KEYS, max_size=100), page=st.integers(1, 5))
def test_several_prefixes_are_cut_each_for_itself(keys: list[str], page: int) -> None:
    """A shard belongs to one prefix, and only keys with a prefix are in any."""
    prefixes = ["in/", "out/", "ä"]
    bucket = Bucket([prefix + key for key in keys for prefix in ["", *prefixes]], page)
    divided = cut(prefixes, bucket.look, shards=20, looks=100)
    for key in bucket.keys:
        assert [shard.holds(key) for shard in divided].count(True) == int(key.startswith(tuple(prefixes)))


def test_a_small_bucket_is_one_shard() -> None:
    """One look is enough for it."""
    bucket = Bucket([f"{n}" for n in range(PAGE)])
    assert cut([""], bucket.look, shards=8, looks=100) == [Shard("")]
    assert bucket.looks == 1


def test_keys_as_long_as_s3_allows() -> None:
    """A place between them is no longer than S3 takes one."""
    keys = ["x" * 1_020 + f"{n:04d}" for n in range(10_000)] + ["ä" * 511 + f"{n:02d}" for n in range(100)]
    bucket = Bucket(keys)
    divided = cut([""], bucket.look, shards=8, looks=100)
    assert len(divided) == 8
    assert all(len(shard.until.encode()) <= MAX_KEY_BYTES for shard in divided if shard.until)


def _random_names(random_: random.Random) -> list[str]:
    return [f"{random_.getrandbits(64):016x}" for _ in range(50_000)]


def _numbers(_: random.Random) -> list[str]:
    return [f"scans/{n:09d}.tif" for n in range(50_000)]


def _hours(random_: random.Random) -> list[str]:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    moments = (start + timedelta(minutes=10 * n) for n in range(50_000))
    return [f"logs/{moment:%Y/%m/%d/%H}/{random_.getrandbits(64):016x}.gz" for moment in moments]


def _one_busy_second(random_: random.Random) -> list[str]:
    old = [f"archive/{n}" for n in range(2_000)]
    return old + [f"in/2026-11-21T10:00:00.{n % 1000:03d}-{random_.getrandbits(32):08x}" for n in range(48_000)]


def _two_worlds(random_: random.Random) -> list[str]:
    return _random_names(random_)[::2] + _numbers(random_)[::2]


@pytest.mark.parametrize("family", [_random_names, _numbers, _hours, _one_busy_second, _two_worlds])
def test_shards_are_even_enough_whatever_keys_look_like(family: object) -> None:
    """None is more than three times the mean, with at most fourteen looks for a shard."""
    assert callable(family)
    bucket = Bucket(family(random.Random(1)))
    divided = cut([""], bucket.look, shards=16, looks=14 * 16)
    sizes = [bucket.size(shard) for shard in divided]
    assert len(divided) == 16
    assert max(sizes) < 3 * len(bucket.keys) / 16
    assert min(sizes) > 0
    by_weight = sorted(divided, key=lambda shard: shard.weight)
    assert sum(map(bucket.size, by_weight[8:])) > 0.9 * sum(map(bucket.size, by_weight[:8]))


def test_keys_that_lie_close_together_weigh_no_more_than_a_bucket_can() -> None:
    """A weight is multiplied and written down."""
    bucket = Bucket([*("x" * 500 + f"{n:04d}" for n in range(2_000)), "y"])
    assert [shard.weight for shard in cut([""], bucket.look, shards=4, looks=1)] == [MOST_KEYS]
