"""The consumers with a published lock, with reports of their attempts."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import unquote_plus

import boto3
from examples.pictures.functions import usual_consumer
from examples.pictures.functions.attempts import reported
from examples.published_locks import behind_flag, behind_index

table = boto3.resource("dynamodb").Table(os.environ["LOCK_TABLE"])


def flag(event: dict[str, Any], _context: object) -> dict[str, Any]:
    return behind_flag(table, event, _follow)


def index(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return behind_index(table, event, _follow, remaining_ms=context.get_remaining_time_in_millis)


def _follow(record: dict[str, Any]) -> None:
    with reported(unquote_plus(record["s3"]["object"]["key"])):
        usual_consumer.follow(record)
