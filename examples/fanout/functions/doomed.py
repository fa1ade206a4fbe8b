"""Call a processor, and kill its worker once for each of the chosen keys.

The process sends SIGKILL to itself after the processor's transaction and before the ledger's commit: no exception, no
clean-up, no answer to Lambda.
"""

from __future__ import annotations

import importlib
import os
import signal
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from intake_ledger import Commit, ObjectChange


def process(change: ObjectChange) -> Commit:
    """Call `process` of the module in `MODULE`."""
    module = os.environ["MODULE"]
    commit: Commit = importlib.import_module(module).process(change)
    die_once(module, change.key)
    return commit


def die_once(worker: str, key: str) -> None:
    """Kill this process, if it is the first with this name that has written this key, and the key was chosen."""
    if key not in os.environ["KILL_KEYS"].split("|"):
        return
    with psycopg.connect(os.environ["DATABASE"]) as connection:
        first = connection.execute("INSERT INTO kills VALUES (%s, %s) ON CONFLICT DO NOTHING", (worker, key)).rowcount
    if first:
        os.kill(os.getpid(), signal.SIGKILL)
