"""Find the process at the other end of a connection, and kill it. Linux only.

A consumer does not tell its process ID. The kernel's tables name the socket of each connection, and its owner.
"""

import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

_ESTABLISHED = "01"


def process_of(port: int, server_port: int) -> int | None:
    """Return the ID of the process on this machine that is connected from `port`. None if it has none any more."""
    sockets = set(_sockets(port, server_port))
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if descriptor.readlink().name in sockets:
                return int(descriptor.parts[2])
        except OSError:
            continue  # another user's, or closed meanwhile
    return None


def kill(process: int) -> None:
    """Send SIGKILL, and return when the process has ended."""
    handle = os.pidfd_open(process)
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        # The handle is readable after the end.
        select.select([handle], [], [])
    finally:
        os.close(handle)


def _sockets(port: int, server_port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        path = Path("/proc/net", table)
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            _, local, remote, state, *_, inode = line.split()[:10]
            if (_port(local), _port(remote), state) == (port, server_port, _ESTABLISHED):
                yield f"socket:[{inode}]"


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)
