"""Put the fence into the content of an output, so that no two writes have the same bytes.

A conditional put compares ETags, and an ETag covers only the bytes. Without the fence inside, the same bytes could
come back after other bytes, and the condition of a late worker would hold again.

All functions are pure and stream: they hold a few kilobytes of the content.
"""

import zlib
from collections.abc import Iterable, Iterator

KEYWORD = b"intake-fence"
_GZIP = b"\x1f\x8b\x08"
_JPEG = b"\xff\xd8\xff"
_PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
_PNG_HEADER = 33
"""The signature and the chunk IHDR with its length and checksum. IHDR must be the first chunk."""


class FenceMissing(Exception):  # noqa: N818 - `Output` translates it
    """The content is of no format that can be sealed, and it does not contain the fence."""


def seal(chunks: Iterable[bytes], mark: str, fence: int, *, compress: bool) -> Iterator[bytes]:
    """Yield the content with the mark inside.

    PNG gets a text chunk after IHDR, JPEG a comment after its application segments, and gzip an empty member at the
    end. The readers of these formats ignore them. All other content passes unchanged and must contain the fence.

    Args:
        chunks: the content.
        mark: unique for each write, ASCII without a zero.
        fence: of the claim.
        compress: True if content that is not gzip becomes gzip.

    Raises:
        FenceMissing: At the end of the content, which has no place for the mark and does not contain the fence.

    """
    source = _Source(chunks)
    head = source.peek(_PNG_HEADER)
    if head.startswith(_GZIP):
        yield from source.rest()
        yield _gzip_member(mark)
    elif compress:
        yield from _compressed(source.rest())
        yield _gzip_member(mark)
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


def _gzip_member(mark: str) -> bytes:
    """Make a member without content. Its header has a comment."""
    header = _GZIP + b"\x10" + bytes(4) + b"\x00\xff"
    return header + KEYWORD + b" " + mark.encode() + b"\0" + b"\x03\x00" + bytes(8)


def _compressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    # 31: with the header and trailer of gzip. zlib writes no time into the header.
    compressor = zlib.compressobj(wbits=31)
    for chunk in chunks:
        yield compressor.compress(chunk)
    yield compressor.flush()


def _with_comment(source: _Source, mark: str) -> Iterator[bytes]:
    yield source.take(2)
    # JFIF and Exif require that their application segments come first.
    while len(segment := source.peek(4)) == 4 and segment[0] == 0xFF and 0xE0 <= segment[1] <= 0xEF:
        yield source.take(2 + int.from_bytes(segment[2:], "big"))
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
