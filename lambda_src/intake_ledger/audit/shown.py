"""What the audit was shown, in memory that does not grow with the bucket: a Bloom filter of rows.

The audit asks S3 about a row of the ledger only when the listing has not shown its key: one HEAD per lost removal, in
place of one per live key. A filter may say that it was shown a row that it was not. Then a lost removal stays unnoticed
in this run; the salt differs from run to run, and so do the rows that this happens to.
"""

import hashlib
import mmap
import zlib
from collections.abc import Iterator
from struct import Struct

from intake_ledger.rows import RowKey

_INDEX_BITS = 28
FILTER_BYTES = 2**_INDEX_BITS // 8
"""32 MiB: with 10 million rows, one lost removal of 15,000 stays unnoticed in a run; with 100 million, one of two."""
PART_BYTES = 2**18
"""A part, packed or not, fits into an item of DynamoDB, which has at most 400 KB."""
PARTS: int = FILTER_BYTES // PART_BYTES
_EMPTY = bytes(PART_BYTES)
_INDICES = Struct("<6I")
"""Six indices of 28 bits each: the upper 25 name the byte, the next three the bit."""
_BYTE, _BIT = 32 - _INDEX_BITS + 3, 32 - _INDEX_BITS
SALT_BYTES = 8


class Shown:
    """The rows that were added, and hardly any other."""

    def __init__(self, salt: bytes) -> None:
        """Make an empty filter; `salt` has at most 8 bytes."""
        self.salt = salt
        # Only the pages that are written take memory.
        self._bits = mmap.mmap(-1, PARTS * PART_BYTES)
        self._last = len(self._bits) - 1
        # A copy of a salted hash takes half as long as a new one.
        self._hash = hashlib.blake2b(digest_size=_INDICES.size, salt=salt)

    def add(self, key: RowKey, identity: str = "") -> None:
        """Add the row, or the row in one state."""
        bits, last = self._bits, self._last
        for index in self._indices(key, identity):
            bits[index >> _BYTE & last] |= 1 << (index >> _BIT & 7)

    def has(self, key: RowKey, identity: str = "") -> bool:
        """Whether this was added; see above for how sure that is."""
        bits, last = self._bits, self._last
        return all(bits[index >> _BYTE & last] >> (index >> _BIT & 7) & 1 for index in self._indices(key, identity))

    def _indices(self, key: RowKey, identity: str) -> tuple[int, ...]:
        # The sort key is the same for all rows of a pipeline in LATEST, and says which one it is in EVERY_VERSION.
        salted = self._hash.copy()
        salted.update(f"{key.pk}\n{key.sk}\n{identity}".encode())
        return _INDICES.unpack(salted.digest())

    def parts(self) -> Iterator[tuple[int, bytes]]:
        """What is not empty of the filter, as numbered parts, each packed on its own, to be given to `restore`."""
        for number, start in enumerate(range(0, len(self._bits), PART_BYTES)):
            part = self._bits[start : start + PART_BYTES]
            if part != _EMPTY:
                yield number, _packed(part)

    def restore(self, number: int, part: bytes) -> None:
        """Begin with a part of what another filter with the same salt, of the same size, was given."""
        self._bits[number * PART_BYTES : (number + 1) * PART_BYTES] = _unpacked(part)


def _packed(part: bytes) -> bytes:
    # Nothing is there twice but runs of zeros: to look for those alone takes half the time, and leaves less.
    packer = zlib.compressobj(1, strategy=zlib.Z_RLE)
    return packer.compress(part) + packer.flush()


def _unpacked(part: bytes) -> bytes:
    return zlib.decompress(part, bufsize=PART_BYTES)
