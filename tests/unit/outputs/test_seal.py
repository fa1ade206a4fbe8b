"""The fence inside the content of an output."""

import gzip
import io
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from intake_ledger.outputs.seal import FenceMissing, SealBreaks, seal

FENCE = 1_767_225_600_123
fences = st.integers(1 << 33, 1 << 53)
sizes = st.integers(1, 40)
pixels = st.binary(min_size=3, max_size=3)
cuts = st.lists(st.integers(1, 200), max_size=20)


def cut(content: bytes, lengths: list[int]) -> Iterator[bytes]:
    """The content in chunks of these lengths."""
    at = 0
    for length in lengths:
        yield content[at : at + length]
        at += length
    yield content[at:]


def sealed(content: bytes, fence: int = FENCE, *, number: int = 1, compress: bool = False) -> bytes:
    return b"".join(seal([content], f"{fence}.{number}", fence, compress=compress))


def picture(kind: str, size: int, pixel: bytes, **options: object) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (size, size), tuple(pixel)).save(content, kind, **options)
    return content.getvalue()


@given(st.sampled_from(["PNG", "JPEG"]), sizes, pixels, fences, cuts)
def test_a_picture_stays_the_same_for_its_readers(
    kind: str, size: int, pixel: bytes, fence: int, lengths: list[int]
) -> None:
    content = picture(kind, size, pixel)
    whole = sealed(content, fence)
    with Image.open(io.BytesIO(content)) as before, Image.open(io.BytesIO(whole)) as after:
        after.load()
        assert after.tobytes() == before.tobytes()
        assert f"{fence}.1" in str(after.info)
    assert b"".join(seal(cut(content, lengths), f"{fence}.1", fence, compress=False)) == whole
    assert whole != sealed(content, fence + 1)


def test_a_jpeg_keeps_its_first_segments_in_front() -> None:
    """JFIF and Exif are found by their position."""
    exif = Image.Exif()
    exif[0x010E] = "a description"
    content = picture("JPEG", 4, b"abc", exif=exif)
    whole = sealed(content)
    assert whole[:20] == content[:20]
    with Image.open(io.BytesIO(whole)) as after:
        assert after.getexif()[0x010E] == "a description"


@given(st.binary(max_size=2_000), fences, cuts)
def test_gzip_stays_the_same_for_its_readers(content: bytes, fence: int, lengths: list[int]) -> None:
    packed = gzip.compress(content)
    whole = sealed(packed, fence)
    assert gzip.decompress(whole) == content
    with gzip.open(io.BytesIO(whole)) as file:
        assert file.read() == content
    assert b"".join(seal(cut(packed, lengths), f"{fence}.1", fence, compress=False)) == whole
    assert whole != sealed(packed, fence + 1)


@given(st.binary(max_size=2_000).filter(lambda content: not content.startswith(b"\x1f\x8b\x08")), fences, cuts)
def test_content_for_a_gz_key_is_compressed_once(content: bytes, fence: int, lengths: list[int]) -> None:
    """Content that is gzip already is not compressed again."""
    whole = sealed(content, fence, compress=True)
    assert gzip.decompress(whole) == content
    assert gzip.decompress(b"".join(seal(cut(content, lengths), f"{fence}.1", fence, compress=True))) == content
    assert gzip.decompress(sealed(gzip.compress(content), fence, compress=True)) == content
    assert whole != sealed(content, fence + 1, compress=True)


def test_each_write_of_an_attempt_has_other_bytes() -> None:
    """The number of the write is part of the seal."""
    for content in (picture("PNG", 2, b"abc"), picture("JPEG", 2, b"abc"), gzip.compress(b"x")):
        assert sealed(content, number=1) != sealed(content, number=2)


def test_a_sealed_picture_is_sealed_again() -> None:
    """The output of one pipeline is the input of another."""
    once = sealed(picture("PNG", 2, b"abc"))
    twice = sealed(once, FENCE + 1)
    assert str(FENCE).encode() in twice
    assert str(FENCE + 1).encode() in twice
    with Image.open(io.BytesIO(twice)) as after:
        after.load()


@given(st.binary(max_size=100), st.binary(max_size=100), fences, cuts)
def test_other_content_with_the_fence_passes_unchanged(
    before: bytes, behind: bytes, fence: int, lengths: list[int]
) -> None:
    """The fence is found wherever the chunks are cut."""
    content = b"id," + before + str(fence).encode() + behind
    assert b"".join(seal(cut(content, lengths), f"{fence}.1", fence, compress=False)) == content


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"a,b\n1,2\n",
        str(FENCE + 1).encode(),
        b"\x89PNG\r\n\x1a\n",  # without its first chunk
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR" + bytes(16),  # cut in its first chunk
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\x04CgBIabcd" + bytes(20),  # no standard PNG
    ],
)
@pytest.mark.parametrize("chunk", [1, 100])
def test_content_without_the_fence_is_refused_at_its_end(content: bytes, chunk: int) -> None:
    chunks = (content[at : at + chunk] for at in range(0, len(content), chunk))
    with pytest.raises(FenceMissing):
        list(seal(chunks, f"{FENCE}.1", FENCE, compress=False))


def test_a_large_content_is_streamed() -> None:
    """No more than a few chunks are held."""
    read = 0

    def chunks() -> Iterator[bytes]:
        nonlocal read
        yield gzip.compress(b"x")
        for _ in range(1000):
            read += 1
            yield bytes(1000)

    stream = seal(chunks(), f"{FENCE}.1", FENCE, compress=False)
    for _ in range(10):
        next(stream)
    assert read < 20


def test_the_mark_of_gzip_is_without_content_and_short() -> None:
    """The header, the checksum and the length at the end stay as they are."""
    packed = gzip.compress(b"x")
    whole = sealed(packed)
    assert whole[:10] == packed[:10]
    assert whole.endswith(packed[10:])
    blocks = whole[10 : len(whole) - len(packed[10:])]
    assert zlib.decompress(blocks + b"\x03\x00", wbits=-15) == b""
    assert len(blocks) < 250


@pytest.mark.parametrize("number", [*range(1, 20), 255, 10**6])
def test_gzip_with_any_mark_is_read(number: int) -> None:
    """The data of the content begin at a byte, whatever the bits of the mark are."""
    assert gzip.decompress(sealed(gzip.compress(b"content"), number=number)) == b"content"


@given(fences, st.integers(1, 10**6), fences, st.integers(1, 10**6))
def test_gzip_with_another_mark_is_other_bytes(fence: int, number: int, other: int, other_number: int) -> None:
    packed = gzip.compress(b"x")
    are_equal = sealed(packed, fence, number=number) == sealed(packed, other, number=other_number)
    assert are_equal == ((fence, number) == (other, other_number))


@pytest.mark.failure_mode("F285")
@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_gzip_with_names_and_a_checksum_in_its_header(chunk: int) -> None:
    header = b"\x1f\x8b\x08\x1a" + bytes(4) + b"\x00\xff" + b"a.csv\0" + b"of today\0"
    header += (zlib.crc32(header) & 0xFFFF).to_bytes(2, "little")
    packed = header + gzip.compress(b"x" * 100)[10:]
    whole = b"".join(seal(cut(packed, [chunk] * 200), f"{FENCE}.1", FENCE, compress=True))
    assert whole.startswith(header)
    assert whole != packed
    assert gzip.decompress(whole) == b"x" * 100


@pytest.mark.parametrize("content", [b"\x1f\x8b\x08", b"\x1f\x8b\x08\x08" + bytes(6) + b"a name without its end"])
def test_a_gzip_header_without_an_end_is_other_content(content: bytes) -> None:
    with pytest.raises(FenceMissing):
        sealed(content)
    assert sealed(content + str(FENCE).encode()) == content + str(FENCE).encode()


def bgzf(content: bytes) -> bytes:
    """The format of .bam and .vcf.gz: each member has its own length in an extra field, and the last one is empty."""

    def block(part: bytes) -> bytes:
        compressor = zlib.compressobj(wbits=-15)
        data = compressor.compress(part) + compressor.flush()
        extra = b"BC\x02\x00" + (18 + len(data) + 8 - 1).to_bytes(2, "little")
        header = b"\x1f\x8b\x08\x04" + bytes(4) + b"\x00\xff" + len(extra).to_bytes(2, "little") + extra
        return header + data + zlib.crc32(part).to_bytes(4, "little") + len(part).to_bytes(4, "little")

    return block(content) + block(b"")


@pytest.mark.failure_mode("F286")
@pytest.mark.parametrize("compress", [False, True])
def test_bgzf_is_refused_at_its_begin(*, compress: bool) -> None:
    """Its readers add up the lengths of its members, and require the empty one at the end."""
    content = bgzf(b"chr1\t1\n")
    assert gzip.decompress(content) == b"chr1\t1\n"
    read = 0

    def chunks() -> Iterator[bytes]:
        nonlocal read
        for byte in content:
            read += 1
            yield bytes([byte])

    with pytest.raises(SealBreaks):
        next(seal(chunks(), f"{FENCE}.1", FENCE, compress=compress))
    assert read < 40


@pytest.mark.parametrize("size", [1, 2, 5, *range(8, 24)])
def test_the_fence_is_found_across_chunks(size: int) -> None:
    """Wherever a chunk ends, also in the middle of the fence, and if the fence has more than two chunks.

    The first bytes are read together, since they show the format.
    """
    for before in range(size):
        content = b"x" * (100 + before) + str(FENCE).encode() + b"xyz"
        chunks = [content[at : at + size] for at in range(0, len(content), size)]
        assert b"".join(seal(chunks, f"{FENCE}.1", FENCE, compress=False)) == content


@pytest.mark.parametrize("place", range(1, len(str(FENCE))))
def test_two_halves_of_the_fence_with_other_bytes_between_them_are_no_fence(place: int) -> None:
    half, rest = str(FENCE).encode()[:place], str(FENCE).encode()[place:]
    with pytest.raises(FenceMissing):
        list(seal([b"x" * 100, half, b",", rest], f"{FENCE}.1", FENCE, compress=False))
