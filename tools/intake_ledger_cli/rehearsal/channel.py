"""Frames on a pair of pipes between the command and the process that runs a processor's code."""

import json
import os
import select
import time
from typing import Any

MOST_BYTES = 64 * 1024 * 1024
"""The longest frame. A transaction has at most 4 MB."""
_LENGTH_BYTES = 4


class ChannelEnded(Exception):  # noqa: N818 - a fact about the other process
    """The other process has ended."""


class WrongFrame(ChannelEnded):
    """The other process has sent a frame that cannot be read, or an unknown one."""


class TimeOver(Exception):  # noqa: N818 - as above
    """The other process has not answered in time."""


class Channel:
    """Sends and receives frames: a length, and JSON or bytes. JSON can hold no code, unlike pickle."""

    def __init__(self, reads: int, writes: int) -> None:
        """Make a channel of two file descriptors."""
        self._reads, self._writes = reads, writes

    def send(self, content: Any, until: float | None = None) -> None:
        """Send a value as JSON. `until` is a time of `time.monotonic`. Raises ChannelEnded and TimeOver."""
        self.send_bytes(json.dumps(content).encode(), until)

    def send_bytes(self, content: bytes, until: float | None = None) -> None:
        """Send bytes, as `send`."""
        left = memoryview(len(content).to_bytes(_LENGTH_BYTES, "big") + content)
        try:
            while left:
                if until is not None and not select.select([], [self._writes], [], max(until - time.monotonic(), 0))[1]:
                    raise TimeOver
                # No more than what a pipe takes at once if it takes anything.
                left = left[os.write(self._writes, left[: select.PIPE_BUF]) :]
        except OSError as error:
            raise ChannelEnded(str(error)) from None

    def receive(self, until: float | None = None) -> Any:
        """Receive a value. `until` is a time of `time.monotonic`. Raises ChannelEnded, WrongFrame, TimeOver."""
        try:
            return json.loads(self.receive_bytes(until))
        except ValueError:
            raise WrongFrame("no JSON") from None

    def receive_bytes(self, until: float | None = None) -> bytes:
        """Receive bytes, as `receive`."""
        size = int.from_bytes(self._exactly(_LENGTH_BYTES, until), "big")
        if size > MOST_BYTES:
            raise WrongFrame(f"{size:,} bytes")
        return self._exactly(size, until)

    def close(self) -> None:
        """Close both descriptors."""
        os.close(self._reads)
        os.close(self._writes)

    def _exactly(self, size: int, until: float | None) -> bytes:
        found = bytearray()
        while len(found) < size:
            left = None if until is None else max(until - time.monotonic(), 0)
            if left is not None and not select.select([self._reads], [], [], left)[0]:
                raise TimeOver
            part = os.read(self._reads, size - len(found))
            if not part:
                raise ChannelEnded("no more frames")
            found += part
        return bytes(found)
