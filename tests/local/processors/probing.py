"""Reads an object in every way and describes the results."""

import csv
import gzip
import hashlib
import io
import zipfile

from intake_ledger import ObjectChange


def probe(change: ObjectChange) -> str:
    """Describe the results in a line of text, which is the same on AWS and in a local pipeline."""
    facts: dict[str, object] = {}
    with change.open() as stream:
        facts["type"] = f"{type(stream).__module__}.{type(stream).__qualname__}"
        facts["file"] = (stream.readable(), stream.seekable(), stream.writable())
        try:
            stream.seek(0)
        except OSError as error:
            facts["seek"] = type(error).__name__
        facts["lines"] = sum(1 for _ in stream)
        facts["end"] = (stream.read(), stream.read1(5), stream.readline(), stream.tell())
    with change.open() as stream:
        facts["digest"] = hashlib.file_digest(stream, "md5").hexdigest()
    with change.open() as stream, io.TextIOWrapper(stream, encoding="latin-1", newline="") as text:
        facts["rows"] = sum(1 for _ in csv.reader(text))
    facts["text"] = sum(1 for _ in change.lines(encoding="latin-1"))
    facts["read"] = len(change.read(max_bytes=1_000_000))
    with change.open() as stream:
        try:
            gzip.GzipFile(fileobj=stream).read()
        except OSError as error:
            facts["gzip"] = type(error).__name__
    with change.download() as file, zipfile.ZipFile(file) as archive:
        facts["download"] = (file.seekable(), archive.namelist(), archive.testzip())
    return repr(facts)
