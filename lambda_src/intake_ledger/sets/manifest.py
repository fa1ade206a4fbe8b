"""Read the keys of the parts from a manifest. The manifest's writer may be anyone, so each key is checked."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from intake_ledger.processor.text import load_json
from intake_ledger.protocol.errors import Unprocessable
from intake_ledger.set_members.forms import MAX_PARTS, FormSettings, PartsFormat

MAX_BYTES = 16 * 1024 * 1024
"""The largest manifest. The keys of 10,000 parts have at most 10 MB."""
_MAX_KEY_BYTES = 1024
_URL = re.compile("[a-zA-Z][a-zA-Z0-9+.-]*://")
_LISTS = ("parts", "files", "entries")
"""The names of the list in a JSON object. S3 Inventory writes `files`, Amazon Redshift writes `entries`."""
_KEYS = ("key", "url")
"""The names of the key in an element or in a CSV's header."""
_VERSIONS = ("versionId", "version_id", "VersionId")
"""The names of a part's version, likewise."""
_Part = tuple[object, object]
"""Key and version of a part, as they are in the manifest."""


def parts_of(
    content: bytes,
    set_key: str,
    form: FormSettings,
    *,
    bucket: str,
    why_never: Callable[[str], str | None],
) -> dict[str, str | None]:
    """The keys of the parts, in the order of the manifest, each with the version that the manifest names, if any.

    Args:
        content: the manifest.
        set_key: its key.
        form: the form of the set.
        bucket: the bucket's name.
        why_never: tells why the parts' pipeline never commits a key. None: it may.

    Raises:
        Unprocessable: The manifest is malformed, or names something that cannot be a part. The text says what.

    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise Unprocessable(f"the manifest is not UTF-8: {problem.reason} at byte {problem.start:,}") from None
    folder = "" if form.absolute else form.folder(set_key)
    places: dict[str, int] = {}
    parts: dict[str, str | None] = {}
    for number, (name, version) in enumerate(_READERS[form.parts](text), 1):
        if number > MAX_PARTS:
            raise Unprocessable(f"the manifest names more than {MAX_PARTS:,} parts")
        key = _key(name, number, folder, bucket)
        if key in places:
            raise Unprocessable(f"parts {places[key]:,} and {number:,} of the manifest are the same object")
        if key == set_key:
            raise Unprocessable(f"part {number:,} of the manifest is the manifest itself")
        if why := why_never(key):
            raise Unprocessable(f"part {number:,} is {why}, so it is never committed")
        places[key] = number
        parts[key] = _version(version, number)
    return parts


def _key(name: object, number: int, folder: str, bucket: str) -> str:
    if not isinstance(name, str) or not name:
        raise Unprocessable(f"part {number:,} of the manifest has no key, expected a text")
    if _URL.match(name):
        scheme, _, rest = name.partition("://")
        other, _, key = rest.partition("/")
        if scheme != "s3":
            raise Unprocessable(f"part {number:,} of the manifest begins with {scheme}://, expected s3:// or a key")
        if other != bucket:
            raise Unprocessable(f"part {number:,} of the manifest is not in the bucket of the manifest")
    else:
        key = name[1:] if name.startswith("/") else folder + name
    if any(segment in (".", "..") for segment in key.split("/")):
        raise Unprocessable(f"part {number:,} of the manifest has '.' or '..' in its key, which S3 takes literally")
    try:
        length = len(key.encode())
    except UnicodeEncodeError:
        raise Unprocessable(f"part {number:,} of the manifest is not valid Unicode") from None
    if not 1 <= length <= _MAX_KEY_BYTES:
        raise Unprocessable(f"part {number:,} of the manifest has {length:,} bytes, S3 allows 1 to 1,024")
    return key


def _version(version: object, number: int) -> str | None:
    if version is None or version == "":
        return None
    if not isinstance(version, str) or len(version.encode("utf-8", "surrogatepass")) > _MAX_KEY_BYTES:
        raise Unprocessable(f"part {number:,} of the manifest has a versionId that is no version of S3")
    return version


def _json(text: str) -> Iterable[_Part]:
    try:
        content: Any = load_json(text)
    except (ValueError, RecursionError) as problem:
        # The message of JSONDecodeError may quote the content.
        why = "" if isinstance(problem, json.JSONDecodeError | RecursionError) else f": {problem}"
        raise Unprocessable(f"the manifest is not JSON{why}") from None
    if isinstance(content, dict):
        named = [name for name in _LISTS if name in content]
        if len(named) != 1:
            raise Unprocessable(f"the manifest is an object, expected exactly one of {', '.join(_LISTS)} in it")
        content = content[named[0]]
    if not isinstance(content, list):
        raise Unprocessable("the manifest has no list of parts")
    return map(_named, content)


def _named(element: object) -> _Part:
    """Key and version in an element of the list, which is the key itself, or an object with the key."""
    if not isinstance(element, dict):
        return element, None
    return _first(element, _KEYS), _first(element, _VERSIONS)


def _first(element: Mapping[str, object], names: Iterable[str]) -> object:
    return next((element[name] for name in names if name in element), None)


def _csv(text: str) -> Iterator[_Part]:
    # Not `splitlines`, which also splits at characters that may be part of a key, such as U+2028. And a quoted key may
    # have line ends.
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        names = rows.fieldnames or ()
        column = next((name for name in _KEYS if name in names), None)
        if column is None:
            raise Unprocessable("the first row of the manifest has no column 'key'")
        if len(set(names)) < len(names):
            raise Unprocessable("the first row of the manifest names a column twice")
        for row in rows:
            if None in row:
                # A key with a comma and without quotes would be cut.
                raise Unprocessable(f"line {rows.line_num:,} of the manifest has more fields than columns")
            yield row[column], _first(row, _VERSIONS)
    except csv.Error as problem:
        raise Unprocessable(f"line {rows.reader.line_num:,} of the manifest is not CSV: {problem}") from None


def _lines(text: str) -> Iterator[_Part]:
    if not text:
        raise Unprocessable("the manifest is empty")
    lines = (line.removesuffix("\r") for line in text.split("\n"))
    return ((line, None) for line in lines if line)


_READERS: dict[PartsFormat, Callable[[str], Iterable[_Part]]] = {
    PartsFormat.JSON: _json,
    PartsFormat.CSV: _csv,
    PartsFormat.LINES: _lines,
}
