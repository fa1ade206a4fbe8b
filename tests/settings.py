"""Settings of one pipeline for tests and simulations. Change some of them with `dataclasses.replace`."""

import os
from collections.abc import Iterable
from typing import Any

from intake_ledger.protocol.row import Ordering
from intake_ledger.protocol.settings import ConsumerSettings
from intake_ledger.protocol.settings_audit import AuditSettings

THOROUGH = bool(os.environ.get("THOROUGH"))
"""Set by `make thorough` and `make prove`. Without it, randomised tests take a quarter of their examples."""
PAIR_SEEDS = range(10_000, 14_000 if THOROUGH else 11_000)
"""The worlds of `tests/pairs`. Each takes about 20 ms."""
_DAY = 86_400
CONSUMER = ConsumerSettings(
    pipeline="p",
    bucket="bucket",
    bucket_owner=None,
    table="table",
    queue_url="queue",
    ordering=Ordering.LATEST,
    deletes=True,
    retention_seconds=35 * _DAY,
    clock_skew_seconds=120,
    dlq_url="dlq",
    processor="-",
    processing_timeout_seconds=60,
    max_attempts=12,
    min_backoff_seconds=15,
    max_backoff_seconds=1_800,
    max_event_age_seconds=6 * 3_600,
)
AUDIT = AuditSettings(
    pipeline=CONSUMER.pipeline,
    bucket=CONSUMER.bucket,
    bucket_owner=CONSUMER.bucket_owner,
    table=CONSUMER.table,
    queue_url=CONSUMER.queue_url,
    ordering=CONSUMER.ordering,
    deletes=CONSUMER.deletes,
    retention_seconds=CONSUMER.retention_seconds,
    clock_skew_seconds=CONSUMER.clock_skew_seconds,
    settle_seconds=3_600,
    look_back_seconds=14 * _DAY,
    budget=10**6,
)


def examples(number: int) -> int:
    """Return how many of a test's random examples this run takes."""
    return number if THOROUGH else -(-number // 4)


def quick(values: Iterable[Any], number: int) -> list[Any]:
    """Return parameters of a test. `make test` takes the first ones, and `make thorough` the others."""
    import pytest  # noqa: PLC0415 - deployed apps use the settings without it

    return [
        value if place < number else pytest.param(value, marks=pytest.mark.thorough)
        for place, value in enumerate(values)
    ]
