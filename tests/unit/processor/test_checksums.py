"""S3's checksums: which one is compared, and that each of them finds an altered byte."""

import hashlib
import io
import sys
import zlib
from base64 import b64encode
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from intake_ledger.processor.object_stream import ObjectStream, checksum_of
from intake_ledger.protocol.errors import ObjectReadError

CONTENT = b"123456789"
KNOWN = {"crc32c": (0x82F63B78, 32, 0xE3069283), "crc64nvme": (0x9A6C9329AC4BC9B5, 64, 0xAE8B14860A799888)}
"""Polynomial, bits, and the published value for "123456789"."""


def crc(polynomial: int, bits: int) -> Callable[[Any, int], int]:
    """The algorithm bit by bit, with the signature of `awscrt.checksums`."""
    mask = (1 << bits) - 1

    def compute(data: Any, previous: int = 0) -> int:
        value = previous ^ mask
        for byte in bytes(data):
            value ^= byte
            for _ in range(8):
                value = value >> 1 ^ (polynomial if value & 1 else 0)
        return value ^ mask

    return compute


@pytest.fixture
def awscrt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the AWS Common Runtime, which the test environment does not have."""
    module = ModuleType("awscrt.checksums")
    for name, (polynomial, bits, value) in KNOWN.items():
        function = crc(polynomial, bits)
        assert function(CONTENT, 0) == value
        setattr(module, name, function)
    monkeypatch.setitem(sys.modules, "awscrt", ModuleType("awscrt"))
    monkeypatch.setitem(sys.modules, "awscrt.checksums", module)


def encoded(digest: bytes) -> str:
    return b64encode(digest).decode()


ANSWERS = {
    "CRC32": encoded(zlib.crc32(CONTENT).to_bytes(4, "big")),
    "CRC32C": encoded(KNOWN["crc32c"][2].to_bytes(4, "big")),
    "CRC64NVME": encoded(KNOWN["crc64nvme"][2].to_bytes(8, "big")),
    "SHA1": encoded(hashlib.sha1(CONTENT).digest()),
    "SHA256": encoded(hashlib.sha256(CONTENT).digest()),
    "SHA512": encoded(hashlib.sha512(CONTENT).digest()),
}


def opened(content: bytes, **answer: str) -> ObjectStream:
    return ObjectStream(io.BytesIO(content), len(content), checksum_of(answer))


@pytest.mark.failure_mode("F93")
@pytest.mark.usefixtures("awscrt")
@pytest.mark.parametrize("name", ANSWERS)
def test_each_algorithm_finds_an_altered_byte(name: str) -> None:
    """Over several reads, and for an empty object."""
    answer = {f"Checksum{name}": ANSWERS[name], "ChecksumType": "FULL_OBJECT"}
    stream = opened(CONTENT, **answer)
    assert stream.read(4) + stream.read() == CONTENT
    assert stream.complete
    with pytest.raises(ObjectReadError, match=f"{name} checksum"):
        opened(b"123456780", **answer).read()
    with pytest.raises(ObjectReadError, match=f"{name} checksum"):
        opened(b"", **answer).read()


@pytest.mark.parametrize("name", ["CRC32C", "CRC64NVME"])
def test_without_the_common_runtime_the_length_is_checked(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The function need not have `awscrt`; another checksum of the answer is used if there is one."""
    monkeypatch.setitem(sys.modules, "awscrt.checksums", None)
    assert checksum_of({f"Checksum{name}": ANSWERS[name]}) is None
    chosen = checksum_of({f"Checksum{name}": ANSWERS[name], "ChecksumSHA256": ANSWERS["SHA256"]})
    assert chosen is not None
    assert chosen.name == "SHA256"


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"ChecksumCRC32": "AAAAAA==-3"},
        {"ChecksumCRC32": ANSWERS["CRC32"], "ChecksumType": "COMPOSITE"},
        {"ChecksumXXHASH64": "AAAAAAAAAAA="},
    ],
    ids=["none", "of parts, by its suffix", "of parts, by its type", "an unknown algorithm"],
)
def test_a_checksum_that_cannot_be_compared(answer: dict[str, str]) -> None:
    """A checksum of the parts' checksums says nothing about the content as a whole."""
    assert opened(b"anything", **answer).read() == b"anything"
