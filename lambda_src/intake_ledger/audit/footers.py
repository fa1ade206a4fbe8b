"""Reads the metadata of a run's Parquet files without their content: a billion objects have a thousand files.

A Parquet file ends with its metadata, the metadata's length in four bytes, and "PAR1" (Parquet format, "File format").
A local file of the same size that has nothing but this end is enough to read the metadata.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from intake_ledger.audit.scratch import Scratch

_FIRST = 32 * 1024
"""Bytes that are read first. The metadata of a slice takes some 30 KB."""
_END = 8
_READERS = 16


def copy_footers(scratch: Scratch, etags: Iterable[tuple[str, str]], folder: Path) -> None:
    """Copy the metadata of files into a folder. Each of them has to have its ETag still."""
    with ThreadPoolExecutor(_READERS) as pool:
        copies = [pool.submit(_copy, scratch, name, etag, folder / name) for name, etag in etags]
    for copy in copies:
        copy.result()


def _copy(scratch: Scratch, name: str, etag: str, path: Path) -> None:
    end, size = scratch.end(name, _FIRST, etag)
    length = int.from_bytes(end[-_END:-4], "little") + _END
    if length > len(end):
        end, size = scratch.end(name, length, etag)
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(size - length)
        file.write(end[-length:])
