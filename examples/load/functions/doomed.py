"""Call both consumers, and end or delay their workers between two statements of a transaction.

It belongs to the demonstration. `orders` and `naive` do not know of it: they get a connection that counts their
statements. The table `faults` of a separate database says which key has which fault at which step. Each fault happens
once for each side.

`killed`: the worker sends SIGKILL to itself. No exception, no clean-up, no answer to Lambda.
`late`: the same, but a copy of the process keeps the connection, and goes on after another worker has committed the
key. It stands for statements that are still on their way when their sender is dead or given up.
`slow`: the copy goes on after three seconds, with its transaction open.
"""

from __future__ import annotations

import os
import signal
import stat
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, override
from urllib.parse import unquote_plus

import psycopg
from examples.load.functions import naive, orders

from intake_ledger import Overtaken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from intake_ledger import Commit, ObjectChange

SLOW_SECONDS = 3.0
LONGEST_WAIT_SECONDS = 300.0
"""A late worker gives up if no other worker commits its key."""


@dataclass
class Doom:
    """The fault of one key on one side."""

    side: str
    key: str
    step: str
    kind: str
    is_copy: bool = False
    """True in the process that goes on after its worker is dead."""

    def at(self, step: str) -> None:
        """Let the fault happen if this is its step."""
        if self.is_copy or step != self.step or not self._is_first():
            return
        if self.kind != "killed" and os.fork() == 0:
            self._go_on()
            return
        os.kill(os.getpid(), signal.SIGKILL)

    def _is_first(self) -> bool:
        with faults() as connection:
            return bool(
                connection.execute(
                    "UPDATE faults SET fired_at = clock_timestamp(), commits_before = "
                    "(SELECT count(*) FROM commits WHERE commits.side = faults.side AND commits.key = faults.key) "
                    "WHERE side = %s AND key = %s AND fired_at IS NULL",
                    (self.side, self.key),
                ).rowcount
            )

    def _go_on(self) -> None:
        """Leave Lambda's worker, and wait."""
        self.is_copy = True
        os.setsid()
        leave_pipes()
        if self.kind == "slow":
            time.sleep(SLOW_SECONDS)
            return
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        with faults() as connection:
            while time.monotonic() < deadline:
                if connection.execute(
                    "SELECT 1 FROM faults WHERE side = %s AND key = %s AND commits_before < "
                    "(SELECT count(*) FROM commits WHERE commits.side = faults.side AND commits.key = faults.key)",
                    (self.side, self.key),
                ).fetchone():
                    return
                time.sleep(0.1)
        self.end("gave up")

    def end(self, outcome: str) -> None:
        """Record the outcome of a copy, and end it."""
        if self.is_copy:
            with faults() as connection:
                connection.execute(
                    "UPDATE faults SET outcome = %s WHERE side = %s AND key = %s", (outcome, self.side, self.key)
                )
            os._exit(0)

    def committed(self) -> None:
        """Record the commit of a worker, for which a late copy waits."""
        if not self.is_copy:
            with faults() as connection:
                connection.execute("INSERT INTO commits (side, key) VALUES (%s, %s)", (self.side, self.key))


class _Current:
    """The fault of the key that this worker handles now, or None. A worker handles one key at a time."""

    doom: Doom | None = None
    statements = 0


def at(step: str) -> None:
    """Tell the current fault that the worker is at this step."""
    if _Current.doom is not None:
        _Current.doom.at(step)


class CountingCursor(psycopg.Cursor[Any]):
    """A cursor that names each statement before it is sent."""

    @override
    def execute(self, *arguments: Any, **options: Any) -> Any:
        _Current.statements += 1
        at(f"statement {_Current.statements}")
        return super().execute(*arguments, **options)

    @override
    @contextmanager
    def copy(self, *arguments: Any, **options: Any) -> Iterator[psycopg.Copy]:
        with super().copy(*arguments, **options) as copy:
            yield copy
            at("copy")


class CountingConnection(psycopg.Connection[Any]):
    """A connection that names its commit before and after it is sent."""

    @override
    def commit(self) -> None:
        at("before commit")
        super().commit()
        if _Current.doom is not None:
            _Current.doom.committed()
        at("after commit")


def connect() -> psycopg.Connection[Any]:
    """The connection that both consumers get."""
    return CountingConnection.connect(os.environ["ORDERS"], cursor_factory=CountingCursor)


def faults() -> psycopg.Connection[Any]:
    """The database of the faults. Each statement is one transaction."""
    return psycopg.connect(os.environ["FAULTS"], autocommit=True)


@contextmanager
def doomed(side: str, key: str) -> Iterator[None]:
    """Handle a key with its fault."""
    with faults() as connection:
        found = connection.execute("SELECT step, kind FROM faults WHERE side = %s AND key = %s", (side, key)).fetchone()
    doom = _Current.doom = Doom(side, key, *found) if found else None
    _Current.statements = 0
    outcome = "committed"
    try:
        yield
    except Overtaken:
        outcome = "refused"
        raise
    except BaseException as error:
        outcome = f"failed: {type(error).__name__}"
        raise
    finally:
        _Current.doom = None
        if doom:
            doom.end(outcome)


def process(change: ObjectChange) -> Commit:
    """The pipeline's processor."""
    with doomed("ledger", change.key):
        return orders.process(change)


def handler(event: dict[str, Any], context: object) -> None:
    """The handler of the naive consumer."""
    naive.handler(event, context)


def handle(record: dict[str, Any]) -> None:
    """One event of the naive consumer."""
    with doomed("naive", unquote_plus(record["s3"]["object"]["key"])):
        handle_record(record)


def leave_pipes() -> None:
    """Close the pipes to Lambda, which would otherwise wait for this process."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(256):
        with suppress(OSError):
            if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                os.dup2(nothing, descriptor)


handle_record, naive.handle = naive.handle, handle
naive.connect = orders.connect = connect
