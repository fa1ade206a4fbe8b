"""Writes a file that a command makes. The file is complete, or it is the former one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from intake_ledger_cli.errors import CliError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Replace a file in one step: a reader sees the former content, or the whole new one.

    A link stays a link. A device or a pipe, such as `/dev/stdout`, gets the content and is not replaced by a file.

    Yields:
        the file to write.

    Raises:
        CliError: The disk is full, or the folder is missing or not writable. The former file is left as it was.

    """
    place = path.resolve()
    part = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        # Before the link is resolved: `/dev/stdout` leads to a pipe, which has no path.
        if path.exists() and not path.is_file():
            yield path
            return
        yield part
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.replace(place)
    except OSError as error:
        raise CliError(f"{path}: {error.strerror or error}: check disk space and permissions") from None
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
