"""Record the effects of both consumers of the demo with their times, and the workers that died.

It runs in Lambda with the consumer. The entries go into a separate table, so that the catalogue's code does not change.
"""

from __future__ import annotations

import functools
import os
import signal
import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

import boto3
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_dynamodb.service_resource import Table

Effect = dict[str, str | int | None]


@contextmanager
def effect(side: str, key: str, kind: str) -> Iterator[Effect]:
    """Record one effect on the catalogue: its start, its end and its version.

    An effect that fails or names no version leaves no entry.
    """
    entry: Effect = {"side": side, "key": key, "kind": kind, "version": None, "pid": os.getpid(), "started": _now()}
    yield entry
    if entry["version"] is None:
        return
    entry["ended"] = _now()
    entry["at"] = f"{entry['ended']:013d}#{uuid.uuid4().hex}"
    _table().put_item(Item=entry)


def die_once(side: str, key: str) -> None:
    """Kill the first worker of each side that handles one of the chosen keys.

    The process sends SIGKILL to itself: no exception, no clean-up, no answer to Lambda. It has received the message,
    and the effect has not happened.
    """
    if key not in os.environ["KILL_KEYS"].split("|"):
        return
    try:
        _table().put_item(
            Item={"side": f"{side}-killed", "at": key, "started": _now()},
            ConditionExpression="attribute_not_exists(side)",
        )
    except ClientError as error:
        if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
            raise
        return
    os.kill(os.getpid(), signal.SIGKILL)


def _now() -> int:
    return time.time_ns() // 1_000_000


@functools.cache
def _table() -> Table:
    return boto3.resource("dynamodb").Table(os.environ["EFFECTS_TABLE"])
