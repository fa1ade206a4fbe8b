"""Which rows the listing has shown, in memory that does not grow with the bucket: a Bloom filter.

The audit asks S3 about a row of the ledger only when the listing has not shown its key: one HEAD per lost removal, in
place of one per live key. A filter may say that it was shown a row that it was not. Then a lost removal stays unnoticed
in this run; the salt differs from run to run, and so do the rows that this happens to.
"""

import hashlib
import mmap
import zlib
from collections.abc import Iterator

from intake_ledger.rows import RowKey

_INDEX_BITS = 28
FILTER_BYTES = 2**_INDEX_BITS // 8
"""32 MiB: with 10 million rows, one lost removal of 2,700 stays unnoticed in a run; with 100 million, one of three."""
PART_BYTES = 2**18
"""A part, packed or not, fits into an item of DynamoDB, which has at most 400 KB."""
PARTS = FILTER_BYTES // PART_BYTES
_MASK = 2**_INDEX_BITS - 1
_DIGEST_BYTES = 16
SALT_BYTES = 8


class Shown:
    """The rows that were added, and hardly any other."""

    def __init__(self, salt: bytes) -> None:
        """Make an empty filter; `salt` has at most 8 bytes."""
        self.salt = salt
        # Only the pages that are written take memory.
        self._bits = mmap.mmap(-1, FILTER_BYTES)

    def add(self, key: RowKey) -> None:
        bits = self._bits
        for index in self._indices(key):
            bits[index >> 3] |= 1 << (index & 7)

    def __contains__(self, key: RowKey) -> bool:
        return all(self._bits[index >> 3] >> (index & 7) & 1 for index in self._indices(key))

    def _indices(self, key: RowKey) -> tuple[int, ...]:
        # The sort key is the same for all rows of a pipeline in LATEST, and says which one it is in EVERY_VERSION.
        text = f"{key.pk}\n{key.sk}".encode()
        digest = int.from_bytes(hashlib.blake2b(text, digest_size=_DIGEST_BYTES, salt=self.salt).digest())
        return digest & _MASK, digest >> 28 & _MASK, digest >> 56 & _MASK, digest >> 84 & _MASK

    def parts(self) -> Iterator[tuple[int, bytes]]:
        """What is not empty of the filter, as numbered parts, each packed on its own, to be given to `restore`."""
        for number, start in enumerate(range(0, FILTER_BYTES, PART_BYTES)):
            part = self._bits[start : start + PART_BYTES]
            if any(part):
                yield number, zlib.compress(part, 1)

    def restore(self, number: int, part: bytes) -> None:
        """Take over a part of what another filter with the same salt was shown. One that is missing costs a HEAD for
        each of its rows, and no more.
        """
        start = number * PART_BYTES
        self._bits[start : start + PART_BYTES] = zlib.decompress(part)
