"""The naive consumer behind a published lock. Its workers are killed while they hold it."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import boto3
from examples.demo.functions import naive
from examples.published_locks import behind_flag, behind_index

table = boto3.resource("dynamodb").Table(os.environ["LOCK_TABLE"])


def flag(event: dict[str, Any], _context: object) -> dict[str, Any]:
    return behind_flag(table, event, partial(naive.follow, side="flag"))


def index(event: dict[str, Any], context: Any) -> dict[str, Any]:
    left = context.get_remaining_time_in_millis
    return behind_index(table, event, partial(naive.follow, side="index"), remaining_ms=left)
