"""A pipeline in this process, over a real PostgreSQL server: loads files under faults, and compares the table."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import psycopg
from examples.bulk_load import readings

from cdk_intake_ledger.testing import Fault, LocalPipeline

BAD_SHARE = 100
"""One file in this number has no reading."""
OVERWRITE_SHARE = 10
"""One file in this number is uploaded twice."""


@dataclass(frozen=True, slots=True)
class Round:
    """The result of a load."""

    transactions: int
    requests: int
    """To S3, SQS and the ledger's table."""
    cpu_seconds: float
    wrong: list[str]
    """Files whose row is not that of their newest version, and bad files that were not rejected alone."""

    @property
    def is_right(self) -> bool:
        return not self.wrong


def load(
    dsn: str,
    files: int,
    *,
    per_call: int,
    seed: int | None = None,
    faults: tuple[Fault | None, ...] = (),
    batch: Callable[[Any], Any] = readings.process_batch,
) -> Round:
    """Upload files, and load them.

    Args:
        dsn: of an empty database.
        files: the number of files.
        per_call: the most files in one call.
        seed: of random copies, kills, timeouts, cut connections and late workers. None: there are none.
        faults: of the first calls. Without faults and seed, no file is overwritten.
        batch: the processor of several files.

    """
    with psycopg.connect(dsn) as connection:
        connection.execute(readings.TABLE)
    pipeline = LocalPipeline(readings.process if per_call == 1 else batch, max_per_call=per_call)
    wanted, has_faults = {}, seed is not None or bool(faults)
    for number in range(files):
        for version in range(2 if has_faults and number % OVERWRITE_SHARE == 0 else 1):
            bad = number % BAD_SHARE == BAD_SHARE - 1
            content = {"sensor": f"s{number}"} if bad else {"sensor": f"s{number}", "celsius": number + version / 4}
            pipeline.put(f"{number:05}.json", json.dumps(content))
            wanted[f"{number:05}.json"] = None if bad else (f"s{number}", number + version / 4)
    pipeline.next(*faults)
    before = _transactions(dsn)
    started = time.process_time()
    with mock.patch.dict(os.environ, {"READINGS_DSN": dsn}):
        pipeline.run(seed=seed)
    seconds = time.process_time() - started
    # The first question was a transaction too.
    return Round(_transactions(dsn) - before - 1, len(pipeline.requests), seconds, _wrong(pipeline, dsn, wanted))


def _transactions(dsn: str) -> int:
    """The number of this transaction. Each one that writes has the next number."""
    with psycopg.connect(dsn) as connection:
        found = connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
    assert found is not None
    return int(found[0])


def _wrong(pipeline: LocalPipeline, dsn: str, wanted: dict[str, tuple[str, float] | None]) -> list[str]:
    with psycopg.connect(dsn) as connection:
        rows = {file: (sensor, celsius) for file, sensor, celsius in connection.execute(
            "SELECT file, sensor, celsius FROM readings"
        )}  # fmt: skip
    rejected = {str(message.attributes["key"]) for message in pipeline.dead_letters}
    return [file for file, row in wanted.items() if rows.get(file) != row or (file in rejected) != (row is None)]
