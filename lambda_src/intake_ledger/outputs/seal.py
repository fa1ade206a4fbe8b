"""Put the fence into the content of an output, so that no two writes have the same bytes.

A conditional put compares ETags, and an ETag covers only the bytes. Without the fence inside, the same bytes could
come back after other bytes, and the condition of a late worker would hold again.

All functions are pure and stream: they hold a few kilobytes of the content.
"""

import zlib
from collections.abc import Iterable, Iterator

KEYWORD = b"intake-fence"
_GZIP = b"\x1f\x8b\x08"
_GZIP_FIXED = 10
_GZIP_LONGEST = 64 * 1024
"""Bytes. A header with a longer name or comment is taken for other content."""
_HEADER_CRC, _EXTRA, _NAME, _COMMENT = 0x02, 0x04, 0x08, 0x10
"""The flags of a gzip header, in RFC 1952."""
_JPEG = b"\xff\xd8\xff"
_PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
_PNG_HEADER = 33
"""The signature and the chunk IHDR with its length and checksum. IHDR must be the first chunk."""


class FenceMissing(Exception):  # noqa: N818 - `Output` translates it
    """The content is of no format that can be sealed, and it does not contain the fence."""


class SealBreaks(Exception):  # noqa: N818 - `Output` translates it
    """The seal would break the content for its readers."""


def seal(chunks: Iterable[bytes], mark: str, fence: int, *, compress: bool) -> Iterator[bytes]:
    """Yield the content with the mark inside.

    PNG gets a text chunk after IHDR, JPEG a comment after its first application segments, and gzip empty blocks in
    front of its data. The readers of these formats ignore them. All other content passes unchanged and must contain the
    fence.

    Args:
        chunks: the content.
        mark: unique for each write: two numbers with a dot between them.
        fence: of the claim.
        compress: True if content that is not gzip becomes gzip.

    Raises:
        FenceMissing: At the end of the content, which has no place for the mark and does not contain the fence.
        SealBreaks: At the begin of a gzip file whose readers find its parts by their offsets, such as BGZF.

    """
    source = _Source(chunks)
    if compress and not source.peek(len(_GZIP)).startswith(_GZIP):
        source = _Source(_compressed(source.rest()))
    head = source.peek(_PNG_HEADER)
    if header := _gzip_header(source):
        yield source.take(header)
        yield _empty_blocks(mark)
        yield from source.rest()
    elif len(head) == _PNG_HEADER and head.startswith(_PNG):
        yield source.take(_PNG_HEADER)
        yield _png_chunk(mark)
        yield from source.rest()
    elif head.startswith(_JPEG):
        yield from _with_comment(source, mark)
    else:
        yield from _with_fence(source.rest(), str(fence).encode())


class _Source:
    """The chunks as a stream of bytes."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._held = bytearray()

    def peek(self, size: int) -> bytes:
        """Return the next bytes without taking them: fewer than `size` at the end only."""
        while len(self._held) < size and (chunk := next(self._chunks, None)) is not None:
            self._held += chunk
        return bytes(self._held[:size])

    def take(self, size: int) -> bytes:
        """Take the next bytes: fewer than `size` at the end only."""
        taken = self.peek(size)
        del self._held[:size]
        return taken

    def rest(self) -> Iterator[bytes]:
        """Take all other bytes."""
        held, self._held = bytes(self._held), bytearray()
        yield held
        yield from self._chunks


def _png_chunk(mark: str) -> bytes:
    content = b"tEXt" + KEYWORD + b"\0" + mark.encode()
    return (len(content) - 4).to_bytes(4, "big") + content + zlib.crc32(content).to_bytes(4, "big")


def _gzip_header(source: _Source) -> int:
    """The length of the gzip header, or 0 if the content does not begin with a whole one."""
    head = source.peek(_GZIP_FIXED)
    if len(head) < _GZIP_FIXED or not head.startswith(_GZIP):
        return 0
    flags, size = head[3], _GZIP_FIXED
    if flags & _EXTRA:
        raise SealBreaks
    for flag in (_NAME, _COMMENT):
        if flags & flag:
            size = source.peek(_GZIP_LONGEST).find(b"\0", size) + 1
            if not size:
                return 0
    return size + (2 if flags & _HEADER_CRC else 0)


def _empty_blocks(mark: str) -> bytes:
    """Blocks of deflate without content. Their types are the bits of the mark.

    Each program that inflates skips them, since a compressor that is flushed writes them too. The mark is not in the
    header, because readers differ in the fields that they accept there. It is not in another member at the end, because
    some readers take the first member only, or the length of the content from the last four bytes.
    """
    bits = ""  # in the order in which they are read, the first one is the lowest of a byte
    for bit in f"{int(mark.replace('.', 'f'), 16):b}1":
        if bit == "0":
            bits += "010" + "0000000"  # fixed codes, and the code for the end
        else:
            bits += "000"  # stored, and a length of 0 at the next byte
            bits += "0" * (-len(bits) % 8) + "0" * 16 + "1" * 16
    # The last block is a stored one, so that the data of the content follow at a byte.
    return int(bits[::-1], 2).to_bytes(len(bits) // 8, "little")


def _compressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    # 31: with the header and trailer of gzip. zlib writes no time into the header.
    compressor = zlib.compressobj(wbits=31)
    for chunk in chunks:
        yield compressor.compress(chunk)
    yield compressor.flush()


def _with_comment(source: _Source, mark: str) -> Iterator[bytes]:
    yield source.take(2)
    # JFIF and Exif require that their application segments come first. The index of a Multi-Picture file has offsets
    # from its own place, so nothing may come between it and the pictures.
    while len(segment := source.peek(8)) == 8 and segment[0] == 0xFF and 0xE0 <= segment[1] <= 0xEF:
        if segment[1] == 0xE2 and segment.endswith(b"MPF\0"):
            break
        yield source.take(2 + int.from_bytes(segment[2:4], "big"))
    comment = KEYWORD + b" " + mark.encode()
    yield b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment
    yield from source.rest()


def _with_fence(chunks: Iterable[bytes], fence: bytes) -> Iterator[bytes]:
    overlap = len(fence) - 1
    found, end = False, b""
    for chunk in chunks:
        # The fence may begin in one chunk and end in a later one.
        found = found or fence in chunk or fence in end + chunk[:overlap]
        end = (end + chunk[-overlap:])[-overlap:]
        yield chunk
    if not found:
        raise FenceMissing
