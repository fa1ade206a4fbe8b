"""The system that the processor writes to. It records each delivery and answers as its scenario says.

It runs in the test's process, outside of the pipeline, so its record does not depend on the consumer.
"""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from threading import Lock
from typing import NamedTuple

from tests.local.faults.servers import Server, cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The data of one processor call."""

    key: str
    version: str
    content: str
    """MD5 of the bytes that it read."""
    attempt: int
    fence: int
    idempotency_key: str
    pid: int
    """Process ID of the Lambda worker."""


@dataclass(frozen=True, slots=True)
class Reaction:
    """The downstream's answer to a delivery."""

    status: int = 200
    text: str = ""
    taken: bool = True
    """True: the delivery takes effect."""
    kill: bool = False
    """Send SIGKILL to the worker instead of an answer."""
    seconds: float = 0
    """Duration of the answer."""


class Call(NamedTuple):
    """A delivery, with its times on the clock of this process."""

    delivery: Delivery
    started: float
    ended: float
    taken: bool


TAKEN = Reaction()
Mood = Callable[[Delivery], Reaction]


@dataclass
class Downstream:
    """`moods` are by the first part of the key, the scenario's name."""

    effects: list[Delivery] = field(default_factory=list)
    tried: list[Delivery] = field(default_factory=list)
    """Every call, with or without effect."""
    calls: list[Call] = field(default_factory=list)
    """`tried`, with times."""
    killed: list[Delivery] = field(default_factory=list)
    """Calls whose worker was killed."""
    moods: dict[str, Mood] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def server(self) -> Server:
        """Return the server as a context manager."""
        return Server(type("DownstreamHandler", (_Handler,), {"downstream": self}))

    def deliver(self, delivery: Delivery) -> Reaction:
        """Apply the delivery as the scenario's `mood` decides."""
        started = time.monotonic()
        mood = self.moods.get(delivery.key.partition("/")[0])
        reaction = mood(delivery) if mood else TAKEN
        if reaction.seconds:
            time.sleep(reaction.seconds)
        with self._lock:
            self.tried.append(delivery)
            self.calls.append(Call(delivery, started, time.monotonic(), reaction.taken))
            if reaction.taken:
                self.effects.append(delivery)
            if reaction.kill:
                self.killed.append(delivery)
        return reaction

    def effects_of(self, prefix: str) -> list[Delivery]:
        """In the order in which they happened."""
        return [effect for effect in tuple(self.effects) if effect.key.startswith(prefix)]

    def calls_of(self, prefix: str) -> list[Call]:
        """In the order in which they ended."""
        return [call for call in tuple(self.calls) if call.delivery.key.startswith(prefix)]

    def tried_of(self, prefix: str) -> list[Delivery]:
        """In the order in which they came."""
        return [delivery for delivery in tuple(self.tried) if delivery.key.startswith(prefix)]


class _Handler(BaseHTTPRequestHandler):
    downstream: Downstream

    def do_POST(self) -> None:
        delivery = Delivery(**json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        reaction = self.downstream.deliver(delivery)
        if reaction.kill:
            with contextlib.suppress(ProcessLookupError):
                os.kill(delivery.pid, signal.SIGKILL)
            cut(self)
            return
        content = reaction.text.encode()
        self.send_response_only(reaction.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
