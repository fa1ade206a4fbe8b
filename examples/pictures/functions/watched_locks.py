"""The consumers with a published lock, with reports of their attempts."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

import boto3
from examples.pictures.functions import usual_consumer
from examples.pictures.functions.attempts import reported
from examples.pictures.functions.published_locks import LockedError, with_flag, with_index

if TYPE_CHECKING:
    from collections.abc import Callable

table = boto3.resource("dynamodb").Table(os.environ["LOCK_TABLE"])


def flag(event: dict[str, Any], _context: object) -> dict[str, Any]:
    key, sequencer, effect = _parts(event)
    return _answer(event, lambda: with_flag(table, key, sequencer, effect))


def index(event: dict[str, Any], context: Any) -> dict[str, Any]:
    key, sequencer, effect = _parts(event)
    remaining_ms = context.get_remaining_time_in_millis
    return _answer(event, lambda: with_index(table, key, sequencer, effect, remaining_ms=remaining_ms))


def _answer(event: dict[str, Any], attempt: Callable[[], bool]) -> dict[str, Any]:
    """Keep the message of a locked key in the queue. An exception would also slow the mapping down, for other keys."""
    try:
        attempt()
    except LockedError:
        return {"batchItemFailures": [{"itemIdentifier": event["Records"][0]["messageId"]}]}
    return {"batchItemFailures": []}


def _parts(event: dict[str, Any]) -> tuple[str, str, Callable[[], None]]:
    """Key and sequencer of the only event, and its effect."""
    [message] = event["Records"]  # its batches have one message
    [record] = json.loads(message["body"])["Records"]
    key = unquote_plus(record["s3"]["object"]["key"])

    def effect() -> None:
        with reported(key):
            usual_consumer.follow(record)

    return key, record["s3"]["object"]["sequencer"], effect
