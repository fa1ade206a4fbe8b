"""S3's checksum of an object, computed again from the bytes that arrive.

Only a checksum of the full object can be compared. Objects that were uploaded in parts may have a checksum of the
parts' checksums, which S3 marks with `-` and the number of parts.
"""

import hashlib
import zlib
from base64 import b64decode
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Protocol


class Digest(Protocol):
    """The methods of hashlib's objects that this module calls."""

    def update(self, data: Any, /) -> None: ...

    def digest(self) -> bytes: ...


class _Cyclic:
    """A cyclic redundancy check of `size` bytes, by a function that continues from the value so far."""

    def __init__(self, function: Callable[[Any, int], int], size: int) -> None:
        self._function = function
        self._size = size
        self._value = 0

    def update(self, data: Any, /) -> None:
        self._value = self._function(data, self._value)

    def digest(self) -> bytes:
        return self._value.to_bytes(self._size, "big")


class Checksum:
    """S3's checksum of an object, and the computation over the bytes that came so far."""

    def __init__(self, name: str, expected: bytes, digest: Digest) -> None:
        self.name = name
        self._expected = expected
        self._digest = digest

    def update(self, data: Any) -> None:
        """Add the bytes that come next."""
        self._digest.update(data)

    @property
    def matches(self) -> bool:
        """True if the bytes so far have S3's checksum."""
        return self._digest.digest() == self._expected


def checksum_of(answer: Mapping[str, Any]) -> Checksum | None:
    """Choose the checksum in GetObject's answer that this runtime can compute; None when there is none."""
    if answer.get("ChecksumType") == "COMPOSITE":
        return None
    for name, make in _ALGORITHMS.items():
        value = answer.get(f"Checksum{name}")
        if isinstance(value, str) and "-" not in value and (digest := make()) is not None:
            return Checksum(name, b64decode(value), digest)
    return None


def _crt(function: str, size: int) -> Digest | None:
    """Make an algorithm of the AWS Common Runtime. It is imported for the first object that needs it."""
    try:
        checksums = import_module("awscrt.checksums")
    except ImportError:
        return None
    compute = getattr(checksums, function, None)
    return None if compute is None else _Cyclic(compute, size)


_ALGORITHMS: Mapping[str, Callable[[], Digest | None]] = {
    "CRC32": lambda: _Cyclic(zlib.crc32, 4),
    "CRC64NVME": partial(_crt, "crc64nvme", 8),
    "CRC32C": partial(_crt, "crc32c", 4),
    "SHA256": hashlib.sha256,
    "SHA1": partial(hashlib.sha1, usedforsecurity=False),
    "SHA512": hashlib.sha512,
}
"""S3's algorithms in Python's standard library, and two in `awscrt`."""
