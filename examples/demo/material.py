"""The demo's files: the service models of botocore, or the files of a folder."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable
    from pathlib import Path

MOST_FILES = 450
MOST_BYTES = 8 * 1024 * 1024


class MaterialError(ValueError):
    """The given files cannot be used. The message is one line."""


class Content(Protocol):
    """Content that is read only when it is uploaded or compared."""

    def read_bytes(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Source:
    """A file: its key in the bucket, and its successive real contents, oldest first."""

    key: str
    contents: tuple[Content, ...]


def botocore_models() -> list[Source]:
    """Return the models of all services. A service with several API versions is one file with several versions."""
    return sorted(_botocore_sources(resources.files("botocore") / "data"), key=lambda source: source.key)


def _botocore_sources(data: Traversable) -> Iterator[Source]:
    for service in data.iterdir():
        if service.is_dir():
            versions = sorted((v for v in service.iterdir() if v.is_dir()), key=lambda v: v.name)
            models = tuple(m for v in versions if (m := v / "service-2.json.gz").is_file())
            if models:
                yield Source(f"models/{service.name}/service-2.json.gz", models)


def files_below(path: Path) -> tuple[list[Source], int]:
    """Return the files of a folder (or one file), and the number of files that the demo omits.

    It omits hidden files, large files, files whose names S3 does not allow, and files beyond the number that a local
    AWS handles in the time of a demo.

    :raises MaterialError: if there is no file to upload.
    """
    if not path.exists():
        raise MaterialError(f"FILES: there is no file or folder {str(path)!r}")
    root = path if path.is_dir() else path.parent
    taken: list[Source] = []
    left_out = 0
    try:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if not file.is_file():
                continue
            if len(taken) < MOST_FILES and (key := _key(file.relative_to(root))) and _readable(file):
                taken.append(Source(key, (file,)))
            else:
                left_out += 1
    except OSError as error:
        raise MaterialError(f"FILES: {error}") from error
    if not taken:
        raise MaterialError(f"FILES: no readable file (up to {MOST_BYTES // 1024**2} MiB, not hidden) in {str(path)!r}")
    return taken, left_out


def _key(relative: Path) -> str | None:
    if any(part.startswith(".") for part in relative.parts):
        return None
    key = f"models/{relative.as_posix()}"
    try:
        return key if len(key.encode()) <= 900 else None
    except UnicodeEncodeError:  # a file name that is not text
        return None


def _readable(file: Path) -> bool:
    try:
        with file.open("rb"):
            return file.stat().st_size <= MOST_BYTES
    except OSError:
        return False
