"""The consumers with a published lock, with reports of their attempts."""

from __future__ import annotations

import os
from typing import Any

import boto3
from examples.pictures.functions import usual_consumer
from examples.pictures.functions.attempts import reported
from examples.published_locks import handle, with_flag, with_index

table = boto3.resource("dynamodb").Table(os.environ["LOCK_TABLE"])


def flag(event: dict[str, Any], _context: object) -> dict[str, Any]:
    return handle(event, lambda key, sequencer, record: with_flag(table, key, sequencer, lambda: _effect(key, record)))


def index(event: dict[str, Any], context: Any) -> dict[str, Any]:
    left = context.get_remaining_time_in_millis
    return handle(
        event,
        lambda key, sequencer, record: with_index(
            table, key, sequencer, lambda: _effect(key, record), remaining_ms=left
        ),
    )


def _effect(key: str, record: dict[str, Any]) -> None:
    with reported(key):
        usual_consumer.follow(record)
