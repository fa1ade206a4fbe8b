"""Writes the page of `audit --html`. The file is complete, or it is the former one."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from intake_ledger_cli.app import now_ms
from intake_ledger_cli.errors import CliError, UsageError
from intake_ledger_cli.options import Call
from intake_ledger_cli.read import report_data, verdict
from intake_ledger_cli.show.report_page import render

MOST_HOURS = 336
"""The longest charts, in hours: two weeks. CloudWatch keeps values of one minute for 15 days."""


def write_report(call: Call, path: Path, hours: int) -> bool:
    """Collect the data and write the page.

    Args:
        call: the shared options.
        path: of the file. An existing one is replaced.
        hours: the length of the charts.

    Returns:
        True if a person should look at it.

    Raises:
        CliError: The file cannot be written.
        UsageError: `--json` was given, too.

    """
    if call.as_json:
        raise UsageError("--html writes a page: omit --json, or use `status --json`")
    aws, deployed = call.open()
    data = report_data.collect(aws, deployed, now=now_ms(), hours=hours)
    replace_file(path, render(data))
    if path.is_file():
        sys.stdout.write(f"{path}\n")
    return any(one.needs_a_person for one in verdict.findings_of(data.status))


def replace_file(path: Path, content: str) -> None:
    """Write a text as `replacing` does. Raises CliError as that does."""
    with replacing(path) as part:
        part.write_text(content, encoding="utf-8")


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
