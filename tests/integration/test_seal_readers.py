"""Sealed outputs in the programs that people read them with: each reads the same before and after the seal."""

import base64
import csv
import gzip
import io
import json
import os
import random
import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from PIL import Image, ImageSequence
from pyarrow import csv as arrow_csv  # type: ignore[import-untyped]
from urllib3 import HTTPResponse

from intake_ledger.outputs.seal import seal
from tests.browser import Browser, Page, needs_chromium

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "build" / "readers" / "node_modules"
needs_packages = pytest.mark.skipif(
    not PACKAGES.exists(), reason="npm packages are missing: run `make build/readers/.ready`"
)
FENCE = 1_767_225_600_123
ROWS = [(str(number), f"{random.Random(number).getrandbits(64):x}") for number in range(3_000)]
PLAIN = "".join(f"{number},{name}\n" for number, name in ROWS).encode()
Reader = Callable[[Path], Any]


def sealed(content: bytes) -> bytes:
    return b"".join(seal([content], f"{FENCE}.1", FENCE, compress=False))


def _named(*, flags: int, fields: bytes) -> bytes:
    """A gzip file with more fields in its header."""
    packed = gzip.compress(PLAIN)
    header = packed[:3] + bytes([flags]) + packed[4:10] + fields
    if flags & 0x02:
        header += struct.pack("<H", zlib.crc32(header) & 0xFFFF)
    return header + packed[10:]


PACKED = {
    "one member": gzip.compress(PLAIN),
    "stored blocks": gzip.compress(PLAIN, 0),
    "a name": _named(flags=0x08, fields=b"orders.csv\0"),
    "two members": gzip.compress(PLAIN[:20_000]) + gzip.compress(PLAIN[20_000:]),
    "name, comment and checksum in the header": _named(flags=0x1A, fields=b"orders.csv\0of today\0"),
}


def _duckdb(path: Path) -> object:
    with duckdb.connect() as connection:
        return connection.execute(f"SELECT * FROM read_csv('{path}', header=false, all_varchar=true)").fetchall()


def _pyarrow(path: Path) -> object:
    options = arrow_csv.ReadOptions(autogenerate_column_names=True)
    return arrow_csv.read_csv(path, read_options=options).num_rows


def _python(path: Path) -> object:
    with gzip.open(path, "rt") as file:
        return list(csv.reader(file))


def _one_member(path: Path) -> object:
    """Read the first member only."""
    inflate = zlib.decompressobj(wbits=31)
    return inflate.decompress(path.read_bytes()), inflate.eof


def _length_at_the_end(path: Path) -> object:
    """Some programs reserve memory by the last four bytes."""
    return struct.unpack("<I", path.read_bytes()[-4:])


def _http(path: Path) -> object:
    """The decoder of requests and botocore, for `Content-Encoding: gzip`."""
    body = io.BytesIO(path.read_bytes())
    return HTTPResponse(body, headers={"content-encoding": "gzip"}, preload_content=False).read(decode_content=True)


def _command(path: Path) -> object:
    subprocess.run(["gzip", "-t", path], check=True)
    return subprocess.run(["gzip", "-dc", path], check=True, capture_output=True).stdout


def _node(script: str) -> Reader:
    def read(path: Path) -> object:
        command = ["node", "-e", script, str(path)]
        environment = os.environ | {"NODE_PATH": str(PACKAGES)}
        done = subprocess.run(command, check=False, capture_output=True, env=environment)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    return read


_NODE_STREAM = """
const {createReadStream} = require('fs'), {createGunzip} = require('zlib'), {pipeline} = require('stream');
pipeline(createReadStream(process.argv[1]), createGunzip(), process.stdout, error => process.exitCode = error ? 1 : 0);
"""
_NODE_WHOLE = """
process.stdout.write(require('zlib').gunzipSync(require('fs').readFileSync(process.argv[1])));
"""

GZIP_READERS: dict[str, Reader] = {
    "Python's gzip and csv": _python,
    "zlib, one member": _one_member,
    "the length at the end": _length_at_the_end,
    "the command gzip": _command,
    "urllib3": _http,
    "DuckDB": _duckdb,
    "pyarrow": _pyarrow,
    "Node's gunzipSync": _node(_NODE_WHOLE),
    "Node's streams": _node(_NODE_STREAM),
}


def _same(reader: Reader, folder: Path, name: str, content: bytes) -> None:
    (folder / "before").mkdir()
    (folder / "after").mkdir()
    before, after = folder / "before" / name, folder / "after" / name
    before.write_bytes(content)
    after.write_bytes(sealed(content))
    assert after.read_bytes() != content
    assert reader(after) == reader(before)


@pytest.mark.failure_mode("F285")
@pytest.mark.parametrize(
    ("reader", "content"),
    # DuckDB reads no gzip file with a comment.
    [(reader, name) for reader in GZIP_READERS for name in PACKED if (reader, "comment" in name) != ("DuckDB", True)],
)
def test_gzip_is_read_as_before(tmp_path: Path, reader: str, content: str) -> None:
    _same(GZIP_READERS[reader], tmp_path, "a.csv.gz", PACKED[content])


def test_each_gzip_reader_reads_the_rows(tmp_path: Path) -> None:
    """Content for a key that ends in .gz is compressed first."""
    path = tmp_path / "a.csv.gz"
    path.write_bytes(b"".join(seal([PLAIN], f"{FENCE}.1", FENCE, compress=True)))
    assert _python(path) == [list(row) for row in ROWS]
    assert _duckdb(path) == ROWS
    assert _pyarrow(path) == len(ROWS)
    assert [_command(path), _http(path), GZIP_READERS["Node's streams"](path)] == [PLAIN] * 3


def picture(kind: str) -> bytes:
    """A picture with some structure and metadata."""
    dice = random.Random(1)
    image = Image.frombytes("RGB", (48, 32), dice.randbytes(48 * 32 * 3)).resize((96, 64))
    exif = Image.Exif()
    exif[0x010E] = "a description"
    file = io.BytesIO()
    image.save(file, kind, exif=exif)
    return file.getvalue()


def _pillow(path: Path) -> object:
    with Image.open(path) as image:
        return image.size, image.tobytes(), dict(image.getexif())


_PIXELS = "process.stdout.write(Buffer.from(read(require('fs').readFileSync(process.argv[1]))));"
_SHARP = """
require('sharp')(process.argv[1]).raw().toBuffer().then(pixels => process.stdout.write(pixels));
"""

PICTURE_READERS: dict[str, dict[str, Reader]] = {
    "PNG": {
        "sharp": _node(_SHARP),
        "pngjs": _node(f"const read = bytes => require('pngjs').PNG.sync.read(bytes).data;{_PIXELS}"),
        "lodepng": _node(f"const read = bytes => require('@cwasm/lodepng').decode(bytes).data;{_PIXELS}"),
    },
    "JPEG": {
        "sharp": _node(_SHARP),
        "jpeg-js": _node(f"const read = bytes => require('jpeg-js').decode(bytes).data;{_PIXELS}"),
        "libjpeg-turbo": _node(f"const read = bytes => require('@cwasm/jpeg-turbo').decode(bytes).data;{_PIXELS}"),
    },
}


@pytest.mark.failure_mode("F285")
@pytest.mark.parametrize("kind", PICTURE_READERS)
def test_a_picture_is_read_as_before_by_pillow(tmp_path: Path, kind: str) -> None:
    _same(_pillow, tmp_path, f"a.{kind.lower()}", picture(kind))


@pytest.mark.failure_mode("F285")
@needs_packages
@pytest.mark.parametrize(
    ("kind", "reader"), [(kind, name) for kind, names in PICTURE_READERS.items() for name in names]
)
def test_a_picture_is_read_as_before_by_node(tmp_path: Path, kind: str, reader: str) -> None:
    content = picture(kind)
    _same(PICTURE_READERS[kind][reader], tmp_path, f"a.{kind.lower()}", content)
    assert len(PICTURE_READERS[kind][reader](tmp_path / "after" / f"a.{kind.lower()}")) >= 96 * 64 * 3


_BROWSER = """
(async () => {
  const bytes = Uint8Array.from(atob(%s), one => one.charCodeAt(0));
  const text = all => btoa(Array.from(all, one => String.fromCharCode(one)).join(""));
  if (bytes[0] == 0x1f) {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return text(new Uint8Array(await new Response(stream).arrayBuffer()));
  }
  const image = await createImageBitmap(new Blob([bytes]));
  const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
  canvas.drawImage(image, 0, 0);
  return text(canvas.getImageData(0, 0, image.width, image.height).data);
})()
"""


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Page:
    empty = tmp_path_factory.mktemp("browser") / "empty.html"
    empty.write_text("<p>empty</p>")
    return browser.opens(empty)


def _browser(page: Page) -> Reader:
    def read(path: Path) -> object:
        expression = _BROWSER % json.dumps(base64.b64encode(path.read_bytes()).decode())
        answer = page.does("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]["exception"]["description"]
        return base64.b64decode(answer["result"]["value"])

    return read


@pytest.mark.failure_mode("F285")
@needs_chromium
@pytest.mark.parametrize("content", [name for name in PACKED if name != "two members"])
def test_gzip_is_read_as_before_by_a_browser(page: Page, tmp_path: Path, content: str) -> None:
    """`DecompressionStream` refuses a second member."""
    _same(_browser(page), tmp_path, "a.csv.gz", PACKED[content])
    assert _browser(page)(tmp_path / "after" / "a.csv.gz") == PLAIN


@pytest.mark.failure_mode("F285")
@needs_chromium
@pytest.mark.parametrize("kind", PICTURE_READERS)
def test_a_picture_is_read_as_before_by_a_browser(page: Page, tmp_path: Path, kind: str) -> None:
    _same(_browser(page), tmp_path, f"a.{kind.lower()}", picture(kind))


@pytest.mark.failure_mode("F285")
def test_the_pictures_of_a_multi_picture_file_are_found(tmp_path: Path) -> None:
    """Phones write them. Their index has offsets from its own place."""
    file = io.BytesIO()
    first, second = (Image.new("RGB", (32, 16), color) for color in ("red", "blue"))
    first.save(file, "MPO", save_all=True, append_images=[second])

    def read(path: Path) -> object:
        with Image.open(path) as image:
            return [frame.tobytes() for frame in ImageSequence.Iterator(image)]

    _same(read, tmp_path, "a.jpg", file.getvalue())
