"""The naive consumer behind a published lock. Its workers are killed while they hold it."""

from __future__ import annotations

import os
from typing import Any

import boto3
from examples.demo.functions import naive
from examples.published_locks import handle, with_flag, with_index

table = boto3.resource("dynamodb").Table(os.environ["LOCK_TABLE"])


def flag(event: dict[str, Any], _context: object) -> dict[str, Any]:
    return handle(
        event,
        lambda key, sequencer, record: with_flag(table, key, sequencer, lambda: naive.follow(record, "flag")),
    )


def index(event: dict[str, Any], context: Any) -> dict[str, Any]:
    left = context.get_remaining_time_in_millis
    return handle(
        event,
        lambda key, sequencer, record: with_index(
            table, key, sequencer, lambda: naive.follow(record, "index"), remaining_ms=left
        ),
    )
